package demo

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/status"
)

// kind is a sort of frame that a switch would flood and picot never does.
type kind struct {
	name, reason string // reason: the agent's counter
	frame        func(from *lab.Pod, marker []byte) []byte
}

const unknownMAC = "02:00:00:00:ff:ff" // no pod's

func kinds() []kind {
	return []kind{
		{"broadcast", "group_other", func(p *lab.Pod, m []byte) []byte {
			return udp(p, "ff:ff:ff:ff:ff:ff", "255.255.255.255", 9999, m)
		}},
		{"unknown unicast", "unknown_unicast", func(p *lab.Pod, m []byte) []byte {
			return udp(p, unknownMAC, "10.0.0.77", 9999, m)
		}},
		{"mDNS", "group_mdns", func(p *lab.Pod, m []byte) []byte {
			return udp(p, "01:00:5e:00:00:fb", "224.0.0.251", 5353, m)
		}},
		{"DHCP", "group_dhcp", func(p *lab.Pod, m []byte) []byte {
			return udp(p, "ff:ff:ff:ff:ff:ff", "255.255.255.255", 67, m)
		}},
		{"router solicitation", "group_nd_other", func(p *lab.Pod, m []byte) []byte {
			body := append([]byte{133, 0, 0, 0, 0, 0, 0, 0, 1, 1}, mac(p.MAC)...) // RFC 4861 4.1, with SLLAO
			// An unknown option holds the marker: type 253, 3 x 8 bytes.
			body = append(append(append(body, 253, 3), m...), make([]byte, 22-len(m))...)
			return ip6(p, "33:33:00:00:00:02", "ff02::2", packet.ProtoICMPv6, 2, body)
		}},
		{"ARP for nobody", "silent_unknown", func(p *lab.Pod, m []byte) []byte {
			return arp(p, "10.0.0.77", m)
		}},
		{"gratuitous ARP", "group_arp_other", func(p *lab.Pod, m []byte) []byte {
			return arp(p, p.IP4().String(), m)
		}},
		{"LLDP", "group_lldp", func(p *lab.Pod, m []byte) []byte {
			return ethernet(p, "01:80:c2:00:00:0e", 0x88cc, m)
		}},
		{"STP", "group_stp", func(p *lab.Pod, m []byte) []byte {
			body := append([]byte{0x42, 0x42, 0x03}, m...)
			return ethernet(p, "01:80:c2:00:00:00", uint16(len(body)), body)
		}},
		{"VRRP", "group_vrrp", func(p *lab.Pod, m []byte) []byte {
			return ip4(p, "01:00:5e:00:00:12", "224.0.0.18", 112, m)
		}},
	}
}

// notDelivered sends some frames of each kind from one pod. The agent must count
// each at its reason, and nobody else may see one, neither the other pods nor the
// underlay.
func (s *session) notDelivered(ctx context.Context) (string, error) {
	const count = 10
	from := s.Red[0]
	all, err := s.watchAll(from)
	if err != nil {
		return "", err
	}
	defer all.close()
	before, err := drops(ctx, from)
	if err != nil {
		return "", err
	}
	markers := map[string][]byte{}
	for _, k := range kinds() {
		markers[k.name] = newMarker()
		frame := k.frame(from, markers[k.name])
		frames := make([][]byte, count)
		for i := range frames {
			frames[i] = frame
		}
		if err := send(from.Do, lab.PodDevice, frames); err != nil {
			return "", fmt.Errorf("%s: %w", k.name, err)
		}
	}
	var seen []string
	_, err = from.Node.WaitStatus(ctx, func(st status.Status) error {
		seen = nil
		now := dropsOf(st, from)
		for _, k := range kinds() {
			n := now[k.reason] - before[k.reason]
			if n < count { // the pod's own stack may have sent some more
				return fmt.Errorf("%s: %d of %d counted as %s", k.name, n, count, k.reason)
			}
			seen = append(seen, fmt.Sprintf("%s %d", k.reason, n))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if err := all.drain(); err != nil {
		return "", err
	}
	for _, w := range all {
		for _, k := range kinds() {
			if n := w.with(markers[k.name]); n > 0 {
				return "", fmt.Errorf("%s: %s saw %d", k.name, w.name, n)
			}
		}
	}
	return fmt.Sprintf("%d of each kind sent, dropped at the port: %s; seen by the 7 other pods and the underlay: 0",
		count, strings.Join(seen, ", ")), nil
}

func (s *session) watchAll(but *lab.Pod) (watchers, error) {
	all, err := watchPods(but, s.Red, s.Blue)
	for _, n := range s.Nodes {
		if err != nil {
			break
		}
		var w *watcher
		if w, err = watch("the underlay of "+n.Name, s.Lab.DoUnderlay, n.RouterIf); err == nil {
			all = append(all, w)
		}
	}
	if err != nil {
		all.close()
	}
	return all, err
}

func drops(ctx context.Context, p *lab.Pod) (map[string]uint64, error) {
	s, err := p.Node.Status(ctx)
	return dropsOf(s, p), err
}

func dropsOf(s status.Status, p *lab.Pod) map[string]uint64 {
	for _, x := range s.Ports {
		if x.Device == p.Device {
			return x.Drops
		}
	}
	return nil
}

func mac(s string) []byte {
	m, err := packet.ParseMAC(s)
	if err != nil {
		return make([]byte, 6) // a pod without a MAC of its own; the demo has none
	}
	return m[:]
}

func ethernet(from *lab.Pod, to string, etherType uint16, body []byte) []byte {
	f := append(append([]byte{}, mac(to)...), mac(from.MAC)...)
	f = append(binary.BigEndian.AppendUint16(f, etherType), body...)
	return append(f, make([]byte, max(0, 60-len(f)))...)
}

// arp is a broadcast request; the marker is in the padding.
func arp(from *lab.Pod, target string, marker []byte) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	b = append(append(b, mac(from.MAC)...), from.IP4().AsSlice()...)
	b = append(append(b, make([]byte, 6)...), netip.MustParseAddr(target).AsSlice()...)
	return ethernet(from, "ff:ff:ff:ff:ff:ff", packet.EtherTypeARP, append(b, marker...))
}

func ip4(from *lab.Pod, toMAC, to string, proto byte, body []byte) []byte {
	h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0}
	h = append(append(h, from.IP4().AsSlice()...), netip.MustParseAddr(to).AsSlice()...)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(body)))
	binary.BigEndian.PutUint16(h[10:], ^packet.Fold(packet.Sum(h)))
	return ethernet(from, toMAC, packet.EtherTypeIPv4, append(h, body...))
}

// udp has no checksum, which IPv4 allows (RFC 768).
func udp(from *lab.Pod, toMAC, to string, port uint16, body []byte) []byte {
	h := []byte{0xc3, 0x50, byte(port >> 8), byte(port), 0, byte(8 + len(body)), 0, 0}
	return ip4(from, toMAC, to, packet.ProtoUDP, append(h, body...))
}

// ip6 carries a checksum at that offset of the body.
func ip6(from *lab.Pod, toMAC, to string, proto byte, checksum int, body []byte) []byte {
	src, dst := from.IP6(), netip.MustParseAddr(to)
	sum := packet.Add(packet.PseudoHeader6(packet.IPFromAddr(src), packet.IPFromAddr(dst), proto, len(body)), packet.Sum(body))
	binary.BigEndian.PutUint16(body[checksum:], ^packet.Fold(sum))
	h := []byte{0x60, 0, 0, 0, byte(len(body) >> 8), byte(len(body)), proto, 255}
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	return ethernet(from, toMAC, packet.EtherTypeIPv6, append(h, body...))
}
