package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"picot.dev/picot/internal/lab"
	"picot.dev/picot/internal/testnet"
)

// plantOlder puts a program of another build on a device of node 1, with a slot
// map as it is today and a counter map of another layout, and pins link and maps
// in a directory.
func (s *site) plantOlder(device, program string, counters ebpf.MapType, dir string) (linkID uint32) {
	s.t.Helper()
	slots, err := ebpf.NewMap(&ebpf.MapSpec{Name: "picot_xsks", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 64})
	s.must(err)
	defer slots.Close()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Name: "picot_counters", Type: counters, KeySize: 4, ValueSize: 24, MaxEntries: 3})
	s.must(err)
	defer counts.Close()
	verdict := int32(1) // XDP_DROP
	if device == lab.UplinkDevice {
		verdict = 2 // XDP_PASS
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: program, Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL",
		Instructions: asm.Instructions{asm.LoadMapPtr(asm.R1, slots.FD()), asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
	s.must(err)
	defer p.Close()
	s.must(os.MkdirAll(dir, 0o700))
	inNetns(s.t, s.n1.Netns(), func() error {
		nl, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: nl.Attrs().Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		defer l.Close()
		info, err := l.Info()
		if err != nil {
			return err
		}
		linkID = uint32(info.ID)
		return errors.Join(l.Pin(filepath.Join(dir, "link")), slots.Pin(filepath.Join(dir, "xsks")), counts.Pin(filepath.Join(dir, "stats")))
	})
	return linkID
}

// pinMap pins a map nobody uses.
func (s *site) pinMap(name, path string) {
	s.t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 8, ValueSize: 16, MaxEntries: 3})
	s.must(err)
	defer m.Close()
	s.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), m.Pin(path)))
}

// An agent that finds what other builds left, with maps of other layouts, under
// other names and in other places, comes up and forwards over the very same
// links; what nobody wants goes, and what is somebody else's stays.
func TestAgentComesUpOverLeftoversOfOtherBuilds(t *testing.T) {
	s := buildSite(t)
	own := s.pinDir(s.n1)
	s.ip(s.n1.Netns(), "link add old0 type veth peer name old0p")
	s.ip(s.n1.Netns(), "link set old0 up")
	for _, d := range []string{s.a1.Device, s.a2.Device} {
		s.ip(s.n1.Netns(), "link set "+d+" up") // as the earlier life left it
	}
	links := map[string]uint32{
		s.a1.Device:      s.plantOlder(s.a1.Device, "picot_work_tag", ebpf.Array, filepath.Join(own, s.a1.Device)),
		s.a2.Device:      s.plantOlder(s.a2.Device, "picot_port", ebpf.PerCPUArray, filepath.Join(own, "v0", s.a2.Device)),
		lab.UplinkDevice: s.plantOlder(lab.UplinkDevice, "picot_up_tag", ebpf.Hash, filepath.Join(own, lab.UplinkDevice)),
	}
	s.plantOlder("old0", "picot_work_tag", ebpf.Array, filepath.Join(own, "old0"))
	s.must(os.MkdirAll(filepath.Join(own, "garbage", "deep"), 0o700))
	s.pinMap("picot_old", filepath.Join(own, "loose"))
	theirs := []string{filepath.Join(own, "theirs", "map"), filepath.Join(own, s.a1.Device, "theirs"),
		filepath.Join(s.BPFFS(), "foreign", "map"), filepath.Join(s.BPFFS(), "picot_map")}
	for i, path := range theirs {
		s.pinMap([]string{"someones", "someones", "picot_other", "picot_other"}[i], path) // outside, no name makes it ours
	}

	s.startAll()
	s.reachAll()
	for device, id := range links {
		if pin := s.pinNames(s.n1)[device]; pin.LinkID != id || !pin.Alive {
			t.Errorf("%s: link %d is %+v now", device, id, pin)
		}
	}
	testnet.Eventually(t, patience, "the rest is swept", func() error {
		want := map[string]bool{}
		for _, device := range []string{s.a1.Device, s.a2.Device, lab.UplinkDevice} {
			for _, f := range []string{"link", "program", "xsks", "counters"} {
				want[filepath.Join(own, device, f)] = true
			}
		}
		for _, path := range theirs {
			want[path] = true
		}
		return errors.Join(filesBelow(own, want), missing(want))
	})
	if out := s.ip(s.n1.Netns(), "link show old0"); strings.Contains(out, "prog/xdp") || strings.Contains(out, "UP") && !strings.Contains(out, "DOWN") {
		t.Errorf("old0: %s", out)
	}
	before := ids(s.pins(s.n1))
	s.must(s.n1.Kill())
	s.must(s.n1.Start(s.ctx))
	s.ready()
	s.reachAll()
	if after := ids(s.pins(s.n1)); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("link and program IDs %v at the next start, were %v", after, before)
	}
}

// filesBelow wants no file below dir that is not wanted, and no empty directory.
func filesBelow(dir string, want map[string]bool) error {
	var errs []error
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entries, _ := os.ReadDir(path)
		if !d.IsDir() && !want[path] || d.IsDir() && len(entries) == 0 {
			errs = append(errs, fmt.Errorf("%s is left", path))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// missing wants every wanted file to be there.
func missing(want map[string]bool) error {
	var errs []error
	for path := range want {
		if _, err := os.Lstat(path); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
