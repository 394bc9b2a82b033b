package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FDBEntry binds a MAC of a network to the node and endpoint that own it. Its
// name is [FDBName] of its key, and its label [NetworkLabel] equals
// spec.network. An entry without status binds nothing yet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=fdbentries,scope=Cluster,shortName=fdb,categories=picot
// +kubebuilder:selectablefield:JSONPath=`.status.managingNode`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="MAC",type=string,JSONPath=`.spec.mac`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.managingNode`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.endpoint.namespace`,priority=1
// +kubebuilder:printcolumn:name="Segment",type=integer,JSONPath=`.status.segment`,priority=1
// +kubebuilder:printcolumn:name="Observed",type=date,JSONPath=`.status.lastObserved`,priority=1
// +kubebuilder:printcolumn:name="Moves",type=integer,JSONPath=`.status.moves`,priority=1
// +kubebuilder:printcolumn:name="Frozen",type=string,JSONPath=`.status.frozenUntil`,priority=1
// +kubebuilder:printcolumn:name="Refused",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.network + '.' + self.spec.mac.replace(':', '-')",message="the name must be <network>.<mac>, the MAC's colons as dashes"
// +kubebuilder:validation:XValidation:rule="oldSelf.spec.source != 'static' || !has(oldSelf.status) || !has(oldSelf.status.managingNode) || (has(self.status) && has(self.status.managingNode) && self.status.managingNode == oldSelf.status.managingNode) || (has(self.status) && has(self.status.endpoint) && has(self.status.endpoint.uid) && (!has(oldSelf.status.endpoint) || !has(oldSelf.status.endpoint.uid) || self.status.endpoint.uid != oldSelf.status.endpoint.uid))",message="a static binding keeps its managingNode, but for the claim of another endpoint"
type FDBEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec FDBEntrySpec `json:"spec"`
	// +optional
	Status *FDBEntryStatus `json:"status,omitempty"`
}

// FDBEntrySpec is the key of an entry and how it came to be.
type FDBEntrySpec struct {
	// Network the MAC lives in.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="network is immutable: it is part of the key"
	// +required
	Network NetworkName `json:"network"`
	// MAC is the address bound.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mac is immutable: it is part of the key"
	// +required
	MAC MACAddress `json:"mac"`
	// Source says how the entry came to be.
	// +required
	Source Source `json:"source"`
}

// FDBEntryStatus is who owns the MAC.
type FDBEntryStatus struct {
	// Endpoint behind which the MAC lives.
	// +optional
	Endpoint *EndpointReference `json:"endpoint,omitempty"`
	// ManagingNode is the node that owns the binding: traffic goes there, and
	// only it refreshes and sweeps the binding.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ManagingNode string `json:"managingNode,omitempty"`
	// Segment of the endpoint, for the segment rules of the senders' nodes.
	// +optional
	Segment Segment `json:"segment,omitempty"`
	// LastObserved is when the managing node last saw the binding in traffic.
	// Only learned bindings have it, and nothing but a human depends on it.
	// +optional
	LastObserved *metav1.MicroTime `json:"lastObserved,omitempty"`
	// Moves counts the changes of owner since MovesSince.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Moves int32 `json:"moves,omitempty"`
	// MovesSince is the start of the interval Moves counts in.
	// +optional
	MovesSince *metav1.MicroTime `json:"movesSince,omitempty"`
	// FrozenUntil is set while the binding is held where it is because it
	// moved too often (RFC 7432 section 15.1).
	// +optional
	FrozenUntil *metav1.MicroTime `json:"frozenUntil,omitempty"`
	// Conditions: Ready, which is there only while it is False: the binding is
	// wrong in itself and not carried, for the reason given. The managing node
	// writes it, and takes it away once the binding is right.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FDBEntryList is a list of entries.
//
// +kubebuilder:object:root=true
type FDBEntryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FDBEntry `json:"items"`
}
