package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/routes"
	"picot.dev/picot/xsk/xdp"
)

// Netlink is the real kernel, in the calling thread's network namespace.
type Netlink struct{}

// Query implements Kernel.
func (Netlink) Query(ifindex int) (Device, error) {
	l, err := find(ifindex)
	if err != nil {
		return Device{}, err
	}
	a := l.Attrs()
	return Device{Name: a.Name, Queues: max(1, a.NumRxQueues), Up: a.RawFlags&unix.IFF_UP != 0}, nil
}

func find(ifindex int) (netlink.Link, error) {
	l, err := netlink.LinkByIndex(ifindex)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil, fmt.Errorf("interface index %d: %w", ifindex, xdp.ErrNoDevice)
	}
	if err != nil {
		return nil, fmt.Errorf("looking it up: %w", err)
	}
	return l, nil
}

// Up implements Kernel.
func (Netlink) Up(ifindex int) error {
	l, err := find(ifindex)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("setting it up: %w", err)
	}
	return nil
}

// Down implements Kernel.
func (Netlink) Down(ifindex int) error {
	l, err := find(ifindex)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(l); err != nil {
		return fmt.Errorf("setting it down: %w", err)
	}
	return nil
}

// Silence implements Kernel.
func (Netlink) Silence(ifindex int) error {
	l, err := find(ifindex)
	if err != nil {
		return err
	}
	if err := disableIPv6(l.Attrs().Name); err != nil {
		return fmt.Errorf("keeping the host's IPv6 off it: %w", err)
	}
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing its addresses: %w", err)
	}
	for _, a := range addrs {
		if err := netlink.AddrDel(l, &a); err != nil {
			return fmt.Errorf("taking the host's address %s off it: %w", a.IPNet, err)
		}
	}
	if l.Attrs().RawFlags&unix.IFF_PROMISC != 0 {
		return nil
	}
	if err := netlink.SetPromiscOn(l); err != nil {
		return fmt.Errorf("making it take every frame: %w", err)
	}
	return nil
}

// disableIPv6 writes only what differs: each write makes the kernel walk the
// device's addresses and tell everybody who listens.
func disableIPv6(name string) error {
	knob := filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
	is, err := os.ReadFile(knob)
	if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(is)) == "1" {
		return nil // a kernel without IPv6, or done
	}
	return os.WriteFile(knob, []byte("1"), 0o644)
}

// CheckUplink implements Kernel.
func (Netlink) CheckUplink(ifindex int) error {
	l, err := find(ifindex)
	if err != nil {
		return err
	}
	var master netlink.Link
	if m := l.Attrs().MasterIndex; m != 0 {
		if master, err = netlink.LinkByIndex(m); err != nil {
			return fmt.Errorf("looking its master up: %w", err)
		}
	}
	return routes.CheckUplink(l, master)
}

// Attach implements Kernel.
func (Netlink) Attach(o xdp.AttachOptions) (Program, error) {
	p, err := xdp.Attach(o)
	if err != nil {
		return nil, err // no typed nil
	}
	return p, nil
}

// Pins implements Kernel.
func (Netlink) Pins(dir string) ([]xdp.Pin, error) { return xdp.List(dir) }

// RemovePin implements Kernel.
func (Netlink) RemovePin(pin xdp.Pin) error {
	if !pin.Alive {
		return pin.Remove()
	}
	l, err := pinnedDevice(pin)
	if err != nil {
		return err
	}
	if pin.Kind == xdp.Workload {
		if err := netlink.LinkSetDown(l); err != nil {
			return fmt.Errorf("setting it down: %w", err)
		}
		if err := netlink.SetPromiscOff(l); err != nil {
			return fmt.Errorf("ending its promiscuous mode: %w", err)
		}
	}
	return pin.Remove()
}
