// Package integration holds the tests of k8s against a real kube-apiserver: the
// CRDs' rules, who may write what, the static path with two nodes, and outages.
// There is nothing in it but tests.
package integration
