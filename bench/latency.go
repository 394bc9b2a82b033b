package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// perAsk is the time between two questions to one answerer.
const perAsk = time.Millisecond

// station is an AF_PACKET socket on a device.
type station struct {
	fd      int
	buf     []byte
	control []byte
}

// newStation opens one. Frames this end sends are not received.
func newStation(in *space, ifindex int, timeout time.Duration) (*station, error) {
	st := &station{fd: -1, buf: make([]byte, 2048), control: make([]byte, 256)}
	err := in.do(func() (err error) {
		const all = unix.ETH_P_ALL << 8 // in network order
		if st.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		tv := unix.NsecToTimeval(timeout.Nanoseconds())
		return errors.Join(
			unix.SetsockoptInt(st.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(st.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptTimeval(st.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
			unix.Bind(st.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifindex}))
	})
	if err != nil {
		if st.fd >= 0 {
			err = errors.Join(err, unix.Close(st.fd))
		}
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return st, nil
}

func (st *station) close() error { return unix.Close(st.fd) }

// receive waits for a frame and returns it with the time the kernel received
// it. A timeout is EAGAIN.
func (st *station) receive() (frame []byte, at time.Time, err error) {
	for {
		n, nc, _, _, err := unix.Recvmsg(st.fd, st.buf, st.control, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, at, err
		}
		messages, err := unix.ParseSocketControlMessage(st.control[:nc])
		if err != nil {
			return nil, at, err
		}
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS {
				at = timespec(m.Data)
			}
		}
		return st.buf[:n], at, nil
	}
}

// ask sends a question and returns how long the answer took to come to this
// end's device.
func (st *station) ask(question []byte) (time.Duration, error) {
	start := time.Now()
	if err := unix.Send(st.fd, question, 0); err != nil {
		return 0, fmt.Errorf("ask: %w", err)
	}
	_, at, err := st.receive()
	if err != nil {
		return 0, fmt.Errorf("no answer: %w", err)
	}
	// The kernel's stamp is of the wall clock, so the start must be read by it.
	return at.Sub(start.Round(0)), nil
}

// reflector is the sleeping AF_PACKET peer: a thread on forwardCPU that blocks
// in receive and sends each frame back.
type reflector struct {
	st   *station
	stop chan struct{}
	done chan error
}

func newReflector(w wires) (*reflector, error) {
	st, err := newStation(w.host, w.inIndex, 50*time.Millisecond)
	if err != nil {
		return nil, err
	}
	r := &reflector{st: st, stop: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		_, err := onCPU(forwardCPU, func() (struct{}, error) { return struct{}{}, r.reflect() })
		r.done <- err
	}()
	return r, nil
}

func (r *reflector) reflect() error {
	for {
		select {
		case <-r.stop:
			return nil
		default:
		}
		frame, _, err := r.st.receive()
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return err
		}
		swap(frame)
		if err := unix.Send(r.st.fd, frame, 0); err != nil {
			return fmt.Errorf("reflect: %w", err)
		}
	}
}

func (r *reflector) close() error {
	close(r.stop)
	return errors.Join(<-r.done, r.st.close())
}

// answerLatency asks picot and the sleeping reflector in turn.
func (s *session) answerLatency(ctx context.Context) (err error) {
	var ws [2]wires
	for i := range ws {
		s.lanes++
		if ws[i], err = wire(s.lanes); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, ws[i].close()) }()
	}
	ours, err := picotAnswers(s.pins)(ws[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	peer, err := newReflector(ws[1])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.close()) }()
	var st [2]*station
	for i := range st {
		if st[i], err = newStation(ws[i].from, ws[i].sourceIfx, 200*time.Millisecond); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, st[i].close()) }()
	}
	s.setup("arp latency: %.0f questions a second to each, in turn, from AF_PACKET sockets on CPU %d to the kernel's receive time stamp of the answer; picot's worker and the reflector, a thread blocked in recvmsg, sleep in between on CPU %d", float64(time.Second/perAsk), sourceCPU, forwardCPU)

	var p50, p99 [2][]float64
	missed := 0
	_, err = onCPU(sourceCPU, func() (struct{}, error) {
		runtime.LockOSThread()
		for range s.Pairs {
			var took [2][]float64
			for end := time.Now().Add(s.Duration); time.Now().Before(end); {
				for i := range st {
					due := time.Now().Add(perAsk / 2)
					d, err := st[i].ask(arpRequest(len(took[i]) % targets))
					if errors.Is(err, unix.EAGAIN) {
						missed++
					} else if err != nil {
						return struct{}{}, err
					}
					took[i] = append(took[i], float64(d.Nanoseconds())/1e3)
					time.Sleep(time.Until(due))
				}
				if ctx.Err() != nil {
					return struct{}{}, ctx.Err()
				}
			}
			for i := range took {
				p50[i] = append(p50[i], quantile(took[i], 0.5))
				p99[i] = append(p99[i], quantile(took[i], 0.99))
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		v    [2][]float64
		goal Goal
	}{{"p50", p50, Goal{}}, {"p99", p99, atMost(20)}} {
		more := make([]float64, len(c.v[0]))
		for i := range more {
			more[i] = c.v[0][i] - c.v[1][i]
		}
		f := spreadOf(more)
		s.add(Row{
			Benchmark: "arp", Name: c.name + " of ARP answers - sleeping AF_PACKET reflector", Unit: "us",
			OursName: "picot", PeerName: "AF_PACKET", Ours: spreadOf(c.v[0]), Peer: spreadOf(c.v[1]), Figure: f,
			Goal: c.goal, Outcome: c.goal.judge(f.Median), Note: fmt.Sprintf("difference by segment; %d questions without an answer", missed),
			OursRuns: c.v[0], PeerRuns: c.v[1],
		})
	}
	return nil
}

// timespec reads the two 64-bit words of a struct timespec.
func timespec(b []byte) time.Time {
	if len(b) < 16 {
		return time.Time{}
	}
	return time.Unix(int64(nativeWord(b)), int64(nativeWord(b[8:])))
}

func nativeWord(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
