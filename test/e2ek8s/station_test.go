package e2ek8s

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/lab"
)

// wire is a pod's device seen as a wire: any station's frames can be sent into it,
// and all that come are seen.
type wire struct {
	t  *testing.T
	fd int

	mu   sync.Mutex
	hear func(frame []byte) // guarded by mu; called for each frame that comes
	done chan struct{}
}

// newWire opens the device of a pod.
func (c *cluster) newWire(p *lab.Pod) *wire {
	c.t.Helper()
	return c.newWireAt(p.Do, lab.PodDevice)
}

// newWireAt opens a device of the namespace in which inside runs what it is given.
func (c *cluster) newWireAt(inside func(func() error) error, device string) *wire {
	c.t.Helper()
	w := &wire{t: c.t, hear: func([]byte) {}, done: make(chan struct{})}
	must(c.t, inside(func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		all := int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)))
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		if err != nil {
			return err
		}
		promiscuous := unix.PacketMreq{Ifindex: int32(dev.Index), Type: unix.PACKET_MR_PROMISC}
		return errors.Join(
			unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: dev.Index}),
			unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptPacketMreq(w.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promiscuous),
			unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	}))
	stop := make(chan struct{})
	go func() {
		defer close(w.done)
		buf, aux := make([]byte, 2048), make([]byte, 128)
		for {
			n, auxLen, _, from, err := unix.Recvmsg(w.fd, buf, aux, 0)
			select {
			case <-stop:
				return
			default:
			}
			if err != nil {
				continue
			}
			if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			w.mu.Lock()
			w.hear(withTag(buf[:n], aux[:auxLen]))
			w.mu.Unlock()
		}
	}()
	c.t.Cleanup(func() {
		close(stop)
		<-w.done
		_ = unix.Close(w.fd)
	})
	return w
}

// withTag is a frame as it was on the wire: the kernel hands over the outermost tag
// beside it (struct tpacket_auxdata, include/uapi/linux/if_packet.h).
func withTag(frame, aux []byte) []byte {
	all, err := unix.ParseSocketControlMessage(aux)
	if err != nil {
		return frame
	}
	for _, m := range all {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 || len(frame) < 14 {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		if status&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tpid := uint16(0x8100)
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			tpid = binary.NativeEndian.Uint16(m.Data[18:])
		}
		tag := binary.BigEndian.AppendUint16(nil, tpid)
		tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
		return slices.Concat(frame[:12], tag, frame[12:])
	}
	return frame
}

// onFrame sets what is done with each frame that comes.
func (w *wire) onFrame(f func(frame []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear = f
}

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if _, err := unix.Write(w.fd, frame); err != nil {
		w.t.Fatalf("sending into the wire: %v", err)
	}
}

// station is a made-up station: what it is called on a wire.
type station struct {
	mac    net.HardwareAddr
	v4, v6 netip.Addr
}

// stationN is the n-th station of red, 0 to 99.
func stationN(n int) station {
	return station{
		mac: net.HardwareAddr{2, 0, 0, 1, 0, byte(n)},
		v4:  netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + n)}),
		v6:  netip.MustParseAddr(fmt.Sprintf("fd00:10::1:%x", n)),
	}
}

var everybody = net.HardwareAddr{255, 255, 255, 255, 255, 255}

func frameOf(t *testing.T, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...))
	return buf.Bytes()
}

func ethernet(dst, src net.HardwareAddr, typ layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{DstMAC: dst, SrcMAC: src, EthernetType: typ}
}

// arp is a broadcast ARP request.
func (s station) arp(t *testing.T, spa, tpa netip.Addr) []byte {
	t.Helper()
	return frameOf(t, ethernet(everybody, s.mac, layers.EthernetTypeARP), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1,
		SourceHwAddress: s.mac, SourceProtAddress: spa.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: tpa.AsSlice(),
	})
}

func (s station) garp(t *testing.T) []byte { return s.arp(t, s.v4, s.v4) }

// rarp is what a hypervisor sends for a guest that has moved.
func (s station) rarp(t *testing.T) []byte {
	t.Helper()
	return frameOf(t, ethernet(everybody, s.mac, 0x8035), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 3,
		SourceHwAddress: s.mac, SourceProtAddress: make([]byte, 4), DstHwAddress: s.mac, DstProtAddress: make([]byte, 4),
	})
}

func (s station) icmp6(t *testing.T, from, to netip.Addr, group net.HardwareAddr, typ uint8, body []byte) []byte {
	t.Helper()
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	i := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}
	must(t, i.SetNetworkLayerForChecksum(ip))
	return frameOf(t, ethernet(group, s.mac, layers.EthernetTypeIPv6), ip, i, gopacket.Payload(body))
}

// na is an unsolicited neighbour advertisement; flags 0x20: Override.
func (s station) na(t *testing.T, flags byte) []byte {
	t.Helper()
	body := append(append([]byte{flags, 0, 0, 0}, s.v6.AsSlice()...), 2, 1)
	return s.icmp6(t, s.v6, netip.MustParseAddr("ff02::1"), net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, 136, append(body, s.mac...))
}

// dad is the neighbour solicitation by which a host looks whether its address is
// free.
func (s station) dad(t *testing.T) []byte {
	t.Helper()
	b := s.v6.As16()
	to := netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
	return s.icmp6(t, netip.IPv6Unspecified(), to, net.HardwareAddr{0x33, 0x33, 0xff, b[13], b[14], b[15]}, 135, append(make([]byte, 4), b[:]...))
}

// ns asks for the owner of an address.
func (s station) ns(t *testing.T, target netip.Addr) []byte {
	t.Helper()
	b := target.As16()
	to := netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
	body := append(append(make([]byte, 4), b[:]...), 1, 1)
	return s.icmp6(t, s.v6, to, net.HardwareAddr{0x33, 0x33, 0xff, b[13], b[14], b[15]}, 135, append(body, s.mac...))
}

// chatter is what a host that is not running yet may send: MLD, RS, a probe, DAD.
func (s station) chatter(t *testing.T) [][]byte {
	t.Helper()
	ll := netip.MustParseAddr("fe80::1234")
	return [][]byte{
		s.icmp6(t, ll, netip.MustParseAddr("ff02::16"), net.HardwareAddr{0x33, 0x33, 0, 0, 0, 0x16}, 143, make([]byte, 4)),
		s.icmp6(t, netip.IPv6Unspecified(), netip.MustParseAddr("ff02::2"), net.HardwareAddr{0x33, 0x33, 0, 0, 0, 2}, 133, make([]byte, 4)),
		s.arp(t, netip.IPv4Unspecified(), s.v4), s.dad(t),
	}
}

// udp is a datagram to a station whose MAC is known.
func (s station) udp(t *testing.T, mac string, to netip.Addr) []byte {
	t.Helper()
	dst, err := net.ParseMAC(mac)
	must(t, err)
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: s.v4.AsSlice(), DstIP: to.AsSlice()}
	u := &layers.UDP{SrcPort: 9, DstPort: 9}
	must(t, u.SetNetworkLayerForChecksum(ip))
	return frameOf(t, ethernet(dst, s.mac, layers.EthernetTypeIPv4), ip, u, gopacket.Payload("x"))
}

// repeat sends frames in turn every so often until the returned function is
// called.
func (w *wire) repeat(every time.Duration, frames ...[]byte) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-tick.C:
				_, _ = unix.Write(w.fd, frames[i%len(frames)]) // a full queue: the next one
			}
		}
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() { close(end) })
		<-ended
	}
	w.t.Cleanup(stop)
	return stop
}
