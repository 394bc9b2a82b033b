package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pingFor bounds all echo requests of one run; a node that answers does so at once.
const pingFor = 3 * time.Second

// pingEvery is between two requests to who has not answered yet.
const pingEvery = 200 * time.Millisecond

// ICMPv6 types of RFC 4443 section 4.
const (
	echoRequest = 128
	echoReply   = 129
)

var errSilent = fmt.Errorf("silence for %v", pingFor)

// pingAll sends ICMPv6 echo requests to a SID of each node that has a way, marked
// as the agent's own (RFC 9259 section 4.1).
func pingAll(ctx context.Context, mark uint32, ways map[string]Way) {
	targets := map[netip.Addr]string{}
	for name, w := range ways {
		if w.Err == nil && w.Target.IsValid() {
			targets[w.Target] = name
		}
	}
	if len(targets) == 0 {
		return
	}
	err := ping(ctx, mark, targets, func(name string) {
		w := ways[name]
		w.Pinged = true
		ways[name] = w
	})
	for _, name := range targets { // those who have not answered
		w := ways[name]
		w.Pinged, w.PingErr = true, err
		if w.PingErr == nil {
			w.PingErr = errSilent
		}
		ways[name] = w
	}
}

// ping asks all targets until each has answered, and takes those out that have.
func ping(ctx context.Context, mark uint32, targets map[netip.Addr]string, answered func(string)) error {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark))
		}), err)
	}}
	conn, err := config.ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if err != nil {
		return err
	}
	defer conn.Close()
	until := time.Now().Add(pingFor)
	sent := map[netip.Addr]error{}
	b := make([]byte, 1500)
	for round := uint16(1); len(targets) > 0 && time.Now().Before(until) && ctx.Err() == nil; round++ {
		for t := range targets {
			_, sent[t] = conn.WriteTo(echo(round), &net.IPAddr{IP: t.AsSlice()})
		}
		_ = conn.SetReadDeadline(time.Now().Add(pingEvery))
		for len(targets) > 0 {
			n, from, err := conn.ReadFrom(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			a, ok := from.(*net.IPAddr)
			if !ok || n < 8 || b[0] != echoReply || binary.BigEndian.Uint16(b[4:]) != identifier() {
				continue
			}
			ip, _ := netip.AddrFromSlice(a.IP)
			if name, asked := targets[ip]; asked {
				delete(targets, ip)
				answered(name)
			}
		}
	}
	for t := range targets {
		if sent[t] != nil {
			return sent[t]
		}
	}
	return ctx.Err()
}

func identifier() uint16 { return uint16(os.Getpid()) }

// echo is a request; the kernel adds the checksum.
func echo(sequence uint16) []byte {
	b := append([]byte{echoRequest, 0, 0, 0, 0, 0, 0, 0}, "picot doctor"...)
	binary.BigEndian.PutUint16(b[4:], identifier())
	binary.BigEndian.PutUint16(b[6:], sequence)
	return b
}
