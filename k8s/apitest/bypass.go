package apitest

import (
	"context"
	"encoding/json"
	"testing"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// Bypass takes every rule out of picot's CRDs; the fields and their types stay.
// The server takes that in a little later: try until an object that is wrong goes
// through.
func (s *Server) Bypass(t testing.TB) {
	t.Helper()
	r := s.raw(t)
	for _, kind := range []string{v1alpha1.ResourceNetworks, v1alpha1.ResourceNetworkEndpoints, v1alpha1.ResourceFDBEntries, v1alpha1.ResourceNeighbors, v1alpha1.ResourceSRv6Nodes} {
		path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + kind + "." + v1alpha1.Group
		raw, err := r.Get().AbsPath(path).DoRaw(context.Background())
		must(t, err)
		var crd map[string]any
		must(t, json.Unmarshal(raw, &crd))
		for _, v := range crd["spec"].(map[string]any)["versions"].([]any) {
			lenient(v.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"])
		}
		raw, err = json.Marshal(crd)
		must(t, err)
		must(t, r.Put().AbsPath(path).Body(raw).SetHeader("Content-Type", "application/json").Do(context.Background()).Error())
	}
}

// lenient removes every rule from a schema.
func lenient(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		for _, rule := range []string{"x-kubernetes-validations", "pattern", "maxLength", "minLength", "minimum", "maximum", "maxItems", "minItems", "enum", "format"} {
			if _, isField := s[rule].(map[string]any); !isField { // not a field of that name
				delete(s, rule)
			}
		}
		for _, v := range s {
			lenient(v)
		}
	case []any:
		for _, v := range s {
			lenient(v)
		}
	}
}
