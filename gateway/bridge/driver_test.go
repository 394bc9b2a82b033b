package bridge_test

import (
	"testing"

	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/test/lab/ovn"
)

// The switch prints every rendered flow exactly as it was rendered: read back they compare
// equal, and unchanged input costs no mutation.
func TestUnchangedInputIsNoMutation(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 3, Localnets: 1, NoPods: true})
	r.Script("flows", "rest")
	others := r.read().Foreign
	for _, gate := range []bool{false, true, false, true} {
		in := r.input(gate)
		if c := r.apply(in); c.Empty() || len(c.Held) != 0 || len(c.Missing) != 0 {
			t.Fatalf("gate %v: changes %+v", gate, c)
		}
		s := r.read()
		same(t, "own flows", s.Own, flows.Render(in))
		same(t, "others' flows", s.Foreign, others)
		for n, bit := range flows.NoFlood(in) {
			if s.Ports[n].NoFlood != bit {
				t.Errorf("gate %v: port %d NO_FLOOD is %v, want %v", gate, n, s.Ports[n].NoFlood, bit)
			}
		}
		if c := r.apply(in); !c.Empty() {
			t.Errorf("gate %v, again: %+v", gate, c)
		}
	}
	if _, err := r.driver.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := r.read()
	same(t, "own flows after clean", s.Own, nil)
	same(t, "others' flows after clean", s.Foreign, others)
}
