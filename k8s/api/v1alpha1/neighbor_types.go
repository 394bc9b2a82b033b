package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Neighbor binds an IP address of a network to a MAC: what ARP and NDP are
// answered from. Its name is [NeighborName] of its key, and its label
// [NetworkLabel] equals spec.network. A Neighbor without status binds nothing
// yet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=neighbors,scope=Cluster,shortName=neigh,categories=picot
// +kubebuilder:selectablefield:JSONPath=`.status.managingNode`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.spec.ip`
// +kubebuilder:printcolumn:name="MAC",type=string,JSONPath=`.status.mac`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.managingNode`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.endpoint.namespace`,priority=1
// +kubebuilder:printcolumn:name="Router",type=boolean,JSONPath=`.status.router`,priority=1
// +kubebuilder:printcolumn:name="Observed",type=date,JSONPath=`.status.lastObserved`,priority=1
// +kubebuilder:printcolumn:name="Moves",type=integer,JSONPath=`.status.moves`,priority=1
// +kubebuilder:printcolumn:name="Frozen",type=string,JSONPath=`.status.frozenUntil`,priority=1
// +kubebuilder:printcolumn:name="Refused",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.network + '.' + self.spec.ip || (self.spec.ip.contains(':') && self.metadata.name.size() == self.spec.network.size() + 40 && self.metadata.name.startsWith(self.spec.network + '.') && self.metadata.name.substring(self.spec.network.size() + 1).matches('^([0-9a-f]{4}-){7}[0-9a-f]{4}$') && ip(self.metadata.name.substring(self.spec.network.size() + 1).replace('-', ':')) == ip(self.spec.ip))",message="the name must be <network>.<ip>, IPv6 as 8 groups of 4 hex digits joined by dashes"
// +kubebuilder:validation:XValidation:rule="oldSelf.spec.source != 'static' || !has(oldSelf.status) || !has(oldSelf.status.managingNode) || (has(self.status) && has(self.status.managingNode) && self.status.managingNode == oldSelf.status.managingNode) || (has(self.status) && has(self.status.endpoint) && has(self.status.endpoint.uid) && (!has(oldSelf.status.endpoint) || !has(oldSelf.status.endpoint.uid) || self.status.endpoint.uid != oldSelf.status.endpoint.uid))",message="a static binding keeps its managingNode, but for the claim of another endpoint"
type Neighbor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NeighborSpec `json:"spec"`
	// +optional
	Status *NeighborStatus `json:"status,omitempty"`
}

// NeighborSpec is the key of a Neighbor and how it came to be.
type NeighborSpec struct {
	// Network the address lives in.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="network is immutable: it is part of the key"
	// +required
	Network NetworkName `json:"network"`
	// IP is the address bound, in its canonical text form (RFC 5952).
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ip is immutable: it is part of the key"
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="want the canonical text form (RFC 5952)"
	// +required
	IP IPAddress `json:"ip"`
	// Source says how the Neighbor came to be.
	// +required
	Source Source `json:"source"`
}

// NeighborStatus is who has the address.
type NeighborStatus struct {
	// MAC the address is bound to.
	// +optional
	MAC MACAddress `json:"mac,omitempty"`
	// Endpoint behind which the address lives.
	// +optional
	Endpoint *EndpointReference `json:"endpoint,omitempty"`
	// ManagingNode is the node that owns the binding: traffic goes there, and
	// only it refreshes and sweeps the binding.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ManagingNode string `json:"managingNode,omitempty"`
	// Router is the R flag of the owner's Neighbor Advertisements; unset when
	// it is not known.
	// +optional
	Router *bool `json:"router,omitempty"`
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

// NeighborList is a list of neighbors.
//
// +kubebuilder:object:root=true
type NeighborList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Neighbor `json:"items"`
}
