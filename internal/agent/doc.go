// Package agent is the event loop of a node: it takes what is desired (from
// manifests or the Kubernetes API), what the kernel has (links, routes,
// neighbours) and brings the data path in line.
//
//	manifests, API ─ desired.Delta ─┐
//	link monitor ─── linkmon.Event ─┤            ┌─ ports.go   devices, XDP programs, sockets
//	route watch ──── "look again" ──┼─ loop.go ──┼─ nodes.go   next hops to other nodes, our routes and rules
//	data path ────── socket events ─┤   apply    ├─ uplinks.go the uplinks' programs and sockets
//	pin watch, timers, control ─────┘            └─ tables.go  table.Builder -> one snapshot
//
// A message only changes memory and marks something dirty. apply does the work,
// in this order: what the kernel must have first (uplinks, ports), tables, one
// snapshot, a wait until no worker uses the old one, and then what may go. One
// thing that fails stops no other: it stays dirty, is tried again with backoff
// and health names it.
//
// What it knows of the kernel it looks at again at each refresh; what an earlier
// life left it sweeps (sweep.go) when that is certain. A port that must be closed
// and cannot be ends the agent: the kernel closes it then. health.go says how it is.
//
// One goroutine, the one that called Run, owns everything here. Others reach it
// by channels; the control socket and the metrics ask it by messages.
package agent
