package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Network is one L2 broadcast domain.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=networks,scope=Cluster,shortName=pnet,categories=picot
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="ID",type=integer,JSONPath=`.spec.id`
// +kubebuilder:printcolumn:name="Prefixes",type=string,JSONPath=`.spec.prefixes`
// +kubebuilder:printcolumn:name="MTU",type=integer,JSONPath=`.spec.mtu`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Security",type=string,JSONPath=`.spec.portSecurity`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a network's name is a DNS label: at most 63 of a-z, 0-9 and -"
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NetworkSpec `json:"spec"`
	// +optional
	Status NetworkStatus `json:"status,omitempty"`
}

// NetworkSpec is what a network is to be.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mtu) || self.mtu >= 1280 || !has(self.prefixes) || !self.prefixes.exists(p, p.contains(':'))",message="a network with IPv6 prefixes needs an mtu of at least 1280 (RFC 8200 section 5)"
type NetworkSpec struct {
	// ID is the network's identity on the wire: 24 bits of every SID. No two
	// networks may share one; of two that do, the older keeps it.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="id is immutable: make a new network"
	// +required
	ID int32 `json:"id"`

	// Prefixes are the addresses that belong to the network. An address
	// outside of them gets no Neighbor: nobody answers for it.
	// +kubebuilder:validation:MaxItems=32
	// +listType=set
	// +optional
	Prefixes []Prefix `json:"prefixes,omitempty"`

	// MTU is the largest inner IP packet in bytes. Unset: the underlay's MTU
	// less the overhead of SRv6.
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// LinkLocal says that fe80::/10 belongs to the network, when it has an
	// IPv6 prefix at all.
	// +kubebuilder:default=true
	// +optional
	LinkLocal *bool `json:"linkLocal,omitempty"`

	// Gateway is the address under which picot itself speaks in the network.
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`

	// Learning says whether and how much is learned from traffic.
	// +optional
	Learning *Learning `json:"learning,omitempty"`

	// PortSecurity is the default of the network's endpoints.
	// +kubebuilder:default="off"
	// +optional
	PortSecurity PortSecurity `json:"portSecurity,omitempty"`

	// Isolation says which segments may send to which. Unset: all to all.
	// +optional
	Isolation *Isolation `json:"isolation,omitempty"`
}

// Gateway is the network's gateway: ARP and NDP for its addresses are answered
// with its MAC on every node.
type Gateway struct {
	// Addresses of the gateway, each within a prefix of the network or IPv6
	// link-local.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=set
	// +required
	Addresses []IPAddress `json:"addresses"`
	// MAC of the gateway.
	// +required
	MAC MACAddress `json:"mac"`
}

// Learning governs what the network learns from traffic.
type Learning struct {
	// Enabled lets ports of the network learn. Off: only static bindings.
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Limits per port; unset ones are the agent's.
	// +optional
	Limits *LearningLimits `json:"limits,omitempty"`
}

// LearningLimits bounds what one port may make the cluster remember.
type LearningLimits struct {
	// MACs is the most learned MACs behind one port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MACs int32 `json:"macs,omitempty"`
	// AddressesPerMAC is the most learned IP addresses of one MAC.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	AddressesPerMAC int32 `json:"addressesPerMAC,omitempty"`
	// ObservationsPerSecond is the most observations taken from one port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	ObservationsPerSecond int32 `json:"observationsPerSecond,omitempty"`
}

// IsolationDefault is what happens between two segments that no rule names.
//
// +kubebuilder:validation:Enum=allow;deny
type IsolationDefault string

const (
	// IsolationAllow lets every segment send to every other, less the rules.
	IsolationAllow IsolationDefault = "allow"
	// IsolationDeny lets no segment send to any, its own included, but by a rule.
	IsolationDeny IsolationDefault = "deny"
)

// Isolation says which segments may send to which. A rule is an exception to
// the default: with deny it allows, with allow it denies. Rules have a
// direction; a conversation needs both.
type Isolation struct {
	// Default for the pairs of segments that no rule names.
	// +required
	Default IsolationDefault `json:"default"`
	// Rules are the exceptions to the default.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	// +optional
	Rules []IsolationRule `json:"rules,omitempty"`
}

// IsolationRule names every pair of a sending and a receiving segment.
type IsolationRule struct {
	// From are the sending segments.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	// +required
	From []Segment `json:"from"`
	// To are the receiving segments.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	// +required
	To []Segment `json:"to"`
}

// Conditions of a Network.
const (
	// ConditionReady is true when the object is carried as its spec says.
	ConditionReady = "Ready"
	// ConditionDuplicateID is true on a Network whose ID an older one holds;
	// it is not carried.
	ConditionDuplicateID = "DuplicateID"
)

// NetworkStatus is what the elected agent found.
type NetworkStatus struct {
	// Conditions: Ready, DuplicateID.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkList is a list of networks.
//
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Network `json:"items"`
}
