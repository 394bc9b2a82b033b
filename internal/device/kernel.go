package device

import (
	"picot.dev/picot/fastpath"
	"picot.dev/picot/xsk/xdp"
)

// Kernel is the part of the kernel that devices are prepared with.
type Kernel interface {
	// Query reads a device.
	Query(ifindex int) (Device, error)
	// Silence keeps the host from speaking into the network over its own end of
	// a workload port: no IPv6, no address; and has it take every frame, whatever
	// its destination.
	Silence(ifindex int) error
	// Up and Down set the device administratively up and down.
	Up(ifindex int) error
	Down(ifindex int) error
	// CheckUplink says why a device cannot be an uplink, and the mend.
	CheckUplink(ifindex int) error

	// Attach puts a program on a device, or takes over a pinned one: [xdp.Attach].
	Attach(xdp.AttachOptions) (Program, error)
	// Pins lists what is pinned in a directory: [xdp.List]. What could be read
	// comes beside an error.
	Pins(dir string) ([]xdp.Pin, error)
	// RemovePin takes a pin and its program away; a workload device that lives is
	// set down first, and takes only its own frames again.
	RemovePin(xdp.Pin) error
}

// Device is what a port needs to know of its device.
type Device struct {
	Name   string
	Queues int  // receive queues, at least 1
	Up     bool // administratively
}

// Program is an attached program: [xdp.Program].
type Program interface {
	SetSocket(queue, fd int) error
	Keep() (mended []string, err error)
	KeepSocket(queue, fd int) (mended bool, err error)
	Counters() (xdp.Counters, error)
	Mode() xdp.Mode
	Reused() bool
	Detach() error // program and pins go
	Close() error  // both stay
}

// Sockets is the data path's side: AF_XDP sockets by port index or uplink number.
// Whoever opens one fills its fill ring before its slot is set.
type Sockets interface {
	// Place chooses where the sockets of a new port belong.
	Place() (fastpath.Place, error)
	// OpenPort opens the socket of a device's queue and gives it to a port.
	// [ErrNoQueue]: the device has fewer queues in use than it could have.
	OpenPort(port, queue, ifindex int, at fastpath.Place) (fd int, err error)
	// PortSockets are the descriptors of a port's sockets, by queue.
	PortSockets(port int) map[int]int
	// ClosePort closes all sockets of a port; none is no error.
	ClosePort(port int) error

	// The same of an uplink. Queues are used from the first, UseQueues says how
	// many.
	OpenUplink(uplink, queue, ifindex int) (fd int, err error)
	UplinkSockets(uplink int) map[int]int
	CloseUplink(uplink int) error
	UseQueues(uplink, n int)
}
