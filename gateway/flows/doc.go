// Package flows renders the OpenFlow section that keeps ARP and NDP from fanning out over
// the gateway routers of one bridge.
//
// It is pure: [Render] takes what is known of a bridge ([Input]) and returns the flows the
// bridge should carry ([Set]), in a fixed order, so that the same input always gives the same
// bytes. Nothing here speaks to a switch; package gateway/bridge installs a Set. Everything
// may be called from any goroutine.
//
// The two tables it writes:
//
//	table 0    52  in_port=<ingress>, dl_dst=<bridge MAC>, ARP or NDP   -> source router, NORMAL   (gate on)
//	           52  in_port=<ingress>, dl_dst=<group>, ARP or NDP        -> NORMAL                  (overlay)
//	           50  IP to the bridge MAC                                 -> conntrack, table 1
//	           12  who-has for a node address                           -> default router, NORMAL  (gate off)
//	           11  announcements to everyone                            -> every router, NORMAL    (gate off)
//	           10  dl_dst=<bridge MAC>                                  -> every router, NORMAL    (gate off)
//	           10  from a router, with the bridge MAC                   -> NORMAL
//	            9  from a router, with another MAC                      -> drop
//	            0                                                       -> NORMAL
//	table 1   100  known connection                                     -> its router
//	           14  RA, NA                                               -> every UDN router, FLOOD (gate off)
//	           13  BFD                                                  -> default router and host
//	           10  dl_dst=<bridge MAC>                                  -> host
//	            0                                                       -> NORMAL
//
// Egress, services and hairpins (priorities 99 and up of table 0, tables 2 to 11) belong to
// another owner and are neither rendered nor looked at.
package flows
