package v1alpha1

import (
	"encoding/hex"
	"net/netip"
	"strings"
)

// FDBName returns the name of the FDBEntry with this key:
// <network>.<02-00-00-00-00-01>. mac is the six bytes of the address.
//
// A network's name is a DNS label and so holds no dot: what stands before the
// first dot is the network, what stands after it the address, and no two keys
// share a name.
func FDBName(network string, mac [6]byte) string {
	b := make([]byte, 0, len(network)+18)
	b = append(b, network...)
	sep := byte('.')
	for i := range mac {
		b = append(b, sep)
		b = hex.AppendEncode(b, mac[i:i+1])
		sep = '-'
	}
	return string(b)
}

// NeighborName returns the name of the Neighbor with this key:
// <network>.<10.0.0.5> or <network>.<fd00-0000-0000-0000-0000-0000-0000-0005>,
// IPv6 as 8 groups of 4 hex digits, so that each address has one form and every
// form is a DNS subdomain. ip is a valid address without zone and not
// IPv4-mapped, as the API takes them. Injective as [FDBName] is: IPv4 has dots
// and IPv6 dashes.
func NeighborName(network string, ip netip.Addr) string {
	if !ip.Is6() {
		return network + "." + ip.String()
	}
	return network + "." + strings.ReplaceAll(ip.StringExpanded(), ":", "-")
}
