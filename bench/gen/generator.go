package gen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES.
const liveFrames = 1 << 1

// perCall bounds one system call, and so how late a run notices its end. The
// kernel takes most of a millisecond to set one up: at 8 M frames/s a twentieth.
const perCall = 1 << 17

// Generator is the in-kernel source.
type Generator struct {
	options  Options
	program  *ebpf.Program
	maps     *ebpf.Collection
	produced *ebpf.Variable
}

var _ Source = (*Generator)(nil)

// New makes a source that sends out of the device.
func New(ifindex int, o Options) (*Generator, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	spec, err := loadGen()
	if err != nil {
		return nil, fmt.Errorf("read the built-in generator: %w", err)
	}
	if err := setConstants(spec, &o); err != nil {
		return nil, fmt.Errorf("set up the generator: %w", err)
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{genProgGenSource: spec.Programs[genProgGenSource]}
	for _, name := range []string{genMapSinkCounters, genMapSinkFlows} {
		delete(spec.Maps, name)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the generator: %w", err)
	}
	if err := coll.Maps[genMapOut].Put(uint32(0), uint32(ifindex)); err != nil {
		coll.Close()
		return nil, fmt.Errorf("send to interface index %d: %w", ifindex, err)
	}
	return &Generator{
		options:  o,
		program:  coll.Programs[genProgGenSource],
		maps:     coll,
		produced: coll.Variables[genVarProduced],
	}, nil
}

func setConstants(spec *ebpf.CollectionSpec, o *Options) error {
	var at [maxFields]uint32
	var base, summed [maxFields]uint16
	for i, f := range o.Fields {
		at[i], base[i] = uint32(f.Offset), f.Base
		if f.Summed {
			summed[i] = 1
		}
	}
	var words [refreshWords]uint64
	count := 0
	if o.Refresh {
		for ; count < refreshWords && 8*count+8 <= len(o.Frame); count++ {
			words[count] = binary.NativeEndian.Uint64(o.Frame[8*count:])
		}
	}
	var errs []error
	for name, value := range map[string]any{
		genVarStampAt:       uint32(o.Stamp),
		genVarFlows:         uint32(o.Flows),
		genVarFieldAt:       at,
		genVarFieldBase:     base,
		genVarFieldSummed:   summed,
		genVarTemplateSum:   o.replacedSum(),
		genVarTemplate:      words,
		genVarTemplateWords: uint32(count),
	} {
		errs = append(errs, spec.Variables[name].Set(value))
	}
	return errors.Join(errs...)
}

// Run implements [Source]. Flows and sequences go on where the last run ended.
func (g *Generator) Run(ctx context.Context, l Load) (Result, error) {
	before, err := g.count()
	if err != nil {
		return Result{}, err
	}
	r, err := pace(ctx, l, perCall, func(n int) (int, error) {
		_, err := g.program.Run(&ebpf.RunOptions{
			Data: g.options.Frame, Repeat: uint32(n), Flags: liveFrames, BatchSize: uint32(min(g.options.Batch, n)),
		})
		if err != nil {
			return 0, fmt.Errorf("run the generator: %w", err)
		}
		return n, nil
	})
	// The program's own count: a run that a signal interrupts is repeated.
	after, cerr := g.count()
	r.Frames = after - before
	return r, errors.Join(err, cerr)
}

func (g *Generator) count() (n uint64, err error) {
	if err = g.produced.Get(&n); err != nil {
		err = fmt.Errorf("read the generator's count: %w", err)
	}
	return n, err
}

// Close frees the generator.
func (g *Generator) Close() error {
	g.maps.Close()
	return nil
}
