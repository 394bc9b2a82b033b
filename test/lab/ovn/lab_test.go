package ovn

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestScriptIsClean(t *testing.T) {
	if out, err := exec.Command("shellcheck", "ovn-lab.sh").CombinedOutput(); err != nil {
		t.Errorf("%v (no shellcheck: scripts/install-deps)\n%s", err, out)
	}
}

// A lab is all there, and when its test ends nothing of it is: no process, namespace or file.
func TestLabLeavesNothing(t *testing.T) {
	for name, o := range map[string]Options{"bare": {UDNs: 2, Bare: true}, "whole": {UDNs: 2, Localnets: 1, Uplinks: 1}} {
		var l *Lab
		t.Run(name, func(t *testing.T) {
			l = Start(t, o)
			if n := len(l.Patches("br-ex")); n != 3+o.Localnets {
				t.Errorf("%d patch ports on br-ex, want %d", n, 3+o.Localnets)
			}
			if len(l.processes()) == 0 || len(l.namespaces(t)) < 2 {
				t.Errorf("processes %v, namespaces %v", l.processes(), l.namespaces(t))
			}
			if o.Bare {
				return
			}
			l.Script("flows", "gate-on")
			if !l.Ping("0", ExtIP4, 1) {
				t.Error("the default network does not reach the host outside")
			}
		})
		if l == nil {
			return // not wanted, or failed
		}
		if _, err := os.Stat(l.Dir()); !os.IsNotExist(err) {
			t.Errorf("%s: %s is left (%v)", name, l.Dir(), err)
		}
		if p, n := l.processes(), l.namespaces(t); len(p)+len(n) != 0 {
			t.Errorf("%s: left processes %v, namespaces %v", name, p, n)
		}
	}
}

// processes returns the command lines that name the lab's directory.
func (l *Lab) processes() (lines []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), l.dir) {
			lines = append(lines, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return lines
}

func (l *Lab) namespaces(t *testing.T) (names []string) {
	t.Helper()
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, l.tag+"-") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	return names
}

// A test that is killed takes its lab with it.
func TestLabGoesWithItsTest(t *testing.T) {
	if os.Getenv("OVN_LAB_VICTIM") != "" {
		l := Start(t, Options{Bare: true})
		os.Stdout.WriteString("lab " + l.dir + " " + l.tag + "\n")
		select {} // until killed
	}
	require(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestLabGoesWithItsTest$", "-test.v")
	cmd.Env = append(os.Environ(), "OVN_LAB_VICTIM=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var l *Lab
	for sc := bufio.NewScanner(out); l == nil && sc.Scan(); {
		if f := strings.Fields(sc.Text()); len(f) == 3 && f[0] == "lab" {
			l = &Lab{dir: f[1], tag: f[2]}
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if l == nil {
		t.Fatal("the victim brought no lab up")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := os.Stat(l.dir)
		p, n := l.processes(), l.namespaces(t)
		if os.IsNotExist(err) && len(p)+len(n) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: directory %v, processes %v, namespaces %v", err, p, n)
		}
	}
}
