// Package demo is "picot demo": a cluster of two nodes on this machine, and the
// checks that show what picot promises. What a check says was measured: frames are
// counted by the pods' own stacks, by packet sockets beside them and by the agents.
//
//	red-1a 10.0.0.11 ┐                                        ┌ red-2a 10.0.0.21
//	red-1b 10.0.0.12 ┤ node1 ── up0 ── router ── up0 ── node2 ├ red-2b 10.0.0.22
//	blue-1a  the very├                                        ┤ blue-2a
//	blue-1b  same    ┘                                        └ blue-2b
//
// [Build] makes the cluster, [Cluster.Start] its agents, [Cluster.Check] judges it.
package demo
