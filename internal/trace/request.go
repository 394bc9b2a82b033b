package trace

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/packet"
)

// ErrRequest is wrapped by every error about what was asked for.
var ErrRequest = errors.New("cannot trace")

// Request says which frame, and where it comes in. All of it is text, as it
// stands on a command line; empty is not given.
type Request struct {
	In string // device, or a port's endpoint

	// The frame as it is. With FromNode: the inner one.
	Frame string // hex

	// Or what it is made of.
	DstMAC, SrcMAC string
	ARPFor, NDFor  string
	Src, Dst       string
	Proto          string
	Sport, Dport   string
	Size           string

	// The outer header, as that node puts it on.
	FromNode, Network, Segment string
}

// Field is one of a Request's texts and how it is given.
type Field struct {
	Name, Usage string
	Text        *string
}

// Fields are those of r, by the names of their flags and query parameters.
func (r *Request) Fields() []Field {
	return []Field{
		{"in", "where the frame comes in: a port's `device` or endpoint (NAMESPACE/NAME), or an uplink", &r.In},
		{"frame", "the whole Ethernet frame as `hex`; with --from-node the inner one", &r.Frame},
		{"dst-mac", "destination `MAC` (default: what the network's tables have for --dst)", &r.DstMAC},
		{"src-mac", "source `MAC` (default: the port's own)", &r.SrcMAC},
		{"arp-for", "an ARP request for this IPv4 `address`", &r.ARPFor},
		{"nd-for", "a Neighbor Solicitation for this IPv6 `address`; with --src :: duplicate address detection", &r.NDFor},
		{"src", "source `address` (default: the port's own)", &r.Src},
		{"dst", "destination `address` of an IP packet", &r.Dst},
		{"proto", "udp, tcp or icmp (default: icmp, or udp if a port is given)", &r.Proto},
		{"sport", "source `port` (default 49152)", &r.Sport},
		{"dport", "destination `port` (default 9)", &r.Dport},
		{"size", "length of the IP packet in `bytes`, which is what an MTU counts", &r.Size},
		{"from-node", "with --in UPLINK: an SRv6 packet as this `node` would send it", &r.FromNode},
		{"network", "with --from-node: the frame's `network`, by name or ID", &r.Network},
		{"segment", "with --from-node: the sender's `segment` (default: that of the source MAC)", &r.Segment},
	}
}

// Query is the request as a query, ParseQuery its inverse.
func (r *Request) Query() string {
	v := url.Values{}
	for _, f := range r.Fields() {
		if *f.Text != "" {
			v.Set(f.Name, *f.Text)
		}
	}
	return v.Encode()
}

// ParseQuery takes a request out of a query. A parameter that is none is an error.
func ParseQuery(v url.Values) (Request, error) {
	var r Request
	fields := r.Fields()
	for name, values := range v {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		if i < 0 || len(values) != 1 {
			return r, fmt.Errorf("%w: parameter %q, %d times: it is none, or once is enough", ErrRequest, name, len(values))
		}
		*fields[i].Text = values[0]
	}
	return r, nil
}

// wish is a Request understood. Addresses that are not given are not valid.
type wish struct {
	in             string
	frame          []byte // nil: to be made
	dstMAC, srcMAC *packet.MAC
	arpFor, ndFor  netip.Addr
	src, dst       netip.Addr
	proto          string
	sport, dport   uint16
	size           int // 0: as short as can be

	fromNode, network string
	segment           *uint32
}

// Check says what is wrong with a request whatever the tables say.
func (r *Request) Check() error {
	_, err := r.parse()
	return err
}

func (r *Request) parse() (w wish, err error) {
	p := parser{}
	if r.In == "" {
		p.fail("--in", "", "name the device or endpoint the frame comes in by")
	}
	w = wish{in: r.In, fromNode: r.FromNode, network: r.Network, proto: strings.ToLower(r.Proto)}
	w.dstMAC, w.srcMAC = p.mac("--dst-mac", r.DstMAC), p.mac("--src-mac", r.SrcMAC)
	w.arpFor, w.ndFor = p.addr("--arp-for", r.ARPFor), p.addr("--nd-for", r.NDFor)
	w.src, w.dst = p.addr("--src", r.Src), p.addr("--dst", r.Dst)
	w.sport = uint16(p.number("--sport", r.Sport, 49152, 1<<16-1))
	w.dport = uint16(p.number("--dport", r.Dport, 9, 1<<16-1))
	w.size = int(p.number("--size", r.Size, 0, fastpath.TraceMax-packet.EthernetLen))
	if n := uint32(p.number("--segment", r.Segment, 0, srv6.MaxSegment)); r.Segment != "" {
		w.segment = &n
	}
	if r.Frame != "" {
		w.frame, err = ParseHex(r.Frame)
		if err != nil && p.err == nil {
			p.err = fmt.Errorf("%w: --frame: %w", ErrRequest, err)
		}
	}
	if p.err == nil {
		p.err = r.fits(&w)
	}
	return w, p.err
}

// fits says whether what is given goes together, and fills in the protocol.
func (r *Request) fits(w *wish) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrRequest, fmt.Sprintf(format, a...))
	}
	given := func(names ...string) string {
		for _, f := range r.Fields() {
			if *f.Text != "" && slices.Contains(names, f.Name) {
				return "--" + f.Name
			}
		}
		return ""
	}
	packetOnly := given("dst", "proto", "sport", "dport", "size")
	switch made := given("dst-mac", "src-mac", "arp-for", "nd-for", "src", "dst", "proto", "sport", "dport", "size"); {
	case r.Frame != "" && made != "":
		return bad("%s beside a frame as it is: give one or the other", made)
	case r.Frame == "" && made == "":
		return bad("no frame: give --frame or --read, or what it is made of, such as --dst 10.0.0.5, --arp-for 10.0.0.5 or --dst-mac 02:00:00:00:00:05")
	case r.ARPFor != "" && r.NDFor != "":
		return bad("--arp-for beside --nd-for: give one of them")
	case given("arp-for", "nd-for") != "" && packetOnly != "":
		return bad("%s beside %s: a question has only --src, --src-mac and --dst-mac", packetOnly, given("arp-for", "nd-for"))
	case r.ARPFor != "" && !w.arpFor.Is4():
		return bad("--arp-for %s: ARP asks for IPv4 addresses: use --nd-for", r.ARPFor)
	case r.NDFor != "" && !w.ndFor.Is6():
		return bad("--nd-for %s: Neighbor Discovery asks for IPv6 addresses: use --arp-for", r.NDFor)
	case r.Dst == "" && given("proto", "sport", "dport") != "":
		return bad("%s without --dst: say where the packet goes", given("proto", "sport", "dport"))
	case r.Src != "" && r.Dst == "" && given("arp-for", "nd-for") == "":
		return bad("--src without --dst: say where the packet goes")
	case w.src.IsValid() && w.target().IsValid() && w.src.Is4() != w.target().Is4():
		return bad("--src %s and %s are of two families", w.src, w.target())
	case r.FromNode != "" && r.Network == "":
		return bad("--from-node without --network: name the frame's network")
	case r.FromNode == "" && given("network", "segment") != "":
		return bad("%s without --from-node: a port has its own", given("network", "segment"))
	}
	if w.proto == "" {
		w.proto = "icmp"
		if given("sport", "dport") != "" {
			w.proto = "udp"
		}
	}
	if !slices.Contains([]string{"icmp", "udp", "tcp"}, w.proto) {
		return bad("--proto %q: give udp, tcp or icmp", r.Proto)
	}
	if w.proto == "icmp" && given("sport", "dport") != "" {
		return bad("%s with --proto icmp: ICMP has no ports", given("sport", "dport"))
	}
	return nil
}

// target is the address the frame is about.
func (w *wish) target() netip.Addr {
	for _, a := range []netip.Addr{w.arpFor, w.ndFor} {
		if a.IsValid() {
			return a
		}
	}
	return w.dst
}

// ParseHex reads a frame from hex digits; spaces, line ends and colons between bytes
// do not count.
func ParseHex(s string) ([]byte, error) {
	s = strings.NewReplacer(" ", "", "\n", "", "\r", "", "\t", "", ":", "").Replace(s)
	b, err := hex.DecodeString(s)
	var wrong hex.InvalidByteError
	switch {
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("character %d, %q, is no hex digit", strings.IndexByte(s, byte(wrong))+1, rune(wrong))
	case err != nil:
		return nil, fmt.Errorf("%d hex digits: two are one byte, so one is missing", len(s))
	case len(b) == 0:
		return nil, errors.New("no hex digits")
	case len(b) > fastpath.TraceMax:
		return nil, fmt.Errorf("%d bytes: at most %d", len(b), fastpath.TraceMax)
	}
	return b, nil
}

// parser keeps the first error.
type parser struct{ err error }

func (p *parser) fail(name, text, mend string) {
	if p.err != nil {
		return
	}
	if text == "" {
		p.err = fmt.Errorf("%w: no %s: %s", ErrRequest, name, mend)
		return
	}
	p.err = fmt.Errorf("%w: %s %q: %s", ErrRequest, name, text, mend)
}

func (p *parser) mac(name, s string) *packet.MAC {
	if s == "" {
		return nil
	}
	m, err := packet.ParseMAC(s)
	if err != nil {
		p.fail(name, s, "not a MAC address: write six pairs of hex digits, like 02:00:00:00:00:0a")
	}
	return &m
}

func (p *parser) addr(name, s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		p.fail(name, s, "not an address: write it like 10.0.0.5 or fd00:10::5")
	}
	return a
}

func (p *parser) number(name, s string, usual, most uint64) uint64 {
	if s == "" {
		return usual
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > most {
		p.fail(name, s, fmt.Sprintf("give a number from 0 to %d", most))
	}
	return n
}
