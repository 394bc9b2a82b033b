package arpnd

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"picot.dev/picot/internal/packet"
)

// oracle decodes a frame with gopacket and checks everything Parse says about it.
// The extension headers of an ND message are cut out first: finding their end is
// packet.Parse's work and tested there.
func oracle(t testing.TB, frame []byte, l *packet.Layout, m *Message) {
	t.Helper()
	if m.Op == RARP {
		return // gopacket has no layer for it
	}
	if m.Op.IsND() {
		frame = withoutExtensions(frame, l)
	}
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if !bytes.Equal(eth.SrcMAC, m.EtherSrc[:]) || !bytes.Equal(eth.DstMAC, m.EtherDst[:]) {
		t.Fatalf("Ethernet %v > %v, gopacket %v > %v", m.EtherSrc, m.EtherDst, eth.SrcMAC, eth.DstMAC)
	}
	tags := 0
	for _, layer := range p.Layers() {
		if layer.LayerType() == layers.LayerTypeDot1Q {
			tags++
		}
	}
	if tags != int(l.Tags) {
		t.Fatalf("%d tags, gopacket %d", l.Tags, tags)
	}
	if m.Op.IsND() {
		oracleND(t, p, m)
		return
	}
	oracleARP(t, p, m)
}

func withoutExtensions(frame []byte, l *packet.Layout) []byte {
	out := append([]byte(nil), frame[:l.L3+40]...)
	out = append(out, frame[l.L4:l.End()]...)
	n := l.End() - l.L4
	out[l.L3+4], out[l.L3+5], out[l.L3+6] = byte(n>>8), byte(n), 58
	return out
}

func oracleARP(t testing.TB, p gopacket.Packet, m *Message) {
	t.Helper()
	a, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP)
	if !ok {
		t.Fatalf("gopacket finds no ARP: %v", p.ErrorLayer())
	}
	if a.AddrType != 1 || a.Protocol != 0x0800 || a.HwAddressSize != 6 || a.ProtAddressSize != 4 {
		t.Fatalf("accepted ARP header %v", a)
	}
	op := map[uint16]Op{1: ARPRequest, 2: ARPReply}[a.Operation]
	if op == OpNone {
		op = ARPOther
	}
	if m.Op != op || !bytes.Equal(a.SourceHwAddress, m.SenderMAC[:]) ||
		!bytes.Equal(a.SourceProtAddress, wire(m.Sender)) || !bytes.Equal(a.DstProtAddress, wire(m.Target)) {
		t.Fatalf("%+v, gopacket %+v", m, a)
	}
}

func oracleND(t testing.TB, p gopacket.Packet, m *Message) {
	t.Helper()
	ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	icmp, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if !ok {
		t.Fatalf("gopacket finds no ICMPv6: %v", p.ErrorLayer())
	}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	if err, sum := icmp.VerifyChecksum(); err != nil || !sum.Valid {
		t.Fatalf("checksum: %v %+v", err, sum)
	}
	if ip.HopLimit != 255 || icmp.TypeCode.Code() != 0 || !ip.SrcIP.Equal(wire6(m.Sender)) {
		t.Fatalf("%+v, gopacket %+v", m, ip)
	}
	var opts layers.ICMPv6Options
	var want layers.ICMPv6Opt
	var target []byte
	switch icmp.TypeCode.Type() {
	case 133:
		opts, want = p.Layer(layers.LayerTypeICMPv6RouterSolicitation).(*layers.ICMPv6RouterSolicitation).Options, 1
	case 134:
		opts, want = p.Layer(layers.LayerTypeICMPv6RouterAdvertisement).(*layers.ICMPv6RouterAdvertisement).Options, 1
	case 135:
		x := p.Layer(layers.LayerTypeICMPv6NeighborSolicitation).(*layers.ICMPv6NeighborSolicitation)
		opts, want, target = x.Options, 1, x.TargetAddress
	case 136:
		x := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
		opts, want, target = x.Options, 2, x.TargetAddress
		if x.Router() != m.Router || x.Solicited() != m.Solicited || x.Override() != m.Override {
			t.Fatalf("flags %+v, gopacket %+v", m, x)
		}
	case 137:
		x := p.Layer(layers.LayerTypeICMPv6Redirect).(*layers.ICMPv6Redirect)
		opts, want, target = x.Options, 2, x.TargetAddress
	}
	if target != nil && !bytes.Equal(target, wire6(m.Target)) {
		t.Fatalf("target %v, gopacket %v", m.Target, target)
	}
	mac, has := m.EtherSrc, false
	for _, o := range opts {
		if o.Type == want {
			mac, has = packet.MAC(o.Data), true
			break
		}
	}
	if has != m.HasLLAO || mac != m.SenderMAC {
		t.Fatalf("link-layer address %v %v, gopacket %v %v", m.HasLLAO, m.SenderMAC, has, mac)
	}
}
