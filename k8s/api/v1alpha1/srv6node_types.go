package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SRv6Node is one node's place in the underlay. Its name is the Node's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=srv6nodes,scope=Cluster,shortName=srn,categories=picot
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Locator",type=string,JSONPath=`.spec.locator`
// +kubebuilder:printcolumn:name="Next Hop",type=string,JSONPath=`.spec.nextHop`
// +kubebuilder:printcolumn:name="Alive",type=string,JSONPath=`.status.conditions[?(@.type=="Alive")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Via",type=string,JSONPath=`.spec.via`,priority=1
// +kubebuilder:printcolumn:name="MTU",type=integer,JSONPath=`.status.underlayMTU`,priority=1
type SRv6Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec SRv6NodeSpec `json:"spec"`
	// +optional
	Status SRv6NodeStatus `json:"status,omitempty"`
}

// SRv6NodeSpec is how the node is reached.
type SRv6NodeSpec struct {
	// Locator is the node's SRv6 prefix, 32 to 64 bits long. It is picot's
	// alone and overlaps no other node's.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked() && cidr(self).ip().family() == 6 && cidr(self).prefixLength() >= 32 && cidr(self).prefixLength() <= 64",message="want an IPv6 prefix of 32 to 64 bits, host bits zero"
	// +required
	Locator string `json:"locator"`

	// NextHop is the underlay address through which the other nodes reach
	// this one. Set: each agent installs the route to the locator itself.
	// Unset: a routing daemon or static routes do.
	// +optional
	NextHop IPAddress `json:"nextHop,omitempty"`

	// Via are the SIDs a packet passes, in this order, on its way to the node
	// (RFC 8986 section 5.1, H.Encaps.L2).
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	Via []IPv6Address `json:"via,omitempty"`
}

// ConditionAlive is false on an SRv6Node whose agent renews no Lease.
const ConditionAlive = "Alive"

// SRv6NodeStatus is what was found out about the node.
type SRv6NodeStatus struct {
	// Conditions: Alive, written by the elected agent.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// UnderlayMTU is the smallest MTU of the node's uplinks in bytes.
	// +kubebuilder:validation:Minimum=0
	// +optional
	UnderlayMTU int32 `json:"underlayMTU,omitempty"`
}

// SRv6NodeList is a list of nodes.
//
// +kubebuilder:object:root=true
type SRv6NodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SRv6Node `json:"items"`
}
