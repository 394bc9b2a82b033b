package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"picot.dev/picot/bench/gen"
	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/xsk"
)

// The i-th target's addresses: those the source asks for.
func targetIP4(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte((firstTarget + i) >> 8), byte(firstTarget + i)})
}

func targetIP6(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 14: byte((firstTarget + i) >> 8), 15: byte(firstTarget + i)})
}

var sourceIP6 = netip.MustParseAddr("fd00:10::a")

// arpRequest asks for the i-th target, as a 64-byte frame.
func arpRequest(i int) []byte {
	b := make([]byte, frameSize)
	copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(b[6:], sourceMAC[:])
	copy(b[12:], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1})
	copy(b[22:], sourceMAC[:])
	copy(b[28:], sourceIP.AsSlice())
	copy(b[38:], targetIP4(i).AsSlice())
	return b
}

const arpTargetAt = 40 // low half of the target address

// solicitation is a Neighbor Solicitation for the i-th target.
func solicitation(i int) []byte {
	const size = 14 + 40 + 32
	b := make([]byte, size)
	dst := targetIP6(i)
	raw := dst.As16()
	group := [16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: raw[13], 14: raw[14], 15: raw[15]}
	copy(b, []byte{0x33, 0x33, 0xff, raw[13], raw[14], raw[15]})
	copy(b[6:], sourceMAC[:])
	binary.BigEndian.PutUint16(b[12:], packet.EtherTypeIPv6)
	ip := b[14:]
	ip[0], ip[5], ip[6], ip[7] = 0x60, 32, packet.ProtoICMPv6, 255
	copy(ip[8:], sourceIP6.AsSlice())
	copy(ip[24:], group[:])
	icmp := ip[40:]
	icmp[0] = 135
	copy(icmp[8:], raw[:])
	icmp[24], icmp[25] = 1, 1 // source link-layer address
	copy(icmp[26:], sourceMAC[:])
	pseudo := packet.PseudoHeader6(packet.IPFromAddr(sourceIP6), packet.IPFromAddr(netip.AddrFrom16(group)), packet.ProtoICMPv6, len(icmp))
	packet.ICMPv6(icmp).SetChecksum(^packet.Fold(packet.Add(pseudo, packet.Sum(icmp))))
	return b
}

// neighbors puts the targets' bindings into tables; the targets are on the
// other node.
func neighbors(b *table.Builder) error {
	for i := range targets {
		err := b.SetFDB(benchNetwork, table.FDBEntry{MAC: target(i), Node: otherNode, Segment: benchSegment, Static: true})
		for _, ip := range []netip.Addr{targetIP4(i), targetIP6(i)} {
			err = errors.Join(err, b.SetNeighbor(benchNetwork, table.NeighborEntry{IP: ip, MAC: target(i), Static: true}))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asker is the source's port with both its addresses.
func asker() table.Port {
	p := sourcePort()
	p.Addresses = append(p.Addresses, sourceIP6)
	return p
}

// picotAnswers answers for the targets.
func picotAnswers(pins string) func(wires) (forwarder, error) {
	return func(w wires) (forwarder, error) {
		n, err := newNode(pins, 16, nil)
		if err != nil {
			return nil, err
		}
		in, err := n.plug(w.host, w.in, asker())
		if err = errors.Join(err, neighbors(n.Builder)); err != nil {
			return nil, errors.Join(err, n.Close())
		}
		n.out = in.Index()
		n.publish()
		return n, nil
	}
}

// swap sends a frame back to where it came from, and makes the answer look
// like one from a station.
func swap(frame []byte) {
	copy(frame[:6], frame[6:12])
	copy(frame[6:12], []byte{2, 0, 0, 0, 5, 0})
}

func bareReflector(pins string) func(wires) (forwarder, error) {
	return func(w wires) (forwarder, error) {
		b, err := newBare(w.host, pins, w.in, w.in, batchSize, swap)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}

// benchAnswers measures ARP and ND answers: how many, how soon, and in memory.
func benchAnswers(ctx context.Context, s *session) error {
	if err := s.answersPerSecond(ctx); err != nil {
		return err
	}
	if err := s.answerLatency(ctx); err != nil {
		return err
	}
	return s.answersInMemory(ctx)
}

func (s *session) answersPerSecond(ctx context.Context) (err error) {
	frames := gen.Options{Frame: arpRequest(0), Flows: targets, Fields: []gen.Field{{Offset: arpTargetAt, Base: firstTarget}}}
	a, err := s.buildReflector("picot", frames, picotAnswers(s.pins))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	b, err := s.buildReflector("bare", frames, bareReflector(s.pins))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	s.setup("arp: requests for %d addresses in turn from one port with port security mac+ip, answer rate limit out of the way; the bare reflector swaps MACs and looks at nothing, rings and batch as in veth", targets)
	as, bs, err := duel(ctx, s.Pairs, a, b, gen.Load{Duration: s.Duration})
	if err != nil {
		return err
	}
	r := compared("arp", "ARP answers / bare AF_XDP reflector", "answers/s", rates(as), rates(bs), atLeast(0.9))
	r.OursName, r.PeerName, r.Note = "picot", "bare", byCore(as, bs)+accounted(as, bs)
	s.add(r)
	return nil
}

func (s *session) answersInMemory(ctx context.Context) error {
	b, err := bigTables(0)
	if err != nil {
		return err
	}
	snap := b.Snapshot()
	p := *onlyPort(snap)
	p.Addresses = asker().Addresses
	if err := errors.Join(b.SetPort(p), neighbors(b)); err != nil {
		return err
	}
	snap = b.Snapshot()
	port := onlyPort(snap)
	clock := clockCost()
	for _, c := range []struct {
		name string
		ask  func(int) []byte
	}{{"ARP", arpRequest}, {"Neighbor Solicitation", solicitation}} {
		w := fastpath.NewWalk(16, fastpath.Limits{AnswerRate: 1 << 31, AnswerBurst: 1 << 31})
		questions := make([][]byte, targets)
		for i := range questions {
			questions[i] = c.ask(i)
		}
		mem := make([]byte, chunks*xsk.ChunkSize)
		frames := make([]fastpath.Frame, table.Batch)
		next := 0
		slices, allocs, err := inMemory(ctx, max(s.Duration, 20*time.Millisecond), func() {
			w.Now += int64(time.Millisecond)
			for i := range frames {
				next++
				chunk := mem[next%chunks*xsk.ChunkSize:][:xsk.ChunkSize]
				q := questions[next%targets]
				copy(chunk[xsk.KernelHeadroom:], q)
				frames[i] = fastpath.Frame{Buf: chunk, Off: xsk.KernelHeadroom, Len: len(q)}
			}
		}, func() { w.FromPort(snap, port, frames) })
		if err != nil {
			return err
		}
		for i := range frames {
			if frames[i].Verdict != fastpath.Answered {
				return fmt.Errorf("%s: verdict %v, reason %v: not answered", c.name, frames[i].Verdict, frames[i].Reason)
			}
		}
		r := slicesRow(c.name+" answer in memory", slices, allocs, clock, atMost(60))
		r.Benchmark = "arp"
		s.add(r)
	}
	return nil
}
