// Package v1alpha1 holds the picot.dev/v1alpha1 API: the kinds in which a
// cluster, or a directory of manifests, says what picot carries.
//
//   - [Network]: one L2 broadcast domain with its 24-bit ID.
//   - [NetworkEndpoint]: one pod's or VM's attachment to a network, on one node.
//   - [FDBEntry]: {network, MAC} -> the node and endpoint that own it.
//   - [Neighbor]: {network, IP} -> MAC.
//   - [SRv6Node]: a node's locator and the way to it.
//
// FDBEntry and Neighbor are the bindings. Their names are derived from their
// keys (see [FDBName] and [NeighborName]), so that two nodes that claim the
// same key meet in the same object and the API server decides. They keep the
// spec/status split as fields but have no status subresource: a create, a claim
// and a takeover are one atomic write each.
//
// What can be checked on one object is checked by the CRD (formats, ranges,
// immutability, the name); what needs two objects is checked by the readers.
//
// The types are plain data; values may be shared between goroutines as long as
// nobody changes them.
//
// +kubebuilder:object:generate=true
// +groupName=picot.dev
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=. output:object:dir=. output:crd:dir=../../../deploy/crd
