package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"picot.dev/picot/internal/device"
	"picot.dev/picot/internal/device/devicetest"
	"picot.dev/picot/xsk/xdp"
)

// probe asks one of the health paths.
func (w *world) probe(path string) (code int, body string) {
	w.t.Helper()
	mux := http.NewServeMux()
	w.agent.health(mux)
	r := httptest.NewRecorder()
	mux.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Code, r.Body.String()
}

func (w *world) probes(what string, live, ready int) {
	w.t.Helper()
	for path, want := range map[string]int{"/livez": live, "/readyz": ready, "/healthz": ready} {
		if code, body := w.probe(path); code != want {
			w.t.Errorf("%s: %s is %d, want %d: %s", what, path, code, want, body)
		}
	}
}

const good200, bad503 = http.StatusOK, http.StatusServiceUnavailable

// A loop that hangs is seen without being asked; and it is live again after.
func TestHungLoopIsSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.pass(time.Minute)
		w.probes("before the gates", good200, bad503)
		w.listLinks()
		w.say(all(good()))
		w.pass(time.Second)
		w.probes("good", good200, good200)
		w.pass(time.Hour)
		w.probes("idle for an hour", good200, good200)

		release := make(chan struct{})
		go func() { _ = w.agent.ask(context.Background(), func() { <-release }) }()
		w.pass(hungAfter - tick - time.Second)
		w.probes("slow", good200, good200)
		w.pass(tick + 2*time.Second)
		w.probes("hung", bad503, bad503)
		if _, body := w.probe("/livez"); !strings.Contains(body, "loop: hangs") {
			t.Errorf("not named: %s", body)
		}
		close(release)
		synctest.Wait()
		w.probes("again", good200, good200)
	})
}

// slowKernel takes its time for every program.
type slowKernel struct {
	*devicetest.Kernel
	each time.Duration
}

func (k slowKernel) Attach(o xdp.AttachOptions) (device.Program, error) {
	time.Sleep(k.each)
	return k.Kernel.Attach(o)
}

// An apply of many slow steps takes far longer than a hang, and is none.
func TestSlowApplyIsNoHang(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		slow := slowKernel{w.devices, hungAfter - time.Second}
		w.agent.ports.kernel, w.agent.ups.kernel = slow, slow
		began := time.Now()
		w.listLinks()
		w.say(all(good()))
		for len(w.devices.IDs()) < workloads+1 {
			w.pass(time.Second)
			if code, body := w.probe("/livez"); code != good200 {
				t.Fatalf("after %v: %s", time.Since(began), body)
			}
		}
		if took := time.Since(began); took < 2*hungAfter {
			t.Errorf("took only %v", took)
		}
	})
}

// Each resource in trouble is named, by part.
func TestHealthDetailNamesEachResource(t *testing.T) {
	inWorld(t, func(w *world) {
		w.devices.Fail("attach v2", -1)
		w.devices.Fail("check up0", -1)
		w.start()
		w.listLinks()
		w.say(all(good()))
		w.pass(time.Second)
		_, body := w.probe("/healthz")
		var detail struct {
			Ready bool
			Parts []struct {
				Name        string
				Live, Ready bool
				Problems    []string
			}
		}
		if err := json.Unmarshal([]byte(body), &detail); err != nil {
			t.Fatal(err)
		}
		bad := map[string]string{}
		for _, p := range detail.Parts {
			if !p.Live {
				t.Errorf("%s hangs", p.Name)
			}
			if !p.Ready {
				bad[p.Name] = strings.Join(p.Problems, "\n")
			}
		}
		if detail.Ready || len(bad) != 2 || !strings.Contains(bad[partPorts], "v2") || !strings.Contains(bad[partUplinks], uplinkName) {
			t.Errorf("ready %v, bad %q", detail.Ready, bad)
		}
		w.probes("in trouble", good200, bad503)
	})
}
