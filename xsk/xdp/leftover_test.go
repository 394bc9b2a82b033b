package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"picot.dev/picot/internal/testnet"
)

// older is what another build pinned: a workload program of some name that uses
// maps of some layouts.
type older struct {
	program string
	maps    []ebpf.MapSpec
	untyped bool // loaded without the attach type, as before it had a meaning
}

var (
	goodXSKs     = ebpf.MapSpec{Name: mapXSKs, Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 4}
	goodCounters = ebpf.MapSpec{Name: mapCounters, Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 5}
)

func with(m ebpf.MapSpec, change func(*ebpf.MapSpec)) ebpf.MapSpec { change(&m); return m }

// load loads it: it touches its maps and drops every frame.
func (o older) load(t *testing.T) (*ebpf.Program, []*ebpf.Map) {
	t.Helper()
	var code asm.Instructions
	var maps []*ebpf.Map
	for _, spec := range o.maps {
		m, err := ebpf.NewMap(&spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		maps = append(maps, m)
		code = append(code, asm.LoadMapPtr(asm.R1, m.FD()))
	}
	as := ebpf.AttachXDP
	if o.untyped {
		as = ebpf.AttachNone
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: o.program, Type: ebpf.XDP, AttachType: as, License: "GPL",
		Instructions: append(code, asm.Mov.Imm(asm.R0, 1), asm.Return()), // XDP_DROP
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, maps
}

// plant attaches it to the port and pins its link and maps at these paths.
func (w *wire) plant(t *testing.T, o older, linkAt string, mapsAt ...string) (linkID link.ID) {
	t.Helper()
	program, maps := o.load(t)
	var l link.Link
	w.hostNS.Run(t, func() {
		var err error
		l, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: w.port, Flags: link.XDPDriverMode})
		if err != nil {
			t.Fatal(err)
		}
	})
	defer l.Close()
	w.pin(t, l, linkAt)
	for i, at := range mapsAt {
		w.pin(t, maps[i], at)
	}
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// pin pins an object below the pin directory.
func (w *wire) pin(t *testing.T, o interface{ Pin(string) error }, at string) {
	t.Helper()
	path := filepath.Join(w.pinDir, at)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), o.Pin(path)); err != nil {
		t.Fatal(err)
	}
}

// pinMap pins a map that nobody uses.
func (w *wire) pinMap(t *testing.T, name, at string) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 8, ValueSize: 16, MaxEntries: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	w.pin(t, m, at)
}

// pinForeignLink pins somebody's link, which is attached to another device.
func (w *wire) pinForeignLink(t *testing.T, at string) {
	t.Helper()
	program, _ := older{program: "someones"}.load(t)
	w.hostNS.IP(t, "link add other type veth peer name other-peer")
	var l link.Link
	w.hostNS.Run(t, func() {
		var err error
		l, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: w.hostNS.Link(t, "other").Attrs().Index})
		if err != nil {
			t.Fatal(err)
		}
	})
	defer l.Close()
	w.pin(t, l, at)
}

const portDir = "port%2e7"

// files are all paths below the pin directory but the directories.
func (w *wire) files(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(w.pinDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries, _ := os.ReadDir(path); !d.IsDir() || len(entries) == 0 && path != w.pinDir {
			rel, _ := filepath.Rel(w.pinDir, path)
			files = append(files, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// sweep removes every pin but the port's, as an agent does.
func (w *wire) sweep(t *testing.T) {
	t.Helper()
	pins, err := List(w.pinDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, pin := range pins {
		if pin.Name == portDev && !pin.Stray {
			continue
		}
		if pin.Alive {
			t.Errorf("%+v lives", pin)
		}
		if err := pin.Remove(); err != nil {
			t.Errorf("%+v: %v", pin, err)
		}
	}
}

// What other builds left on the port and in the pin directory is taken over where
// it can be, by exchanging the program inside the same link, and else makes way;
// nothing of it is left but what is somebody else's.
func TestLeftoversOfOtherBuilds(t *testing.T) {
	xsks, counters := portDir+"/"+pinXSKs, portDir+"/"+pinCounters
	whole := []ebpf.MapSpec{goodXSKs, goodCounters}
	for name, c := range map[string]struct {
		plant func(*testing.T, *wire)
		of    *older // on the device, its link pinned at link
		link  string
		maps  []string
		left  []string // of others
		fresh bool     // another link: this one cannot be exchanged
	}{
		"other counters: fewer":       {of: &older{program: "picot_work_tag", maps: []ebpf.MapSpec{goodXSKs, with(goodCounters, func(m *ebpf.MapSpec) { m.MaxEntries = 3 })}}, maps: []string{xsks, counters}},
		"other counters: wider":       {of: &older{program: "picot_work_tag", maps: []ebpf.MapSpec{goodXSKs, with(goodCounters, func(m *ebpf.MapSpec) { m.ValueSize = 16 })}}, maps: []string{xsks, counters}},
		"other counters: plain array": {of: &older{program: "picot_work_tag", maps: []ebpf.MapSpec{goodXSKs, with(goodCounters, func(m *ebpf.MapSpec) { m.Type = ebpf.Array })}}, maps: []string{xsks, counters}},
		"other counters: hash":        {of: &older{program: "picot_work_tag", maps: []ebpf.MapSpec{goodXSKs, with(goodCounters, func(m *ebpf.MapSpec) { m.Type, m.KeySize = ebpf.Hash, 8 })}}, maps: []string{xsks, counters}},
		"fewer slots":                 {of: &older{program: "picot_work_tag", maps: []ebpf.MapSpec{with(goodXSKs, func(m *ebpf.MapSpec) { m.MaxEntries = 1 }), goodCounters}}, maps: []string{xsks, counters}},
		"slots in a devmap":           {of: &older{program: "picot_work_tag", maps: []ebpf.MapSpec{with(goodXSKs, func(m *ebpf.MapSpec) { m.Type = ebpf.DevMap }), goodCounters}}, maps: []string{xsks, counters}},
		"no counters":                 {of: &older{program: "picot_work_tag", maps: []ebpf.MapSpec{goodXSKs}}, maps: []string{xsks}},
		"no maps":                     {of: &older{program: "picot_work_tag"}},
		"no maps pinned":              {of: &older{program: "picot_work_tag", maps: whole}},
		"one map more": {of: &older{program: "picot_work_tag", maps: append([]ebpf.MapSpec{{Name: "picot_bytes", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 64},
			{Name: "picot_conf", Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 2}}, whole...)},
			maps: []string{portDir + "/bytes", portDir + "/conf", xsks, counters}},
		"another program's name":           {of: &older{program: "picot_port", maps: whole}, maps: []string{xsks, counters}},
		"the other kind's program":         {of: &older{program: "picot_up_plain", maps: whole}, maps: []string{xsks, counters}},
		"link pinned in a directory above": {of: &older{program: "picot_work_tag", maps: whole}, link: "port%2e7-link", maps: []string{"port%2e7-xsks", "port%2e7-counters"}},
		"link pinned in its place":         {of: &older{program: "picot_work_tag", maps: whole}, link: portDir},
		"link pinned by another name":      {of: &older{program: "picot_work_tag", maps: whole}, link: portDir + "/xdp_link", maps: []string{xsks, portDir + "/stats"}},
		"directories by version":           {of: &older{program: "picot_work_tag", maps: whole}, link: "v0/" + portDir + "/link", maps: []string{"v0/" + portDir + "/xsks", "v0/" + portDir + "/counters"}},
		"garbage": {fresh: true, plant: func(t *testing.T, w *wire) {
			mkdir(t, w, portDir+"/"+pinLink, portDir+"/"+pinXSKs, "gone0", "v0/gone1/deep")
			w.pinMap(t, "picot_old", portDir+"/"+pinProgram)
			w.pinMap(t, "picot_old", "v0/gone1/xsks")
			w.pinMap(t, "picot_old", "loose")
			for _, at := range []string{portDir + "/" + pinCounters, "dangling", "gone2"} {
				if err := os.Symlink("nowhere", filepath.Join(w.pinDir, at)); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"map in the link's place": {fresh: true, plant: func(t *testing.T, w *wire) { w.pinMap(t, "someones", portDir+"/"+pinLink) }},
		"map in the directory's":  {fresh: true, plant: func(t *testing.T, w *wire) { w.pinMap(t, "someones", portDir) }},
		"symbolic link to another directory": {fresh: true, plant: func(t *testing.T, w *wire) {
			mkdir(t, w, "elsewhere")
			w.pinMap(t, "someones", "elsewhere/theirs")
			if err := os.Symlink("elsewhere", filepath.Join(w.pinDir, portDir)); err != nil {
				t.Fatal(err)
			}
		}, left: []string{"elsewhere/theirs"}},
		"things of others": {fresh: true, plant: func(t *testing.T, w *wire) {
			w.pinMap(t, "someones", portDir+"/theirs")
			w.pinMap(t, "picot_old", portDir+"/ours")
			w.pinMap(t, "someones", "theirs/map")
			w.pinMap(t, "someones", "loose")
			w.pinForeignLink(t, "other/link")
			w.pinMap(t, "picot_old", "mixed/ours")
			w.pinMap(t, "someones", "mixed/theirs")
		}, left: []string{"loose", "mixed/theirs", "other/link", portDir + "/theirs", "theirs/map"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, 1500, 1)
			before := link.ID(0)
			if c.of != nil {
				at := c.link
				if at == "" {
					at = portDir + "/" + pinLink
				}
				before = w.plant(t, *c.of, at, c.maps...)
			}
			if c.plant != nil {
				c.plant(t, w)
			}
			p := w.attach(t, w.options(Workload))
			if id, _ := ids(t, p); !c.fresh && link.ID(id) != before || p.Reused() == c.fresh {
				t.Errorf("link %d -> %d, reused %v", before, id, p.Reused())
			}
			w.sweep(t)
			want := map[string]bool{}
			for _, f := range pinFiles {
				want[portDir+"/"+f] = true
			}
			for _, f := range c.left {
				want[f] = true
			}
			for _, f := range w.files(t) {
				if !want[f] {
					t.Errorf("left: %s", f)
				}
				delete(want, f)
			}
			if len(want) > 0 {
				t.Errorf("gone: %v", want)
			}
			w.keep(t, p)
			w.forwards(t, p)
			// The next life finds nothing to change.
			l1, prog1 := ids(t, p)
			next := w.attach(t, w.options(Workload))
			if l2, prog2 := ids(t, next); l1 != l2 || prog1 != prog2 {
				t.Errorf("link %d -> %d, program %d -> %d at the next start", l1, l2, prog1, prog2)
			}
		})
	}
}

func mkdir(t *testing.T, w *wire, at ...string) {
	t.Helper()
	for _, d := range at {
		if err := os.MkdirAll(filepath.Join(w.pinDir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// forwards wants frames of the port in a socket and its counters right.
func (w *wire) forwards(t *testing.T, p *Program) {
	t.Helper()
	before, err := p.Counters()
	if err != nil {
		t.Fatal(err)
	}
	s := w.open(t, p, 0)
	w.send(t, repeat(frame("in"), 5)...)
	s.receive(t, 5)
	before.Redirected += 5
	wantCounters(t, p, before)
	if n := w.stackSaw(t, "in"); n != 0 {
		t.Errorf("%d frames reached the stack", n)
	}
}

// Somebody's link in the place of ours is left alone, and said.
func TestForeignLinkInOurPlaceIsLeftAlone(t *testing.T) {
	for at, want := range map[string]error{
		portDir + "/" + pinLink: ErrPinBusy,
		portDir + "/" + pinXSKs: ErrForeignPin,
		portDir:                 ErrPinBusy,
	} {
		t.Run(at, func(t *testing.T) {
			w := newWire(t, 1500, 1)
			w.pinForeignLink(t, at)
			if _, err := w.try(w.options(Workload)); !errors.Is(err, want) {
				t.Errorf("attach: %v, want %v", err, want)
			}
			pins, err := List(w.pinDir)
			if err != nil {
				t.Error(err)
			}
			for _, pin := range pins {
				if err := pin.Remove(); err != nil {
					t.Error(err)
				}
			}
			if files := w.files(t); len(files) != 1 || files[0] != at {
				t.Errorf("files %q", files)
			}
			testnet.Eventually(t, patience, "the foreign program is on its device", func() error {
				return w.hostNS.Do(func() error {
					d, err := queryDevice(w.hostNS.Link(t, "other").Attrs().Index)
					if err == nil && len(d.programs) != 1 {
						err = fmt.Errorf("%v", d.programs)
					}
					return err
				})
			})
		})
	}
}

// So is a link of another kind, which may be at work anywhere.
func TestLinkOfAnotherKindInOurPlaceIsLeftAlone(t *testing.T) {
	w := newWire(t, 1500, 1)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "picot_not", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	w.hostNS.Run(t, func() {
		l, err := link.AttachTCX(link.TCXOptions{Interface: w.port, Program: program, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w.pin(t, l, portDir+"/"+pinLink)
	})
	if _, err := w.try(w.options(Workload)); !errors.Is(err, ErrForeignPin) {
		t.Errorf("attach: %v", err)
	}
	if pins, err := List(w.pinDir); len(pins) > 0 || err != nil {
		t.Errorf("pins %+v, %v", pins, err)
	}
	if files := w.files(t); len(files) != 1 {
		t.Errorf("files %q", files)
	}
}

// A program of an older build that the kernel does not exchange is said to be so.
func TestProgramThatCannotBeExchanged(t *testing.T) {
	w := newWire(t, 1500, 1)
	w.plant(t, older{program: "picot_work_tag", untyped: true}, portDir+"/"+pinLink)
	if _, err := w.try(w.options(Workload)); !errors.Is(err, ErrExchange) {
		t.Fatalf("attach: %v", err)
	}
	pins, err := List(w.pinDir)
	if err != nil || len(pins) != 1 || !pins[0].Alive {
		t.Fatalf("pins %+v, %v", pins, err)
	}
	if err := pins[0].Remove(); err != nil {
		t.Fatal(err)
	}
	w.forwards(t, w.attach(t, w.options(Workload)))
}
