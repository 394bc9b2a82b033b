package bench

import (
	"errors"
	"fmt"
	"net/netip"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xdp"
)

// Sizes every AF_XDP forwarder here works with, picot as its agent does.
const (
	ringFill, ringRX, ringTX, ringCompletion = 1024, 1024, 512, 1024

	txBudget  = 256
	batchSize = 64  // frames walked together
	burstSize = 256 // frames of picot that share a kick
	chunks    = 2048
	// fillDepth is how many frames picot keeps in a busy port's fill ring, when
	// they come as fast as they can.
	fillDepth = 336
)

// socketOptions are those of the agent's workload ports.
func socketOptions(ifindex int) xsk.Options {
	return xsk.Options{
		IfIndex: ifindex, Fill: ringFill, RX: ringRX, TX: ringTX, Completion: ringCompletion,
		TXBudget: txBudget, MultiBuffer: true, NeedWakeup: true, ZeroCopy: xsk.ZeroCopyPrefer,
	}
}

const (
	benchNetwork table.NetworkID = 100
	benchSegment table.Segment   = 7
	otherNode                    = "node2"
)

// node is picot's fast path with tables of our making.
type node struct {
	*fastpath.Engine
	*table.Builder
	pins     string
	programs []*xdp.Program
	out      int // port index of the way out; 0: the uplink
}

// newNode makes an engine with one worker on forwardCPU, one network and one
// other node.
func newNode(pins string, maxPorts int, uplinks []int) (*node, error) {
	e, err := fastpath.New(fastpath.Config{
		Workers: 1, CPUs: []int{forwardCPU}, MaxPorts: maxPorts, UplinkQueues: uplinks, NUMANode: -1,
		Limits: fastpath.Limits{AnswerRate: 1 << 31, AnswerBurst: 1 << 31},
	})
	if err != nil {
		return nil, err
	}
	n := &node{Engine: e, pins: pins}
	if n.Builder, err = newTables(); err == nil {
		err = e.Start()
	}
	if err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return n, nil
}

// newTables knows a network and another node beyond the uplink.
func newTables() (*table.Builder, error) {
	self, err := srv6.LocatorFrom(netip.MustParsePrefix("2001:db8:0:1::/64"))
	if err != nil {
		return nil, err
	}
	there, err := srv6.LocatorFrom(netip.MustParsePrefix("2001:db8:0:2::/64"))
	if err != nil {
		return nil, err
	}
	b := table.NewBuilder()
	b.SetSelf(self, srv6.DefaultFunction, packet.HashKey{0x0123456789abcdef, 0xfedcba9876543210})
	src, err := packet.ParseMAC(macOut)
	if err != nil {
		return nil, err
	}
	dst, err := packet.ParseMAC(macSink)
	if err != nil {
		return nil, err
	}
	encap, err := srv6.NewEncap(srv6.EncapConfig{SrcMAC: src, DstMAC: dst, Source: self, Dest: there, Function: srv6.DefaultFunction})
	if err != nil {
		return nil, err
	}
	return b, errors.Join(
		b.SetNetwork(table.Network{ID: benchNetwork, Name: "bench", LinkLocal: true,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00:10::/64")}}),
		b.SetNode(table.Node{Name: otherNode, Locator: there, Alive: true, NextHops: []table.NextHop{{Encap: encap, MTU: 1500}}}))
}

// plug attaches a device as a workload port, as the agent does.
func (n *node) plug(s *space, device string, p table.Port) (table.PortID, error) {
	at, err := n.Place()
	if err != nil {
		return 0, err
	}
	if p.ID, err = n.NewPortID(); err != nil {
		return 0, err
	}
	p.Name, p.Network, p.Segment, p.MTU, p.Worker = device, benchNetwork, benchSegment, 1500, at.Worker
	if err := n.SetPort(p); err != nil {
		return 0, err
	}
	err = s.do(func() error {
		index, err := s.index(device)
		if err != nil {
			return err
		}
		prog, err := xdp.Attach(xdp.AttachOptions{IfIndex: index, Kind: xdp.Workload, Queues: 1, PinDir: n.pins, Name: device})
		if err != nil {
			return err
		}
		n.programs = append(n.programs, prog)
		sock, err := xsk.Open(n.Memory(), n.Memory().Shard(at.Shard), socketOptions(index))
		if err != nil {
			return err
		}
		fd := sock.FD()
		if err := n.AddPort(p.ID.Index(), 0, at, sock); err != nil {
			return errors.Join(err, sock.Close())
		}
		return prog.SetSocket(0, fd)
	})
	if err != nil {
		return 0, fmt.Errorf("port %s: %w", device, err)
	}
	return p.ID, nil
}

// plugUplink attaches a device as uplink 0.
func (n *node) plugUplink(s *space, device string) error {
	return s.do(func() error {
		index, err := s.index(device)
		if err != nil {
			return err
		}
		prog, err := xdp.Attach(xdp.AttachOptions{
			IfIndex: index, Kind: xdp.Uplink, Queues: 1, PinDir: n.pins, Name: device, Locator: netip.MustParsePrefix("2001:db8:0:1::/64"),
		})
		if err != nil {
			return err
		}
		n.programs = append(n.programs, prog)
		sock, err := xsk.Open(n.Memory(), n.Memory().Whole(), socketOptions(index))
		if err != nil {
			return err
		}
		fd := sock.FD()
		if err := n.AddUplink(0, 0, sock); err != nil {
			return errors.Join(err, sock.Close())
		}
		return prog.SetSocket(0, fd)
	})
}

// entries puts the targets into the FDB.
func (n *node) entries(e table.FDBEntry) error {
	e.Segment, e.Static = benchSegment, true
	for i := range targets {
		e.MAC = target(i)
		if err := n.SetFDB(benchNetwork, e); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) publish() { n.Publish(n.Snapshot()) }

// Resume implements forwarder: a worker without frames sleeps.
func (n *node) Resume() error { return nil }

// Pause implements forwarder.
func (n *node) Pause() error { return nil }

// Sent implements forwarder.
func (n *node) Sent() (uint64, bool, error) {
	var c fastpath.Counters
	if n.out == 0 {
		c = n.UplinkCounters(0)
	} else {
		c = n.Counters(n.out)
	}
	return c.TX - c.TXBusy, true, nil
}

// Close implements forwarder.
func (n *node) Close() error {
	var err error
	for _, p := range n.programs {
		err = errors.Join(err, p.Detach())
	}
	return errors.Join(err, n.Engine.Stop())
}

// sourcePort is the port of the source, with all checks on.
func sourcePort() table.Port {
	return table.Port{MAC: sourceMAC, Addresses: []netip.Addr{sourceIP}, Security: table.SecurityMACIP}
}

// picotLocal forwards from port to port, both in one shard.
func picotLocal(pins string) func(wires) (forwarder, error) { return picotSized(pins, 16) }

// picotSized does so with an engine for so many ports. With more than one
// shard of ports the two are in different ones.
func picotSized(pins string, maxPorts int) func(wires) (forwarder, error) {
	return func(w wires) (forwarder, error) {
		n, err := newNode(pins, maxPorts, nil)
		if err != nil {
			return nil, err
		}
		if err := n.connect(w); err != nil {
			return nil, errors.Join(err, n.Close())
		}
		return n, nil
	}
}

// connect makes the lane's two devices ports, all targets behind the second.
func (n *node) connect(w wires) error {
	if _, err := n.plug(w.host, w.in, sourcePort()); err != nil {
		return err
	}
	out, err := n.plug(w.host, w.out, table.Port{MAC: target(0), Addresses: []netip.Addr{targetIP}})
	if err != nil {
		return err
	}
	n.out = out.Index()
	if err := n.entries(table.FDBEntry{Port: out}); err != nil {
		return err
	}
	n.publish()
	return nil
}

// picotRemote forwards from a port out of the uplink, encapsulated.
func picotRemote(pins string) func(wires) (forwarder, error) {
	return func(w wires) (forwarder, error) {
		n, err := newNode(pins, 16, []int{1})
		if err != nil {
			return nil, err
		}
		if _, err = n.plug(w.host, w.in, sourcePort()); err == nil {
			err = errors.Join(n.plugUplink(w.host, w.out), n.entries(table.FDBEntry{Node: otherNode}))
		}
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		n.publish()
		return n, nil
	}
}
