package fastpath

import "picot.dev/picot/arpnd"

// Verdict is what became of a frame.
type Verdict uint8

// Verdicts. The zero value is Dropped: a frame nobody decided about goes nowhere.
const (
	// Dropped frames carry a DropReason.
	Dropped Verdict = iota
	// Local frames go to a workload port of this node.
	Local
	// Remote frames go to another node, encapsulated, out of an uplink.
	Remote
	// Answered frames became the answer and go back out of the port they came from.
	Answered

	// NumVerdicts is the number of verdicts.
	NumVerdicts
)

var verdictNames = [NumVerdicts]string{"dropped", "local", "remote", "answered"}

// String returns the verdict's name as metrics and tools print it.
func (v Verdict) String() string {
	if v < NumVerdicts {
		return verdictNames[v]
	}
	return "invalid"
}

// DropReason says why a frame was dropped.
type DropReason uint8

// Drop reasons. Names follow the step of the walk that gives them.
const (
	// ReasonNone is the reason of a frame that was not dropped.
	ReasonNone DropReason = iota

	// Any frame from a workload port.

	ReasonRunt       // shorter than an Ethernet header
	ReasonMalformed  // a VLAN tag or IP header is cut off, or its lengths contradict
	ReasonSourceMAC  // source MAC is a group address or zero
	ReasonSpoofedMAC // port security: not the endpoint's MAC
	ReasonSpoofedIP  // port security: not one of the endpoint's addresses
	ReasonNetwork    // the port's network is not (or no longer) known

	// Group destinations, by kind.

	ReasonGroupDHCP
	ReasonGroupND // ND other than a solicitation: RS, RA, NA, Redirect
	ReasonGroupMLD
	ReasonGroupIGMP
	ReasonGroupVRRP
	ReasonGroupMDNS
	ReasonGroupSTP
	ReasonGroupLLDP
	ReasonGroupARP // ARP replies and announcements: learned from, never sent on
	ReasonGroupOther
	ReasonRARP

	// ARP and ND silence.

	ReasonSilentOwnPort   // the binding is on the asking port
	ReasonSilentOwnerAsks // the asker's MAC is the binding's
	ReasonSilentUnknown   // no such binding
	ReasonSilentOwnerDown
	ReasonSilentNodeDead
	ReasonSilentDuplicate // duplicate under investigation
	ReasonAnswerRate      // the port's answer rate is used up

	// Unicast.

	ReasonUnknownUnicast // no FDB entry
	ReasonSegment        // the segments' rules do not allow it
	ReasonSamePort       // the target is the port it came from
	ReasonPortDown
	ReasonNodeUnresolved // no usable next hop to the target's node yet
	ReasonTooBig         // longer than the way to the target takes

	// Routed through the network's gateway.

	ReasonGatewayTTL
	ReasonGatewayNoNeighbor
	ReasonGatewayNotIP

	// From an uplink.

	ReasonOuter         // outer header malformed
	ReasonOuterSID      // destination is in the locator but no SID of ours
	ReasonOuterSource   // source is in no other known node's locator
	ReasonOuterNetwork  // the SID names no known network
	ReasonOuterSegments // Segments Left > 0 at our SID
	ReasonOuterUpper    // upper layer is not Ethernet
	ReasonOuterICMP     // ICMPv6 that asks for no answer
	ReasonOuterECN      // CE on the outer, Not-ECT on the inner (RFC 6040 4.2)
	ReasonInner         // inner frame malformed
	ReasonInnerGroup    // inner destination is a group
	ReasonNotLocal      // the inner destination is not on this node

	// On the way out.

	ReasonTXFull      // the target's tx ring is full
	ReasonPool        // no free frame in the target's shard
	ReasonHandoffFull // the ring to the target's worker is full
	ReasonNoSocket    // the target has no socket: closed, closing, or its device is gone

	// ReasonMalformedND is the first of one reason for each arpnd.Malformed.
	ReasonMalformedND

	// NumReasons is the number of drop reasons.
	NumReasons = ReasonMalformedND + DropReason(arpnd.NumMalformed) - 1
)

var reasonNames = [...]string{
	ReasonNone: "none", ReasonRunt: "runt", ReasonMalformed: "malformed", ReasonSourceMAC: "source_mac",
	ReasonSpoofedMAC: "spoofed_mac", ReasonSpoofedIP: "spoofed_ip", ReasonNetwork: "network_unknown",
	ReasonGroupDHCP: "group_dhcp", ReasonGroupND: "group_nd_other", ReasonGroupMLD: "group_mld",
	ReasonGroupIGMP: "group_igmp", ReasonGroupVRRP: "group_vrrp", ReasonGroupMDNS: "group_mdns",
	ReasonGroupSTP: "group_stp", ReasonGroupLLDP: "group_lldp", ReasonGroupARP: "group_arp_other",
	ReasonGroupOther: "group_other", ReasonRARP: "rarp",
	ReasonSilentOwnPort: "silent_own_port", ReasonSilentOwnerAsks: "silent_owner_asks",
	ReasonSilentUnknown: "silent_unknown", ReasonSilentOwnerDown: "silent_owner_down",
	ReasonSilentNodeDead: "silent_node_dead", ReasonSilentDuplicate: "silent_duplicate",
	ReasonAnswerRate:     "answer_rate",
	ReasonUnknownUnicast: "unknown_unicast", ReasonSegment: "segment_denied", ReasonSamePort: "same_port",
	ReasonPortDown: "port_down", ReasonNodeUnresolved: "node_unresolved", ReasonTooBig: "too_big",
	ReasonGatewayTTL: "gateway_ttl", ReasonGatewayNoNeighbor: "gateway_no_neighbor", ReasonGatewayNotIP: "gateway_not_ip",
	ReasonOuter: "outer_malformed", ReasonOuterSID: "outer_sid_unknown", ReasonOuterSource: "outer_source_unknown",
	ReasonOuterNetwork: "outer_network_unknown", ReasonOuterSegments: "outer_segments_left",
	ReasonOuterUpper: "outer_upper_layer", ReasonOuterICMP: "outer_icmp", ReasonOuterECN: "outer_ecn",
	ReasonInner: "inner_malformed", ReasonInnerGroup: "inner_group", ReasonNotLocal: "not_local",
	ReasonTXFull: "tx_full", ReasonPool: "pool_empty", ReasonHandoffFull: "handoff_full", ReasonNoSocket: "no_socket",
}

// String returns the reason's name as metrics and tools print it.
func (r DropReason) String() string {
	if r >= ReasonMalformedND && r < NumReasons {
		return "malformed_" + arpnd.Malformed(r-ReasonMalformedND+1).String()
	}
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "invalid"
}
