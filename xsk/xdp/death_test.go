package xdp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"picot.dev/picot/internal/testnet"
)

// startChild runs a process that attaches, and returns how to SIGKILL it.
func (w *wire) startChild(t *testing.T, order childOrder) (kill func()) {
	t.Helper()
	env, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := w.hostNS.Command(context.Background(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	t.Cleanup(kill)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("child says %q", line)
	}
	return kill
}

func TestDeathOfTheProcessOpensNothing(t *testing.T) {
	for _, socket := range []bool{false, true} {
		t.Run(fmt.Sprintf("socket=%v", socket), func(t *testing.T) {
			w := newWire(t, 1500, 1)
			kill := w.startChild(t, childOrder{Options: w.options(Workload), Socket: socket})
			stop := w.stream(t, frame("secret"))
			before := w.pinnedCounters(t, 500)
			kill()
			w.pinnedCounters(t, seen(before)+500)
			p := w.attach(t, w.options(Workload))
			if !p.Reused() {
				t.Error("the pinned program was not taken over")
			}
			after := wantSeen(t, p, stop())
			if n := w.stackSaw(t, "secret"); n != 0 {
				t.Errorf("%d frames of the workload port reached the stack", n)
			}
			if after.Passed+after.Errors != 0 || after.DroppedEmpty < 500 || socket != (after.Redirected >= 500) {
				t.Errorf("counters %+v with socket %v", after, socket)
			}
		})
	}
}

// pinnedCounters waits until the pinned program, whoever attached it, has seen
// at least n frames.
func (w *wire) pinnedCounters(t *testing.T, n uint64) (c Counters) {
	t.Helper()
	dir, err := pinDirName(portDev)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(w.pinDir, dir, pinCounters), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	testnet.Eventually(t, patience, "frames in the pinned program", func() (err error) {
		if c, err = readCounters(m); err == nil && seen(c) < n {
			err = fmt.Errorf("%d of %d", seen(c), n)
		}
		return err
	})
	return c
}

// The control of the test above: what it looks for can happen.
func TestControlDeathWithoutPinLeaks(t *testing.T) {
	w := newWire(t, 1500, 1)
	kill := w.startChild(t, childOrder{Options: w.options(Workload), Unpin: true})
	w.send(t, repeat(frame("secret"), 100)...)
	kill()
	testnet.Eventually(t, patience, "a frame leaks to the stack", func() error {
		w.send(t, frame("secret"))
		if w.stackSaw(t, "secret") == 0 {
			return errors.New("none yet")
		}
		return nil
	})
}
