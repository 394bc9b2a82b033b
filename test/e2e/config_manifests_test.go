package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/testnet"
)

// shown is the line of `picot show status` that has all the words.
func (s *site) shown(n *lab.Node, words ...string) error {
	out, err := n.Run(s.ctx, picot, "show", "status", "--run-dir", n.RunDir())
	if err != nil {
		return err
	}
	return holds(out, words)
}

// holds looks for one line with all the words.
func holds(text string, words []string) error {
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(line, `\"`, `"`) // slog's quoting
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("no line with all of %q in:\n%s", words, text)
}

// told wants a line with all the words in `picot show status` and in the log.
func (s *site) told(n *lab.Node, words ...string) {
	s.t.Helper()
	testnet.Eventually(s.t, patience, "picot show status", func() error { return s.shown(n, words...) })
	if err := holds(tailOf(n.Log(), 40), words); err != nil {
		s.t.Errorf("log: %v", err)
	}
}

func tailOf(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// mended wants that the words are gone from `picot show status`.
func (s *site) mended(n *lab.Node, words ...string) {
	s.t.Helper()
	testnet.Eventually(s.t, patience, "the problem is gone", func() error {
		if s.shown(n, words...) == nil {
			return fmt.Errorf("picot show status still says %q", words)
		}
		return nil
	})
}

// carries wants echoes over the local and the remote way, in both families, at once.
func (s *site) carries() {
	s.t.Helper()
	for _, to := range []*lab.Pod{s.a2, s.b1} {
		if err := pingBoth(s.ctx, s.a1, to, "-c3", "-i0.02", "-W5"); err != nil {
			s.t.Error(err)
		}
	}
}

func manifest(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: picot.dev/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", kind, name, spec)
}

// What is wrong in a manifest is said with file, line, field and mend, in the log
// and by `picot show status`; all else goes on; a mended file heals.
func TestBadManifestCostsOnlyItself(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	endpoint := func(name, rest string) string {
		return manifest("NetworkEndpoint", name, "{nodeName: node1, "+rest+"}")
	}
	for _, c := range []struct {
		name, text string
		words      []string // file:line, field, reason, mend
	}{
		{"overlapping network IDs", manifest("Network", "blue", `{id: 100, prefixes: [10.1.0.0/24]}`),
			[]string{"bad.yaml:4: Network blue: spec.id: ", "Network red", "give each network an id of its own"}},
		{"duplicate MAC", endpoint("x", `network: red, mac: "02:00:00:00:00:01", interface: v-x`),
			[]string{"bad.yaml:4: NetworkEndpoint default/x: spec.mac: ", "default/p1", "a MAC of its own"}},
		{"duplicate IPv4 address", endpoint("x", `network: red, mac: "02:00:00:00:00:99", interface: v-none, addresses: ["10.0.0.11"]`),
			[]string{"bad.yaml:4: NetworkEndpoint default/x: spec.addresses[0]: ", "default/p1"}},
		{"duplicate IPv6 address", endpoint("x", `network: red, mac: "02:00:00:00:00:99", interface: v-none, addresses: ["fd00:10::11"]`),
			[]string{"bad.yaml:4: NetworkEndpoint default/x: spec.addresses[0]: ", "default/p1"}},
		{"IPv4 address out of the prefixes", endpoint("x", `network: red, mac: "02:00:00:00:00:99", interface: v-none, addresses: ["10.9.0.11"]`),
			[]string{"bad.yaml:4: NetworkEndpoint default/x: spec.addresses[0]: ", "10.9.0.11", "add a prefix"}},
		{"IPv6 address out of the prefixes", endpoint("x", `network: red, mac: "02:00:00:00:00:99", interface: v-none, addresses: ["fd00:99::11"]`),
			[]string{"bad.yaml:4: NetworkEndpoint default/x: spec.addresses[0]: ", "fd00:99::11", "add a prefix"}},
		{"unknown network", endpoint("x", `network: green, mac: "02:00:00:00:00:99", interface: v-x`),
			[]string{"bad.yaml:4: NetworkEndpoint default/x: spec.network: ", "there is no Network green", "add the Network"}},
		{"device missing", endpoint("x", `network: red, mac: "02:00:00:00:00:99", interface: v-none`),
			[]string{"bad.yaml:1: NetworkEndpoint default/x: spec.interface: ", "no device v-none", "name another"}},
		{"device of another endpoint", endpoint("x", `network: red, mac: "02:00:00:00:00:99", interface: v-p1`),
			[]string{"bad.yaml:4: NetworkEndpoint default/x: spec.interface: ", "default/p1", "a device of its own"}},
		{"locator malformed", manifest("SRv6Node", "node9", `{locator: "2001:db8:0:9::1/64"}`),
			[]string{"bad.yaml:4: SRv6Node node9: spec.locator: ", "2001:db8:0:9::/64"}},
		{"two nodes with one locator", manifest("SRv6Node", "node9", `{locator: "2001:db8:0:1::/64"}`),
			[]string{"bad.yaml:4: SRv6Node node9: spec.locator: ", "SRv6Node node1", "a locator of its own"}},
		{"unknown field", manifest("Network", "blue", `{id: 7, prefxes: [10.1.0.0/24]}`),
			[]string{"bad.yaml:4: Network blue: spec.prefxes: ", "unknown field", "spelling"}},
		{"duplicate object", manifest("Network", "red", `{id: 8}`),
			[]string{".yaml:", "Network red", "there is one already at", "keep one of the two"}},
		{"no YAML", "spec: [", []string{"bad.yaml:1: ", "mend the YAML"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := *s
			s.t = t
			s.must(s.WriteManifest("bad", c.text))
			s.told(s.n1, c.words...)
			s.carries()
			s.must(s.RemoveManifest("bad"))
			s.mended(s.n1, c.words...)
		})
	}

	path := filepath.Join(s.Manifests(), "endpoint-p1.yaml")
	good, err := os.ReadFile(path)
	s.must(err)
	for name, bad := range map[string]string{
		"a bad value keeps the last good state": strings.Replace(string(good), `"02:00:00:00:00:01"`, `"02:00:00:00:00:0g"`, 1),
		"a bad file keeps the last good state":  "kind: [",
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			s.must(s.WriteManifest("endpoint-p1", bad))
			s.told(s.n1, "endpoint-p1.yaml:")
			s.carries()
			s.must(s.WriteManifest("endpoint-p1", string(good)))
			s.mended(s.n1, "endpoint-p1.yaml:")
		})
	}
	t.Run("a directory that is gone takes nothing with it", func(t *testing.T) {
		s := *s
		s.t = t
		away := s.Manifests() + "-away"
		s.must(os.Rename(s.Manifests(), away))
		s.told(s.n1, s.Manifests()+": ", "what was read before stays")
		s.carries()
		s.must(os.Rename(away, s.Manifests()))
		s.mended(s.n1, "what was read before stays")
	})
	s.reachAll()
	s.books()
}

// A workload device with somebody else's XDP program is left alone and named.
func TestForeignProgramOnWorkloadDevice(t *testing.T) {
	s := newSite(t)
	plantForeign(t, s, "theirs")
	s.must(s.WriteManifest("theirs", manifest("NetworkEndpoint", "x", `{nodeName: node1, network: red, mac: "02:00:00:00:00:99", interface: theirs}`)))
	s.told(s.n1, "theirs.yaml:1: NetworkEndpoint default/x: interface theirs: ", "foreign XDP program", "xdp off")
	if out := s.ip(s.n1.Netns(), "link show theirs"); !strings.Contains(out, "prog/xdp") {
		t.Errorf("its program is gone: %s", out)
	}
	if st := s.status(s.n1); st.Ready {
		t.Error("ready with a port that is not")
	}
	s.carries()
	s.must(s.RemoveManifest("theirs"))
	s.mended(s.n1, "foreign XDP program")
	s.at(s.n1, "ready again", func(st status.Status) error {
		if !st.Ready {
			return fmt.Errorf("%v", st.Waiting)
		}
		return nil
	})
	s.reachAll()
	s.books()
}
