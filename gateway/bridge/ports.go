package bridge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// NO_FLOOD exists in OpenFlow 1.0 only: later versions accept a port modification with it and
// do nothing. The exchange is small, so it is spoken here; one connection serves any number of
// ports, where ovs-ofctl would need a process for each. Wire formats: OpenFlow 1.0.0, sections
// 5.1 (header), 5.2.1 (port), 5.3.3 (port modification).
const (
	of10Version = 1

	ofHello        = 0
	ofError        = 1
	ofEchoRequest  = 2
	ofEchoReply    = 3
	ofPortMod      = 15
	ofStatsRequest = 16
	ofStatsReply   = 17
	ofBarrier      = 18
	ofBarrierReply = 19

	statsPortDesc = 13 // OVS answers it in OpenFlow 1.0 too
	statsMore     = 1

	configNoFlood = 1 << 4

	headerLen   = 8
	physPortLen = 48
)

// ports reads the bridge's ports by number.
func (d *Driver) ports(ctx context.Context) (map[uint32]Port, error) {
	c, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ports := map[uint32]Port{}
	if err := c.send(ofStatsRequest, []byte{0, statsPortDesc, 0, 0}); err != nil {
		return nil, d.wire("read ports", err)
	}
	for {
		typ, body, err := c.receive()
		if err != nil {
			return nil, d.wire("read ports", err)
		}
		switch {
		case typ == ofError:
			return nil, fmt.Errorf("bridge %s: read ports: %w: %s", d.opt.Bridge, ErrRejected, errorText(body))
		case typ != ofStatsReply || len(body) < 4:
			continue
		}
		more := binary.BigEndian.Uint16(body[2:])&statsMore != 0
		for body = body[4:]; len(body) >= physPortLen; body = body[physPortLen:] {
			number, p := parsePort(body)
			ports[number] = p
		}
		if !more {
			return ports, nil
		}
	}
}

// parsePort reads an ofp_phy_port.
func parsePort(b []byte) (uint32, Port) {
	name := b[8:24]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	config := binary.BigEndian.Uint32(b[24:])
	return uint32(binary.BigEndian.Uint16(b)), Port{Name: string(name), MAC: [6]byte(b[2:8]), NoFlood: config&configNoFlood != 0}
}

// modPorts sets or clears NO_FLOOD on ports and waits until the switch has done it.
func (d *Driver) modPorts(ctx context.Context, ports map[uint32]Port, numbers []uint32, bit bool) error {
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, n := range numbers {
		if err := c.send(ofPortMod, portMod(n, ports[n].MAC, bit)); err != nil {
			return d.wire("set NO_FLOOD", err)
		}
	}
	if err := c.send(ofBarrier, nil); err != nil {
		return d.wire("set NO_FLOOD", err)
	}
	var refused error
	for {
		typ, body, err := c.receive()
		switch {
		case err != nil:
			return d.wire("set NO_FLOOD", err)
		case typ == ofError:
			refused = fmt.Errorf("bridge %s: set NO_FLOOD: %w: %s", d.opt.Bridge, ErrRejected, errorText(body))
		case typ == ofBarrierReply:
			return refused
		}
	}
}

// portMod builds the body of an OFPT_PORT_MOD. The MAC guards against a number given anew.
func portMod(n uint32, mac [6]byte, bit bool) []byte {
	b := make([]byte, 24)
	binary.BigEndian.PutUint16(b, uint16(n))
	copy(b[2:], mac[:])
	if bit {
		binary.BigEndian.PutUint32(b[8:], configNoFlood)
	}
	binary.BigEndian.PutUint32(b[12:], configNoFlood)
	return b
}

// errorText names an OFPT_ERROR by its numbers (OpenFlow 1.0.0 section 5.4.4).
func errorText(body []byte) string {
	if len(body) < 4 {
		return "a malformed error"
	}
	typ, code := binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])
	if typ == 4 { // OFPET_PORT_MOD_FAILED
		return fmt.Sprintf("port modification failed, code %d: the port went away or was re-created", code)
	}
	return fmt.Sprintf("OpenFlow error type %d code %d", typ, code)
}

// conn is an OpenFlow 1.0 connection after its hellos.
type conn struct {
	net.Conn
	xid uint32
}

func (d *Driver) dial(ctx context.Context) (*conn, error) {
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "unix", d.opt.Socket)
	if err != nil {
		return nil, d.wire("connect", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := nc.SetDeadline(deadline); err != nil {
			nc.Close()
			return nil, d.wire("connect", err)
		}
	}
	c := &conn{Conn: nc}
	if err = c.send(ofHello, nil); err == nil {
		var typ byte
		if typ, _, err = c.receive(); err == nil && typ != ofHello {
			err = errors.New("no hello")
		}
	}
	if err != nil {
		nc.Close()
		return nil, d.wire("connect", err)
	}
	return c, nil
}

func (c *conn) send(typ byte, body []byte) error {
	c.xid++
	b := make([]byte, headerLen, headerLen+len(body))
	b[0], b[1] = of10Version, typ
	binary.BigEndian.PutUint16(b[2:], uint16(headerLen+len(body)))
	binary.BigEndian.PutUint32(b[4:], c.xid)
	_, err := c.Write(append(b, body...))
	return err
}

// receive returns the next message, answering echo requests on the way.
func (c *conn) receive() (typ byte, body []byte, err error) {
	for {
		var h [headerLen]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			return 0, nil, err
		}
		n := int(binary.BigEndian.Uint16(h[2:]))
		if n < headerLen {
			return 0, nil, fmt.Errorf("message of %d bytes", n)
		}
		body = make([]byte, n-headerLen)
		if _, err := io.ReadFull(c, body); err != nil {
			return 0, nil, err
		}
		if h[1] == ofEchoRequest {
			if err := c.send(ofEchoReply, body); err != nil {
				return 0, nil, err
			}
			continue
		}
		if h[1] != ofHello && h[0] != of10Version {
			return 0, nil, fmt.Errorf("the switch speaks OpenFlow version %#x: allow OpenFlow10 in the bridge's protocols", h[0])
		}
		return h[1], body, nil
	}
}

// wire wraps a failure of the connection itself.
func (d *Driver) wire(what string, err error) error {
	return fmt.Errorf("bridge %s: %s: %w: %w", d.opt.Bridge, what, ErrUnreachable, err)
}
