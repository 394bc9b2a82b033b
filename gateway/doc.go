// Package gateway keeps the neighbour bindings of OVN gateway routers, so that ARP and NDP from
// the physical network reach one router a bridge instead of fanning out over all of them.
//
// A [Controller] has three reconcilers, each one goroutine with its own state, each woken by a
// flag and reading what is from a cache:
//
//	topology  OVS and NB databases -> groups; flows and NO_FLOOD of every bridge
//	mirror    SB database          -> MAC_Binding rows of the followers
//	static    NB database          -> Static_MAC_Binding rows of the followers
//
// They share one immutable value, the groups. A database that is down or hangs stops its own
// reconciler and no other. What Kubernetes says comes in by [Controller.SetInputs], as plain
// values; nothing here knows Kubernetes, and nothing of the L2 fastpath knows this package.
//
// The decisions are in topology, mirror, static and flows, which are pure; ovsdb and bridge speak
// to the databases and the switch.
package gateway
