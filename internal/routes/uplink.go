package routes

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// ErrUplink marks a device that cannot be an uplink.
var ErrUplink = errors.New("not usable as an uplink")

// CheckUplink refuses devices whose frames never pass an AF_XDP socket bound to
// them, or pass it in another form than on the wire, and says what to do instead.
// The master is the device l is enslaved to, nil if none.
func CheckUplink(l, master netlink.Link) error {
	name := l.Attrs().Name
	refuse := func(what, mend string) error {
		return fmt.Errorf("%s %s: %w: %s", what, name, ErrUplink, mend)
	}
	switch l.Type() {
	case "vlan":
		return refuse("VLAN device", fmt.Sprintf(
			"its tag is added below it; use its parent (link %d) with an untagged underlay network", l.Attrs().ParentIndex))
	case "bond", "team":
		return refuse(l.Type(), "its frames arrive on its members; give each member an address of its own, "+
			"take it out of the bond and name all of them as uplinks (routes to both make an ECMP set)")
	case "bridge", "openvswitch", "macvlan", "ipvlan", "dummy":
		return refuse(l.Type()+" device", "use the physical device that carries the underlay network")
	}
	if a := l.Attrs(); a.EncapType == "loopback" || a.EncapType != "" && a.EncapType != "ether" {
		return refuse("device", fmt.Sprintf("it is of type %s; use an Ethernet device", a.EncapType))
	}
	if master != nil && (master.Type() == "bond" || master.Type() == "team") {
		return refuse("member of "+master.Type()+" "+master.Attrs().Name+",", "take it out of the "+master.Type()+
			" and give it an underlay address of its own")
	}
	return nil
}
