package learning

import (
	"strconv"
	"testing"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/packet"
)

// elsewhere is a core whose static claims somebody else writes, with one endpoint
// that claims MAC 1 and address 1.
func elsewhere(t *testing.T) (*Core, Endpoint, Now) {
	t.Helper()
	c, err := NewCore("A", Options{ClaimsElsewhere: true})
	if err != nil {
		t.Fatal(err)
	}
	now := Now{Mono: second, Wall: 1e15}
	ep := Endpoint{EndpointRef: EndpointRef{EndpointKey: EndpointKey{"default", "vm"}, UID: "u"}, Network: modelNet, MAC: macN(1), Addresses: []packet.IP{ipN(1)}}
	c.SetNetwork(Network{Name: modelNet, Prefixes: modelPrefixes, Learning: true}, now)
	c.SetEndpoint(ep, now)
	c.SetPort(Port{ID: 1<<16 | 1, Endpoint: ep.EndpointKey, Up: true}, now)
	c.Gate(true, now)
	return c, ep, now
}

// TestClaimsElsewhereAreHeeded: what an endpoint claims is neither written nor
// learned, before and after it is stored, and an orphan is left alone.
func TestClaimsElsewhereAreHeeded(t *testing.T) {
	c, ep, now := elsewhere(t)
	o := Observation{IP: ipN(1), Time: now.Mono, Port: 1<<16 | 1, MAC: macN(1), Class: arpnd.Strong}
	c.Observe(o, now)
	static := Binding{Static: true, Node: "A", Endpoint: ep.EndpointRef, Version: Version{"x", "5"}}
	c.Set(FDB(modelNet, macN(1)), static, now)
	c.Observe(o, now)
	c.EndpointGone(ep.EndpointKey, now)
	if out := c.Take(); len(out.Writes) > 0 {
		t.Errorf("wrote %+v", out.Writes)
	}
	c.Gone(FDB(modelNet, macN(1)), "x", now)
	c.Tick(now)
	if out := c.Take(); len(out.Writes) > 0 {
		t.Errorf("wrote %+v", out.Writes)
	}
}

// TestDeletedByOthers: an own binding that somebody else deleted comes back if its
// station was seen within the expiry, and only if nobody else has it.
func TestDeletedByOthers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after int64 // silence before the delete
		other bool  // another node has it at once
		down  bool
		want  bool
	}{
		{"seen", 200 * second, false, false, true},
		{"silent", 301 * second, false, false, false},
		{"taken", second, true, false, false},
		{"port down", second, false, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, ep, now := elsewhere(t)
			k := FDB(modelNet, macN(2))
			c.Observe(Observation{Time: now.Mono, Port: 1<<16 | 1, MAC: macN(2), Class: arpnd.Strong}, now)
			w := c.Take().Writes
			if len(w) != 1 || w[0].Op != OpCreate {
				t.Fatalf("wrote %+v", w)
			}
			b := w[0].New
			b.Version = Version{"x", "5"}
			c.Done(k, w[0].Seq, Result{Version: b.Version}, now)
			c.Set(k, b, now)
			now.Mono += tt.after
			c.SetPort(Port{ID: 1<<16 | 1, Endpoint: ep.EndpointKey, Up: !tt.down}, now)
			c.Take()
			c.Gate(!tt.other, now) // so that both are heard together
			c.Gone(k, "x", now)
			if tt.other {
				c.Set(k, Binding{Node: "B", Version: Version{"y", "7"}}, now)
				c.Gate(true, now)
			}
			w = c.Take().Writes
			if got := len(w) == 1 && w[0].Op == OpCreate && w[0].Key == k; got != tt.want || len(w) > 1 {
				t.Errorf("wrote %+v, want a create: %t", w, tt.want)
			}
		})
	}
}

// TestDeletedByOthersIsToldByAConflict: that a binding was deleted may be told by
// the answer to a refresh, before the watch tells it. It comes back all the same.
func TestDeletedByOthersIsToldByAConflict(t *testing.T) {
	c, _, now := elsewhere(t)
	o := Observation{IP: ipN(2), Time: now.Mono, Port: 1<<16 | 1, MAC: macN(2), Class: arpnd.Strong}
	c.Observe(o, now)
	for i, w := range c.Take().Writes {
		b := w.New
		b.Version = Version{w.Key.String(), strconv.Itoa(5 + i)}
		c.Done(w.Key, w.Seq, Result{Version: b.Version}, now)
		c.Set(w.Key, b, now)
	}
	now.Mono += 61 * second
	o.Time = now.Mono
	c.Observe(o, now)
	now.Mono += second
	c.Tick(now)
	refreshes := c.Take().Writes
	if len(refreshes) != 2 || refreshes[0].Op != OpRefresh || refreshes[1].Op != OpRefresh {
		t.Fatalf("wrote %+v, want two refreshes", refreshes)
	}
	now.Mono += 100 * second // silent since, but not for the expiry
	for _, w := range refreshes {
		c.Done(w.Key, w.Seq, Result{Outcome: Conflict, Known: true}, now)
	}
	for _, w := range refreshes {
		c.Gone(w.Key, w.From.UID, now)
	}
	made := map[Key]bool{}
	for _, w := range c.Take().Writes {
		if w.Op != OpCreate {
			t.Errorf("wrote %+v", w)
		}
		made[w.Key] = true
	}
	if !made[FDB(modelNet, macN(2))] || !made[Neighbor(modelNet, ipN(2))] || len(made) != 2 {
		t.Errorf("made %v anew", made)
	}
}

// TestProbesCarryTheTags: of the last frame of that station and address.
func TestProbesCarryTheTags(t *testing.T) {
	c, _, now := elsewhere(t)
	o := Observation{IP: ipN(2), Time: now.Mono, Port: 1<<16 | 1, MAC: macN(2), Class: arpnd.Strong}
	probed := func(tags packet.Tags) {
		t.Helper()
		o.Time, o.Tags = now.Mono, tags
		c.Observe(o, now)
		for _, w := range c.Take().Writes {
			if w.Op == OpCreate {
				w.New.Version = Version{w.Key.String(), "5"}
				c.Done(w.Key, w.Seq, Result{Version: w.New.Version}, now)
			}
		}
		now.Mono += 101 * second
		c.Tick(now)
		p := c.Take().Probes
		if len(p) != 1 || p[0].IP != ipN(2) || p[0].Tags != tags {
			t.Errorf("probes %+v, want one with tags %x", p, tags)
		}
	}
	for _, tags := range []packet.Tags{0x8064, 0, 0x806480c8} {
		probed(tags)
	}
	// Lost and back at another's word, it is still behind them.
	k := Neighbor(modelNet, ipN(2))
	c.Gone(FDB(modelNet, macN(2)), "", now)
	c.Gone(k, "", now)
	for _, w := range c.Take().Writes {
		w.New.Version = Version{w.Key.String() + "again", "9"}
		c.Done(w.Key, w.Seq, Result{Version: w.New.Version}, now)
	}
	now.Mono += 101 * second
	c.Tick(now)
	p := c.Take().Probes
	for i := range p {
		if p[i].Tags != 0x806480c8 {
			t.Errorf("probe %+v of a binding that was made anew", p[i])
		}
	}
	if len(p) == 0 {
		t.Error("no probe of a binding that was made anew")
	}
}

// TestLimitCountsWritesUnderWay: claims that were given up because their writes
// take long still count, for the writes may come true.
func TestLimitCountsWritesUnderWay(t *testing.T) {
	c, _, now := elsewhere(t)
	wrote := map[Key]Write{}
	for i := range 2000 {
		now.Mono += second / 10 // longer than the re-report in all
		c.Tick(now)
		c.Observe(Observation{Time: now.Mono, Port: 1<<16 | 1, MAC: macN(100 + i), Class: arpnd.Strong}, now)
		for _, w := range c.Take().Writes {
			wrote[w.Key] = w
		}
	}
	if len(wrote) != 256 {
		t.Errorf("%d creates under way, the limit is 256", len(wrote))
	}
	for k, w := range wrote {
		c.Done(k, w.Seq, Result{Outcome: Failed}, now)
	}
	now.Mono += second
	c.Observe(Observation{Time: now.Mono, Port: 1<<16 | 1, MAC: macN(5000), Class: arpnd.Strong}, now)
	if w := c.Take().Writes; len(w) == 0 {
		t.Error("failed creates count for ever")
	}
}
