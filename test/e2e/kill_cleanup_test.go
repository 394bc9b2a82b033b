package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"picot.dev/picot/internal/lab"
)

// cleanup runs `picot cleanup` for node 1.
func (s *site) cleanup(args ...string) (string, error) {
	return s.n1.Run(s.ctx, picot, append([]string{
		"cleanup", "--node-name", s.n1.Name, "--bpffs", s.BPFFS(), "--run-dir", s.n1.RunDir()}, args...)...)
}

// plantForeign attaches an XDP program of nobody we know to a new device.
func plantForeign(t *testing.T, s *site, device string) {
	t.Helper()
	s.ip(s.n1.Netns(), "link add "+device+" type veth peer name "+device+"p")
	s.ip(s.n1.Netns(), "link set "+device+" up")
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	s.must(err)
	t.Cleanup(func() { p.Close() })
	inNetns(t, s.n1.Netns(), func() error {
		nl, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: nl.Attrs().Index})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
}

// ours is what of picot's is in node 1's kernel, as iproute2 and bpffs show it.
func (s *site) ours() string {
	s.t.Helper()
	ns := s.n1.Netns()
	var b strings.Builder
	for _, show := range []string{
		"-6 route show table all", "-6 rule show", "-6 neigh show",
		"-4 route show table all", "-4 rule show", "-4 neigh show", // never: the underlay is IPv6
	} {
		for line := range strings.Lines(s.ip(ns, show)) {
			if strings.Contains(line, "proto 112") || strings.Contains(line, "managed") {
				b.WriteString(line)
			}
		}
	}
	for line := range strings.Lines(s.ip(ns, "link show")) {
		if strings.Contains(line, "prog/xdp") && !strings.Contains(line, "name foreign") {
			b.WriteString(line)
		}
	}
	if entries, err := os.ReadDir(s.pinDir(s.n1)); err == nil {
		for _, e := range entries {
			b.WriteString("pin " + e.Name() + "\n")
		}
	}
	if _, err := os.Stat(filepath.Join(s.n1.RunDir(), "picot.sock")); err == nil {
		b.WriteString("control socket\n")
	}
	return b.String()
}

// Cleanup removes everything of a stopped agent, and nothing of anybody else, in
// either family; what is the agent's of routes, rules and neighbours is IPv6. It
// refuses while the agent runs. What it closed stays closed.
func TestCleanupRemovesOursAndNothingElse(t *testing.T) {
	s := newSite(t)
	s.reachAll()
	ns := s.n1.Netns()
	plantForeign(t, s, "other0")
	for family, prefix := range map[string][2]string{"-4": {"192.0.2.0/24", "198.51.100.0/24"}, "-6": {"2001:db8:dead::/48", "2001:db8:beef::/48"}} {
		s.ip(ns, family+" route add "+prefix[0]+" dev other0 proto 250 table 28777 metric 5")
		s.ip(ns, family+" route add "+prefix[1]+" dev other0 proto 250")
		s.ip(ns, family+" rule add pref 69 fwmark 1 lookup 28777 proto 250")
	}
	foreign := func() string {
		link := s.ip(ns, "link show other0")
		if !strings.Contains(link, "prog/xdp") {
			t.Errorf("the foreign XDP program is gone: %s", link)
		}
		all := ""
		for _, family := range []string{"-4", "-6"} {
			all += s.ip(ns, family+" route show proto 250 table all")
			for line := range strings.Lines(s.ip(ns, family+" rule show")) {
				if strings.Contains(line, "proto 250") {
					all += line
				}
			}
		}
		return all
	}
	planted := foreign()
	if strings.Count(planted, "\n") != 6 {
		t.Fatalf("planted: %s", planted)
	}

	for _, args := range [][]string{{"--dry-run"}, nil, {"--run-dir", t.TempDir()}} {
		if out, err := s.cleanup(args...); err == nil || !strings.Contains(out, "runs: stop it first") {
			t.Errorf("cleanup %v beside a running agent: %v: %s", args, err, out)
		}
	}
	s.reachAll()
	s.books()

	before := s.ours()
	s.must(s.n1.Stop(s.ctx))
	left := s.ours() + "control socket\n"
	// A neighbour's state may change by itself; it is the same kind of thing.
	if strings.Count(left, "\n") < strings.Count(before, "\n") {
		t.Errorf("SIGTERM took something away:\n%s\nbefore:\n%s", left, before)
	}
	s.must(os.WriteFile(filepath.Join(s.n1.RunDir(), "picot.sock"), nil, 0o600)) // as after SIGKILL

	list, err := s.cleanup("--dry-run")
	s.must(err)
	for _, want := range []string{"workload device v-p1", "workload device v-p2", "uplink device up0", "route 2001:db8:0:2::/64", "route 2001:db8:0:1::/64",
		"rule 70", "rule 71", "rule 72", "neighbour 2001:db8:f::2", "control socket"} {
		if !strings.Contains(list, want) || !strings.Contains(list, "would remove") {
			t.Errorf("the dry run does not list %q:\n%s", want, list)
		}
	}
	if after := s.ours(); strings.Count(after, "\n") != strings.Count(left, "\n") {
		t.Errorf("the dry run changed something:\n%s\nbefore:\n%s", after, left)
	}

	w := watchNetns(t, "node1's stack", ns, dead)
	done, err := s.cleanup()
	s.must(err)
	if strings.Count(done, "removed ") < strings.Count(list, "would remove ") {
		t.Errorf("listed:\n%s\ndone:\n%s", list, done)
	}
	if rest := s.ours(); rest != "" {
		t.Errorf("left:\n%s", rest)
	}
	if now := foreign(); now != planted {
		t.Errorf("foreign things:\n%s\nwere:\n%s", now, planted)
	}
	for _, p := range []*lab.Pod{s.a1, s.a2} {
		if out := s.ip(ns, "-o link show "+p.Device); strings.Contains(out, "UP,") || strings.Contains(out, ",UP") || strings.Contains(out, "PROMISC") {
			t.Errorf("%s: %s", p.Device, out)
		}
	}
	s.sendFromA1(s.everyKind(dead))
	if n, _ := w.count(dead); n > 0 {
		t.Errorf("%d frames passed", n)
	}
	if again, err := s.cleanup(); err != nil || again != "" {
		t.Errorf("a second time: %v: %s", err, again)
	}
	if pins := s.pins(s.n2); len(pins) != 2 {
		t.Errorf("node 2's pins: %v", pins)
	}
	s.must(s.n1.Start(s.ctx))
	s.ready()
	s.reachAll()
}
