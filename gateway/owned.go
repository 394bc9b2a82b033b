package gateway

import (
	"picot.dev/picot/gateway/static"
	"picot.dev/picot/gateway/topology"
)

// What is ours, and how a process without memory knows it:
//
//	flows                 by cookie (gateway/flows); everybody else's are never touched
//	NO_FLOOD              by port: the routers' patch ports of a bridge with a group; never another port's
//	Static_MAC_Binding    by logical port: all rows of this node's gateway router ports, but for the
//	                      masquerade addresses, which are ovn-kubernetes'; they carry no external_ids
//	MAC_Binding           by logical port and address: what the source has and the follower has; a
//	                      follower's other rows are its own, and none is ever deleted
//	wakePort's row        by its port; it lives between two transactions

// wakePort names no router port: northd ignores its rows.
const wakePort = "picot-wake-northd"

// dead gives the router ports of this node that have rows and are no more. A port that was seen
// alive by this process is Gone: all its rows go, for any one of them stops northd. One that was
// not is a Leftover of a former life, whose masquerade rows may be waiting for their router.
func (s *stater) dead(rows []static.Row, live map[string]bool) []static.Port {
	for p := range live {
		if topology.IsRouterPort(p, s.c.cfg.Node) {
			s.seen[p] = true
		}
	}
	done := map[string]bool{}
	var out []static.Port
	for _, r := range rows {
		ours := topology.IsRouterPort(r.Port, s.c.cfg.Node) || r.Port == wakePort
		if live[r.Port] || done[r.Port] || !ours {
			continue
		}
		done[r.Port] = true
		role := static.Leftover
		if s.seen[r.Port] {
			role = static.Gone
		}
		out = append(out, static.Port{Name: r.Port, Role: role})
	}
	return out
}
