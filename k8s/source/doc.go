// Package source follows the API server and turns what it says into the typed
// changes of internal/desired.
//
//	API server --reflectors--> rows --projection--> desired.Delta --Take--> agent
//
// Networks and SRv6Nodes are watched whole, NetworkEndpoints by
// spec.nodeName, and FDBEntries and Neighbors twice: by the label of the
// networks hosted here (those of the endpoints here, and for a while after the
// last one went), and by status.managingNode, so that own bindings of networks
// no longer hosted are seen. The two views of a binding are merged by name: it
// is there while one of them has it, and its newest state counts.
//
// What Take returns is latest-wins and only of what may be carried: a network
// that holds its ID, an endpoint that holds its MAC, a binding that names its
// owner, each valid by the rules of internal/desired again. The rest is kept
// with its Problems. Order of arrival does not matter.
//
// A Source is safe for use by several goroutines: the reflectors write, the
// agent's loop takes, the writer reads the cache. Hooks are called without a
// lock held, from the reflectors' goroutines, and must not block.
package source
