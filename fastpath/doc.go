// Package fastpath carries frames: it owns the worker threads, the frames in
// flight and the decision what becomes of each.
//
// The way of a frame, one file a step:
//
//	AF_XDP rx ring ─ batch.go ──┬─ workload port ─ walkport.go ─┬─ ARP/NDP ──── resolve.go ── Answered, Dropped
//	                            │                               ├─ group ────── resolve.go ── Dropped, by kind
//	                            │                               ├─ gateway MAC ─ gateway.go ─ routed, then as unicast
//	                            │                               └─ unicast ──── deliver.go ── Local, Remote, Dropped
//	                            └─ uplink ──────── walkuplink.go ─ decap ─────── deliver.go ── Local, Dropped
//
//	verdict ─ emit.go ─┬─ socket of this worker ──────────── tx ring, kick (sock.go)
//	                   └─ socket of another worker ─ handoff.go ─ its worker: tx ring, frame comes home
//
// Promise: every frame received ends in exactly one Verdict, and a Dropped one
// in exactly one DropReason, so that for each port
//
//	received = Local + Remote + Answered + sum of drops
//
// A frame's chunk is in exactly one place at a time: free, fill ring, rx batch,
// tx of one socket, or on its way between workers (frames.go).
//
// Who may call what: Engine's methods are for one control goroutine. All that
// a Worker holds belongs to its own locked thread; others reach it by commands
// (worker.go), hand-off rings and the published table.Snapshot only. Counters
// may be read from anywhere.
//
// A capture (capture.go) shows one reader frames with their verdicts.
//
// The walk itself (Walk) is pure: frames, a snapshot and the time in, verdicts
// out. The same code serves the workers, the tests, the benchmarks and, one frame
// at a time over the published snapshot, "picot trace" (trace.go).
package fastpath
