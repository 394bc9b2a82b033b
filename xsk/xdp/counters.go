package xdp

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Counters are the frames seen since the maps were made, all CPUs summed.
// Redirected + DroppedEmpty + Passed + Errors is every frame.
type Counters struct {
	Redirected     uint64 // handed to a socket's slot
	DroppedEmpty   uint64 // dropped: the queue's slot is empty
	Passed         uint64 // left to the kernel (Uplink only)
	Errors         uint64 // dropped: the VLAN tag could not be put back
	VLANReinserted uint64 // frames whose offloaded tag was put back
}

// fields in the order of enum outcome in bpf/picot.c.
func (c *Counters) fields() []*uint64 {
	return []*uint64{&c.Redirected, &c.DroppedEmpty, &c.Passed, &c.Errors, &c.VLANReinserted}
}

func readCounters(m *ebpf.Map) (Counters, error) {
	var c Counters
	var perCPU []uint64
	for i, field := range c.fields() {
		if err := m.Lookup(uint32(i), &perCPU); err != nil {
			return Counters{}, fmt.Errorf("read XDP counter %d: %w", i, err)
		}
		for _, n := range perCPU {
			*field += n
		}
	}
	return c, nil
}
