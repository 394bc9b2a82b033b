package device

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"picot.dev/picot/xsk/xdp"
)

// What is ours, and how a fresh process knows it:
//
//	program and link  by the pin: a directory named after the device, in the
//	                  node's own pin directory, whose link runs a program of a
//	                  name of ours ("picot_..."). An older build's program has such
//	                  a name, too, and so has one in another mode or for an old
//	                  locator
//	older builds'     elsewhere in the node's pin directory, or by other names in a
//	pins              device's: by the name of program or map. What else is there is
//	                  somebody's, and stays
//	pinned device     by index and by the program rtnetlink reports on it: an
//	                  index alone is used again, and every namespace has its own
//	XSKMAP, counters  by the program that uses them
//	slots             all of them: nobody else may fill one
//	settings          disable_ipv6, no address, promiscuous: of devices that carry
//	                  our workload program
//	down              a workload device without our program is down
//
// A program that is not pinned there is somebody else's, whatever its name; it is
// never detached, and its device becomes no port.

// errElsewhere says that a pin's device is not where we are: by its index alone
// another device would be taken for it.
var errElsewhere = errors.New("the device is in another network namespace: do it there, or delete the device")

// pinnedDevice finds a living pin's device in the calling thread's namespace.
func pinnedDevice(pin xdp.Pin) (netlink.Link, error) {
	l, err := netlink.LinkByIndex(pin.IfIndex)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil, errElsewhere
	}
	if err != nil {
		return nil, fmt.Errorf("looking its device up: %w", err)
	}
	if x := l.Attrs().Xdp; x == nil || x.ProgId != pin.ProgramID {
		return nil, errElsewhere
	}
	return l, nil
}
