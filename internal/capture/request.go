package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/packet"
)

// ErrRequest is wrapped by the error of a request that no agent can fulfil.
var ErrRequest = errors.New("nothing to capture")

// LeastSnaplen is the fewest bytes to keep of a frame where an address is looked for:
// they hold the longest outer headers that a node of ours makes (srv6.MaxVia), an inner
// frame's two tags, and a Neighbor Solicitation with its target; and room for the TLVs
// of others' SRHs.
const LeastSnaplen = 512

// Request is what is asked for. The zero value of a field asks for all.
type Request struct {
	ID       string // to stop it by
	Port     string // device, or endpoint as namespace/name
	Network  string
	Reasons  []string // of drops
	Dropped  bool
	MAC      string // of sender or receiver
	IP       string // of sender or receiver
	Snaplen  int    // bytes kept of a frame
	Count    uint64 // frames
	Duration time.Duration
}

// Query is the request as it travels; ParseQuery is the inverse.
func (r Request) Query() url.Values {
	q := url.Values{}
	for key, value := range map[string]string{"id": r.ID, "port": r.Port, "network": r.Network, "mac": r.MAC, "ip": r.IP} {
		if value != "" {
			q.Set(key, value)
		}
	}
	q["reason"] = r.Reasons
	if r.Dropped {
		q.Set("dropped", "true")
	}
	if r.Snaplen != 0 {
		q.Set("snaplen", strconv.Itoa(r.Snaplen))
	}
	if r.Count != 0 {
		q.Set("count", strconv.FormatUint(r.Count, 10))
	}
	if r.Duration != 0 {
		q.Set("duration", r.Duration.String())
	}
	return q
}

// parameters are those of a query.
var parameters = []string{"id", "port", "network", "mac", "ip", "reason", "dropped", "snaplen", "count", "duration"}

// checkQuery refuses what would be taken for no wish at all, or for another.
func checkQuery(q url.Values) error {
	for name, values := range q {
		switch {
		case !slices.Contains(parameters, name):
			return fmt.Errorf("%w: parameter %q is none: there are %s", ErrRequest, name, strings.Join(parameters, ", "))
		case name != "reason" && len(values) != 1:
			return fmt.Errorf("%w: parameter %q, %d times: once is enough", ErrRequest, name, len(values))
		case slices.Contains(values, ""):
			return fmt.Errorf("%w: --%s is given, but empty: give a value, or leave it out", ErrRequest, name)
		}
	}
	return nil
}

// ParseQuery reads a request, each parameter once but reason, and checks what can be
// checked without an agent.
func ParseQuery(q url.Values) (Request, error) {
	if err := checkQuery(q); err != nil {
		return Request{}, err
	}
	r := Request{ID: q.Get("id"), Port: q.Get("port"), Network: q.Get("network"), MAC: q.Get("mac"), IP: q.Get("ip"), Reasons: q["reason"]}
	var err error
	for key, parse := range map[string]func(string) error{
		"dropped":  func(s string) (err error) { r.Dropped, err = strconv.ParseBool(s); return err },
		"snaplen":  func(s string) (err error) { r.Snaplen, err = strconv.Atoi(s); return err },
		"count":    func(s string) (err error) { r.Count, err = strconv.ParseUint(s, 10, 64); return err },
		"duration": func(s string) (err error) { r.Duration, err = time.ParseDuration(s); return err },
	} {
		if s := q.Get(key); s != "" {
			if perr := parse(s); perr != nil {
				err = errors.Join(err, fmt.Errorf("%w: --%s %q is none", ErrRequest, key, s))
			}
		}
	}
	if r.Snaplen == 0 {
		r.Snaplen = fastpath.DefaultSnaplen
	}
	return r, errors.Join(err, r.Check())
}

// Check says what of a request is wrong whatever agent is asked.
func (r Request) Check() error {
	if _, err := r.reasons(); err != nil {
		return err
	}
	if _, err := r.addresses(); err != nil {
		return err
	}
	if r.Snaplen < 0 || r.Snaplen > fastpath.MaxSnaplen {
		return fmt.Errorf("%w: --snaplen %d: give 1 to %d bytes", ErrRequest, r.Snaplen, fastpath.MaxSnaplen)
	}
	if r.Snaplen != 0 && r.Snaplen < LeastSnaplen && (r.MAC != "" || r.IP != "") {
		return fmt.Errorf("%w: --snaplen %d with --mac or --ip: give at least %d bytes: the addresses of an uplink's frames lie behind outer headers", ErrRequest, r.Snaplen, LeastSnaplen)
	}
	if r.Duration < 0 {
		return fmt.Errorf("%w: --duration %v: give a time, such as 10s", ErrRequest, r.Duration)
	}
	return nil
}

// Options are those of the data path; the caller fills in Device and Network. The
// request is one that Check accepts.
func (r Request) Options() fastpath.CaptureOptions {
	reasons, _ := r.reasons()
	return fastpath.CaptureOptions{Snaplen: r.Snaplen, Dropped: r.Dropped, Reasons: reasons}
}

// Reasons are the names of all drop reasons.
func Reasons() []string {
	var names []string
	for d := fastpath.ReasonNone + 1; d < fastpath.NumReasons; d++ {
		names = append(names, d.String())
	}
	return names
}

func (r Request) reasons() ([]fastpath.DropReason, error) {
	names := Reasons()
	var reasons []fastpath.DropReason
	for _, name := range r.Reasons {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf(`%w: --reason %q is no drop reason: "picot pcap --help" lists them`, ErrRequest, name)
		}
		reasons = append(reasons, fastpath.ReasonNone+1+fastpath.DropReason(i))
	}
	return reasons, nil
}

// addresses are what a frame must have one of; nil: any.
type addresses struct {
	mac *packet.MAC
	ip  *packet.IP
}

func (r Request) addresses() (a addresses, err error) {
	if r.MAC != "" {
		mac, err := packet.ParseMAC(r.MAC)
		if err != nil {
			return a, fmt.Errorf("%w: --mac: %w", ErrRequest, err)
		}
		a.mac = &mac
	}
	if r.IP != "" {
		ip, err := netip.ParseAddr(r.IP)
		if err != nil || ip.Zone() != "" {
			return a, fmt.Errorf("%w: --ip %q: give an address, such as 10.0.0.10 or fd00::a", ErrRequest, r.IP)
		}
		p := packet.IPFromAddr(ip.Unmap())
		a.ip = &p
	}
	return a, nil
}
