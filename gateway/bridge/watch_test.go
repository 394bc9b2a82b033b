package bridge_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"picot.dev/picot/gateway/bridge"
	"picot.dev/picot/gateway/flows"
	"picot.dev/picot/test/lab/ovn"
)

var replacements = flag.Int("replacements", 20, "how often the table is replaced under stress")

// observer is an independent flow monitor that keeps the times our flows went and came.
type observer struct {
	mu      sync.Mutex
	missing map[string]bool // our flows that are not on the bridge, as it saw them
	since   time.Time
	gaps    []time.Duration
}

// observe starts the observer when all flows of ours are on the bridge.
func observe(t *testing.T, r *rig) *observer {
	t.Helper()
	o := &observer{missing: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "ovs-ofctl", "--unixctl=none", "--no-names", "--timestamp", "monitor", "unix:"+r.Mgmt(r.bridge), "watch:!initial")
	pr, pw := io.Pipe()
	cmd.Stdout, cmd.Stderr = pw, pw
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var stamp time.Time
		var once sync.Once
		sc := bufio.NewScanner(pr)
		for sc.Scan() {
			line := strings.TrimSpace(sc.Text())
			if strings.Contains(line, "FLOW_MONITOR reply") {
				if when, _, ok := strings.Cut(line, ": "); ok && len(when) == 23 {
					stamp, _ = time.Parse("2006-01-02 15:04:05.000", when)
				}
				once.Do(func() { close(ready) })
			} else if strings.HasPrefix(line, "event=") && strings.Contains(line, fmt.Sprintf("cookie=%#x", flows.Cookie)) {
				o.event(line, stamp)
			}
		}
	}()
	t.Cleanup(func() { cancel(); _ = cmd.Wait(); pw.Close(); <-done })
	select {
	case <-ready:
	case <-time.After(10 * time.Second):
		t.Fatal("the observer did not start")
	}
	return o
}

// event notes one update. Adding a flow that is there is an update too and changes nothing.
func (o *observer) event(line string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, flow, _ := strings.Cut(line, "cookie=")
	switch {
	case strings.HasPrefix(line, "event=DELETED"):
		if len(o.missing) == 0 {
			o.since = at
		}
		o.missing[flow] = true
	case strings.HasPrefix(line, "event=ADDED") && o.missing[flow]:
		if delete(o.missing, flow); len(o.missing) == 0 {
			o.gaps = append(o.gaps, at.Sub(o.since))
		}
	}
}

func (o *observer) seen() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.gaps)
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

// watch runs the driver's Watch until the test ends, and returns when it is in force.
func (r *rig) watch(onChange func(bridge.Event)) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, watching := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		_ = r.driver.Watch(ctx, func(e bridge.Event) {
			if e.Watching {
				once.Do(func() { close(watching) })
			}
			if onChange != nil {
				onChange(e)
			}
		})
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	select {
	case <-watching:
	case <-time.After(30 * time.Second):
		r.t.Fatal("the flow monitor is not in force after 30 s")
	}
}

// ovnKubernetes writes down what a stock ovn-kubernetes would replace the table with.
func ovnKubernetes(t *testing.T, r *rig, mode string) (file string) {
	t.Helper()
	file = filepath.Join(r.Dir(), "ovnk."+mode)
	if err := os.WriteFile(file, []byte(r.Script("render", mode, r.bridge)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// measureReplace lets another owner replace the table with mode's flows every period, and
// measures how long ours were gone each time.
func measureReplace(t *testing.T, r *rig, mode string, period time.Duration, rounds int, others, want flows.Set) {
	t.Helper()
	file := ovnKubernetes(t, r, mode)
	var mu sync.Mutex
	var took []time.Duration
	r.watch(func(e bridge.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Restored > 0 {
			took = append(took, e.Took)
		}
		if e.Err != nil {
			t.Error(e.Err)
		}
	})
	o := observe(t, r)
	for i := range rounds {
		next := time.Now().Add(period)
		r.Script("replace", file)
		eventually(t, fmt.Sprintf("round %d: our flows are back", i), func() bool { return len(o.seen()) > i })
		time.Sleep(time.Until(next))
	}
	s := r.read()
	same(t, "own flows", s.Own, want)
	same(t, "others' flows", s.Foreign, others)
	gaps := o.seen()
	mu.Lock()
	defer mu.Unlock()
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%d replacements every %v: without our flows p50 %v p99 %v max %v; of that repair p50 %v max %v; load %.15s",
		len(gaps), period, quantile(gaps, .5), quantile(gaps, .99), quantile(gaps, 1), quantile(took, .5), quantile(took, 1), load)
}

// The way it runs beside a stock ovn-kubernetes, which replaces the table every 15 s.
func TestOverlayBesideOVN(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 10, NoPods: true})
	r.Script("flows", "gate-off")
	others := r.read().Foreign
	in := r.input(true, func(in *flows.Input) { in.Mode = flows.Overlay })
	bits := r.read().Ports
	r.apply(in)
	measureReplace(t, r, "gate-off", 15*time.Second, 3, others, flows.Render(in))
	for n, p := range r.read().Ports {
		if p.NoFlood != bits[n].NoFlood {
			t.Errorf("NO_FLOOD of port %d (%s) was changed to %v", n, p.Name, p.NoFlood)
		}
	}
}
