package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and Version name the API; APIVersion is what an object's apiVersion says.
const (
	Group      = "picot.dev"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
)

// Names of the kinds, as an object's kind says them.
const (
	KindNetwork         = "Network"
	KindNetworkEndpoint = "NetworkEndpoint"
	KindFDBEntry        = "FDBEntry"
	KindNeighbor        = "Neighbor"
	KindSRv6Node        = "SRv6Node"
)

// Names of the resources, as an API path says them.
const (
	ResourceNetworks         = "networks"
	ResourceNetworkEndpoints = "networkendpoints"
	ResourceFDBEntries       = "fdbentries"
	ResourceNeighbors        = "neighbors"
	ResourceSRv6Nodes        = "srv6nodes"
)

// NetworkLabel is the label every binding carries. Its value is the network's
// name and must equal spec.network: nodes watch the bindings of the networks
// they host by this label.
const NetworkLabel = Group + "/network"

// EndpointFinalizer holds a NetworkEndpoint back until its node has removed the
// endpoint's bindings.
const EndpointFinalizer = Group + "/bindings"

// SchemeGroupVersion returns the group and version of this package's kinds.
func SchemeGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// AddToScheme registers this package's kinds with s.
func AddToScheme(s *runtime.Scheme) error {
	gv := SchemeGroupVersion()
	s.AddKnownTypes(gv,
		&Network{}, &NetworkList{},
		&NetworkEndpoint{}, &NetworkEndpointList{},
		&FDBEntry{}, &FDBEntryList{},
		&Neighbor{}, &NeighborList{},
		&SRv6Node{}, &SRv6NodeList{},
	)
	metav1.AddToGroupVersion(s, gv)
	return nil
}
