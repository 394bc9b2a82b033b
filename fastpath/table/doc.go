// Package table holds what the data path looks up: ports, networks, nodes, the
// FDB, neighbours and segment rules.
//
// A [Snapshot] is immutable. Workers load one pointer per batch and may read it
// from any goroutine for as long as they like. A [Builder] belongs to one
// goroutine; it keeps the canonical state, and [Builder.Snapshot] publishes what
// changed, sharing every shard that did not.
//
// An FDB target names its port or node by a stable index, not by value, so a
// node's next hop or a port's state changes without touching the FDB. What an
// entry names may come before or after the entry itself: an index is given to a
// node's name and to a network's ID at first mention, and a port's entries are
// compiled when the port comes. The snapshot is a function of the state, not of
// the order it came in.
//
// An index that is let go is not given out again until [Builder.Release] says
// that no reader uses a snapshot that named it.
package table
