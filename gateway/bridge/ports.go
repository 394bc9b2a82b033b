package bridge

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
)

// NO_FLOOD exists in OpenFlow 1.0 only: later versions accept a port modification with it and
// do nothing. Ports are named by number, because 1.0 cuts names to 15 bytes. Formats: OpenFlow
// 1.0.0, sections 5.2.1 (port), 5.3.3 (port modification), 5.3.5 (statistics).
const (
	statsPortDesc = 13 // OVS answers it in 1.0 too
	statsMore     = 1

	configNoFlood = 1 << 4

	physPortLen = 48
)

// ports reads the bridge's ports by number.
func (d *Driver) ports(ctx context.Context) (map[uint32]Port, error) {
	const what = "read ports"
	c, err := d.dial(ctx, of10)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.send(msg10StatsRequest, []byte{0, statsPortDesc, 0, 0}); err != nil {
		return nil, d.wire(what, err)
	}
	ports := map[uint32]Port{}
	for more := true; more; {
		m, err := c.receive()
		switch {
		case err != nil:
			return nil, d.wire(what, err)
		case m.typ == msgError:
			return nil, fmt.Errorf("bridge %s: %s: %w: %s", d.opt.Bridge, what, ErrRejected, errorText(m.body))
		case m.typ != msg10StatsReply || len(m.body) < 4:
			continue
		}
		more = binary.BigEndian.Uint16(m.body[2:])&statsMore != 0
		for b := m.body[4:]; len(b) >= physPortLen; b = b[physPortLen:] {
			number, p := parsePort(b)
			ports[number] = p
		}
	}
	return ports, nil
}

// parsePort reads an ofp_phy_port.
func parsePort(b []byte) (uint32, Port) {
	name, _, _ := bytes.Cut(b[8:24], []byte{0})
	config := binary.BigEndian.Uint32(b[24:])
	return uint32(binary.BigEndian.Uint16(b)), Port{Name: string(name), MAC: [6]byte(b[2:8]), NoFlood: config&configNoFlood != 0}
}

// modPorts sets or clears NO_FLOOD on ports and waits until the switch has done it. A port
// that was re-created meanwhile has another MAC and is refused.
func (d *Driver) modPorts(ctx context.Context, ports map[uint32]Port, numbers []uint32, bit bool) error {
	const what = "set NO_FLOOD"
	c, err := d.dial(ctx, of10)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, n := range numbers {
		if err := c.send(msg10PortMod, portMod(n, ports[n].MAC, bit)); err != nil {
			return d.wire(what, err)
		}
	}
	return d.barrier(c, what)
}

// portMod builds the body of an ofp_port_mod.
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
