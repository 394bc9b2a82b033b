package bridge_test

import (
	"bufio"
	"context"
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

// observer is an independent flow monitor that keeps the times our flows went and came.
type observer struct {
	mu    sync.Mutex
	count int // flows of ours on the bridge, as it saw them
	want  int
	since time.Time
	gaps  []time.Duration
}

// observe starts the observer when want flows of ours are on the bridge.
func observe(t *testing.T, r *rig, want int) *observer {
	t.Helper()
	o := &observer{count: want, want: want}
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

func (o *observer) event(line string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case strings.HasPrefix(line, "event=DELETED"):
		if o.count == o.want {
			o.since = at
		}
		o.count--
	case strings.HasPrefix(line, "event=ADDED"):
		if o.count++; o.count == o.want {
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

// watch runs the driver's Watch until the test ends.
func (r *rig) watch(onChange func(bridge.Event)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.driver.Watch(ctx, onChange)
	}()
	r.t.Cleanup(func() { cancel(); <-done })
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

func TestOverlayIsBackAfterReplaceFlows(t *testing.T) {
	r := newRig(t, "br-ex", ovn.Options{UDNs: 10, NoPods: true})
	r.Script("flows", "gate-off")
	others := r.read().Foreign
	file := ovnKubernetes(t, r, "gate-off")
	in := r.input(true, func(in *flows.Input) { in.Mode = flows.Overlay })
	want := flows.Render(in)
	r.apply(in)
	same(t, "others' flows", r.read().Foreign, others)

	events := make(chan bridge.Event, 1000)
	r.watch(func(e bridge.Event) { events <- e })
	o := observe(t, r, len(want))
	rounds := 40
	for i := range rounds {
		r.Script("replace", file)
		eventually(t, fmt.Sprintf("round %d: our flows are back", i), func() bool { return len(o.seen()) > i })
		time.Sleep(100 * time.Millisecond)
	}
	s := r.read()
	same(t, "own flows", s.Own, want)
	same(t, "others' flows", s.Foreign, others)
	gaps := o.seen()
	t.Logf("%d replacements: without our flows p50 %v p99 %v max %v", len(gaps), quantile(gaps, .5), quantile(gaps, .99), quantile(gaps, 1))
	close(events)
	var took []time.Duration
	for e := range events {
		if e.Err != nil {
			t.Error(e.Err)
		}
		if e.Restored > 0 {
			took = append(took, e.Took)
		}
	}
	t.Logf("restore took p50 %v max %v", quantile(took, .5), quantile(took, 1))
}
