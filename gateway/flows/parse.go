package flows

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ErrSyntax says that a line is not a flow as ovs-ofctl prints or takes it.
var ErrSyntax = errors.New("not a flow")

// Parse reads one flow as `ovs-ofctl dump-flows` prints it or `add-flow` takes it, and
// returns it in canonical spelling. Fields it does not know are kept as they are, so a
// foreign flow never fails to parse for being strange.
func Parse(line string) (Flow, error) {
	f := Flow{Priority: 32768}
	left, actions, ok := strings.Cut(line, "actions=")
	if !ok {
		return Flow{}, fmt.Errorf("%w: no actions in %q", ErrSyntax, line)
	}
	var fields []string
	for _, tok := range strings.FieldsFunc(left, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		key, val, _ := strings.Cut(tok, "=")
		var err error
		switch key {
		case "cookie":
			f.Cookie, err = strconv.ParseUint(val, 0, 64)
		case "table":
			var n uint64
			n, err = strconv.ParseUint(val, 0, 8)
			f.Table = uint8(n)
		case "priority":
			var n uint64
			n, err = strconv.ParseUint(val, 0, 16)
			f.Priority = uint16(n)
		case "duration", "n_packets", "n_bytes", "idle_age", "hard_age":
		default:
			fields = append(fields, tok)
		}
		if err != nil {
			return Flow{}, fmt.Errorf("%w: %s in %q", ErrSyntax, tok, line)
		}
	}
	f.Match = Match(fields...)
	f.Actions = Actions(strings.TrimSpace(actions))
	return f, nil
}

// ParseSet reads a flow a line, skipping empty lines and the header of a dump.
func ParseSet(text string) (Set, error) {
	var s Set
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || !strings.Contains(line, "actions=") {
			continue
		}
		f, err := Parse(line)
		if err != nil {
			return nil, err
		}
		s = append(s, f)
	}
	return s, nil
}

// fieldNames maps the spellings ovs-ofctl takes to the one it prints.
var fieldNames = map[string]string{
	"icmpv6_type": "icmp_type", "icmpv6_code": "icmp_code",
	"eth_src": "dl_src", "eth_dst": "dl_dst", "eth_type": "dl_type",
	"ip_src": "nw_src", "ip_dst": "nw_dst",
	"udp_src": "tp_src", "udp_dst": "tp_dst", "tcp_src": "tp_src", "tcp_dst": "tp_dst",
}

// fieldRank gives the reading order of a match; what is not listed follows by name.
var fieldRank = map[string]int{
	"arp": 1, "ip": 1, "ipv6": 1, "icmp": 1, "icmp6": 1, "tcp": 1, "udp": 1, "sctp": 1, "tcp6": 1, "udp6": 1, "sctp6": 1,
	"in_port": 2, "ct_state": 3, "ct_mark": 4, "dl_vlan": 5, "dl_src": 6, "dl_dst": 7,
}

// Match joins match fields in canonical spelling and order.
func Match(fields ...string) string {
	type field struct{ name, text string }
	fs := make([]field, 0, len(fields))
	for _, t := range fields {
		name, val, hasVal := strings.Cut(t, "=")
		name = cmp.Or(fieldNames[name], name)
		if hasVal {
			fs = append(fs, field{name, name + "=" + fieldValue(name, val)})
		} else {
			fs = append(fs, field{name, name})
		}
	}
	slices.SortStableFunc(fs, func(a, b field) int {
		return cmp.Or(cmp.Compare(rank(a.name), rank(b.name)), strings.Compare(a.name, b.name))
	})
	out := make([]string, len(fs))
	for i, f := range fs {
		out[i] = f.text
	}
	return strings.Join(out, ",")
}

func rank(name string) int {
	if r, ok := fieldRank[name]; ok {
		return r
	}
	return 100
}

// fieldValue spells a value as ovs-ofctl prints it.
func fieldValue(name, v string) string {
	switch name {
	case "ct_state":
		return ctState(v)
	case "ct_mark":
		if n, err := strconv.ParseUint(v, 0, 32); err == nil {
			return fmt.Sprintf("%#x", n)
		}
	case "dl_vlan", "icmp_type", "tp_dst", "tp_src", "arp_op":
		if n, err := strconv.ParseUint(v, 0, 16); err == nil {
			return strconv.FormatUint(n, 10)
		}
	case "dl_src", "dl_dst":
		return strings.ToLower(v)
	case "nd_target", "ipv6_src", "ipv6_dst":
		if a, err := netip.ParseAddr(v); err == nil {
			return a.String()
		}
	case "in_port":
		if n, err := strconv.ParseUint(v, 0, 32); err == nil {
			return portName(uint32(n))
		}
		return strings.ToUpper(v)
	}
	return v
}

// ctState sorts "+trk+est" into "+est+trk", the switch's order.
func ctState(v string) string {
	var flags []string
	start := 0
	for i := 1; i <= len(v); i++ {
		if i == len(v) || v[i] == '+' || v[i] == '-' {
			flags = append(flags, v[start:i])
			start = i
		}
	}
	slices.SortFunc(flags, func(a, b string) int { return strings.Compare(a[1:], b[1:]) })
	return strings.Join(flags, "")
}

// Actions spells an action list canonically: reserved ports without "output:", pop_vlan as
// strip_vlan (one action, printed differently by OpenFlow version), ct() arguments sorted.
func Actions(list string) string {
	parts := splitTop(list)
	for i, p := range parts {
		parts[i] = action(p)
	}
	return strings.Join(parts, ",")
}

func action(p string) string {
	if p == "pop_vlan" {
		return "strip_vlan"
	}
	if out, ok := strings.CutPrefix(p, "output:"); ok {
		if n, err := strconv.ParseUint(out, 0, 32); err == nil {
			return output(uint32(n))
		}
		switch u := strings.ToUpper(out); u {
		case "NORMAL", "FLOOD", "LOCAL", "IN_PORT", "ALL", "CONTROLLER":
			return u
		}
		return p
	}
	if inner, ok := strings.CutPrefix(p, "ct("); ok && strings.HasSuffix(inner, ")") {
		args := splitTop(strings.TrimSuffix(inner, ")"))
		slices.Sort(args)
		return "ct(" + strings.Join(args, ",") + ")"
	}
	return p
}

// splitTop splits at the commas outside parentheses, trimming spaces and empty parts.
func splitTop(s string) []string {
	var out []string
	depth, start := 0, 0
	add := func(part string) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth <= 0 {
				add(s[start:i])
				start = i + 1
			}
		}
	}
	add(s[start:])
	return out
}

// portName spells a port number as a match does.
func portName(n uint32) string {
	if n == PortLocal || n == 0xfffffffe {
		return "LOCAL"
	}
	return strconv.FormatUint(uint64(n), 10)
}

// output spells the action that sends to a port.
func output(n uint32) string {
	if n == PortLocal || n == 0xfffffffe {
		return "LOCAL"
	}
	return "output:" + strconv.FormatUint(uint64(n), 10)
}
