// Package desired is the typed model of what a node is to carry, and the rules
// that no single object can check.
//
// Both sources of truth, a directory of manifests (internal/manifests) and the
// Kubernetes API (k8s/source), turn the objects of k8s/api/v1alpha1 into this
// model, so that whoever applies it treats them alike:
//
//	v1alpha1 object --Parse*--> one validated value
//	all values      --Resolve--> State, and the Problems of what was left out
//	two States      --Diff-----> Delta, which Merge makes latest-wins
//
// Parse functions trust nothing: they hold the rules of the CRD again, because
// a manifest has no API server before it and an object may have been stored
// before a rule was. Resolve holds the rules between objects: one holder per
// network ID, locator, MAC, address and interface. It is a pure function of its
// candidates in their order, earlier ones holding what later ones also claim,
// and what is left out never takes anything else with it.
//
// The package knows neither files, nor clients, nor the fastpath. Everything in
// it is plain data: values are immutable once handed out and may be shared
// between goroutines; a State or Delta belongs to one goroutine at a time.
package desired
