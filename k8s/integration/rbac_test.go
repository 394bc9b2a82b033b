package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
)

// TestGrantedVerbsAreUsed runs two nodes and an election under an audit log: the
// verbs that deploy/rbac grants to the agents are the verbs they use, no more.
func TestGrantedVerbsAreUsed(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600))
	r := &rig{s: server(t, "--audit-policy-file="+policy, "--audit-log-path="+log)}
	r.c = r.s.Client(t)
	// The Lease is in deploy/rbac; an agent makes it only where somebody
	// deleted it. The policy has to be told apart from that.
	var leaders atomic.Int32
	var names sync.Map
	candidate := stand(t, r.s, "node-a", &leaders, &names)
	own := startProcess(t, r.s.AgentConfig(t, "node-a"), "node-a", "1", true, nil)
	// What a node left behind that is gone, for the elected one to clear up.
	f := &fleet{t: t, s: r.s, c: r.c}
	must(t, create(r.c, &v1alpha1.SRv6Node{TypeMeta: typeMeta("SRv6Node"), ObjectMeta: metav1.ObjectMeta{Name: "gone"},
		Spec: v1alpha1.SRv6NodeSpec{Locator: "2001:db8:dead::/64"}}))
	must(t, leases(t, r.s).Post().Namespace("picot-nodes").Resource("leases").
		Body(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}).Do(ctx()).Error())
	left := f.settle("gone", r.network(t, "10.9.0.0/16"))
	r.a, r.b = startNode(t, r.s, "node-a", config{}), startNode(t, r.s, "node-b", config{})
	t.Run("life", r.life)
	t.Run("claim", r.claim)
	t.Run("collision", r.collisionMAC)
	apitest.Eventually(t, "a judged network", func() error {
		var list v1alpha1.NetworkList
		must(t, r.c.List(ctx(), resource(&v1alpha1.Network{}), listOptions(), &list))
		for _, n := range list.Items {
			if len(n.Status.Conditions) > 0 {
				return nil
			}
		}
		return errNotYet
	})
	for range 2 { // an equal Event is counted, by a patch
		r.a.events.Endpoint(desired.EndpointRef{EndpointKey: desired.EndpointKey{Namespace: "default", Name: "x"}}, false, "Moved", "from node-b")
	}
	apitest.Eventually(t, "a counted Event", func() error {
		list := eventsOf(t, r.s, desired.Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: "default", Name: "x"})
		if len(list) != 1 || list[0].Count != 2 {
			return fmt.Errorf("events %+v", list)
		}
		return nil
	})
	f.untilHas(left, "h")
	own.end()
	candidate.end()
	r.a.kill()
	r.b.kill()
	r.s.Stop(t)

	used := auditedVerbs(t, log)
	granted := grantedVerbs(t)
	for _, v := range granted {
		if !slices.Contains(used, v) && !slices.Contains(rarelyUsed(), v) {
			t.Errorf("granted and never used: %s", v)
		}
	}
	for _, v := range used {
		if !slices.Contains(granted, v) {
			t.Errorf("used and not granted: %s", v)
		}
	}
	t.Logf("used: %s", strings.Join(used, ", "))
}

// rarelyUsed are verbs that this run has no need of, each with its reason: a
// list is the reflectors' way when a streamed list is refused, and a binding is
// asked for after a conflict that the cache does not explain.
func rarelyUsed() []string {
	list := []string{"get fdbentries", "get neighbors"}
	for _, r := range []string{"networks", "srv6nodes", "networkendpoints", "fdbentries", "neighbors", "nodes", "leases"} {
		list = append(list, "list "+r)
	}
	return list
}

// auditedVerbs returns "verb resource" of what the agents were let do.
func auditedVerbs(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	set := map[string]bool{}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		must(t, json.Unmarshal(sc.Bytes(), &e))
		if e.User.Username != "system:serviceaccount:picot-system:picot-agent" {
			continue
		}
		if e.ResponseStatus.Code == 403 {
			t.Errorf("forbidden: %s %s/%s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource)
		}
		set[verbOn(e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource)] = true
	}
	must(t, sc.Err())
	return sorted(set)
}

func verbOn(verb, resource, sub string) string {
	if sub != "" {
		resource += "/" + sub
	}
	return verb + " " + resource
}

func sorted(set map[string]bool) []string {
	var list []string
	for k := range set {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// grantedVerbs returns "verb resource" of every role in deploy/rbac/agent.yaml.
func grantedVerbs(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(apitest.Root(), "deploy", "rbac", "agent.yaml"))
	must(t, err)
	set := map[string]bool{}
	for _, doc := range strings.Split(string(text), "\n---") {
		var role struct {
			Rules []struct{ Resources, Verbs []string }
		}
		must(t, sigsyaml.Unmarshal([]byte(doc), &role))
		for _, rule := range role.Rules {
			for _, r := range rule.Resources {
				for _, v := range rule.Verbs {
					set[v+" "+r] = true
				}
			}
		}
	}
	return sorted(set)
}
