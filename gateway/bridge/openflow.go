package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// What ovs-ofctl cannot do well is spoken here: NO_FLOOD for many ports at once, the flow
// monitor, and the repair that must not wait for a process to start. Everything else goes
// through ovs-ofctl. Formats: OpenFlow 1.0.0 and 1.3.0, and OVS's nicira-ext.h.
const (
	of10 = 1
	of13 = 4

	headerLen = 8

	msgHello       = 0
	msgError       = 1
	msgEchoRequest = 2
	msgEchoReply   = 3
	msgVendor      = 4
	msgFlowMod     = 14

	msg10PortMod      = 15
	msg10StatsRequest = 16
	msg10StatsReply   = 17
	msg10Barrier      = 18
	msg10BarrierReply = 19

	msg13Barrier      = 20
	msg13BarrierReply = 21
)

// conn is an OpenFlow connection after its hellos. Sending and receiving may be done by two
// goroutines, each of them by one.
type conn struct {
	net.Conn
	version byte
	xid     uint32
}

// dial connects with one version of OpenFlow; the context's deadline bounds the connection.
func (d *Driver) dial(ctx context.Context, version byte) (*conn, error) {
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "unix", d.opt.Socket)
	if err != nil {
		return nil, d.wire("connect", err)
	}
	deadline, _ := ctx.Deadline()
	c := &conn{Conn: nc, version: version}
	if err = nc.SetDeadline(deadline); err == nil {
		err = c.greet()
	}
	if err != nil {
		nc.Close()
		return nil, d.wire("connect", err)
	}
	return c, nil
}

// greet exchanges hellos. The switch refuses a version the bridge does not allow.
func (c *conn) greet() error {
	if err := c.send(msgHello, nil); err != nil {
		return err
	}
	m, err := c.receive()
	if err != nil {
		return err
	}
	if m.typ != msgHello {
		return fmt.Errorf("the bridge refuses OpenFlow 1.%d: allow it in its protocols column", c.version-1)
	}
	return nil
}

func (c *conn) send(typ byte, body []byte) error {
	_, err := c.Write(c.message(typ, body))
	return err
}

// message puts a header before a body.
func (c *conn) message(typ byte, body []byte) []byte {
	c.xid++
	b := make([]byte, headerLen, headerLen+len(body))
	b[0], b[1] = c.version, typ
	binary.BigEndian.PutUint16(b[2:], uint16(headerLen+len(body)))
	binary.BigEndian.PutUint32(b[4:], c.xid)
	return append(b, body...)
}

type message struct {
	typ  byte
	body []byte
}

var errShort = errors.New("message shorter than its header")

// receive returns the next message, answering echo requests on the way.
func (c *conn) receive() (message, error) {
	for {
		var h [headerLen]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			return message{}, err
		}
		n := int(binary.BigEndian.Uint16(h[2:]))
		if n < headerLen {
			return message{}, errShort
		}
		m := message{h[1], make([]byte, n-headerLen)}
		if _, err := io.ReadFull(c, m.body); err != nil {
			return message{}, err
		}
		if m.typ != msgEchoRequest {
			return m, nil
		}
		if err := c.send(msgEchoReply, m.body); err != nil {
			return message{}, err
		}
	}
}

// barrier waits until the switch has done everything sent before, and returns what it refused.
func (d *Driver) barrier(c *conn, what string) error {
	request, reply := byte(msg10Barrier), byte(msg10BarrierReply)
	if c.version == of13 {
		request, reply = msg13Barrier, msg13BarrierReply
	}
	if err := c.send(request, nil); err != nil {
		return d.wire(what, err)
	}
	var refused error
	for {
		m, err := c.receive()
		switch {
		case err != nil:
			return d.wire(what, err)
		case m.typ == msgError:
			refused = fmt.Errorf("bridge %s: %s: %w: %s", d.opt.Bridge, what, ErrRejected, errorText(m.body))
		case m.typ == reply:
			return refused
		}
	}
}

// errorText names an error message by its numbers (OpenFlow 1.0.0 section 5.4.4).
func errorText(body []byte) string {
	if len(body) < 4 {
		return "an error without a code"
	}
	return fmt.Sprintf("OpenFlow error type %d code %d", binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:]))
}

// wire wraps a failure of the connection itself.
func (d *Driver) wire(what string, err error) error {
	return fmt.Errorf("bridge %s: %s: %w: is ovs-vswitchd running and does the bridge exist? %w", d.opt.Bridge, what, ErrUnreachable, err)
}
