package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Mode says where in the kernel the program runs.
type Mode uint8

const (
	// Native runs in the driver, before an skb is made.
	Native Mode = iota
	// Generic runs on skbs. It is slower, and cannot see an offloaded VLAN
	// tag: turn tx-vlan-offload off at the sending end of a veth.
	Generic
)

func (m Mode) String() string {
	if m == Generic {
		return "generic"
	}
	return "native"
}

// Kind is the kind of port, and so the program it gets.
type Kind uint8

const (
	// Workload redirects everything and drops what has no socket.
	Workload Kind = iota
	// Uplink redirects frames for the locator and passes the rest.
	Uplink
)

func (k Kind) String() string {
	if k == Uplink {
		return "uplink"
	}
	return "workload"
}

// AttachOptions say what to attach to which device.
type AttachOptions struct {
	IfIndex int    // device, in the network namespace of the calling thread
	Kind    Kind   // which program
	Queues  int    // XSKMAP slots, at least the device's receive queues
	PinDir  string // directory in a bpffs (see EnsureBPFFS), made when missing
	Name    string // name of the pin, unique in PinDir; often the device's name

	Locator netip.Prefix // Uplink only: IPv6, 32 to 64 bits

	Mode         Mode // wanted mode
	AllowGeneric bool // fall back to Generic when Native fails

	// Cache is shared by all calls of a process; nil: none.
	Cache *Cache
}

// maxQueues bounds a map nobody can have meant.
const maxQueues = 4096

func (o *AttachOptions) validate() error {
	switch {
	case o.IfIndex <= 0:
		return fmt.Errorf("attach %q: interface index %d is not positive", o.Name, o.IfIndex)
	case o.Kind > Uplink:
		return fmt.Errorf("attach %q: unknown port kind %d", o.Name, o.Kind)
	case o.Queues < 1 || o.Queues > maxQueues:
		return fmt.Errorf("attach %q: %d queues, want 1 to %d", o.Name, o.Queues, maxQueues)
	case o.PinDir == "":
		return fmt.Errorf("attach %q: no pin directory", o.Name)
	case o.Mode > Generic:
		return fmt.Errorf("attach %q: unknown mode %d", o.Name, o.Mode)
	}
	if _, err := pinDirName(o.Name); err != nil {
		return err
	}
	if o.Kind != Uplink {
		return nil
	}
	l := o.Locator
	if !l.IsValid() || !l.Addr().Is6() || l.Addr().Is4In6() || l.Bits() < 32 || l.Bits() > 64 {
		return fmt.Errorf("attach %q: locator %s is not an IPv6 prefix of 32 to 64 bits", o.Name, l)
	}
	return nil
}

// locatorWords returns the prefix's and the mask's first 8 bytes as the
// program reads them from a frame: in memory order.
func locatorWords(l netip.Prefix) (prefix, mask uint64) {
	bits := ^uint64(0) << (64 - l.Bits())
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], bits)
	mask = binary.NativeEndian.Uint64(b[:])
	addr := l.Addr().As16()
	return binary.NativeEndian.Uint64(addr[:8]) & mask, mask
}

// bpffs refuses a name with a dot, which names of VLAN devices have; a percent
// sign cannot be in the result otherwise.
var (
	pinEscape   = strings.NewReplacer("%", "%25", ".", "%2e")
	pinUnescape = strings.NewReplacer("%25", "%", "%2e", ".")
)

func pinDirName(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("pin name %q is empty or has a slash in it", name)
	}
	dir := pinEscape.Replace(name)
	if len(dir) > 255 {
		return "", fmt.Errorf("pin name %q: %w", name, errNameTooLong)
	}
	return dir, nil
}

// PinName is the name of the pin whose directory in PinDir is called dir.
func PinName(dir string) string { return pinUnescape.Replace(dir) }

var errNameTooLong = errors.New("longer than 255 bytes")
