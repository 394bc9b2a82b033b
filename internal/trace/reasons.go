package trace

import (
	"picot.dev/picot/arpnd"
	"picot.dev/picot/fastpath"
)

// sentence is what a drop reason means, and where to look.
type sentence struct{ means, look string }

const (
	seeMTU  = "the MTU of the pods' devices and of the underlay: SRv6 takes 54 bytes (40 and the inner Ethernet header), 4 more a VLAN tag, 24 and more with spec.via"
	seeBind = "picot show fdb and picot show neigh; with an API server: kubectl get fdb,neigh"
	normal  = "nothing is wrong: no frame to a group is carried"
)

var sentences = map[fastpath.DropReason]sentence{
	fastpath.ReasonRunt:       {"it is shorter than its headers", "who sends it: no stack does"},
	fastpath.ReasonMalformed:  {"a VLAN tag, IP header or extension header is cut off, or its lengths contradict each other", "who sends it: no stack does"},
	fastpath.ReasonSourceMAC:  {"its source MAC is a group address or zero", "who sends it: no stack does"},
	fastpath.ReasonSpoofedMAC: {"port security: its source MAC, or one that its ARP or ND message claims, is not the endpoint's", "spec.mac of the NetworkEndpoint against the pod's device; portSecurity of both NetworkEndpoint and Network"},
	fastpath.ReasonSpoofedIP:  {"port security mac+ip: an address it claims is not one of the endpoint's", "spec.addresses of the NetworkEndpoint against the pod's device; portSecurity of both NetworkEndpoint and Network"},
	fastpath.ReasonNetwork:    {"the port's network is not in the tables", "picot show status, and the Network the endpoint names"},

	fastpath.ReasonGroupDHCP:  {"DHCP is not carried: addresses come from the NetworkEndpoint", normal},
	fastpath.ReasonGroupND:    {"a Router Solicitation, an advertisement or a Redirect to a group: it may be learned from, and goes nowhere", normal},
	fastpath.ReasonGroupMLD:   {"multicast listener discovery: no group is carried, so nobody needs to know", normal},
	fastpath.ReasonGroupIGMP:  {"IGMP: no group is carried, so nobody needs to know", normal},
	fastpath.ReasonGroupVRRP:  {"VRRP is not carried", "whether two stations that speak VRRP must be in this network: they would both be master"},
	fastpath.ReasonGroupMDNS:  {"mDNS is not carried", normal},
	fastpath.ReasonGroupSTP:   {"spanning tree: there is no tree", normal},
	fastpath.ReasonGroupLLDP:  {"LLDP is not carried", normal},
	fastpath.ReasonGroupARP:   {"an ARP reply or announcement to all: it may be learned from, and goes nowhere", normal},
	fastpath.ReasonGroupOther: {"broadcast and multicast end on the port they come from", normal},
	fastpath.ReasonRARP:       {"RARP says where a station is; it may be learned from, and goes nowhere", normal},

	fastpath.ReasonSilentOwnPort:   {"the address asked for is bound to the asking port: its owner must not take an answer for a duplicate", "nothing is wrong: ask from another port, or for another address"},
	fastpath.ReasonSilentOwnerAsks: {"the asker has the MAC the address is bound to: the owner must not take an answer for a duplicate", "nothing is wrong: ask from another port, or for another address"},
	fastpath.ReasonSilentUnknown:   {"no station of this network is known to have the address, or its MAC is nowhere", seeBind},
	fastpath.ReasonSilentOwnerDown: {"the port that has the address is down", "picot show ports"},
	fastpath.ReasonSilentNodeDead:  {"the node that has the address is not alive", "picot show nodes, and the Alive condition of its SRv6Node"},
	fastpath.ReasonSilentDuplicate: {"two stations claim the address, and which has it is not settled", "picot show moves, and the conditions of their NetworkEndpoints"},
	fastpath.ReasonAnswerRate:      {"the port's answers a second are used up", "--answer-rate of picot agent, and who asks so often"},

	fastpath.ReasonUnknownUnicast: {"the destination MAC is not in this network's FDB, and nothing is flooded", seeBind},
	fastpath.ReasonSegment:        {"the network's isolation does not let the sender's segment send to the target's", "spec.isolation of the Network, spec.segment of both endpoints"},
	fastpath.ReasonSamePort:       {"the destination is behind the port it comes from", "why the sender does not deliver it itself"},
	fastpath.ReasonPortDown:       {"the target's port is down or gone", "picot show ports"},
	fastpath.ReasonNodeUnresolved: {"no next hop to the target's node is usable", "picot show nodes: its ERROR says what is missing, a route or a neighbour"},
	fastpath.ReasonTooBig:         {"it is longer than the way to its target takes", seeMTU},

	fastpath.ReasonGatewayTTL:        {"its hop limit ends at the network's gateway", "a loop, or traceroute at work"},
	fastpath.ReasonGatewayNoNeighbor: {"the network's gateway knows no station with the destination address", seeBind},
	fastpath.ReasonGatewayNotIP:      {"it is for the network's gateway, but no IP packet that is to be routed, nor an echo request", "the sender's routes: the gateway routes within its network only"},

	fastpath.ReasonOuter:         {"its outer header is malformed", "who sends it: no node does"},
	fastpath.ReasonOuterSID:      {"its outer destination is in this node's locator, but no SID of ours", "whether both nodes run the same --sid-function, and the bits between the locator and bit 64"},
	fastpath.ReasonOuterSource:   {"its outer source is in no other known node's locator", "picot show nodes, and the locator in the sender's SRv6Node"},
	fastpath.ReasonOuterNetwork:  {"its SID names a network that is not known here", "spec.id of the Networks, on both nodes"},
	fastpath.ReasonOuterSegments: {"its SRH wants to go on from here: Segments Left is not 0", "spec.via of this node's SRv6Node: its SIDs are to pass before this one"},
	fastpath.ReasonOuterUpper:    {"what it carries to a SID of ours is not Ethernet", "who sends it: no node does"},
	fastpath.ReasonOuterICMP:     {"ICMPv6 to a SID of ours that asks for no answer", "nothing is wrong: errors of the underlay come so"},
	fastpath.ReasonOuterECN:      {"the underlay marked congestion, and its sender does not know ECN: it has to see a loss (RFC 6040)", "the load of the underlay"},
	fastpath.ReasonInner:         {"the frame inside is malformed", "who sends it: no node does"},
	fastpath.ReasonInnerGroup:    {"the frame inside is for a group, and no node sends such", "who sends it: no node of picot does"},
	fastpath.ReasonNotLocal:      {"the station it is for is not on this node: the sender's tables are older or newer than ours", "picot show fdb on both nodes"},

	fastpath.ReasonTXFull:      {"the target's tx ring was full", "picot show ports: what the target does with its frames"},
	fastpath.ReasonPool:        {"no frame memory was free", "picot show workers"},
	fastpath.ReasonHandoffFull: {"the ring to the target's worker was full", "picot show workers"},
	fastpath.ReasonNoSocket:    {"the target had no socket", "picot show ports"},
}

// malformed says which rule an ARP or ND message breaks.
var malformed = [arpnd.NumMalformed]string{
	arpnd.ARPLength: "the ARP packet is shorter than 28 bytes", arpnd.ARPHeader: "the ARP packet is not one of IPv4 over Ethernet",
	arpnd.NDFragment: "Neighbor Discovery must not be fragmented (RFC 6980)", arpnd.NDHopLimit: "its hop limit is not 255: a router may have forwarded it",
	arpnd.NDLength: "it is shorter than its type", arpnd.NDChecksum: "its ICMPv6 checksum is wrong", arpnd.NDCode: "its ICMPv6 code is not 0",
	arpnd.NDSource: "its source is not one that its type allows", arpnd.NDTargetMulticast: "its target is a multicast address",
	arpnd.NDMapped: "it has an IPv4-mapped address", arpnd.NDUnspecifiedDest: "duplicate address detection to something other than a solicited-node group",
	arpnd.NDUnspecifiedSLLAO: "it has no source, but the link-layer address of one", arpnd.NDSolicitedGroup: "a solicited advertisement to a group",
	arpnd.NDTarget: "the target of the Redirect is not one that may be", arpnd.NDOption: "an option has length 0, reaches past the end, or is no Ethernet address",
}

func sentenceOf(r fastpath.DropReason) sentence {
	if r >= fastpath.ReasonMalformedND && r < fastpath.NumReasons {
		return sentence{malformed[r-fastpath.ReasonMalformedND+1], "who sends it: no stack does (RFC 826, RFC 4861)"}
	}
	return sentences[r]
}
