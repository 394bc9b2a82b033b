// Package icmperr tells a sender why its frame cannot go on: too big for the
// way, hop limit used up, no such host. Each error is written over the
// offending frame, inside the chunk that holds it, and goes back to the port it
// came from with its VLAN tags.
//
//	Allowed         may this frame be answered with an error at all?
//	PacketTooBig    ICMPv6 type 2            (RFC 4443 section 3.2)
//	FragNeeded      ICMPv4 type 3 code 4     (RFC 792, RFC 1191 section 4)
//	TooBig          the one of the two that fits the frame
//	TimeExceeded    ICMPv4 11/0, ICMPv6 3/0  (RFC 792, RFC 4443 section 3.3)
//	HostUnreachable ICMPv4 3/1, ICMPv6 1/3   (RFC 792, RFC 4443 section 3.1)
//	ParsePTB        a Packet Too Big about our own outer packets
//
// The writers ask Allowed themselves, so none of them can be made to answer what
// must not be answered; callers ask it first to spare a rate limit token.
//
// Everything is pure and free of allocation; any number of goroutines may call
// it on frames of their own. The rules are listed in docs/arp-ndp.md.
package icmperr
