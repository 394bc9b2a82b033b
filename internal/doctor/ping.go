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

// pingFor bounds the echo requests of one length; a node that answers does so at once.
const pingFor = 2 * time.Second

// pingEvery is between two requests to who has not answered yet.
const pingEvery = 200 * time.Millisecond

// ICMPv6 types of RFC 4443 section 4.
const (
	echoRequest = 128
	echoReply   = 129
)

var errSilent = fmt.Errorf("silence for %v", pingFor)

// pingAll sends ICMPv6 echo requests to a SID of each node that has a way, marked
// as the agent's own (RFC 9259 section 4.1): short ones, and to who answers these
// packets as long as need says.
func pingAll(ctx context.Context, mark uint32, ways map[string]Way, need func(node string, w Way) int) {
	short := map[string]int{}
	for name, w := range ways {
		if w.Err == nil && w.Target.IsValid() {
			short[name] = shortest
		}
	}
	long := map[string]int{}
	for name, err := range ping(ctx, mark, ways, short) {
		w := ways[name]
		w.Pinged, w.PingErr = true, err
		if err == nil {
			w.Size = need(name, w)
		}
		if w.Size > 0 {
			long[name] = w.Size
		}
		ways[name] = w
	}
	for name, err := range ping(ctx, mark, ways, long) {
		w := ways[name]
		w.SizeErr = err
		ways[name] = w
	}
}

// ping sends packets of that many bytes to the nodes until each has answered, and
// says of each why it has not.
func ping(ctx context.Context, mark uint32, ways map[string]Way, sizes map[string]int) map[string]error {
	results, targets := map[string]error{}, map[netip.Addr]string{}
	for name := range sizes {
		targets[ways[name].Target] = name
	}
	if len(targets) == 0 {
		return results
	}
	unsent, err := exchange(ctx, mark, targets, sizes, func(name string) { results[name] = nil })
	for t, name := range targets { // those who have not answered
		switch {
		case err != nil:
			results[name] = err
		case unsent[t] != nil:
			results[name] = unsent[t]
		default:
			results[name] = errSilent
		}
	}
	return results
}

// exchange takes those who answered out of targets, and says to whom the last
// request could not be sent, and why. Its error is of all that are left.
func exchange(ctx context.Context, mark uint32, targets map[netip.Addr]string, sizes map[string]int, answered func(string)) (map[netip.Addr]error, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			// No packet is cut up here, whatever the kernel remembers of the path.
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE))
		}), err)
	}}
	conn, err := config.ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	until := time.Now().Add(pingFor)
	unsent := map[netip.Addr]error{}
	b := make([]byte, 1<<16)
	for round := uint16(1); len(targets) > 0 && time.Now().Before(until) && ctx.Err() == nil; round++ {
		for t, name := range targets {
			_, unsent[t] = conn.WriteTo(echo(round, sizes[name]), &net.IPAddr{IP: t.AsSlice()})
		}
		_ = conn.SetReadDeadline(time.Now().Add(pingEvery))
		for len(targets) > 0 {
			n, from, err := conn.ReadFrom(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, err
			}
			a, ok := from.(*net.IPAddr)
			if !ok || n < echoHeader || b[0] != echoReply || binary.BigEndian.Uint16(b[4:]) != identifier() {
				continue
			}
			ip, _ := netip.AddrFromSlice(a.IP)
			if name, asked := targets[ip]; asked && n == sizes[name]-ip6Header {
				delete(targets, ip)
				answered(name)
			}
		}
	}
	return unsent, ctx.Err()
}

func identifier() uint16 { return uint16(os.Getpid()) }

const (
	ip6Header  = 40
	echoHeader = 8
	shortest   = ip6Header + echoHeader + len(filler)
	filler     = "picot doctor"
)

// echo is a request in a packet of size bytes; the kernel adds the checksum.
func echo(sequence uint16, size int) []byte {
	b := make([]byte, size-ip6Header)
	b[0] = echoRequest
	copy(b[echoHeader:], filler)
	binary.BigEndian.PutUint16(b[4:], identifier())
	binary.BigEndian.PutUint16(b[6:], sequence)
	return b
}
