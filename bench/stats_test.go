package bench

import (
	"math"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{4, 1}, Spread{2.5, 1, 4, 2}},
		{[]float64{9, 1, 5}, Spread{5, 1, 9, 3}},
	} {
		if got := spreadOf(c.in); got != c.want {
			t.Errorf("spreadOf(%v) = %+v, want %+v", c.in, got, c.want)
		}
	}
}

func TestQuantileInterpolatesAndKeepsItsInput(t *testing.T) {
	in := []float64{40, 10, 30, 20}
	for q, want := range map[float64]float64{0: 10, 0.5: 25, 1: 40, 0.1: 13} {
		if got := quantile(in, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if in[0] != 40 {
		t.Error("the input was sorted in place")
	}
}

// The ratio is taken pair by pair: a drift both sides share must not show.
func TestRatioIsByPairs(t *testing.T) {
	ours, peer := []float64{10, 100, 1000}, []float64{5, 50, 500}
	if s := spreadOf(ratios(ours, peer)); s != (Spread{2, 2, 2, 3}) {
		t.Errorf("%+v", s)
	}
	if r := ratios([]float64{1, 1}, []float64{0, 2}); len(r) != 1 || r[0] != 0.5 {
		t.Errorf("a pair without a peer's figure: %v", r)
	}
}

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		g    Goal
		x    float64
		want Outcome
	}{
		{atLeast(0.95), 0.95, Pass}, {atLeast(0.95), 0.949, Fail}, {atMost(25), 25, Pass}, {atMost(25), 25.1, Fail}, {Goal{}, 7, Info},
	} {
		if got := c.g.judge(c.x); got != c.want {
			t.Errorf("%v of %v: %v, want %v", c.g, c.x, got, c.want)
		}
	}
}

// A bare forwarder slower than 0.9 of the bridge says nothing about picot.
func TestWeakPeerTakesTheJudgementBack(t *testing.T) {
	for bare, want := range map[float64]Outcome{0.8: NotMeaningful, 0.95: Pass} {
		s := &session{report: &Report{}}
		for _, c := range []struct {
			ours, peer string
			ratio      float64
			goal       Goal
		}{{"picot", "bare", 1, atLeast(0.95)}, {"bare", "bridge", bare, atLeast(0.9)}, {"picot", "bridge", 1.1, atLeast(1)}} {
			r := compared("veth", c.ours+"/"+c.peer, "", []float64{c.ratio}, []float64{1}, c.goal)
			r.OursName, r.PeerName = c.ours, c.peer
			s.add(r)
		}
		s.qualify()
		if got := s.report.Rows[0].Outcome; got != want {
			t.Errorf("bare at %v of the bridge: picot/bare is %q, want %q", bare, got, want)
		}
		if got := s.report.Rows[2].Outcome; got != Pass {
			t.Errorf("picot/bridge does not depend on it: %q", got)
		}
	}
}

// One allocation in a thousand frames fails a row whose time is good.
func TestAllocationsFailARow(t *testing.T) {
	for allocs, want := range map[float64]Outcome{0: Pass, 0.0001: Pass, 0.001: Fail} {
		if r := slicesRow("x", []float64{10, 10, 10}, allocs, 0, atMost(25)); r.Outcome != want {
			t.Errorf("%v allocations a frame: %q, want %q", allocs, r.Outcome, want)
		}
	}
}

func TestChooseKnowsItsNames(t *testing.T) {
	if b, err := choose([]string{"walk", "veth"}); err != nil || len(b) != 2 || b[0].Name != "walk" {
		t.Errorf("%v %v", b, err)
	}
	if _, err := choose([]string{"nosuch"}); err == nil {
		t.Error("an unknown name was taken")
	}
}
