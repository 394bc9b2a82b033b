package linkmon

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is what is known of one device. It is comparable.
type Link struct {
	Index   int
	Name    string
	Type    string // rtnetlink's kind: "veth", "tuntap", ...; "device" for a plain one
	MAC     string // lower-case colon form
	MTU     int
	Master  int  // index of the bridge or bond it is enslaved to, 0: none
	Admin   bool // administratively up (IFF_UP)
	Carrier bool // lower layer up (IFF_LOWER_UP)

	// Up is Admin and Carrier, as far as the monitor told it: a flapping link
	// stays false until it has settled.
	Up bool
}

// FromNetlink picks a Link out of a netlink one.
func FromNetlink(l netlink.Link) Link {
	a := l.Attrs()
	return Link{
		Index: a.Index, Name: a.Name, Type: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU, Master: a.MasterIndex,
		Admin:   a.RawFlags&unix.IFF_UP != 0,
		Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
	}
}

// Kind says what happened to a link.
type Kind uint8

const (
	// Added: a new device. Link.Up says whether it is up; no Up event follows.
	Added Kind = iota + 1
	// Removed: the device is gone: deleted, or moved to another namespace.
	Removed
	// Replaced: the name (or the index) now belongs to another device: Old is
	// gone as by Removed, Link is there as by Added.
	Replaced
	// Renamed: same device, new name.
	Renamed
	// Up: administratively up and with carrier.
	Up
	// Down: no longer both. Never delayed.
	Down
	// MTUChanged: Link.MTU differs from Old.MTU.
	MTUChanged
	// Changed: another attribute (MAC, master, admin state or carrier alone).
	Changed
)

func (k Kind) String() string {
	names := [...]string{"none", "added", "removed", "replaced", "renamed", "up", "down", "mtu-changed", "changed"}
	if int(k) >= len(names) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return names[k]
}

// Event is one change. Link is the device afterwards (for Removed: as last
// known), Old the device as told before (zero for Added).
type Event struct {
	Kind Kind
	Link Link
	Old  Link
}

func (e Event) String() string { return fmt.Sprintf("%s %s(%d)", e.Kind, e.Link.Name, e.Link.Index) }
