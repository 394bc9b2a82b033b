package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	sigsyaml "sigs.k8s.io/yaml"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// install puts deploy/crd and deploy/rbac into the server and waits until the
// kinds are served.
func (s *Server) install(t testing.TB) {
	t.Helper()
	for _, dir := range []string{"crd", "rbac"} {
		files, err := filepath.Glob(filepath.Join(Root(), "deploy", dir, "*.yaml"))
		must(t, err)
		slices.SortFunc(files, func(a, b string) int { // the namespace is in agent.yaml
			return strings.Compare(strings.Replace(a, "agent.yaml", "0", 1), strings.Replace(b, "agent.yaml", "0", 1))
		})
		for _, f := range files {
			if strings.HasSuffix(f, "kustomization.yaml") {
				continue
			}
			b, err := os.ReadFile(f)
			must(t, err)
			s.Apply(t, string(b))
		}
	}
	r := s.raw(t)
	Eventually(t, "the CRDs to be served", func() error {
		for _, name := range []string{v1alpha1.ResourceNetworks, v1alpha1.ResourceNetworkEndpoints, v1alpha1.ResourceFDBEntries, v1alpha1.ResourceNeighbors, v1alpha1.ResourceSRv6Nodes} {
			if _, err := r.Get().AbsPath("/apis/" + v1alpha1.APIVersion + "/" + name).DoRaw(context.Background()); err != nil {
				return err
			}
		}
		return nil
	})
}

// raw returns a client for any path.
func (s *Server) raw(t testing.TB) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	must(t, authv1.AddToScheme(scheme))
	c := s.Config()
	c.GroupVersion = &schema.GroupVersion{Version: "v1"}
	c.APIPath = "/api"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType = runtime.ContentTypeJSON
	r, err := rest.RESTClientFor(c)
	must(t, err)
	return r
}

// Apply creates every object of a YAML text. One that is there already is an
// error.
func (s *Server) Apply(t testing.TB, text string) {
	t.Helper()
	if err := s.TryApply(t, text); err != nil {
		t.Fatal(err)
	}
}

// Delete deletes the object at a path.
func (s *Server) Delete(t testing.TB, path string) {
	t.Helper()
	must(t, s.raw(t).Delete().AbsPath(path).Do(context.Background()).Error())
}

// Patch applies a JSON merge patch to the object at a path.
func (s *Server) Patch(t testing.TB, path, patch string) {
	t.Helper()
	must(t, s.raw(t).Patch(types.MergePatchType).AbsPath(path).Body([]byte(patch)).Do(context.Background()).Error())
}

// TryApply is Apply that returns the first refusal.
func (s *Server) TryApply(t testing.TB, text string) error {
	t.Helper()
	r := s.raw(t)
	for _, doc := range strings.Split("\n"+text, "\n---") {
		raw, err := sigsyaml.YAMLToJSON([]byte(doc))
		must(t, err)
		if string(raw) == "null" {
			continue
		}
		if err := create(r, raw); err != nil {
			return err
		}
	}
	return nil
}

func create(r *rest.RESTClient, raw []byte) error {
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &o); err != nil {
		return err
	}
	err := r.Post().AbsPath(pathOf(&o)).Body(raw).SetHeader("Content-Type", "application/json").Do(context.Background()).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
	}
	return err
}

// pathOf returns the collection of an object's kind.
func pathOf(o *metav1.PartialObjectMetadata) string {
	plural := strings.ToLower(o.Kind) + "s"
	if base, ok := strings.CutSuffix(plural, "ys"); ok { // FDBEntry, ValidatingAdmissionPolicy
		plural = base + "ies"
	}
	root := "/apis/" + o.APIVersion
	if !strings.Contains(o.APIVersion, "/") {
		root = "/api/" + o.APIVersion
	}
	namespaced := o.Kind == "ServiceAccount" || o.Kind == "ConfigMap" || o.Kind == "Pod" || o.Kind == "Lease" || o.Kind == "Role" || o.Kind == "RoleBinding" || o.Kind == v1alpha1.KindNetworkEndpoint
	if !namespaced {
		return root + "/" + plural
	}
	ns := o.Namespace
	if ns == "" {
		ns = metav1.NamespaceDefault
	}
	return root + "/namespaces/" + ns + "/" + plural
}

// AgentConfig returns the configuration of the agent of a node: a token of
// picot-agent's service account, bound to a pod on that node, as a kubelet
// would give it.
func (s *Server) AgentConfig(t testing.TB, node string) *rest.Config {
	t.Helper()
	return s.TokenConfig(t, "picot-agent", node)
}

// TokenConfig is AgentConfig for any service account of picot-system; an empty
// node means a token that is bound to none.
func (s *Server) TokenConfig(t testing.TB, account, node string) *rest.Config {
	t.Helper()
	r := s.raw(t)
	req := &authv1.TokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}}
	if node != "" {
		pod := account + "-" + node
		_ = s.TryApply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+node+"}\n")
		_ = s.TryApply(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: picot-system}\nspec: {serviceAccountName: %s, nodeName: %s, containers: [{name: c, image: none}]}\n", pod, account, node))
		req.Spec.BoundObjectRef = &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod}
	}
	body, err := json.Marshal(req)
	must(t, err)
	out, err := r.Post().AbsPath("/api/v1/namespaces/picot-system/serviceaccounts/"+account+"/token").
		Body(body).SetHeader("Content-Type", "application/json").DoRaw(context.Background())
	if err != nil {
		t.Fatalf("token of %s: %v", account, err)
	}
	var tok authv1.TokenRequest
	must(t, json.Unmarshal(out, &tok))
	c := rest.AnonymousClientConfig(s.admin)
	c.BearerToken = tok.Status.Token
	c.QPS = -1
	return c
}

// Eventually polls f until it is satisfied, and fails the test after a minute
// with what it waited for.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	EventuallyWithin(t, time.Minute, what, f)
}

// EventuallyWithin is Eventually with a limit of its own.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s: %v", limit, what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
