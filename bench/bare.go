package bench

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xdp"
)

// bare is the least an AF_XDP forwarder can do: it moves descriptors from one
// socket's rx ring to another's tx ring and looks at nothing. Rings, memory and
// XDP program are picot's.
type bare struct {
	mem      *xsk.Memory
	in, out  *xsk.Socket // the same one in a reflector
	burst    int         // frames from receive to kick
	programs []*xdp.Program
	// rewrite is what a reflector does to a frame; nil: nothing.
	rewrite func(frame []byte)

	sent atomic.Uint64
	run  chan bool // true: carry; false: rest
	done chan struct{}
	idle chan struct{} // rests now
	// touched keeps the loads alive.
	touched byte
	busy    atomic.Bool
}

// newBare makes a forwarder from in to out; with the same index, a reflector.
func newBare(s *space, pins, inName, outName string, burst int, rewrite func([]byte)) (*bare, error) {
	b := &bare{burst: burst, rewrite: rewrite, run: make(chan bool), done: make(chan struct{}), idle: make(chan struct{})}
	var err error
	if b.mem, err = xsk.NewMemory(xsk.MemoryOptions{ChunksPerShard: chunks}); err != nil {
		return nil, err
	}
	err = s.do(func() error {
		if b.in, err = b.open(s, pins, inName); err != nil {
			return err
		}
		b.out = b.in
		if outName != inName {
			b.out, err = b.open(s, pins, outName)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, b.free())
	}
	ready := make(chan error)
	go b.loop(ready)
	if err := <-ready; err != nil {
		return nil, errors.Join(err, b.free())
	}
	return b, nil
}

func (b *bare) open(s *space, pins, device string) (*xsk.Socket, error) {
	index, err := s.index(device)
	if err != nil {
		return nil, err
	}
	prog, err := xdp.Attach(xdp.AttachOptions{IfIndex: index, Kind: xdp.Workload, Queues: 1, PinDir: pins, Name: device})
	if err != nil {
		return nil, err
	}
	b.programs = append(b.programs, prog)
	sock, err := xsk.Open(b.mem, b.mem.Shard(0), socketOptions(index))
	if err != nil {
		return nil, err
	}
	return sock, prog.SetSocket(0, sock.FD())
}

// loop is the forwarder's thread.
func (b *bare) loop(ready chan<- error) {
	defer close(b.done)
	runtime.LockOSThread()
	if err := pin(0, forwardCPU); err != nil {
		ready <- err
		return
	}
	free := make([]xsk.Addr, 0, chunks)
	for i := range chunks {
		free = append(free, b.mem.ShardBase(0)+xsk.Addr(i*xsk.ChunkSize))
	}
	filled := b.in.Fill(free[:fillDepth])
	free = free[filled:]
	ready <- nil
	descs, home := make([]xsk.Desc, b.burst), make([]xsk.Addr, b.burst)
	for <-b.run {
		b.carry(descs, home, &free)
		b.idle <- struct{}{}
	}
}

// carry works until it is paused, with the same policy on an empty ring as a
// picot worker: look again for a little while, then sleep in the kernel.
func (b *bare) carry(descs []xsk.Desc, home []xsk.Addr, free *[]xsk.Addr) {
	fds := []unix.PollFd{{Fd: int32(b.in.FD()), Events: unix.POLLIN}}
	last := time.Now()
	var touched byte
	defer func() { b.touched = touched }()
	for b.busy.Load() {
		n := b.in.Receive(descs)
		if n == 0 {
			b.reap(home, free)
			if time.Since(last) > 30*time.Microsecond {
				_, _ = unix.Poll(fds, 1) // EINTR: look again
			}
			continue
		}
		last = time.Now()
		// As many free chunks go to the fill ring as frames came out of it.
		if k := b.in.Fill((*free)[len(*free)-min(n, len(*free)):]); k > 0 {
			*free = (*free)[:len(*free)-k]
		}
		// The first line of each frame was written on the source's CPU. Looking at
		// all of them at once fetches them side by side; without it the kernel
		// waits for one after the other as it sends, and this would be a slow peer.
		for _, d := range descs[:n] {
			touched += b.mem.Frame(d.Addr, 1)[0]
		}
		if b.rewrite != nil {
			for _, d := range descs[:n] {
				b.rewrite(b.mem.Frame(d.Addr, int(d.Len)))
			}
		}
		b.transmit(descs[:n], home, free)
	}
}

// transmit sends all, waiting for room where the ring is full.
func (b *bare) transmit(descs []xsk.Desc, home []xsk.Addr, free *[]xsk.Addr) {
	for len(descs) > 0 {
		k := b.out.Transmit(descs)
		b.sent.Add(uint64(k))
		descs = descs[k:]
		for range len(home) {
			if b.out.TXQueued() == 0 || !b.out.NeedWakeupTX() {
				break
			}
			if b.out.Kick() == xsk.KickBusy {
				b.sent.Add(^uint64(0))
			}
			b.reap(home, free)
		}
		b.reap(home, free)
	}
}

func (b *bare) reap(home []xsk.Addr, free *[]xsk.Addr) {
	for {
		n := b.out.Complete(home)
		for _, a := range home[:n] {
			*free = append(*free, a.Chunk())
		}
		if n < len(home) {
			return
		}
	}
}

// Resume implements forwarder.
func (b *bare) Resume() error {
	if !b.busy.Swap(true) {
		b.run <- true
	}
	return nil
}

// Pause implements forwarder.
func (b *bare) Pause() error {
	if b.busy.Swap(false) {
		<-b.idle
	}
	return nil
}

// Sent implements forwarder.
func (b *bare) Sent() (uint64, bool, error) { return b.sent.Load(), true, nil }

// Close implements forwarder.
func (b *bare) Close() error {
	err := b.Pause()
	close(b.run)
	<-b.done
	return errors.Join(err, b.free())
}

func (b *bare) free() error {
	var err error
	for _, p := range b.programs {
		err = errors.Join(err, p.Detach())
	}
	if b.in != nil {
		err = errors.Join(err, b.in.Close())
	}
	if b.out != nil && b.out != b.in {
		err = errors.Join(err, b.out.Close())
	}
	return errors.Join(err, b.mem.Close())
}

// bareForwarder is the lane's form of newBare, with bursts of the usual size.
func bareForwarder(pins string) func(wires) (forwarder, error) { return bareBurst(pins, batchSize) }

// bareBurst is bareForwarder with a kick for so many frames.
func bareBurst(pins string, burst int) func(wires) (forwarder, error) {
	return func(w wires) (forwarder, error) {
		b, err := newBare(w.host, pins, w.in, w.out, burst, nil)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}
