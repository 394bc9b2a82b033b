package fastpath

import (
	"flag"
	"math/rand/v2"
	"testing"

	"picot.dev/picot/fastpath/table"
)

var mutations = flag.Int("mutations", 10_000_000, "frames of TestMutatedFrames")

// TestMutatedFrames sends frames mutated from valid ones of every kind through
// the walk: none panics, each gets one verdict that makes sense, and every drop
// reason of the walk is hit.
func TestMutatedFrames(t *testing.T) {
	n := fullNode(t)
	s := n.Snapshot()
	cases := allCases(t)
	seed := uint64(20261130)
	r := rand.New(rand.NewPCG(seed, seed))
	w := NewWalk(16, Limits{AnswerRate: 1000, AnswerBurst: 100, ErrorRate: 1000, ErrorBurst: 100})
	bufs := make([][]byte, batch)
	for i := range bufs {
		bufs[i] = make([]byte, 4096)
	}
	var verdicts [NumVerdicts]int
	var reasons [NumReasons]int
	frames := make([]Frame, batch)
	for done := 0; done < *mutations; done += batch {
		w.Now += 1e6
		port := s.Ports[n.portA.Index()]
		port.Security = table.PortSecurity(r.IntN(3))
		if r.IntN(64) == 0 {
			port.Net = table.NetIndex(r.IntN(8))
		}
		uplink := r.IntN(2) == 0
		for i := range frames {
			c := &cases[r.IntN(len(cases))]
			for c.uplink != uplink {
				c = &cases[r.IntN(len(cases))]
			}
			length := mutate(r, bufs[i][room:], c.frame)
			frames[i] = Frame{Buf: bufs[i], Off: room, Len: length}
		}
		if uplink {
			w.FromUplink(s, frames)
		} else {
			w.FromPort(s, &port, frames)
		}
		for i := range frames {
			f := &frames[i]
			verdicts[f.Verdict]++
			reasons[f.Reason]++
			if problem := incoherent(s, f, uplink); problem != "" {
				t.Fatalf("seed %d, frame %d: %s: %+v", seed, done+i, problem, Frame{Off: f.Off, Len: f.Len, Verdict: f.Verdict, Reason: f.Reason, Port: f.Port})
			}
		}
	}
	for v, count := range verdicts {
		if count == 0 {
			t.Errorf("verdict %v never met", Verdict(v))
		}
	}
	for reason := range walkReasons() {
		if reasons[reason] == 0 {
			t.Errorf("drop reason %v never met", reason)
		}
	}
	t.Logf("verdicts %v", verdicts)
}

// incoherent says what is wrong with a verdict, if anything.
func incoherent(s *table.Snapshot, f *Frame, uplink bool) string {
	switch {
	case f.Verdict >= NumVerdicts || f.Reason >= NumReasons:
		return "invalid verdict"
	case (f.Verdict == Dropped) != (f.Reason != ReasonNone):
		return "a drop has a reason, and only a drop"
	case f.Off < 0 || f.Len < 0 || f.Off+f.Len > len(f.Buf):
		return "frame outside its chunk"
	case f.Reply && f.Verdict != Dropped:
		return "an error beside another verdict"
	case f.Verdict == Remote && uplink:
		return "from an uplink out of an uplink"
	case f.Verdict == Local && s.Ports[f.Port].ID == 0:
		return "to no port"
	case f.Verdict != Dropped && f.Len < 14:
		return "a runt goes out"
	}
	return ""
}

// mutate copies frame to b with a few changes and returns its length.
func mutate(r *rand.Rand, b, frame []byte) int {
	n := copy(b, frame)
	switch r.IntN(8) {
	case 0: // as it is
	case 1: // cut
		n = r.IntN(n + 1)
	case 2: // longer, with garbage
		more := r.IntN(64)
		for i := range more {
			b[n+i] = byte(r.Uint32())
		}
		n += more
	case 3: // garbage behind the addresses
		for i := 12; i < n; i++ {
			b[i] = byte(r.Uint32())
		}
	default: // some bytes, of the headers more likely
		for range 1 + r.IntN(4) {
			if n == 0 {
				break
			}
			i := r.IntN(n)
			if r.IntN(2) == 0 {
				i = r.IntN(min(n, 90))
			}
			switch r.IntN(3) {
			case 0:
				b[i] = byte(r.Uint32())
			case 1:
				b[i] ^= 1 << r.IntN(8)
			case 2:
				b[i] = [...]byte{0, 1, 0xff, 0x80, 0x7f}[r.IntN(5)]
			}
		}
	}
	return n
}
