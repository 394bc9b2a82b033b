package table

import (
	"fmt"
	"slices"

	"picot.dev/picot/internal/packet"
)

// portState is one place of the ports.
type portState struct {
	present bool
	spec    Port
	network *network
	// last and version: who was here last, and the last snapshot that may name it.
	last    PortID
	version uint64
}

// NewPortID returns an ID whose index no present port has and no snapshot still
// in use may name, with a generation that was not used there before. It is not
// reserved: a second call may return the same until SetPort took it.
func (b *Builder) NewPortID() (PortID, error) {
	for i := 1; i < len(b.ports); i++ {
		if p := &b.ports[i]; !p.present && (p.last == 0 || p.version < b.released) {
			return NewPortID(i, p.last.Generation()+1), nil
		}
	}
	i := max(1, len(b.ports))
	if i > 1<<16-1 {
		return 0, ErrFull
	}
	return NewPortID(i, 1), nil
}

// SetPort adds or changes a port. Entries that name it take effect as soon as it
// is there, if it is in their network. The error wraps [ErrInvalid] or
// [ErrQuarantined], or is a [PortConflictError].
func (b *Builder) SetPort(c Port) error {
	i := c.ID.Index()
	if i == 0 || c.Segment > MaxSegment {
		return invalid("port %q: ID %#x, segment %d: give an index from 1 and a segment up to %d", c.Name, uint32(c.ID), c.Segment, MaxSegment)
	}
	if i < len(b.ports) {
		switch p := &b.ports[i]; {
		case p.present && p.spec.ID != c.ID:
			return &PortConflictError{ID: c.ID, Held: p.spec.ID, Name: c.Name, Holder: p.spec.Name}
		case !p.present && p.last != 0 && p.last != c.ID && p.version >= b.released:
			return fmt.Errorf("port %q: index %d: %w until snapshot %d is released", c.Name, i, ErrQuarantined, p.version)
		}
	}
	n, err := b.network(c.Network)
	if err != nil {
		return fmt.Errorf("port %q: %w", c.Name, err)
	}
	for len(b.ports) <= i {
		b.ports = append(b.ports, portState{})
	}
	p := &b.ports[i]
	old := p.network
	c.Addresses = slices.Clone(c.Addresses)
	c.IPs = make([]packet.IP, 0, len(c.Addresses)+1)
	for _, a := range c.Addresses {
		c.IPs = append(c.IPs, packet.IPFromAddr(a))
	}
	c.IPs = append(c.IPs, LinkLocal(c.MAC))
	p.present, p.spec, p.network = true, c, n
	b.portsDirty = true
	if old == n {
		return nil
	}
	n.ports++
	b.compileClaims(c.ID)
	b.leaveNetwork(old)
	return nil
}

// DeletePort deletes a port. Entries that name it have no effect until it comes
// back.
func (b *Builder) DeletePort(id PortID) {
	i := id.Index()
	if i >= len(b.ports) || !b.ports[i].present || b.ports[i].spec.ID != id {
		return
	}
	n := b.ports[i].network
	b.ports[i] = portState{last: id, version: b.version}
	b.portsDirty = true
	b.compileClaims(id)
	b.leaveNetwork(n)
}

func (b *Builder) leaveNetwork(n *network) {
	if n != nil {
		n.ports--
		b.dropNetwork(n)
	}
}

// compileClaims compiles again what names a port.
func (b *Builder) compileClaims(id PortID) {
	for k := range b.claims[id] {
		b.compileFDB(k.network, k.mac)
	}
}

// port returns the port of an ID, or nil.
func (b *Builder) port(id PortID) *portState {
	if i := id.Index(); i < len(b.ports) && b.ports[i].present && b.ports[i].spec.ID == id {
		return &b.ports[i]
	}
	return nil
}
