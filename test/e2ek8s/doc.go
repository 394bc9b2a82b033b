// Package e2ek8s tests whole clusters that follow an API server: real agents, a
// real kube-apiserver, real stacks in network namespaces. It needs root, and
// minutes to build the server the first time.
package e2ek8s
