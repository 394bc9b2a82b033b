package agent

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"picot.dev/picot/internal/health"
)

// hungAfter is when a part that did not say that it lives counts as hung. No step
// of an apply takes nearly that long; a whole apply may.
const hungAfter = 30 * time.Second

// vitals is what the agent says of itself. The loop sets it, anybody may read it:
// a loop that hangs is seen by others.
type vitals struct {
	health.Registry
	loop  *health.Reporter
	parts map[string]*health.Reporter
}

func newVitals() *vitals {
	v := &vitals{parts: map[string]*health.Reporter{}}
	v.loop = v.Add("loop", hungAfter)
	for _, name := range []string{partLinks, partDesired, partApply, partUplinks, partPorts, partRoutes, partLeftovers, partWorkers} {
		v.parts[name] = v.Add(name, 0)
	}
	v.parts[partApply].Set("nothing applied yet")
	return v
}

// The parts that may keep the agent from being ready.
const (
	partLinks     = "kernel links"
	partDesired   = "desired state"
	partApply     = "apply"
	partUplinks   = "uplinks"
	partPorts     = "ports"
	partRoutes    = "routes"
	partLeftovers = "left-overs"
	partWorkers   = "workers"
)

// alive says that the loop is at work. Called between its steps: slow is not hung.
func (a *Agent) alive() { a.vitals.loop.Renew() }

// watchWorkers has each worker's rounds looked at. Call it once they run.
func (a *Agent) watchWorkers() {
	for i := range a.engine.Beats() {
		a.vitals.Watch(fmt.Sprintf("worker %d", i), hungAfter, func() uint64 { return a.engine.Beats()[i] })
	}
}

// tellHealth says what every part waits for. Ready is: all gates open, a clean
// apply, workers that poll.
func (a *Agent) tellHealth() {
	problems := a.troubles()
	for name, reporter := range a.vitals.parts {
		reporter.Set(problems[name]...)
	}
}

// troubles names what keeps the agent from being ready, by part; each resource by
// its own name.
func (a *Agent) troubles() map[string][]string {
	t := map[string][]string{}
	add := func(part, text string) { t[part] = append(t[part], text) }
	if !a.linksIn {
		add(partLinks, "kernel links: not listed yet")
	}
	if !a.desiredIn {
		add(partDesired, "desired state: not in sync with its source yet")
		for _, text := range a.unheard {
			add(partDesired, "desired state: "+text)
		}
	}
	if a.applies == 0 {
		add(partApply, "nothing applied yet")
	}
	for _, u := range a.ups.all {
		if u.backoff.err != nil {
			add(partUplinks, u.backoff.err.Error())
		}
	}
	for name, b := range a.ports.retry {
		add(partPorts, "port "+name+": "+b.err.Error())
	}
	if err := a.nodes.failed; err != nil {
		add(partRoutes, "routes: "+err.Error())
	}
	if a.sweepSaid != "" {
		add(partLeftovers, "left-over pins: "+a.sweepSaid)
	}
	if !a.hangs.IsZero() {
		add(partWorkers, "workers: one does not let go of an old snapshot")
	}
	return t
}

// waiting names all of it.
func (a *Agent) waiting() []string {
	var w []string
	for _, texts := range a.troubles() {
		w = append(w, texts...)
	}
	slices.Sort(w)
	return w
}

// health adds the paths of probes. None of them needs the loop to answer.
//
//	/livez    503 when the loop or a worker hangs
//	/readyz   503 with what is waited for
//	/healthz  the same as readyz, with every part
func (a *Agent) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		var hung []string
		for _, p := range a.vitals.Reports() {
			if !p.Live {
				hung = append(hung, hungText(p))
			}
		}
		reply(w, codeOf(hung), map[string]any{"live": len(hung) == 0, "hung": hung})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		waiting := unready(a.vitals.Reports())
		reply(w, codeOf(waiting), map[string]any{"ready": len(waiting) == 0, "waiting": waiting})
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		parts := a.vitals.Reports()
		waiting := unready(parts)
		reply(w, codeOf(waiting), map[string]any{"ready": len(waiting) == 0, "parts": parts})
	})
}

func unready(parts []health.Report) (waiting []string) {
	for _, p := range parts {
		if !p.Live {
			waiting = append(waiting, hungText(p))
		}
		waiting = append(waiting, p.Problems...)
	}
	slices.Sort(waiting)
	return waiting
}

func hungText(p health.Report) string {
	return fmt.Sprintf("%s: hangs since %v", p.Name, p.Age.Round(time.Second))
}

func codeOf(problems []string) int {
	if len(problems) > 0 {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}
