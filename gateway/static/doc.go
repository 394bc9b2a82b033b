// Package static decides which Static_MAC_Binding rows the gateway routers of this node must have:
// one for each on-link address of another node, on every follower.
//
// It is pure: a Book turns node objects and uplink states into addresses, keeping the last good
// state of each; Plan compares what should be with what is. No I/O, no clock. One goroutine owns a
// Book.
//
//	follower                 all on-link addresses of other nodes, override_dynamic_mac set
//	designated source        rows that exist are corrected or removed, none is added: it learns
//	default network's router nothing: it learns
//	router that is gone      all rows go, and first: northd refuses every commit while one is left
//	other ports              never touched
//
// Masquerade addresses belong to ovn-kubernetes and are left alone.
package static
