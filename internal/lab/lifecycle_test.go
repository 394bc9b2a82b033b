package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/control"
	"picot.dev/picot/internal/testnet"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

func TestKillAndStartAgain(t *testing.T) {
	l := newLab(t, Options{Picot: build(t)})
	nodes, pods := twoNodes(t, l, NodeOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, n := range nodes {
		must(t, n.Start(ctx))
	}
	for _, n := range nodes {
		must(t, n.WaitReady(ctx, 1))
	}
	must(t, nodes[0].Kill())
	if _, err := nodes[0].Status(ctx); !errors.Is(err, control.ErrNoAgent) {
		t.Errorf("status of a killed agent: %v", err)
	}
	if err := nodes[0].WaitReady(ctx, 1); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("a dead agent became ready: %v", err)
	}
	if _, err := pods[0].Run(ctx, "ping", "-c1", "-W1", pods[1].IP4().String()); err == nil {
		t.Error("a ping passed without an agent")
	}
	must(t, nodes[0].Start(ctx))
	must(t, nodes[0].WaitReady(ctx, 1))
	// The pod remembers for a while that its question was not answered.
	testnet.Eventually(t, time.Minute, "a ping", func() error {
		_, err := pods[0].Run(ctx, "ping", "-c1", "-W5", pods[1].IP4().String())
		return err
	})
}

func TestPlainNodeAndDirectoryGiven(t *testing.T) {
	testnet.RequireRoot(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644))
	l := newLab(t, Options{Dir: dir, Underlay: Shared})
	a, err := l.AddNode(NodeOptions{NoAgent: true, MTU: 1600, Queues: 2})
	must(t, err)
	b, err := l.AddNode(NodeOptions{NoAgent: true, Locator: "2001:db8:1000::/44"})
	must(t, err)
	if err := a.Start(t.Context()); err == nil {
		t.Error("an agent started on a plain node")
	}
	// Its locator is reachable: a local SID of the other kernel answers.
	if _, err := b.Run(t.Context(), "ip", "addr", "add", "2001:db8:1000::1/128", "dev", "lo"); err != nil {
		t.Fatal(err)
	}
	// The kernel makes an address usable a little after it took it.
	testnet.Eventually(t, time.Minute, "a ping", func() error {
		_, err := a.Run(t.Context(), "ping", "-c1", "-W5", "2001:db8:1000::1")
		return err
	})
	must(t, l.Close())
	must(t, l.Close()) // again does nothing
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 || entries[0].Name() != "mine" {
		t.Errorf("the given directory has %v, want only the caller's file", entries)
	}
}

func TestNoLabForAnEndedContext(t *testing.T) {
	testnet.RequireRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("New: %v", err)
	}
	mine, err := found(func(pid int) bool { return pid == os.Getpid() })
	must(t, err)
	if len(mine) > 0 {
		t.Errorf("left behind: %+v", mine)
	}
}

// A lab of a dead process goes, with what runs in it, unless it was kept; that of
// a living one stays.
func TestSweep(t *testing.T) {
	testnet.RequireRoot(t)
	dead := exec.Command("true")
	must(t, dead.Run())
	living := newLab(t, Options{})
	for _, kept := range []bool{false, true} {
		tag := fmt.Sprintf("%s%d-%d", prefix, dead.Process.Pid, 1)
		dir := filepath.Join(os.TempDir(), tag)
		must(t, os.MkdirAll(filepath.Join(dir, "bpf"), 0o755))
		must(t, unix.Mount(tag, filepath.Join(dir, "bpf"), "bpf", 0, ""))
		if kept {
			must(t, os.WriteFile(filepath.Join(dir, keptFile), nil, 0o644))
		}
		must(t, exec.Command("ip", "netns", "add", tag+"-x").Run())
		sleeper := exec.Command("nsenter", "--net="+netnsPath(tag+"-x"), "sleep", "1000")
		must(t, sleeper.Start())
		var st unix.Stat_t
		must(t, unix.Stat(netnsPath(tag+"-x"), &st))
		testnet.Eventually(t, time.Minute, "nsenter enters", func() error {
			if len(processesIn(map[uint64]bool{st.Ino: true})) == 0 {
				return errors.New("nobody is there")
			}
			return nil
		})
		if kept {
			must(t, Sweep(t.Context(), false))
			if _, err := os.Stat(netnsPath(tag + "-x")); err != nil {
				t.Errorf("a kept lab was swept: %v", err)
			}
		}
		if kept { // not Sweep: somebody may keep another one
			all, err := Found()
			must(t, err)
			i := slices.IndexFunc(all, func(l Leftover) bool { return l.Tag == tag })
			if i < 0 || !all[i].Kept {
				t.Fatalf("%s is not found as kept: %+v", tag, all)
			}
			must(t, all[i].Remove(t.Context()))
		} else {
			must(t, Sweep(t.Context(), false))
		}
		if err := sleeper.Wait(); err == nil {
			t.Error("its process went on")
		}
		for _, path := range []string{netnsPath(tag + "-x"), dir} {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", path, err)
			}
		}
	}
	if len(remains(t, living)) == 0 {
		t.Error("a living lab was swept")
	}
}

func TestTagOf(t *testing.T) {
	for name, want := range map[string]string{
		"picot-lab-12-3-node1": "picot-lab-12-3", "picot-lab-12-3": "picot-lab-12-3",
		"picot-lab-x-3": "", "picot-lab-12": "", "picot-test-12-3-a": "", "": "",
	} {
		if tag, pid := tagOf(name); tag != want || (pid == 12) != (want != "") {
			t.Errorf("tagOf(%q) = %q, %d, want %q", name, tag, pid, want)
		}
	}
}
