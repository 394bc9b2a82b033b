package xdp

import (
	"context"
	"testing"

	"github.com/cilium/ebpf/link"

	"picot.dev/picot/bench/gen"
)

// BenchmarkProgram: a frame through the source, the veth and the program to the
// empty slot's drop, on one core; the two differ by the question for a tag.
func BenchmarkProgram(b *testing.B) {
	for _, tags := range []bool{true, false} {
		name := programName(Workload, tags)
		b.Run(name, func(b *testing.B) {
			w := newWire(b, 1500, 1)
			o := w.options(Workload)
			var objs *objects
			var l link.Link
			var source *gen.Generator
			err := w.hostNS.Do(func() (err error) {
				if objs, err = loadVariant(&o, tags, nil); err != nil {
					return err
				}
				l, err = link.AttachXDP(link.XDPOptions{Program: objs.program, Interface: w.port, Flags: link.XDPDriverMode})
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			defer objs.close()
			defer l.Close()
			err = w.podNS.Do(func() (err error) {
				source, err = gen.New(w.podNS.Link(b, podDev).Attrs().Index, gen.Options{Frame: frame("bench")})
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			defer source.Close()
			b.ResetTimer()
			if _, err := source.Run(context.Background(), gen.Load{Count: uint64(b.N)}); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if c, err := readCounters(objs.counters); err != nil || c != (Counters{DroppedEmpty: uint64(b.N)}) {
				b.Errorf("counters %+v, %v; want %d drops", c, err, b.N)
			}
		})
	}
}
