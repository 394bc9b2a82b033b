package doctor

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/device"
)

func readDevice(c *Config, f *Facts, name string, uplink bool) Device {
	d := Device{Name: name, uplink: uplink}
	l, err := netlink.LinkByName(name)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return d
	}
	if err != nil {
		d.Err = err
		return d
	}
	a := l.Attrs()
	d.Exists, d.Index, d.MTU, d.Kind = true, a.Index, a.MTU, l.Type()
	d.Up, d.Carrier = a.RawFlags&unix.IFF_UP != 0, a.RawFlags&unix.IFF_LOWER_UP != 0
	d.RXQueues = max(1, a.NumRxQueues)
	d.Driver = driver(name)
	d.NoIPv6 = knob("net/ipv6/conf/"+name+"/disable_ipv6") == "1"
	d.Seg6 = knob("net/ipv6/conf/"+name+"/seg6_enabled") == "1"
	if uplink {
		d.Uplink = device.Netlink{}.CheckUplink(d.Index)
		d.Addresses = addresses(l)
	}
	d.readXDP()
	d.readQueues()
	d.Err = d.readFeatures()
	d.readPrograms(c, a.Xdp)
	if !f.Agent.Runs {
		d.Held, d.HeldErr = heldQueues(d.Index, max(1, d.Queues))
		if len(d.Held) > 0 {
			d.HeldBy = whoHasXSKs()
		}
	}
	return d
}

func driver(name string) string {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

func addresses(l netlink.Link) (out []Address) {
	all, err := netlink.AddrList(l, unix.AF_INET6)
	if err != nil {
		return nil
	}
	for _, a := range all {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		bits, _ := a.Mask.Size()
		out = append(out, Address{
			Prefix: netip.PrefixFrom(ip, bits), Failed: a.Flags&unix.IFA_F_DADFAILED != 0,
			Tentative: a.Flags&unix.IFA_F_TENTATIVE != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0,
		})
	}
	return out
}

// XDP_ATTACHED_* of linux/if_link.h.
const (
	xdpAttachedSKB = 2
	xdpAttachedHW  = 3
)

// readPrograms asks who is on the device. It is ours if our pin's link runs it.
func (d *Device) readPrograms(c *Config, x *netlink.LinkXdp) {
	if x == nil || !x.Attached || x.ProgId == 0 {
		return
	}
	d.Generic = x.AttachMode == xdpAttachedSKB
	p := Program{ID: x.ProgId, Mode: uint8(x.AttachMode)}
	name, err := programName(x.ProgId)
	p.Name = name
	pins, perr := device.Netlink{}.Pins(c.PinDir())
	var lerr error
	p.Link, lerr = linkOf(x.ProgId, d.Index)
	d.WhoseErr = errors.Join(err, perr, lerr)
	for _, pin := range pins {
		if pin.ProgramID == x.ProgId && pin.IfIndex == d.Index {
			p.Ours = true
		}
	}
	if p.Ours {
		d.WhoseErr = nil
	} else {
		p.By = whoHasProgram(x.ProgId, p.Link)
	}
	d.Programs = append(d.Programs, p)
}
