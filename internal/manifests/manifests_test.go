package manifests

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"picot.dev/picot/internal/desired"
)

const lab = `# the example of the operator's guide
apiVersion: picot.dev/v1alpha1
kind: Network
metadata: {name: red}
spec: {id: 100, prefixes: [10.0.0.0/24, "fd00:10::/64"], mtu: 1446}
---
apiVersion: picot.dev/v1alpha1
kind: NetworkEndpoint
metadata: {name: pod-a, namespace: default}
spec: {network: red, nodeName: node1, mac: "02:00:00:00:00:0a", addresses: [10.0.0.10, "fd00:10::a"], segment: 7, interface: veth-a}
---
apiVersion: picot.dev/v1alpha1
kind: SRv6Node
metadata: {name: node1}
spec: {locator: "2001:db8:0:1::/64"}
`

// write puts files, named name and text in turn, into dir.
func write(t *testing.T, dir string, files ...string) {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// wantErrors checks that errs are, in order, at these "file:line" with a text
// that holds what follows the space.
func wantErrors(t *testing.T, dir string, errs []Error, want ...string) {
	t.Helper()
	ok := len(errs) == len(want)
	for i := 0; ok && i < len(errs); i++ {
		place, text, _ := strings.Cut(want[i], " ")
		ok = errs[i].Position.String() == filepath.Join(dir, place) && strings.Contains(errs[i].Error(), text)
	}
	if ok {
		return
	}
	var got []string
	for _, e := range errs {
		got = append(got, strings.TrimPrefix(e.Error(), dir+"/"))
	}
	t.Errorf("errors:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
}

func TestLoadTheExample(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "lab.yaml", lab)
	s, errs := Load(dir)
	wantErrors(t, dir, errs)
	n := s.Networks["red"]
	if n.ID != 100 || n.MTU != 1446 || !n.LinkLocal || len(n.Prefixes) != 2 || !n.Learning.Enabled || n.PortSecurity != desired.SecurityOff {
		t.Errorf("network %+v", n)
	}
	e := s.Endpoints[desired.EndpointKey{Namespace: "default", Name: "pod-a"}]
	if e.Node != "node1" || e.MAC.String() != "02:00:00:00:00:0a" || len(e.Addresses) != 2 || e.Segment != 7 || e.Interface != "veth-a" {
		t.Errorf("endpoint %+v", e)
	}
	if s.Nodes["node1"].Locator != netip.MustParsePrefix("2001:db8:0:1::/64") {
		t.Errorf("node %+v", s.Nodes["node1"])
	}
	if len(s.FDB) != 1 || len(s.Neighbors) != 3 {
		t.Errorf("%d FDB entries and %d neighbors, want 1 and 2 + link-local", len(s.FDB), len(s.Neighbors))
	}
	if at := s.At(desired.Ref{Kind: "NetworkEndpoint", Namespace: "default", Name: "pod-a"}); at != filepath.Join(dir, "lab.yaml")+":7" {
		t.Errorf("pod-a is at %s", at)
	}
}

// TestAsKubectlTakesThem reads the forms kubectl reads.
func TestAsKubectlTakesThem(t *testing.T) {
	const net = "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: %s}\nspec: {id: %d}\n"
	item := func(name string, id int) string { return fmt.Sprintf(net, name, id) }
	for _, c := range []struct {
		name, file, text string
		want             int
	}{
		{"several documents", "a.yaml", item("a", 1) + "---\n" + item("b", 2), 2},
		{"leading and empty documents", "a.yaml", "---\n# nothing\n---\n\n--- # a comment\n" + item("a", 1) + "---\n", 1},
		{"CRLF and BOM", "a.yaml", "\xef\xbb\xbf" + strings.ReplaceAll(item("a", 1)+"---\n"+item("b", 2), "\n", "\r\n"), 2},
		{"yml", "a.yml", item("a", 1), 1},
		{"JSON with tabs", "a.json", "{\n\t\"apiVersion\": \"picot.dev/v1alpha1\",\n\t\"kind\": \"Network\", \"metadata\": {\"name\": \"a\"},\n\t\"spec\": {\"id\": 1}\n}", 1},
		{"a stream of JSON", "a.json", `{"apiVersion":"picot.dev/v1alpha1","kind":"Network","metadata":{"name":"a"},"spec":{"id":1}}` + "\n" +
			`{"apiVersion":"picot.dev/v1alpha1","kind":"Network","metadata":{"name":"b"},"spec":{"id":2}}`, 2},
		{"flow style", "a.yaml", "{apiVersion: picot.dev/v1alpha1, kind: Network, metadata: {name: a}, spec: {id: 1}}", 1},
		{"List", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: picot.dev/v1alpha1\n  kind: Network\n  metadata: {name: a}\n  spec: {id: 1}\n- apiVersion: picot.dev/v1alpha1\n  kind: Network\n  metadata: {name: b}\n  spec: {id: 2}\n", 2},
		{"NetworkList", "a.yaml", "apiVersion: picot.dev/v1alpha1\nkind: NetworkList\nmetadata: {resourceVersion: '5'}\nitems:\n- {apiVersion: picot.dev/v1alpha1, kind: Network, metadata: {name: a}, spec: {id: 1}}\n", 1},
		{"anchors and merge keys", "a.yaml", "apiVersion: &v picot.dev/v1alpha1\nkind: Network\nmetadata: &m {name: a}\nspec: {<<: {id: 1}}\n", 1},
		{"what the server adds", "a.yaml", item("a", 1) + "status:\n  conditions:\n  - {type: Ready, status: \"True\", reason: R, message: m, lastTransitionTime: \"2026-01-01T00:00:00Z\"}\n", 1},
		{"other extension", "a.txt", item("a", 1), 0},
		{"hidden", ".a.yaml", item("a", 1), 0},
		{"editor's backup", "a.yaml~", item("a", 1), 0},
		{"empty", "a.yaml", "", 0},
		{"comments", "a.yaml", "# nothing here\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.file, c.text)
			s, errs := Load(dir)
			wantErrors(t, dir, errs)
			if len(s.Networks) != c.want {
				t.Errorf("%d networks, want %d", len(s.Networks), c.want)
			}
		})
	}
	t.Run("namespace", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "a.yaml", item("a", 1)+"---\napiVersion: picot.dev/v1alpha1\nkind: NetworkEndpoint\nmetadata: {name: x}\nspec: {network: a, nodeName: n1}\n")
		s, errs := Load(dir)
		wantErrors(t, dir, errs)
		if _, ok := s.Endpoints[desired.EndpointKey{Namespace: "default", Name: "x"}]; !ok {
			t.Errorf("endpoints %v", s.Endpoints)
		}
	})
	t.Run("subdirectories and devices", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/zero", filepath.Join(dir, "zero.yaml")); err != nil {
			t.Fatal(err)
		}
		_, errs := Load(dir)
		wantErrors(t, dir, errs)
	})
}

// TestErrorsSayWhere holds, for each fault, its line, its field and the mend,
// and that everything else of the file is taken.
func TestErrorsSayWhere(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"syntax", "a: [\n", []string{"bad.yaml:2 mend the YAML"}},
		{"syntax further down", "apiVersion: picot.dev/v1alpha1\nkind: Network\n metadata: {}\n", []string{"bad.yaml:3 mapping values"}},
		{"tab", "spec:\n\tid: 1\n", []string{"bad.yaml:2 cannot start any token"}},
		{"separator", "--- x\n", []string{"bad.yaml:1 comment after ---"}},
		{"key twice", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec:\n  id: 5\n  id: 6\n", []string{`bad.yaml:6 key "id" already set`}},
		{"dots", "a: 1\n...\nb: 2\n", []string{"bad.yaml:1 separate the documents"}},
		{"scalar", "hello\n", []string{"bad.yaml:1 not an object"}},
		{"sequence", "- a\n- b\n", []string{"bad.yaml:1 not an object"}},
		{"unknown field", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec:\n  id: 5\n  prefix:\n  - 10.0.0.0/24\n", []string{"bad.yaml:6 Network x: spec.prefix: unknown field"}},
		{"unknown field at the top", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec: {id: 5}\nstats: {}\n", []string{"bad.yaml:5 Network x: stats: unknown field"}},
		{"wrong case", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec:\n  id: 5\n  MTU: 1500\n", []string{"bad.yaml:6 Network x: spec.MTU: unknown field"}},
		{"wrong type", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec:\n  mtu: 1500\n  id: \"5\"\n", []string{"bad.yaml:6 Network x: spec.id: a string does not fit here: give a whole number"}},
		{"bare off", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec:\n  id: 5\n  portSecurity: off\n", []string{"bad.yaml:6 spec.portSecurity: a bool does not fit here: put the value in quotes"}},
		{"api version", "kind: Network\napiVersion: picot.dev/v1\nmetadata: {name: x}\n", []string{"bad.yaml:2 Network x: apiVersion: \"picot.dev/v1\" is not read here"}},
		{"somebody else's", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", []string{"bad.yaml:1 ConfigMap x: apiVersion"}},
		{"kind", "apiVersion: picot.dev/v1alpha1\nkind: Netwrok\nmetadata: {name: x}\n", []string{"bad.yaml:2 \"Netwrok\" is not known"}},
		{"no name", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {}\nspec: {id: 5}\n", []string{"bad.yaml:3 give metadata.name"}},
		{"no spec", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\n", []string{"bad.yaml:1 Network x: spec.id: 0 is not within"}},
		{"host bits", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec:\n  id: 5\n  prefixes:\n  - fd00::/64\n  - 10.0.0.5/24\n", []string{"bad.yaml:8 Network x: spec.prefixes[1]: 10.0.0.5/24 has host bits set: write 10.0.0.0/24"}},
		{"locator", "apiVersion: picot.dev/v1alpha1\nkind: SRv6Node\nmetadata: {name: x}\nspec:\n  locator: 2001:db8::/65\n", []string{"bad.yaml:5 SRv6Node x: spec.locator: a locator has 32 to 64 bits"}},
		{"in a List", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: picot.dev/v1alpha1\n  kind: SRv6Node\n  metadata: {name: x}\n  spec:\n    locator: nonsense\n", []string{"bad.yaml:8 SRv6Node x: spec.locator: \"nonsense\" is not a prefix"}},
		{"List in a List", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items: []\n", []string{"bad.yaml:4 List : apiVersion"}},
		{"without owner", "apiVersion: picot.dev/v1alpha1\nkind: FDBEntry\nmetadata: {name: red.02-00-00-00-00-01}\nspec: {network: red, mac: \"02:00:00:00:00:01\", source: static}\n", []string{"bad.yaml:1 status.managingNode: the object binds nothing"}},
		{"two at once", "apiVersion: picot.dev/v1alpha1\nkind: NetworkEndpoint\nmetadata: {name: x}\nspec:\n  network: red\n  nodeName: n1\n  mac: 01:00:00:00:00:01\n  interface: abcdefghijklmnop\n", []string{"bad.yaml:7 group address", "bad.yaml:8 too long"}},

		{"duplicate ID", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec:\n  id: 100\n", []string{"good.yaml:5 Network red: spec.id: id 100 is that of Network x", "good.yaml:10 spec.network: Network red was left out"}},
		{"duplicate MAC", "apiVersion: picot.dev/v1alpha1\nkind: NetworkEndpoint\nmetadata: {name: zz}\nspec:\n  network: red\n  nodeName: n1\n  mac: 02:00:00:00:00:0a\n", []string{"good.yaml:10 NetworkEndpoint default/pod-a: spec.mac: 02:00:00:00:00:0a in network red is the MAC of NetworkEndpoint default/zz"}},
		{"duplicate IP", "apiVersion: picot.dev/v1alpha1\nkind: NetworkEndpoint\nmetadata: {name: zz}\nspec:\n  network: red\n  nodeName: n1\n  mac: 02:00:00:00:00:0b\n  addresses:\n  - fd00:10::a\n", []string{"good.yaml:10 NetworkEndpoint default/pod-a: spec.addresses[1]: fd00:10::a in network red is an address of NetworkEndpoint default/zz"}},
		{"unknown network", "apiVersion: picot.dev/v1alpha1\nkind: NetworkEndpoint\nmetadata: {name: zz}\nspec:\n  nodeName: n1\n  network: green\n", []string{"bad.yaml:6 spec.network: there is no Network green"}},
		{"same locator", "apiVersion: picot.dev/v1alpha1\nkind: SRv6Node\nmetadata: {name: zz}\nspec:\n  locator: 2001:db8:0:1::/64\n", []string{"good.yaml:15 SRv6Node node1: spec.locator: 2001:db8:0:1::/64 overlaps"}},
		{"same object", "apiVersion: picot.dev/v1alpha1\nkind: SRv6Node\nmetadata: {name: node1}\nspec: {locator: 2001:db8:0:9::/64}\n", []string{"good.yaml:14 SRv6Node node1: there is one already at "}},
		{"same object in one file", "apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec: {id: 5}\n---\napiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: x}\nspec: {id: 6}\n", []string{"bad.yaml:8 Network x: there is one already at "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			const other = "\n---\napiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: other}\nspec: {id: 7}\n"
			write(t, dir, "bad.yaml", c.text, "good.yaml", lab)
			if c.name != "separator" {
				write(t, dir, "bad.yaml", c.text+other)
			}
			s, errs := Load(dir)
			wantErrors(t, dir, errs, c.want...)
			if _, ok := s.Networks["other"]; !ok && c.name != "separator" {
				t.Error("the good document of the bad file was not taken")
			}
			if len(s.Nodes) < 1 {
				t.Error("the good file was not taken")
			}
			for _, e := range errs {
				if e.Unwrap() == nil || e.Reason == "" {
					t.Errorf("no reason: %+v", e)
				}
			}
		})
	}
}

// again writes text to lab.yaml and reads once more.
func again(t *testing.T, r *reader, text string) (State, []Error) {
	t.Helper()
	write(t, r.dir, "lab.yaml", text)
	return r.read()
}

func TestBadFileKeepsTheLastGoodState(t *testing.T) {
	for _, c := range []struct {
		name, text string
		errors     int
		want       func(s State) bool
	}{
		{"garbage", "\x00\x01 not yaml: [", 1, nil},
		{"half written", lab[:len(lab)-20] + "{", 1, nil},
		{"one object refused", strings.Replace(lab, "id: 100", "id: 0", 1), 1, nil},
		{"one object refused, another changed", strings.Replace(strings.Replace(lab, "id: 100", "id: 0", 1), "segment: 7", "segment: 8", 1), 1,
			func(s State) bool {
				return s.Networks["red"].ID == 100 && s.Endpoints[desired.EndpointKey{Namespace: "default", Name: "pod-a"}].Segment == 8
			}},
		{"unknown kind takes nothing away", strings.Replace(lab, "kind: SRv6Node", "kind: SRv6Nod", 1), 1, nil},
		{"wrong version of one", strings.Replace(lab, "v1alpha1\nkind: SRv6Node", "v1alpha2\nkind: SRv6Node", 1), 1, nil},
		{"emptied", "", 0, func(s State) bool { return len(s.Networks)+len(s.Endpoints)+len(s.Nodes) == 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReader(t.TempDir())
			good, errs := again(t, r, lab)
			wantErrors(t, r.dir, errs)
			bad, errs := again(t, r, c.text)
			if len(errs) != c.errors {
				t.Errorf("errors %v", errs)
			}
			if c.want == nil && !reflect.DeepEqual(bad.State, good.State) {
				t.Errorf("the state changed: %+v", desired.Diff(good.State, bad.State))
			}
			if c.want != nil && !c.want(bad) {
				t.Errorf("state %+v", bad.State)
			}
			mended, errs := again(t, r, lab)
			wantErrors(t, r.dir, errs)
			if !reflect.DeepEqual(mended.State, good.State) {
				t.Error("mended, and not as before")
			}
		})
	}
}

func TestDirectoryGoneKeepsEverything(t *testing.T) {
	r := newReader(t.TempDir())
	good, _ := again(t, r, lab)
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	s, errs := r.read()
	if !reflect.DeepEqual(s.State, good.State) || len(errs) == 0 || !errors.Is(errs[0], os.ErrNotExist) {
		t.Errorf("errors %v, state %+v", errs, s.State)
	}
}

func TestDeletedFileTakesItsObjects(t *testing.T) {
	r := newReader(t.TempDir())
	again(t, r, lab)
	if err := os.Remove(filepath.Join(r.dir, "lab.yaml")); err != nil {
		t.Fatal(err)
	}
	if s, errs := r.read(); len(s.Networks) != 0 || len(errs) != 0 {
		t.Errorf("networks %v, errors %v", s.Networks, errs)
	}
}

// TestHolderOfAnObjectStays adds a file that sorts first and has the same
// object: the one that was there stays.
func TestHolderOfAnObjectStays(t *testing.T) {
	r := newReader(t.TempDir())
	again(t, r, lab)
	write(t, r.dir, "a.yaml", strings.Replace(lab, "id: 100", "id: 101", 1))
	s, errs := r.read()
	wantErrors(t, r.dir, errs, "a.yaml:4 already at", "a.yaml:9 already at", "a.yaml:14 already at")
	if s.Networks["red"].ID != 100 {
		t.Errorf("id %d", s.Networks["red"].ID)
	}
	if err := os.Remove(filepath.Join(r.dir, "lab.yaml")); err != nil {
		t.Fatal(err)
	}
	if s, errs = r.read(); s.Networks["red"].ID != 101 || len(errs) != 0 {
		t.Errorf("id %d, errors %v", s.Networks["red"].ID, errs)
	}
}

func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", lab)
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	s, errs := Load(dir)
	wantErrors(t, dir, errs, "b.yaml no such file")
	if len(s.Networks) != 1 {
		t.Error("the readable file was not read")
	}
}
