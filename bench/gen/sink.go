package gen

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// SinkOptions say what a sink counts.
type SinkOptions struct {
	// Stamp is the offset of the stamp in the frames as they arrive here. Only
	// frames with one are counted and dropped; others (ARP, ND) go on to the
	// kernel. 0: every frame is counted and dropped.
	Stamp int
	// Flows is how many flows to follow the sequence of; 0: none. It costs a
	// lock a frame.
	Flows int
}

// Counts are the frames a sink took.
type Counts struct {
	Frames uint64
	Bytes  uint64 // with the Ethernet header, without FCS
	Others uint64 // passed on: no stamp
}

// Flow is what a sink saw of one flow.
type Flow struct {
	Frames    uint64 // all that came, duplicates too
	Next      uint64 // highest sequence number + 1
	Late      uint64 // came behind a higher number, for the first time
	Duplicate uint64 // had come before
	Stale     uint64 // more than 64 behind: late or duplicate, not known which
	Queues    uint32 // bit per receive queue; the highest is for 31 and up
}

// Lost is how many numbers below Next did not come. Stale frames count as late
// ones.
func (f Flow) Lost() uint64 {
	came := f.Frames - f.Duplicate
	if came > f.Next {
		return 0
	}
	return f.Next - came
}

// Summary adds up the flows of a sink.
type Summary struct {
	Flows                        int // that had a frame
	Lost, Late, Duplicate, Stale uint64
	Queues                       int        // receive queues that saw a flow
	SpreadFlows                  int        // flows that came on more than one queue
	FramesByQueue                [32]uint64 // of the other flows
}

// Sink is an XDP program that counts and drops.
type Sink struct {
	link link.Link
	maps *ebpf.Collection
}

// NewSink attaches a sink to the receiving end. A native XDP program also
// makes a veth receive in NAPI.
func NewSink(ifindex int, o SinkOptions) (*Sink, error) {
	if o.Stamp < 0 || o.Flows < 0 || o.Flows > 0 && o.Stamp == 0 {
		return nil, fmt.Errorf("sink: stamp at %d, %d flows: flows are known from the stamp", o.Stamp, o.Flows)
	}
	spec, err := loadGen()
	if err != nil {
		return nil, fmt.Errorf("read the built-in sink: %w", err)
	}
	checks := uint32(0)
	if o.Flows > 0 {
		checks = 1
		spec.Maps[genMapSinkFlows].MaxEntries = uint32(o.Flows)
	}
	err = errors.Join(spec.Variables[genVarSinkStampAt].Set(uint32(o.Stamp)), spec.Variables[genVarSinkChecks].Set(checks))
	if err != nil {
		return nil, fmt.Errorf("set up the sink: %w", err)
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{genProgGenSink: spec.Programs[genProgGenSink]}
	delete(spec.Maps, genMapOut)
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the sink: %w", err)
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: coll.Programs[genProgGenSink], Interface: ifindex, Flags: link.XDPDriverMode})
	if err != nil {
		coll.Close()
		return nil, fmt.Errorf("attach the sink to interface index %d: %w", ifindex, err)
	}
	return &Sink{link: l, maps: coll}, nil
}

// Counts reads the counters.
func (s *Sink) Counts() (Counts, error) {
	var c Counts
	var perCPU []uint64
	for i, field := range []*uint64{&c.Frames, &c.Bytes, &c.Others} { // enum in bpf/gen.c
		if err := s.maps.Maps[genMapSinkCounters].Lookup(uint32(i), &perCPU); err != nil {
			return Counts{}, fmt.Errorf("read the sink's counters: %w", err)
		}
		for _, n := range perCPU {
			*field += n
		}
	}
	return c, nil
}

// Flows reads the flows, by number.
func (s *Sink) Flows() ([]Flow, error) {
	m := s.maps.Maps[genMapSinkFlows]
	flows := make([]Flow, m.MaxEntries())
	for i := range flows {
		var f genFlowState
		if err := m.Lookup(uint32(i), &f); err != nil {
			return nil, fmt.Errorf("read the sink's flow %d: %w", i, err)
		}
		flows[i] = Flow{Frames: f.Frames, Next: f.Next, Late: f.Late, Duplicate: f.Duplicate, Stale: f.Stale, Queues: f.Queues}
	}
	return flows, nil
}

// Summarize adds up flows.
func Summarize(flows []Flow) (s Summary) {
	var queues uint32
	for _, f := range flows {
		if f.Frames == 0 {
			continue
		}
		s.Flows++
		s.Lost += f.Lost()
		s.Late += f.Late
		s.Duplicate += f.Duplicate
		s.Stale += f.Stale
		queues |= f.Queues
		if bits.OnesCount32(f.Queues) > 1 {
			s.SpreadFlows++
			continue
		}
		s.FramesByQueue[bits.TrailingZeros32(f.Queues)] += f.Frames
	}
	s.Queues = bits.OnesCount32(queues)
	return s
}

// Close detaches the sink.
func (s *Sink) Close() error {
	err := s.link.Close()
	s.maps.Close()
	return err
}
