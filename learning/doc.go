// Package learning decides who owns a binding: it finds stations from their
// traffic, follows them as they move, and lets them go when they fall silent.
// It is pure. Time is an argument, nothing here does I/O, starts a goroutine or
// reads a clock, and the same inputs give the same intents in the same order.
//
//	frame -> Suppressor -> Observation -> Core -> Intents: Writes, Probes, Asks, Events
//	          (worker)       (ring)        ^ |
//	cluster, ports, endpoints, timers -----+ +--> Done, LastSeen: what became of them
//
// A [Suppressor] belongs to the worker of its port, a [Core] to one goroutine.
// Observations cross over by a ring.
//
// # The state table
//
// A [Core] keeps, for every key, what the cluster has (nothing, learned or static,
// here or elsewhere, frozen or not) and the claim that is not true yet (none,
// weak, strong). Each input changes one of the two; then the row that applies
// says what to do. "Here" is this node and the claim's own port.
//
//	cluster         | strong claim     | weak claim          | static claim     | no claim
//	----------------+------------------+---------------------+------------------+-------------------------
//	nothing         | create           | create (FDB only)   | create           | -
//	learned, here   | seen             | seen                | claim            | see below
//	learned, other  | takeover         | -                   | claim            | see below
//	 port of ours   |                  |                     |                  |
//	learned,        | takeover         | -                   | claim            | -
//	 elsewhere      |                  |                     |                  |
//	frozen, other   | - (takeover if   | -                   | claim            | -
//	                |   its node died) |                     |                  |
//	static, of this | - (not touched)  | -                   | update if it     | delete: the endpoint
//	 node           |                  |                     | differs          | claims it no longer
//	static,         | - (not touched)  | -                   | refused, Event;  | -
//	 elsewhere      |                  |                     | again when gone  |
//
// A learned binding of this node that no claim disputes:
//
//	its endpoint is gone or another life, its port is down,    | delete at once
//	the network no longer learns or contains it                |
//	a freeze has ended, or Release was called                  | release: moves count anew
//	the segment or the router flag differs                     | update
//	not seen for Expiry                                        | ask the data plane; delete if it agrees
//	a Neighbor not seen for Probe                              | probe, again each ProbeEvery
//	seen since lastObserved was written, Refresh ago           | refresh, when the budget allows
//
// Rules of claims:
//
//   - An address is learned only behind a port that has its MAC, and only if it
//     belongs to the network and is not the gateway's.
//   - A station that comes here takes its learned Neighbors along.
//   - A claim lives until it came true, lost its right, or was not repeated for
//     ReReport. The latest wins.
//   - A takeover counts as a move. More than MaxMoves in MoveWindow, and the same
//     write freezes the binding where it now is.
//   - A node that loses a station to another probes its old port once: who is still
//     there, or back, answers.
//   - Of a static MAC, the EUI-64 link-local address is not written at all, and any
//     other link-local address once.
//
// At most one write per key is under way; only a refresh is replaced by something
// more important. A write carries the UID and resourceVersion it was decided on; a
// conflict is decided anew from what there is now. What the cache says from
// before our own last write is ignored.
package learning
