package manifests

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"picot.dev/picot/internal/desired"
)

// FuzzDecode holds that any text is read without a panic, to the same result
// each time, that every error stands on a line of the text, and that what is
// taken stands up to the rules between objects.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(checkDecode)
}

// TestMutatedManifests does the same for mutations of the seeds, as a part of
// every run.
func TestMutatedManifests(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	all := seeds()
	bits := []string{"\n", "---\n", ": ", "- ", "{", "}", "[", "]", "\"", "*x", "&x ", "\t", "\r", "#", "\x00", "!!int ", "|", "null", "  ", "\xff"}
	for range 4000 {
		text := []byte(all[r.IntN(len(all))])
		for range 1 + r.IntN(4) {
			at := r.IntN(len(text) + 1)
			switch r.IntN(4) {
			case 0:
				text = append(text[:at:at], append([]byte(bits[r.IntN(len(bits))]), text[at:]...)...)
			case 1:
				end := min(len(text), at+r.IntN(12))
				text = append(text[:at:at], text[end:]...)
			case 2:
				other := all[r.IntN(len(all))]
				text = append(text[:at:at], other[r.IntN(len(other)+1):]...)
			default:
				if at < len(text) {
					text[at] = byte(r.IntN(256))
				}
			}
		}
		checkDecode(t, text)
	}
}

func seeds() []string {
	return []string{
		lab, "", "---", "--- x", "a: [", "a: &x [*x]\n", "a: &a {b: *a}", "- 1", "kind: List\napiVersion: v1\nitems: [1, {}, null]",
		`{"apiVersion":"picot.dev/v1alpha1","kind":"FDBEntry","metadata":{"name":"red.02-00-00-00-00-01"},"spec":{"network":"red","mac":"02:00:00:00:00:01","source":"static"},"status":{"managingNode":"n"}}`,
		"apiVersion: picot.dev/v1alpha1\nkind: Neighbor\nmetadata: {name: red.10.0.0.1}\nspec: {network: red, ip: 10.0.0.1, source: learned}\nstatus: {mac: 02:00:00:00:00:01, managingNode: n, lastObserved: '2026-01-01T00:00:00.000001Z'}\n",
		"a: 1\n...\nb: 2", "%YAML 1.1\n---\na: 1", "? [a]\n: b", "<<: [{a: 1}]", "!!binary x: y", "\xef\xbb\xbf{}", "{}{}", "a: !!float 1e999",
	}
}

func checkDecode(t *testing.T, text []byte) {
	c := decode("f.yaml", bytes.Clone(text))
	lines := bytes.Count(text, []byte("\n")) + 1
	for _, e := range c.errors {
		if e.Line < 1 || e.Line > lines {
			t.Fatalf("line %d of %d: %v", e.Line, lines, e)
		}
		if e.Reason == "" || e.Is == nil {
			t.Fatalf("an error that says nothing: %+v", e)
		}
	}
	again := decode("f.yaml", bytes.Clone(text))
	if !reflect.DeepEqual(c.errors, again.errors) || len(c.objects) != len(again.objects) {
		t.Fatal("two readings of one text")
	}
	objects := map[desired.Ref]*object{}
	for i := range c.objects {
		o := &c.objects[i]
		if objects[o.ref] != nil {
			t.Fatalf("%v is there twice", o.ref)
		}
		objects[o.ref] = o
		o.line("spec.prefixes[0]")
	}
	_, problems := resolve(objects, desired.NewState())
	for _, p := range problems {
		if objects[p.Object] == nil {
			t.Fatalf("a problem with an object that is not there: %v", p.Error())
		}
	}
}
