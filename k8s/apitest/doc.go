// Package apitest gives tests a real kube-apiserver: test/lab/apiserver, built
// once into the user's cache, started for one test binary, with picot's CRDs,
// RBAC and admission policies in it. Only tests import it.
package apitest
