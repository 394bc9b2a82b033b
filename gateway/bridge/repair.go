package bridge

import (
	"context"
	"encoding/binary"
	"net"
	"strconv"
	"strings"

	"picot.dev/picot/gateway/flows"
)

// A repair adds steering flows that were swept away, over a connection that is already open:
// a process would take tens of milliseconds to start on a busy node. Formats: OpenFlow 1.3.0,
// sections 7.2.3 (match), 7.2.4 and 7.2.5 (instructions, actions), 7.3.4.1 (flow modification).
const (
	oxmInPort     = 0x80000000 | 0<<9
	oxmEthDst     = 0x80000000 | 3<<9
	oxmEthType    = 0x80000000 | 5<<9
	oxmVLAN       = 0x80000000 | 6<<9
	oxmIPProto    = 0x80000000 | 10<<9
	oxmICMPv6Type = 0x80000000 | 29<<9
	oxmHasMask    = 1 << 8

	vlanPresent = 0x1000

	port13Normal = 0xfffffffa
	port13Local  = 0xfffffffe
	port13Any    = 0xffffffff

	applyActions = 4
)

// repairer holds the open connection of a Watch.
type repairer struct {
	d *Driver
	c *conn
}

// warm opens the connection, or answers what the switch asked meanwhile: it hangs up on who
// is silent for two minutes.
func (r *repairer) warm(ctx context.Context) {
	if err := r.exchange(ctx, nil); err != nil {
		r.d.opt.Log.Debug("no connection for repairs, trying again when one is needed", "err", err)
	}
}

// repair adds the steering flows that should be on the bridge. d.mu is held.
func (r *repairer) repair(ctx context.Context) (int, error) {
	var mods [][]byte
	for _, f := range r.d.placed {
		if body, ok := flowMod(f); ok && isSteer(f) {
			mods = append(mods, body)
		} // what cannot be encoded is installed by the full check that follows
	}
	if len(mods) == 0 {
		return 0, nil
	}
	reused := r.c != nil
	err := r.exchange(ctx, mods)
	if err != nil && reused { // it may have been a connection the switch had dropped
		err = r.exchange(ctx, mods)
	}
	if err != nil {
		return 0, err
	}
	return len(mods), nil
}

// exchange sends flow modifications and waits until they are done.
func (r *repairer) exchange(ctx context.Context, mods [][]byte) error {
	const what = "restore flows"
	ctx, cancel := context.WithTimeout(ctx, r.d.opt.Timeout)
	defer cancel()
	if r.c == nil {
		c, err := r.d.dial(ctx, of13)
		if err != nil {
			return err
		}
		r.c = c
	}
	deadline, _ := ctx.Deadline()
	err := r.c.SetDeadline(deadline)
	var out []byte
	for _, body := range mods {
		out = append(out, r.c.message(msgFlowMod, body)...)
	}
	if err == nil && len(out) > 0 {
		_, err = r.c.Write(out)
	}
	if err != nil {
		r.close()
		return r.d.wire(what, err)
	}
	if err := r.d.barrier(r.c, what); err != nil {
		r.close()
		return err
	}
	return nil
}

func (r *repairer) close() {
	if r.c != nil {
		r.c.Close()
		r.c = nil
	}
}

func isSteer(f flows.Flow) bool { return f.Table == 0 && f.Priority == flows.PrioritySteer }

// flowMod builds the body of an ofp_flow_mod that adds a steering flow. It knows the fields
// and actions such flows have and reports false for anything else.
func flowMod(f flows.Flow) ([]byte, bool) {
	match, ok := oxm(f.Match)
	if !ok {
		return nil, false
	}
	actions, ok := outputs(f.Actions)
	if !ok {
		return nil, false
	}
	b := make([]byte, 40)
	binary.BigEndian.PutUint64(b, f.Cookie)
	b[16] = f.Table
	binary.BigEndian.PutUint16(b[22:], f.Priority)
	binary.BigEndian.PutUint32(b[24:], 0xffffffff) // no buffer
	binary.BigEndian.PutUint32(b[28:], port13Any)
	binary.BigEndian.PutUint32(b[32:], port13Any)

	b = binary.BigEndian.AppendUint16(b, 1) // OXM
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(match)))
	b = append(b, match...)
	for (4+len(match))%8 != 0 {
		b, match = append(b, 0), append(match, 0)
	}
	b = binary.BigEndian.AppendUint16(b, applyActions)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(actions)))
	b = append(b, 0, 0, 0, 0)
	return append(b, actions...), true
}

// oxm encodes a canonical match, prerequisites before what needs them.
func oxm(match string) ([]byte, bool) {
	var inPort, dst, vlan, proto, typ []byte
	for field := range strings.SplitSeq(match, ",") {
		name, val, _ := strings.Cut(field, "=")
		ok := true
		switch name {
		case "arp":
			proto = tlv(oxmEthType, []byte{0x08, 0x06})
		case "icmp6":
			proto = append(tlv(oxmEthType, []byte{0x86, 0xdd}), tlv(oxmIPProto, []byte{58})...)
		case "icmp_type":
			n, err := strconv.ParseUint(val, 10, 8)
			typ, ok = tlv(oxmICMPv6Type, []byte{byte(n)}), err == nil
		case "dl_vlan":
			n, err := strconv.ParseUint(val, 10, 12)
			vlan, ok = tlv(oxmVLAN, binary.BigEndian.AppendUint16(nil, uint16(n)|vlanPresent)), err == nil
		case "in_port":
			n, known := port13(val)
			inPort, ok = tlv(oxmInPort, binary.BigEndian.AppendUint32(nil, n)), known
		case "dl_dst":
			dst, ok = ethDst(val)
		default:
			return nil, false
		}
		if !ok {
			return nil, false
		}
	}
	var out []byte
	for _, p := range [][]byte{inPort, dst, vlan, proto, typ} {
		out = append(out, p...)
	}
	return out, true
}

func ethDst(val string) ([]byte, bool) {
	addr, mask, masked := strings.Cut(val, "/")
	mac, err := net.ParseMAC(addr)
	if err != nil {
		return nil, false
	}
	if !masked {
		return tlv(oxmEthDst, mac), true
	}
	m, err := net.ParseMAC(mask)
	if err != nil {
		return nil, false
	}
	return tlv(oxmEthDst|oxmHasMask, append(mac, m...)), true
}

func tlv(header uint32, value []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, header|uint32(len(value))), value...)
}

// outputs encodes a list of output actions.
func outputs(list string) ([]byte, bool) {
	var b []byte
	for a := range strings.SplitSeq(list, ",") {
		port, ok := port13(strings.TrimPrefix(a, "output:"))
		if !ok {
			return nil, false
		}
		b = append(b, 0, 0, 0, 16)
		b = binary.BigEndian.AppendUint32(b, port)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	return b, true
}

// port13 returns a port's OpenFlow 1.3 number.
func port13(name string) (uint32, bool) {
	switch name {
	case "NORMAL":
		return port13Normal, true
	case "LOCAL":
		return port13Local, true
	}
	n, err := strconv.ParseUint(name, 10, 16)
	return uint32(n), err == nil
}
