// Package srv6 puts inner Ethernet frames into SRv6 and takes them out again:
// H.Encaps.L2.Red and H.Encaps.L2 (RFC 8986 sections 5.3 and 5.4) on the way
// out, End.DT2U (section 4.11) on the way in, the ICMPv6 answers a SID owes
// (RFC 9259, RFC 4443), and ECN across the tunnel (RFC 6040).
//
// A SID is: locator, 64 bits of which the last ones may be zero; 16-bit
// function; 24-bit network ID; 24-bit argument, the segment of the sender. The
// outer source is the locator, function 0, and 16 bits of the flow's hash, so
// that even a router that hashes addresses alone spreads the flows.
//
// Everything here is pure and allocates nothing, but for [NewEncap] and the
// parsing of configuration. An [Encap] is immutable and may be shared by any
// number of goroutines; frames belong to the caller.
package srv6
