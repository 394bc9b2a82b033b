package gateway

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	db "picot.dev/picot/gateway/ovsdb"
	"picot.dev/picot/gateway/topology"
	"picot.dev/picot/internal/packet"
)

// TestDatabasesRestartUnderChurn: bindings of the source come and change all the
// time, and a follower's go behind our back, while SB, NB and the controller are
// killed and come back; then every
// follower has exactly the source's bindings, and what is right stays untouched.
func TestDatabasesRestartUnderChurn(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Audit = 500 * time.Millisecond })
	followers := []string{"a", "b", "c", "d"}
	r.base(followers...)
	in := nodes(annotated("n2", macB, "172.18.0.3/16"))
	r.start(in)
	rng := rand.New(rand.NewPCG(6, 6))
	source := map[string]string{}
	learn := func() {
		ip := fmt.Sprintf("172.18.1.%d", rng.IntN(40))
		mac := packet.MACFromUint64(0x020000000000 | uint64(rng.IntN(8))).String()
		if err := r.Learn("", ip, mac, time.Now()); err == nil {
			source[ip] = mac
		}
	}
	for round := range 6 {
		for range 60 {
			learn()
		}
		switch round % 3 {
		case 0:
			r.SB.Kill()
			r.do(r.SB.Start())
		case 1:
			r.NB.Kill()
			learn()
			r.do(r.NB.Start())
		case 2:
			r.stop()
			learn()
			r.start(in)
		}
		if _, err := r.Delete(db.Southbound, db.TableMACBinding, "logical_port", topology.RouterPort("b", "n1")); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{}
	for ip, mac := range source {
		for _, network := range append([]string{"default"}, followers...) {
			want[network+" "+ip] = mac
		}
	}
	before := r.has("after the churn", r.Dynamic, want)
	wantStatic := map[string]string{}
	for _, f := range followers {
		wantStatic[f+" 172.18.0.3"] = macB
	}
	static := r.has("static rows after the churn", r.Static, wantStatic)
	r.quiet("after the churn")
	for key, row := range r.has("still", r.Dynamic, want) {
		if row != before[key] {
			t.Errorf("%s was rewritten: %v, was %v", key, row, before[key])
		}
	}
	for key, row := range r.has("still static", r.Static, wantStatic) {
		if row != static[key] {
			t.Errorf("static %s was rewritten", key)
		}
	}
}
