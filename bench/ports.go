package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"picot.dev/picot/bench/gen"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/packet"
)

// idleMAC is the MAC of the i-th idle port.
func idleMAC(i int) packet.MAC { return packet.MACFromUint64(0x020000060000 + uint64(i)) }

// picotBesideIdle is picotLocal with idle ports on the same worker. It notes
// what memory they take.
func (s *session) picotBesideIdle(used *memory) func(wires) (forwarder, error) {
	return func(w wires) (forwarder, error) {
		pods, err := newSpace()
		if err != nil {
			return nil, err
		}
		for i := range s.idlePorts {
			err := pair(end{in: w.host, name: "i" + strconv.Itoa(i)}, end{in: pods, name: "p" + strconv.Itoa(i)})
			if err != nil {
				return nil, errors.Join(err, pods.close())
			}
		}
		before, err := memoryInUse()
		if err != nil {
			return nil, errors.Join(err, pods.close())
		}
		n, err := newNode(s.pins, s.idlePorts+16, nil)
		if err != nil {
			return nil, errors.Join(err, pods.close())
		}
		b := &besideIdle{node: n, pods: pods}
		for i := range s.idlePorts {
			_, err := n.plug(w.host, "i"+strconv.Itoa(i), table.Port{MAC: idleMAC(i)})
			if err != nil {
				return nil, errors.Join(err, b.Close())
			}
		}
		n.publish()
		// The pins' and programs' leftovers go by RCU.
		time.Sleep(200 * time.Millisecond)
		after, err := memoryInUse()
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		*used = after.less(before)
		if err := n.connect(w); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return b, nil
	}
}

// besideIdle is a node with idle ports, whose pods live in another namespace.
type besideIdle struct {
	*node
	pods *space
}

// Close implements forwarder.
func (b *besideIdle) Close() error { return errors.Join(b.node.Close(), b.pods.close()) }

// benchPorts measures what idle ports cost: the rate beside them, and memory.
func benchPorts(ctx context.Context, s *session) (err error) {
	frames, err := load64()
	if err != nil {
		return err
	}
	var used memory
	b, err := s.build("picot with idle ports", frames, frames.Stamp, s.picotBesideIdle(&used))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	a, err := s.build("picot alone", frames, frames.Stamp, picotSized(s.pins, s.idlePorts+16))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	s.setup("ports: two engines of one worker, sized alike, so that the busy ports are in two shards and frames are copied between them; one with %d idle ports (veth, XDP program, socket, table entry each) beside the busy two; memory is what engine and idle ports added, the veths themselves left out", s.idlePorts)
	bs, as, err := duel(ctx, s.Pairs, b, a, gen.Load{Duration: s.Duration})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("beside %d idle ports / alone", s.idlePorts)
	r := compared("ports", name, "frames/s", rates(bs), rates(as), atLeast(0.95))
	r.OursName, r.PeerName, r.Note = "beside", "alone", byCore(bs, as)+accounted(as, bs)
	s.add(r)

	each := float64(s.idlePorts) * (1 << 20)
	m := single("ports", fmt.Sprintf("memory per port at %d ports", s.idlePorts), "MiB",
		spreadOf([]float64{float64(used.user+used.kernel) / each}), atMost(1.5))
	m.Note = fmt.Sprintf("user (RSS) %.2f + kernel (slab, vmalloc, per-CPU, page tables) %.2f; MemAvailable says %.2f",
		float64(used.user)/each, float64(used.kernel)/each, float64(used.available)/each)
	s.add(m)
	return nil
}

// memory is bytes in use.
type memory struct {
	user      int64 // resident set of this process, frames included
	kernel    int64
	available int64 // the system's MemAvailable, its sign turned
}

func (m memory) less(o memory) memory {
	return memory{m.user - o.user, m.kernel - o.kernel, m.available - o.available}
}

// memoryInUse reads what is in use now. The kernel's part is the system's: on
// a busy machine others' changes are in it.
func memoryInUse() (memory, error) {
	own, err := sizes("/proc/self/status")
	if err != nil {
		return memory{}, err
	}
	all, err := sizes("/proc/meminfo")
	if err != nil {
		return memory{}, err
	}
	return memory{
		user:      own["VmRSS"],
		kernel:    all["SUnreclaim"] + all["VmallocUsed"] + all["Percpu"] + all["PageTables"],
		available: -all["MemAvailable"],
	}, nil
}

// sizes reads the lines "name: n kB" of a file, in bytes.
func sizes(path string) (map[string]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("memory in use: %w", err)
	}
	defer f.Close()
	m := map[string]int64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if fields := strings.Fields(rest); len(fields) == 2 && fields[1] == "kB" {
			if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
				m[name] = n << 10
			}
		}
	}
	return m, nil
}
