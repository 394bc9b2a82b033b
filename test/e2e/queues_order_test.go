package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"picot.dev/picot/bench/gen"
	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/internal/status"
)

// load is what one queue carried.
type load struct{ received, sent uint64 }

func queuesOf(sockets []status.Socket) map[int]load {
	all := map[int]load{}
	for _, s := range sockets {
		all[s.Queue] = load{s.Received, s.Sent}
	}
	return all
}

// direct joins the uplinks of the first two nodes by one veth pair, in place of
// the lab's bridge: from one agent's socket into the other's, with no stack in
// between that could reorder.
func (c *cluster) direct(queues int) {
	c.t.Helper()
	a, b := c.Nodes()[0], c.Nodes()[1]
	side := fmt.Sprintf("numtxqueues %d numrxqueues %d", queues, queues)
	ip := func(n *lab.Node, args string) {
		c.t.Helper()
		_, err := n.Run(c.ctx, "sh", "-c", "ip "+args)
		c.must(err)
	}
	for _, n := range []*lab.Node{a, b} {
		ip(n, "link delete "+lab.UplinkDevice)
	}
	ip(a, fmt.Sprintf("link add %s %s type veth peer name %s netns %s %s", lab.UplinkDevice, side, lab.UplinkDevice, c.Tag()+"-"+b.Name, side))
	for _, n := range []*lab.Node{a, b} {
		ip(n, fmt.Sprintf("addr add %s/64 dev %s nodad", n.Address, lab.UplinkDevice))
		ip(n, "link set "+lab.UplinkDevice+" up")
	}
}

// A million frames of 128 flows, over two workers and four queues on each node:
// none of a flow is early, late or there twice; what is lost is counted; and
// every queue, both workers and the hand-off between them carried their part.
func TestNoReorderOverQueuesWorkersAndHandoff(t *testing.T) {
	const (
		queues, flows = 4, 64
		perPair       = 500_000
		rate          = 50_000 // frames a second and pair: the machine may be busy
	)
	c := newCluster(t, lab.Shared)
	for range 2 {
		n := c.node(lab.NodeOptions{Queues: queues, Workers: 2})
		for range 2 {
			c.pod(n, len(c.Pods())+1)
		}
	}
	c.direct(queues)
	c.start(2)
	pods := c.Pods()
	pairs := [][2]*lab.Pod{{pods[0], pods[2]}, {pods[1], pods[3]}}
	var sinks []*gen.Sink
	var sources []*gen.Generator
	for _, p := range pairs {
		sink, source := c.flow(p[0], p[1], flows)
		sinks, sources = append(sinks, sink), append(sources, source)
	}
	var before [2]lab.Sample
	for i, n := range c.Nodes() {
		s, err := n.Account(c.ctx, lab.Sample{})
		c.must(err)
		before[i] = s
	}

	ctx, cancel := context.WithTimeout(c.ctx, 80*time.Second)
	defer cancel()
	type run struct {
		gen.Result
		err error
	}
	ended := make(chan run, len(sources))
	for _, s := range sources {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			r, err := s.Run(ctx, gen.Load{Count: perPair, Rate: rate})
			ended <- run{r, err}
		}()
	}
	sent := uint64(0)
	for range sources {
		r := <-ended
		c.must(r.err)
		sent += r.Frames
	}
	if sent < 2*perPair {
		t.Fatalf("only %d frames sent in time", sent)
	}
	var after [2]lab.Sample
	for i, n := range c.Nodes() {
		s, err := n.Account(c.ctx, before[i])
		if err != nil {
			t.Errorf("accounting: %v", err)
		}
		after[i] = s
	}

	came := uint64(0)
	for i, s := range sinks {
		flowsSeen, err := s.Flows()
		c.must(err)
		sum := gen.Summarize(flowsSeen)
		counts, err := s.Counts()
		c.must(err)
		came += counts.Frames
		t.Logf("%s -> %s: %d frames came, %+v", pairs[i][0].Name, pairs[i][1].Name, counts.Frames, sum)
		if sum.Flows != flows || sum.Late != 0 || sum.Duplicate != 0 || sum.Stale != 0 {
			t.Errorf("%s -> %s: of %d flows: %d late, %d twice, %d far behind", pairs[i][0].Name, pairs[i][1].Name,
				sum.Flows, sum.Late, sum.Duplicate, sum.Stale)
		}
	}
	if came > sent || came < sent/2 {
		t.Errorf("%d frames came of %d", came, sent)
	}
	if counted := c.lost(before, after); sent-came > counted {
		t.Errorf("%d frames sent, %d came, but only %d losses are counted", sent, came, counted)
	}
	shares(t, "sender", came, before[0].Status, after[0].Status, func(s status.Socket) uint64 { return s.Sent })
	shares(t, "receiver", came, before[1].Status, after[1].Status, func(s status.Socket) uint64 { return s.Received })
}

// flow makes a generator in one pod toward a sink in another.
func (c *cluster) flow(from, to *lab.Pod, flows int) (sink *gen.Sink, source *gen.Generator) {
	c.t.Helper()
	src, err := packet.ParseMAC(from.MAC)
	c.must(err)
	dst, err := packet.ParseMAC(to.MAC)
	c.must(err)
	o, err := gen.UDP{
		SrcMAC: src, DstMAC: dst, Size: 100, Flows: flows,
		Src: netip.AddrPortFrom(from.IP6(), 10000), Dst: netip.AddrPortFrom(to.IP6(), 9),
	}.Options()
	c.must(err)
	c.must(to.Do(func() error {
		device, err := net.InterfaceByName(lab.PodDevice)
		if err != nil {
			return err
		}
		sink, err = gen.NewSink(device.Index, gen.SinkOptions{Stamp: o.Stamp, Flows: flows})
		return err
	}))
	c.t.Cleanup(func() { _ = sink.Close() })
	c.must(from.Do(func() error {
		device, err := net.InterfaceByName(lab.PodDevice)
		if err != nil {
			return err
		}
		source, err = gen.New(device.Index, o)
		return err
	}))
	c.t.Cleanup(func() { _ = source.Close() })
	return sink, source
}

// lost adds up every counted loss between two samples of both nodes.
func (c *cluster) lost(before, after [2]lab.Sample) (n uint64) {
	for i := range after {
		sum := func(s lab.Sample) (n uint64) {
			traffic := func(t status.Traffic) {
				n += t.Dropped + t.TXBusy + t.XDP.DroppedEmpty
			}
			for _, p := range s.Status.Ports {
				traffic(p.Traffic)
			}
			for _, u := range s.Status.Uplinks {
				traffic(u.Traffic)
			}
			for _, d := range s.Devices {
				n += d.RXDrops // in the ring before XDP, and at the sockets
			}
			return n
		}
		n += sum(after[i]) - sum(before[i])
	}
	return n
}

// shares wants more than a tenth of the frames at each queue of the uplink, at
// each worker's queues, and in the hand-off.
func shares(t *testing.T, side string, frames uint64, before, after status.Status, count func(status.Socket) uint64) {
	t.Helper()
	byWorker := map[int]uint64{}
	old := map[int]uint64{}
	for _, s := range before.Uplinks[0].Sockets {
		old[s.Queue] = count(s)
	}
	for _, s := range after.Uplinks[0].Sockets {
		n := count(s) - old[s.Queue]
		byWorker[s.Worker] += n
		t.Logf("%s: queue %d (worker %d) carried %.1f %%", side, s.Queue, s.Worker, 100*float64(n)/float64(frames))
		if n <= frames/10 {
			t.Errorf("%s: queue %d carried %d of %d", side, s.Queue, n, frames)
		}
	}
	handed := uint64(0)
	for i, w := range after.Workers {
		handed += w.HandedOver - before.Workers[i].HandedOver
		if byWorker[w.Worker] <= frames/10 {
			t.Errorf("%s: worker %d carried %d of %d", side, w.Worker, byWorker[w.Worker], frames)
		}
	}
	t.Logf("%s: %.1f %% handed over", side, 100*float64(handed)/float64(frames))
	if handed <= frames/10 {
		t.Errorf("%s: %d of %d frames were handed over", side, handed, frames)
	}
}
