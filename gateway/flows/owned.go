package flows

import (
	"slices"
	"strings"
)

// How a fresh process knows what is picot's on a bridge: a flow by its cookie, whatever version,
// mode or gate installed it. A NO_FLOOD bit has no owner; it is picot's where [NoFlood] speaks of
// the port, and is set and cleared by comparison alone. Likewise the one MAC entry [Host] names.

// Cookie marks every flow picot installs ("picot", then the version of the mark).
const (
	Cookie     uint64 = 0x7069636f74000001
	CookieMask uint64 = 0xffffffffff000000
)

// Owned reports whether a flow with this cookie is picot's, of this version or another.
func Owned(cookie uint64) bool { return cookie&CookieMask == Cookie&CookieMask }

// Steering reports whether the flow sends unicast ARP or NDP for one MAC on at the priority of
// the steering flows. It recognises them whoever installed them.
func Steering(f Flow) bool {
	if f.Table != 0 || f.Priority != PrioritySteer {
		return false
	}
	dst := Field(f.Match, "dl_dst")
	if dst == "" || strings.Contains(dst, "/") || dst == broadcast {
		return false
	}
	fields := strings.Split(f.Match, ",")
	if slices.Contains(fields, "arp") {
		return true
	}
	switch Field(f.Match, "icmp_type") {
	case "134", "135", "136":
		return slices.Contains(fields, "icmp6")
	}
	return false
}
