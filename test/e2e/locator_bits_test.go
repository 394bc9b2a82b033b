package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"picot.dev/picot/internal/lab"
)

// Locators that end inside of a byte: pings between the nodes, all frames over
// SRv6, and the node's own network beside it untouched, before picot, with it,
// and after its death.
func TestLocatorLengths(t *testing.T) {
	for _, pair := range [][2]string{
		{"2001:db8:10::/44", "2001:db8:20::/44"},
		{"2001:db8:1:8::/61", "2001:db8:1:10::/61"},
		{"2001:db8:2:2::/63", "2001:db8:2:4::/63"},
	} {
		t.Run(fmt.Sprint(netip.MustParsePrefix(pair[0]).Bits()), func(t *testing.T) {
			c := newCluster(t, lab.Routed)
			for i, locator := range pair {
				c.pod(c.node(lab.NodeOptions{Locator: locator}), i+1)
			}
			c.start(1)
			pods, nodes := c.Pods(), c.Nodes()
			k := c.dump(c.underlay(), nodes[0].RouterIf, "ip6 proto 143")
			for _, a := range pods[1].Addresses {
				c.ping(pods[0], 10, "-i", "0.01", a.String())
			}
			there := 0
			for _, r := range k.tshark("ipv6.nxt == 143", "ipv6.src", "ipv6.dst") {
				src, dst := outerAddr(t, r[0]), outerAddr(t, r[1])
				forth := nodes[0].Locator.Contains(src) && nodes[1].Locator.Contains(dst)
				if back := nodes[1].Locator.Contains(src) && nodes[0].Locator.Contains(dst); !forth && !back {
					t.Errorf("on the wire: %s -> %s", src, dst)
				}
				if forth {
					there++
				}
				// Bits between the locator's end and the function stay zero.
				b := dst.As16()
				if want := c.sid(map[bool]*lab.Node{true: nodes[1], false: nodes[0]}[forth], 7); netip.AddrFrom16(b) != want {
					t.Errorf("destination %s, want %s", dst, want)
				}
			}
			if there < 20 {
				t.Errorf("%d frames forth, want 20", there)
			}
			c.hostTCP(nodes[0], nodes[1])
			c.account()
			c.must(nodes[0].Kill())
			c.hostTCP(nodes[0], nodes[1])
		})
	}
}

// outerAddr is the first of tshark's comma-separated addresses.
func outerAddr(t *testing.T, s string) netip.Addr {
	t.Helper()
	for i := range s {
		if s[i] == ',' {
			s = s[:i]
			break
		}
	}
	a, err := netip.ParseAddr(s)
	must(t, err)
	return a
}

// hostTCP sends the nodes' own TCP, as ssh would, between their addresses.
func (c *cluster) hostTCP(from, to *lab.Node) {
	c.t.Helper()
	var listener net.Listener
	c.must(to.Do(func() (err error) {
		listener, err = net.Listen("tcp6", netip.AddrPortFrom(to.Address, 2222).String())
		return err
	}))
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(conn, conn)
			_ = conn.Close()
		}
		served <- err
	}()
	var conn net.Conn
	if err := from.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp6", listener.Addr().String(), 10*time.Second)
		return err
	}); err != nil {
		c.t.Errorf("TCP %s -> %s: %v", from.Name, to.Name, err)
		return
	}
	defer conn.Close()
	c.must(conn.SetDeadline(time.Now().Add(10 * time.Second)))
	want := bytes.Repeat([]byte("as ssh would "), 10_000)
	go func() {
		_, _ = conn.Write(want)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
		c.t.Errorf("TCP %s -> %s: %d bytes of %d came back: %v", from.Name, to.Name, len(got), len(want), err)
	}
	c.must(<-served)
}
