package fastpath

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"picot.dev/picot/fastpath/table"
)

// TestFramesOfABatchKeepApart: what is looked up for a whole batch at once
// reaches the frame it was looked up for. In any company each frame gets the
// verdict and the bytes it gets alone.
func TestFramesOfABatchKeepApart(t *testing.T) {
	n := fullNode(t)
	s := n.Snapshot()
	port := &s.Ports[n.portA.Index()]
	var cases []walkCase
	for _, c := range portCases(t) {
		if c.change == nil {
			cases = append(cases, c)
		}
	}
	load := func(c walkCase) Frame {
		buf := make([]byte, 4096)
		copy(buf[room:], c.frame)
		return Frame{Buf: buf, Off: room, Len: len(c.frame)}
	}
	alone := make([]Frame, len(cases))
	for i, c := range cases {
		alone[i] = load(c)
		NewWalk(16, Limits{}).FromPort(s, port, alone[i:i+1])
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		w := NewWalk(16, Limits{ErrorRate: 1000, ErrorBurst: 1000})
		order := r.Perm(len(cases))
		order = order[:min(len(order), 1+r.IntN(table.Batch))]
		frames := make([]Frame, len(order))
		for i, c := range order {
			frames[i] = load(cases[c])
		}
		w.FromPort(s, port, frames)
		for i, c := range order {
			got, want := &frames[i], &alone[c]
			if got.Verdict != want.Verdict || got.Reason != want.Reason || got.Reply != want.Reply || got.Port != want.Port ||
				got.Uplink != want.Uplink || got.Hash != want.Hash || !bytes.Equal(got.bytes(), want.bytes()) {
				t.Fatalf("%s, number %d of %d: %v %v, alone %v %v", cases[c].name, i, len(order), got.Verdict, got.Reason, want.Verdict, want.Reason)
			}
		}
	}
}
