package bench

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	peer "github.com/asavie/xdp"
	"golang.org/x/sys/unix"
)

// asavie forwards with github.com/asavie/xdp: the loop of its l2fwd example
// without the MAC rewriting. Every socket of that library has a UMEM of its
// own, so frames are copied.
type asavie struct {
	in, out *peer.Socket
	program *peer.Program
	detach  func() error

	sent atomic.Uint64
	busy atomic.Bool
	run  chan bool
	idle chan error
	done chan struct{}
}

// asavieForwarder makes one. The rings are as long as picot's and the tx
// budget is raised likewise, which the library does not do itself.
func asavieForwarder(w wires) (forwarder, error) {
	a := &asavie{run: make(chan bool), idle: make(chan error), done: make(chan struct{})}
	o := &peer.SocketOptions{
		NumFrames: chunks, FrameSize: 2048, FillRingNumDescs: ringFill, CompletionRingNumDescs: ringCompletion,
		RxRingNumDescs: ringRX, TxRingNumDescs: ringTX,
	}
	err := w.host.do(func() (err error) {
		if a.program, err = peer.NewProgram(1); err != nil {
			return err
		}
		if err = a.program.Attach(w.inIndex); err != nil {
			return err
		}
		a.detach = func() error { return w.host.do(func() error { return a.program.Detach(w.inIndex) }) }
		if a.in, err = peer.NewSocket(w.inIndex, 0, o); err != nil {
			return err
		}
		if err = a.program.Register(0, a.in.FD()); err != nil {
			return err
		}
		if a.out, err = peer.NewSocket(w.outIndex, 0, o); err != nil {
			return err
		}
		return unix.SetsockoptInt(a.out.FD(), unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, txBudget)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("asavie/xdp: %w", err), a.free())
	}
	go a.loop()
	return a, nil
}

func (a *asavie) loop() {
	defer close(a.done)
	runtime.LockOSThread()
	pinned := pin(0, forwardCPU)
	for <-a.run {
		if pinned != nil {
			a.idle <- pinned
			continue
		}
		a.idle <- a.carry()
	}
}

func (a *asavie) carry() (err error) {
	defer func() {
		if p := recover(); p != nil { // its way of reporting errors
			err = fmt.Errorf("asavie/xdp panicked: %v", p)
		}
	}()
	fds := []unix.PollFd{{Fd: int32(a.in.FD()), Events: unix.POLLIN}}
	last := time.Now()
	for a.busy.Load() {
		a.in.Fill(a.in.GetDescs(a.in.NumFreeFillSlots()))
		a.out.Complete(a.out.NumCompleted())
		n := min(a.in.NumReceived(), a.out.NumFreeTxSlots(), batchSize)
		if n == 0 {
			if time.Since(last) > 30*time.Microsecond {
				_, _ = unix.Poll(fds, 1) // EINTR: look again
			}
			continue
		}
		last = time.Now()
		in := a.in.Receive(n)
		out := a.out.GetDescs(n)
		in = in[:min(len(in), len(out))]
		for i := range in {
			out[i].Len = uint32(copy(a.out.GetFrame(out[i]), a.in.GetFrame(in[i])))
		}
		a.sent.Add(uint64(a.out.Transmit(out[:len(in)])))
	}
	return nil
}

// Resume implements forwarder.
func (a *asavie) Resume() error {
	if !a.busy.Swap(true) {
		a.run <- true
	}
	return nil
}

// Pause implements forwarder.
func (a *asavie) Pause() error {
	if a.busy.Swap(false) {
		return <-a.idle
	}
	return nil
}

// Sent implements forwarder: the library hides how many frames the device
// refused.
func (a *asavie) Sent() (uint64, bool, error) { return 0, false, nil }

// Close implements forwarder.
func (a *asavie) Close() error {
	err := a.Pause()
	close(a.run)
	<-a.done
	return errors.Join(err, a.free())
}

func (a *asavie) free() error {
	var err error
	if a.detach != nil {
		err = a.detach()
	}
	for _, s := range []*peer.Socket{a.in, a.out} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if a.program != nil {
		err = errors.Join(err, a.program.Close())
	}
	return err
}
