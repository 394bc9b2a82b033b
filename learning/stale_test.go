package learning

import (
	"testing"

	"picot.dev/picot/arpnd"
)

// What the watch tells from before our own last write changes nothing.
func TestLateNewsAfterOurOwnWrite(t *testing.T) {
	c, _ := NewCore("A", Options{})
	now := Now{Mono: second, Wall: simWall}
	ref := EndpointRef{EndpointKey{"default", "vm"}, "u"}
	c.SetNetwork(Network{Name: modelNet, Learning: true}, now)
	c.SetEndpoint(Endpoint{EndpointRef: ref, Network: modelNet}, now)
	c.SetPort(Port{ID: 7, Endpoint: ref.EndpointKey, Up: true}, now)
	c.Gate(true, now)
	k := FDB(modelNet, macN(1))
	other := Binding{Node: "B", Endpoint: EndpointRef{EndpointKey{"default", "x"}, "x"}, Version: Version{"o", "5"}}
	c.Set(k, other, now)
	c.Observe(Observation{Port: 7, MAC: macN(1), Class: arpnd.Strong, Time: now.Mono}, now)
	w := c.Take().Writes
	if len(w) != 1 || w[0].Op != OpTakeOver || w[0].From != other.Version {
		t.Fatalf("%+v", w)
	}
	c.Done(k, w[0].Seq, Result{Version: Version{"o", "9"}}, now)
	late := other
	late.LastObserved, late.Version.ResourceVersion = 77, "8"
	c.Set(k, late, now)
	if b, _ := c.Holds(k); b.Node != "A" {
		t.Errorf("after late news the core believes %+v", b)
	}
	c.Take()

	// Deleted by us: news of that life changes nothing, a new life counts.
	c.SetPort(Port{ID: 7, Endpoint: ref.EndpointKey}, now)
	w = c.Take().Writes
	if len(w) != 1 || w[0].Op != OpDelete || w[0].From != (Version{"o", "9"}) {
		t.Fatalf("%+v", w)
	}
	c.Done(k, w[0].Seq, Result{}, now)
	ours := Binding{Node: "A", Endpoint: ref, Version: Version{"o", "9"}}
	c.Set(k, ours, now)
	if _, ok := c.Holds(k); ok || len(c.Take().Writes) != 0 {
		t.Error("a binding we deleted is back")
	}
	other.Version = Version{"p", "12"}
	c.Set(k, other, now)
	c.Gone(k, "o", now)
	if b, ok := c.Holds(k); !ok || b.Node != "B" {
		t.Errorf("the news of the old life's end took the new one: %+v, %v", b, ok)
	}
	c.Gone(k, "p", now)
	if _, ok := c.Holds(k); ok || len(c.entries) != 0 {
		t.Errorf("%d entries remembered for nothing", len(c.entries))
	}
}

// BenchmarkObserveRefresh is what the core pays for a claim that is true already.
func BenchmarkObserveRefresh(b *testing.B) {
	s := lab(b, Options{MaxMACs: 2000}, "A")
	a := s.nodes[0]
	for i := range 1000 {
		s.observe(a, "vm", macN(i), ipN(i), arpnd.Strong, 0)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 1) % 1000
		a.core.Observe(Observation{Port: a.ports["vm"], MAC: macN(i), Class: arpnd.Strong, Time: s.mono}, s.now(a))
	}
}
