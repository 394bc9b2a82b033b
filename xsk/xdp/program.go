package xdp

import (
	"errors"
	"net/netip"
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

// Kind is the kind of port, and so the program it gets.
type Kind uint8

const (
	// Workload redirects everything and drops what has no socket.
	Workload Kind = iota
	// Uplink redirects frames for the locator and passes the rest.
	Uplink
)

// Errors returned by this package, to be tested with [errors.Is].
var (
	// ErrForeignProgram: the device has an XDP program that is not picot's.
	ErrForeignProgram = errors.New("foreign XDP program")
	// ErrPinBusy: the name's pin holds another device that is alive.
	ErrPinBusy = errors.New("pin holds another device")
	// ErrMode: the pinned program runs in a mode that was not asked for.
	ErrMode = errors.New("pinned in another mode")
)

// AttachOptions say what to attach to which device.
type AttachOptions struct {
	IfIndex int    // device, in the caller's network namespace
	Kind    Kind   // which program
	Queues  int    // XSKMAP slots, at least the device's receive queues
	PinDir  string // directory in a bpffs, made when missing
	Name    string // name of the pin, unique in PinDir

	Locator netip.Prefix // Uplink only: IPv6, 32 to 64 bits

	Mode         Mode // wanted mode
	AllowGeneric bool // fall back to Generic when Native fails
}

// Program is an attached program with its maps.
type Program struct{}

// Counters are the frames seen since the program was attached, all CPUs
// summed. Redirected + DroppedEmpty + Passed + Errors is every frame.
type Counters struct {
	Redirected     uint64 // handed to a socket's slot
	DroppedEmpty   uint64 // dropped: the queue's slot is empty
	Passed         uint64 // left to the kernel (Uplink only)
	Errors         uint64 // dropped: the VLAN tag could not be put back
	VLANReinserted uint64 // frames whose offloaded tag was put back
}

// Pin is what [List] found in one directory of PinDir.
type Pin struct {
	Name    string
	Kind    Kind
	Mode    Mode
	IfIndex int  // 0: the device is gone
	Alive   bool // attached to a device that exists
}

var errSkeleton = errors.New("the program is not built in yet")

// Attach puts the program on the device.
func Attach(o AttachOptions) (*Program, error) { return nil, errSkeleton }

// SetSocket puts the AF_XDP socket fd into the slot of queue.
func (p *Program) SetSocket(queue int, fd int) error { return errSkeleton }

// ClearSocket empties the slot of queue.
func (p *Program) ClearSocket(queue int) error { return errSkeleton }

// Slots returns the socket fd this process put into each slot, -1 for none.
func (p *Program) Slots() []int { return nil }

// Counters reads the counters.
func (p *Program) Counters() (Counters, error) { return Counters{}, errSkeleton }

// Mode returns the mode the program runs in.
func (p *Program) Mode() Mode { return Native }

// Reused says whether the program of an earlier process was taken over.
func (p *Program) Reused() bool { return false }

// Detach removes the pins and the program from the device.
func (p *Program) Detach() error { return errSkeleton }

// Close releases the descriptors and leaves pins and program in place.
func (p *Program) Close() error { return errSkeleton }

// List reports the pins below pinDir.
func List(pinDir string) ([]Pin, error) { return nil, errSkeleton }

// Remove detaches what is pinned and removes the pin.
func (p Pin) Remove() error { return errSkeleton }

// EnsureBPFFS mounts a bpffs on dir unless dir is in one already.
func EnsureBPFFS(dir string) error { return errSkeleton }
