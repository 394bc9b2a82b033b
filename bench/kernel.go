package bench

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/bench/gen"
)

// inKernel is a forwarder that is the kernel's. Its receiving has a thread on
// forwardCPU, so that it has that CPU for itself as ours has.
type inKernel struct {
	free []func() error
}

// Resume implements forwarder.
func (k *inKernel) Resume() error { return nil }

// Pause implements forwarder.
func (k *inKernel) Pause() error { return nil }

// Sent implements forwarder.
func (k *inKernel) Sent() (uint64, bool, error) { return 0, false, nil }

// Close implements forwarder.
func (k *inKernel) Close() error {
	var err error
	for _, f := range k.free {
		err = errors.Join(err, f())
	}
	return err
}

// kernelBridge is a bridge of the two devices, with the targets in its FDB.
func kernelBridge(w wires) (forwarder, error) {
	h := w.host.nl
	attrs := netlink.NewLinkAttrs()
	attrs.Name = uniqueName(w.number, "br")
	br := &netlink.Bridge{LinkAttrs: attrs}
	if err := h.LinkAdd(br); err != nil {
		return nil, fmt.Errorf("make a bridge: %w", err)
	}
	for _, name := range []string{w.in, w.out} {
		l, err := h.LinkByName(name)
		if err == nil {
			err = h.LinkSetMaster(l, br)
		}
		if err != nil {
			return nil, fmt.Errorf("put %s into the bridge: %w", name, err)
		}
	}
	if err := h.LinkSetUp(br); err != nil {
		return nil, fmt.Errorf("set the bridge up: %w", err)
	}
	for i := range targets {
		mac := target(i)
		err := h.NeighSet(&netlink.Neigh{
			LinkIndex: w.outIndex, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER, State: netlink.NUD_NOARP,
			HardwareAddr: mac[:],
		})
		if err != nil {
			return nil, fmt.Errorf("bridge FDB entry: %w", err)
		}
	}
	return &inKernel{}, receiveInThread(w)
}

// receiveInThread has the host's in device receive in NAPI, on forwardCPU.
func receiveInThread(w wires) error {
	if err := w.host.do(func() error { return gen.ReceiveInNAPI(w.in) }); err != nil {
		return err
	}
	_, err := w.host.receiveOn(w.in, forwardCPU)
	return err
}

// kernelRedirect is an XDP program that sends every frame of one device out of
// the other.
func kernelRedirect(w wires) (forwarder, error) {
	out, err := ebpf.NewMap(&ebpf.MapSpec{Name: "out", Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make a devmap: %w", err)
	}
	k := &inKernel{free: []func() error{out.Close}}
	err = w.host.do(func() error {
		if err := out.Put(uint32(0), uint32(w.outIndex)); err != nil {
			return err
		}
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "redirect", Type: ebpf.XDP, License: "Apache-2.0",
			Instructions: asm.Instructions{
				asm.LoadMapPtr(asm.R1, out.FD()), asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, 0),
				asm.FnRedirectMap.Call(), asm.Return(),
			},
		})
		if err != nil {
			return err
		}
		k.free = append([]func() error{prog.Close}, k.free...)
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: w.inIndex, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		k.free = append([]func() error{l.Close}, k.free...)
		return nil
	})
	if err == nil {
		_, err = w.host.receiveOn(w.in, forwardCPU)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("XDP redirect: %w", err), k.Close())
	}
	return k, nil
}

// kernelSEG6 routes the frames into an l2encap route. mode is that of
// ip-route(8): l2encap, or l2encap.red without an SRH for the one segment.
func kernelSEG6(mode string) func(wires) (forwarder, error) {
	return func(w wires) (forwarder, error) {
		for _, knob := range [][2]string{
			{"ipv6/conf/all/disable_ipv6", "0"}, {"ipv6/conf/" + w.out + "/disable_ipv6", "0"},
			{"ipv4/ip_forward", "1"}, {"ipv6/conf/all/forwarding", "1"},
			{"ipv4/conf/all/rp_filter", "0"}, {"ipv4/conf/" + w.in + "/rp_filter", "0"},
		} {
			if err := w.host.sysctl(knob[0], knob[1]); err != nil {
				return nil, err
			}
		}
		const next, sid = "fd00:99::2", "2001:db8:0:2:d20:0:6400:7"
		for _, args := range [][]string{
			{"-6", "addr", "add", "fd00:99::1/64", "dev", w.out, "nodad"},
			{"-6", "neigh", "replace", next, "lladdr", macSink, "dev", w.out, "nud", "permanent"},
			{"-6", "route", "add", "2001:db8:0:2::/64", "via", next, "dev", w.out},
			{"sr", "tunsrc", "set", "2001:db8:0:1::1"},
			{"addr", "add", "10.0.0.1/24", "dev", w.in},
			{"route", "add", "10.0.9.0/24", "encap", "seg6", "mode", mode, "segs", sid, "dev", w.out},
		} {
			if err := w.host.run("ip", args...); err != nil {
				return nil, err
			}
		}
		// The host takes frames for its own MAC only, as a router does.
		l, err := w.host.nl.LinkByName(w.in)
		if err != nil {
			return nil, err
		}
		mac, err := net.ParseMAC(macIn)
		if err != nil {
			return nil, err
		}
		if err := w.host.nl.LinkSetHardwareAddr(l, mac); err != nil {
			return nil, fmt.Errorf("MAC of %s: %w", w.in, err)
		}
		return &inKernel{}, receiveInThread(w)
	}
}
