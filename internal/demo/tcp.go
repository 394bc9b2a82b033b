package demo

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"picot.dev/picot/internal/lab"
)

// transfer is one TCP stream that arrived whole.
type transfer struct {
	bytes    int64
	duration time.Duration
}

func (t transfer) String() string {
	return fmt.Sprintf("%.0f MB at %.2f Gbit/s", float64(t.bytes)/1e6, float64(t.bytes)*8/1e9/max(t.duration.Seconds(), 1e-6))
}

const tcpBytes = 8 << 20

// bothWays sends a stream from a to b and one from b to a, at the stacks' default
// offload settings: one whose digest is compared, and where iperf3 is there one of
// its own for the rate.
func bothWays(ctx context.Context, a, b *lab.Pod, family int) (string, error) {
	type sender struct {
		name string
		send func(context.Context, *lab.Pod, *lab.Pod, netip.Addr) (transfer, error)
	}
	senders := []sender{{"verified stream", stream}}
	if _, err := exec.LookPath("iperf3"); err == nil {
		senders = append(senders, sender{"iperf3", iperf})
	}
	var said string
	for _, s := range senders {
		there, err := s.send(ctx, a, b, address(b, family))
		if err != nil {
			return "", fmt.Errorf("%s to %s by %s: %w", a.Name, b.Name, s.name, err)
		}
		back, err := s.send(ctx, b, a, address(a, family))
		if err != nil {
			return "", fmt.Errorf("%s to %s by %s: %w", b.Name, a.Name, s.name, err)
		}
		said = fmt.Sprintf("%s: %s to %s %s; back %s", s.name, a.Name, b.Name, there, back)
	}
	return said, nil
}

// iperf runs an iperf3 server for one client.
func iperf(ctx context.Context, from, to *lab.Pod, at netip.Addr) (transfer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := to.Command(ctx, "iperf3", "-s", "-1", "-B", at.String())
	if err := server.Start(); err != nil {
		return transfer{}, err
	}
	defer func() {
		cancel()
		_ = server.Wait() // ended by us, if it did not end by itself
	}()
	for {
		// With -J errors are in the output, too; the exit status says no more.
		out, _ := from.Command(ctx, "iperf3", "-J", "-c", at.String(), "-n", fmt.Sprint(tcpBytes), "--connect-timeout", "2000").Output()
		t, err := parseIperf(out)
		if err == nil || !errors.Is(err, errRefused) {
			return t, err
		}
		select {
		case <-ctx.Done():
			return transfer{}, errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// errRefused: the server does not listen yet.
var errRefused = errors.New("connection refused")

func parseIperf(out []byte) (transfer, error) {
	type sum struct {
		Bytes   int64
		Seconds float64
	}
	var r struct {
		Error string
		End   struct {
			Sent     sum `json:"sum_sent"`
			Received sum `json:"sum_received"`
		}
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return transfer{}, fmt.Errorf("iperf3 says %q: %w", out, err)
	}
	if strings.Contains(strings.ToLower(r.Error), errRefused.Error()) {
		return transfer{}, fmt.Errorf("iperf3: %w", errRefused)
	}
	if r.Error != "" {
		return transfer{}, fmt.Errorf("iperf3: %s", r.Error)
	}
	// The receiver's count ends when the sender says so, with as much under way as
	// socket buffers hold; that a stream arrives whole is for the verified one.
	if r.End.Sent.Bytes < tcpBytes || r.End.Received.Bytes == 0 {
		return transfer{}, fmt.Errorf("iperf3: %d of %d bytes sent, %d received", r.End.Sent.Bytes, tcpBytes, r.End.Received.Bytes)
	}
	return transfer{r.End.Received.Bytes, time.Duration(r.End.Received.Seconds * float64(time.Second))}, nil
}

// stream sends pseudo-random bytes and compares the digests of both ends. Sockets
// are made inside the pods and used from outside.
func stream(ctx context.Context, from, to *lab.Pod, at netip.Addr) (transfer, error) {
	var listener net.Listener
	if err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
		return err
	}); err != nil {
		return transfer{}, err
	}
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	type arrived struct {
		n      int64
		digest [sha256.Size]byte
		err    error
	}
	done := make(chan arrived, 1)
	go func() {
		var a arrived
		var conn net.Conn
		if conn, a.err = listener.Accept(); a.err == nil {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			h := sha256.New()
			a.n, a.err = io.Copy(h, conn)
			a.digest = [sha256.Size]byte(h.Sum(nil))
		}
		done <- a
	}()
	begin := time.Now()
	sent, err := sendStream(ctx, from, listener.Addr().String())
	if err != nil {
		return transfer{}, err
	}
	a := <-done
	if a.err != nil {
		return transfer{}, a.err
	}
	if a.n != tcpBytes || a.digest != sent {
		return transfer{}, fmt.Errorf("%d of %d bytes arrived, right: %t", a.n, tcpBytes, a.digest == sent)
	}
	return transfer{a.n, time.Since(begin)}, nil
}

func sendStream(ctx context.Context, from *lab.Pod, to string) (digest [sha256.Size]byte, err error) {
	var conn net.Conn
	if err := from.Do(func() (err error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		conn, err = d.DialContext(ctx, "tcp", to)
		return err
	}); err != nil {
		return digest, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	h := sha256.New()
	source := rand.NewChaCha8([32]byte{1})
	if _, err := io.CopyN(io.MultiWriter(conn, h), source, tcpBytes); err != nil {
		return digest, err
	}
	return [sha256.Size]byte(h.Sum(nil)), conn.Close()
}
