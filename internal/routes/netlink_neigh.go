package routes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/packet"
)

// Neighbour messages are built here and not by the library, because ownership
// needs NDA_PROTOCOL (linux/neighbour.h), which it does not carry.
const sizeofNdmsg = 12

// ndmsg is struct ndmsg for IPv6.
type ndmsg struct {
	index int
	state uint16
	flags uint8
}

func (m ndmsg) Len() int { return sizeofNdmsg }

func (m ndmsg) Serialize() []byte {
	b := make([]byte, sizeofNdmsg)
	b[0] = unix.AF_INET6
	binary.NativeEndian.PutUint32(b[4:], uint32(m.index))
	binary.NativeEndian.PutUint16(b[8:], m.state)
	b[10] = m.flags
	return b
}

const (
	usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | fixed
	fixed  = netlink.NUD_PERMANENT | netlink.NUD_NOARP
)

// Neighbors lists the IPv6 neighbour table.
func (k *Netlink) Neighbors() ([]Neighbor, error) {
	msgs, err := retry(func() ([][]byte, error) {
		req := k.request(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		req.AddData(ndmsg{})
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	out := make([]Neighbor, 0, len(msgs))
	for _, m := range msgs {
		if n, ok := parseNeighbor(m); ok {
			out = append(out, n)
		}
	}
	return out, nil
}

// parseNeighbor reads an RTM_NEWNEIGH or RTM_DELNEIGH body; false for what is no
// IPv6 neighbour.
func parseNeighbor(b []byte) (n Neighbor, ok bool) {
	if len(b) < sizeofNdmsg || b[0] != unix.AF_INET6 {
		return n, false
	}
	attrs, err := nl.ParseRouteAttr(b[sizeofNdmsg:])
	if err != nil {
		return n, false
	}
	n.Link = int(int32(binary.NativeEndian.Uint32(b[4:])))
	state := int(binary.NativeEndian.Uint16(b[8:]))
	n.Fixed = state&fixed != 0
	for _, a := range attrs {
		switch v := a.Value; a.Attr.Type {
		case netlink.NDA_DST:
			n.IP, ok = netip.AddrFromSlice(v)
		case netlink.NDA_LLADDR:
			if len(v) == len(n.MAC) {
				n.MAC = packet.MAC(v)
				n.Usable = state&usable != 0
			}
		case netlink.NDA_PROTOCOL:
			if len(v) > 0 {
				n.Protocol = v[0]
			}
		case netlink.NDA_FLAGS_EXT:
			if len(v) >= 4 {
				n.Managed = binary.NativeEndian.Uint32(v)&netlink.NTF_EXT_MANAGED != 0
			}
		}
	}
	return n, ok
}

// Manage sets NTF_EXT_MANAGED; the kernel starts resolution at once.
func (k *Netlink) Manage(n NeighborKey, protocol uint8) error {
	req := k.request(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(ndmsg{index: n.Link})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, n.IP.AsSlice()))
	req.AddData(nl.NewRtAttr(netlink.NDA_FLAGS_EXT, nl.Uint32Attr(netlink.NTF_EXT_MANAGED)))
	req.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, nl.Uint8Attr(protocol)))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("manage neighbour %s on link %d: %w", n.IP, n.Link, err)
	}
	return nil
}

// Unmanage clears the flag and our protocol. NTF_USE keeps the entry's state (see
// __neigh_update in net/core/neighbour.c), so other traffic over it notices
// nothing.
func (k *Netlink) Unmanage(n NeighborKey) error {
	req := k.request(unix.RTM_NEWNEIGH, unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(ndmsg{index: n.Link, flags: netlink.NTF_USE})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, n.IP.AsSlice()))
	req.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, nl.Uint8Attr(unix.RTPROT_KERNEL)))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("release neighbour %s on link %d: %w", n.IP, n.Link, err)
	}
	return nil
}

func (k *Netlink) request(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: k.raw}
	return req
}
