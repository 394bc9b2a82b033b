// Package routes keeps picot's view of, and its few entries in, the kernel's
// IPv6 routing:
//
//	Resolver  locator -> next hops (link, MACs, MTU) from the FIB and the neighbour
//	          table; keeps those neighbours resolved and alive
//	Driver    the routes and rules that are ours: locator routes via a configured
//	          next hop, and the guard that keeps everybody else out of locators
//	Watch     says when any of this may have changed
//
// The guard in `ip -6 rule` terms (default numbers; see [Owner]):
//
//	70: not from all fwmark MARK lookup 28778   locators: unreachable
//	71: from all fwmark MARK lookup 28777       locators via nextHop; our own: unreachable
//	72: from all fwmark MARK lookup main        FRR's or static routes
//
// Only picot's own lookups carry the mark. What the host
// sends or routes for a pod does not, so a locator cannot be reached by forging
// packets: the sender hears "no route". Rules and routes of others are never
// touched; owned.go says what is ours.
//
// AF_XDP traffic is invisible to the kernel's neighbour state machine, so each
// gateway in use is marked NTF_EXT_MANAGED: the kernel then resolves and probes it
// by itself, for ever.
//
// A [Resolver] and a [Driver] each have one owner goroutine, which may be the
// same; [Watch] runs in its own.
package routes
