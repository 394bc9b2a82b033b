package doctor

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of linux/netdev.h (family "netdev", since 6.3).
const (
	netdevDevGet      = 1
	netdevIfIndex     = 1
	netdevXDPFeatures = 3
	netdevRXMetadata  = 5

	xdpBasic    = 1 << 0
	xdpRedirect = 1 << 1
	xdpTarget   = 1 << 2 // ndo_xdp_xmit
	xdpZeroCopy = 1 << 3

	metadataTag = 1 << 2
)

// Numbers of linux/ethtool_netlink.h.
const (
	ethtoolFeaturesGet    = 11
	ethtoolChannelsGet    = 17
	ethtoolHeader         = 1
	ethtoolHeaderIndex    = 1
	ethtoolFeaturesActive = 4
	ethtoolBits           = 3
	ethtoolBit            = 1
	ethtoolBitName        = 2
	ethtoolChannelsRX     = 6
	ethtoolChannelsBoth   = 9
)

// ask sends a request to a generic netlink family and returns the attributes of
// its one answer.
func ask(family string, command uint8, attributes ...*nl.RtAttr) (map[uint16][]byte, error) {
	f, err := netlink.GenlFamilyGet(family)
	if err != nil {
		return nil, fmt.Errorf("netlink family %s: %w", family, err)
	}
	req := nl.NewNetlinkRequest(int(f.ID), 0)
	req.AddRawData([]byte{command, 1, 0, 0}) // struct genlmsghdr; the library leaves its reserved part unset
	for _, a := range attributes {
		req.AddRawData(a.Serialize())
	}
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 || len(messages[0]) < nl.SizeofGenlmsg {
		return nil, fmt.Errorf("netlink family %s: %d answers", family, len(messages))
	}
	return attributesOf(messages[0][nl.SizeofGenlmsg:])
}

func attributesOf(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	m := make(map[uint16][]byte, len(list))
	for _, a := range list {
		m[a.Attr.Type&^attributeFlags] = a.Value
	}
	return m, nil
}

const attributeFlags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER

func number(b []byte) uint64 {
	switch len(b) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	case 8:
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

// readXDP asks what the driver offers to XDP programs.
func (d *Device) readXDP() {
	m, err := ask("netdev", netdevDevGet, nl.NewRtAttr(netdevIfIndex, nl.Uint32Attr(uint32(d.Index))))
	if err != nil {
		return // an older kernel
	}
	f := number(m[netdevXDPFeatures])
	d.XDPKnown, d.Native = true, f&(xdpBasic|xdpRedirect) == xdpBasic|xdpRedirect
	d.Target, d.ZeroCopy = f&xdpTarget != 0, f&xdpZeroCopy != 0
	d.Tags = number(m[netdevRXMetadata])&metadataTag != 0
}

func (d *Device) header() *nl.RtAttr {
	h := nl.NewRtAttr(ethtoolHeader|unix.NLA_F_NESTED, nil)
	h.AddRtAttr(ethtoolHeaderIndex, nl.Uint32Attr(uint32(d.Index)))
	return h
}

// readFeatures asks which offloads are active, by ethtool's names.
func (d *Device) readFeatures() error {
	m, err := ask("ethtool", ethtoolFeaturesGet, d.header())
	if err != nil {
		return fmt.Errorf("its features: %w", err)
	}
	set, err := attributesOf(m[ethtoolFeaturesActive])
	if err != nil {
		return err
	}
	bits, err := nl.ParseRouteAttr(set[ethtoolBits])
	if err != nil {
		return err
	}
	d.Features = map[string]bool{}
	for _, b := range bits {
		if b.Attr.Type&^attributeFlags != ethtoolBit {
			continue
		}
		bit, err := attributesOf(b.Value)
		if err != nil {
			return err
		}
		d.Features[unix.ByteSliceToString(bit[ethtoolBitName])] = true // only active ones are listed
	}
	return nil
}

// readQueues asks how many receive queues are in use; not every driver says so.
func (d *Device) readQueues() {
	m, err := ask("ethtool", ethtoolChannelsGet, d.header())
	if err == nil {
		d.Queues = int(number(m[ethtoolChannelsRX]) + number(m[ethtoolChannelsBoth]))
	}
}
