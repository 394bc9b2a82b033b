package table_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sort"
	"testing"
	"time"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

func fill(b testing.TB, entries int) *table.Builder {
	b.Helper()
	builder := table.NewBuilder()
	self, _ := srv6.LocatorFrom(netip.MustParsePrefix("2001:db8:0:1::/64"))
	there, _ := srv6.LocatorFrom(netip.MustParsePrefix("2001:db8:0:2::/64"))
	builder.SetSelf(self, srv6.DefaultFunction, packet.HashKey{1, 2})
	encap, err := srv6.NewEncap(srv6.EncapConfig{SrcMAC: packet.MAC{2, 1}, DstMAC: packet.MAC{2, 2}, Source: self, Dest: there, Function: srv6.DefaultFunction})
	if err != nil {
		b.Fatal(err)
	}
	if err := builder.SetNode(table.Node{Name: "node2", Locator: there, Alive: true, NextHops: []table.NextHop{{Encap: encap, MTU: 1500}}}); err != nil {
		b.Fatal(err)
	}
	if err := builder.SetNetwork(table.Network{ID: 100, Name: "red"}); err != nil {
		b.Fatal(err)
	}
	for i := range entries {
		if err := builder.SetFDB(100, table.FDBEntry{MAC: packet.MACFromUint64(0x020000000000 + uint64(i)), Node: "node2", Segment: 7}); err != nil {
			b.Fatal(err)
		}
	}
	return builder
}

var sizes = []int{1_000, 1_000_000}

// perFrame runs f, which handles one batch, and reports beside the mean the
// tenth percentile over short slices: on a machine with other work, what the
// code costs while it really runs.
func perFrame(b *testing.B, f func()) {
	const batches = 32
	var slices []float64
	for n := 0; n < b.N; n += batches * table.Batch {
		start := time.Now()
		for range batches {
			f()
		}
		slices = append(slices, float64(time.Since(start).Nanoseconds())/(batches*table.Batch))
	}
	sort.Float64s(slices)
	b.ReportMetric(slices[len(slices)/10], "p10-ns/frame")
}

func BenchmarkFDB(b *testing.B) {
	for _, size := range sizes {
		s := fill(b, size).Snapshot()
		net, _ := s.NetworkByID(100)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x := uint64(1)
			perFrame(b, func() {
				for range table.Batch {
					x = x*6364136223846793005 + 1442695040888963407
					if s.FDB(net, 0x020000000000+(x>>32)*uint64(size)>>32) == 0 {
						b.Fatal("missing")
					}
				}
			})
		})
		b.Run(fmt.Sprintf("batch/%d", size), func(b *testing.B) {
			x := uint64(1)
			var keys [table.Batch]uint64
			var out [table.Batch]table.Target
			perFrame(b, func() {
				for j := range keys {
					x = x*6364136223846793005 + 1442695040888963407
					keys[j] = table.FDBKey(net, 0x020000000000+(x>>32)*uint64(size)>>32)
				}
				s.FDBBatch(&keys, table.Batch, &out)
			})
		})
	}
}

// BenchmarkDecideAndEncap is all a frame from a workload port needs on its way to
// another node, without the rings: parse, checksum, hash, FDB, outer headers. ns
// per frame.
func BenchmarkDecideAndEncap(b *testing.B) {
	for _, size := range sizes {
		s := fill(b, size).Snapshot()
		net, _ := s.NetworkByID(100)
		// As many frames as there are chunks in a shard, so that their bytes come
		// from the caches a worker would find them in.
		const frames = 2048
		area := make([]byte, frames*256)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range frames {
			makeUDP(area[i*256+64:][:64], uint64(rng.IntN(size)), uint16(i))
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			var layouts [table.Batch]packet.Layout
			var keys [table.Batch]uint64
			var out [table.Batch]table.Target
			x := uint64(1)
			at := 0
			perFrame(b, func() {
				at = (at + table.Batch) % frames
				for i := range keys {
					frame := area[(at+i)*256+64:][:64]
					// Another destination each time, so that the table is not warm.
					x = x*6364136223846793005 + 1442695040888963407
					if !packet.Parse(frame, &layouts[i]) {
						b.Fatal("does not parse")
					}
					mac := packet.Ethernet(frame).Destination48()&^0xffffffff | (x>>32)*uint64(size)>>32
					keys[i] = table.FDBKey(net, mac)
				}
				s.FDBBatch(&keys, table.Batch, &out)
				for i, t := range out {
					if t.Kind() != table.KindRemote {
						b.Fatal("not remote")
					}
					base := (at + i) * 256
					frame, l := area[base+64:][:64], &layouts[i]
					packet.CompleteChecksum(frame, l)
					hop := &s.Nodes[t.Index()].NextHops[0]
					hop.Encap.Push(area[base+10:base+128], 64, 100, 7, packet.FlowHash(&s.HashKey, frame, l), srv6.InnerTOS(frame, l))
				}
			})
		})
	}
}

func makeUDP(frame []byte, dst uint64, port uint16) {
	eth := packet.Ethernet(frame)
	eth.SetDestination(packet.MACFromUint64(0x020000000000 + dst))
	eth.SetSource(packet.MAC{2, 0, 0, 0, 0, 1})
	eth.SetEtherType(packet.EtherTypeIPv4)
	ip := packet.IPv4(frame[14:])
	ip.SetVersion(20)
	ip.SetTotalLen(50)
	ip.SetTTL(64)
	ip.SetProtocol(packet.ProtoUDP)
	ip.SetSource(packet.IPFrom4(0x0a000001))
	ip.SetDestination(packet.IPFrom4(0x0a000002))
	udp := frame[34:64]
	binary.BigEndian.PutUint16(udp[0:], port)
	binary.BigEndian.PutUint16(udp[2:], 9)
	binary.BigEndian.PutUint16(udp[4:], 30)
	packet.UDP(udp).SetChecksum(^packet.Fold(packet.Add(packet.PseudoHeader4(0x0a000001, 0x0a000002, packet.ProtoUDP, 30), packet.Sum(udp))))
}

// BenchmarkOneChange is one entry changed and the snapshot published.
func BenchmarkOneChange(b *testing.B) {
	for _, size := range sizes {
		builder := fill(b, size)
		builder.Snapshot()
		i := 0
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var took []float64
			for b.Loop() {
				start := time.Now()
				i++
				mac := packet.MACFromUint64(0x020000000000 + uint64(i*7919%size))
				if err := builder.SetFDB(100, table.FDBEntry{MAC: mac, Node: "node2", Segment: table.Segment(i % 4093)}); err != nil {
					b.Fatal(err)
				}
				builder.Snapshot()
				took = append(took, float64(time.Since(start).Nanoseconds()))
			}
			sort.Float64s(took)
			b.ReportMetric(took[len(took)/10], "p10-ns/change")
			b.ReportMetric(took[len(took)/2], "p50-ns/change")
		})
	}
}
