package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkEndpoint is the attachment of one pod or VM to one network.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=networkendpoints,scope=Namespaced,shortName=nep,categories=picot
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="MAC",type=string,JSONPath=`.spec.mac`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Segment",type=integer,JSONPath=`.spec.segment`,priority=1
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.spec.interface`,priority=1
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.status.port`,priority=1
// +kubebuilder:printcolumn:name="Conflict",type=string,JSONPath=`.status.conditions[?(@.type=="Conflict")].status`,priority=1
type NetworkEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NetworkEndpointSpec `json:"spec"`
	// +optional
	Status NetworkEndpointStatus `json:"status,omitempty"`
}

// NetworkEndpointSpec is what is attached where.
//
// +kubebuilder:validation:XValidation:rule="has(self.mac) == has(oldSelf.mac) && (!has(self.mac) || self.mac == oldSelf.mac)",message="mac is immutable: make a new endpoint"
// +kubebuilder:validation:XValidation:rule="has(self.mac) || !has(self.addresses) || self.addresses.size() == 0",message="addresses need a mac to be bound to"
type NetworkEndpointSpec struct {
	// Network is the network attached to.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="network is immutable: make a new endpoint"
	// +required
	Network NetworkName `json:"network"`

	// NodeName is the node that has the device.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName is immutable: make a new endpoint"
	// +required
	NodeName string `json:"nodeName"`

	// MAC of the workload; it becomes a static FDBEntry. Unset: the port has
	// only what it learns.
	// +optional
	MAC MACAddress `json:"mac,omitempty"`

	// Addresses of the workload; each becomes a static Neighbor.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Addresses []IPAddress `json:"addresses,omitempty"`

	// Segment is the endpoint's policy identity.
	// +optional
	Segment Segment `json:"segment,omitempty"`

	// Interface is the host's end of the attachment: a veth, tap or SR-IOV
	// representor in the agent's network namespace.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/:\s]+$`
	// +optional
	Interface string `json:"interface,omitempty"`

	// PortSecurity of this endpoint. Unset: the network's.
	// +optional
	PortSecurity PortSecurity `json:"portSecurity,omitempty"`
}

// ConditionConflict is true on a NetworkEndpoint that does not hold all it
// claims: another static binding has its MAC or one of its addresses, or an
// address lies outside the network's prefixes.
const ConditionConflict = "Conflict"

// NetworkEndpointStatus is what the endpoint's node made of it.
type NetworkEndpointStatus struct {
	// Conditions: Ready, Conflict.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Port is the endpoint's port on its node, as `picot show ports` names it.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Port string `json:"port,omitempty"`
}

// NetworkEndpointList is a list of endpoints.
//
// +kubebuilder:object:root=true
type NetworkEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkEndpoint `json:"items"`
}
