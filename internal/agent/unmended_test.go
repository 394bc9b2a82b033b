package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/xsk/xdp"
)

const aRefresh = defaultRefresh + defaultRefresh/4 + time.Second

// up sets a device up before any agent came.
func (w *world) up(ifindex int) {
	w.t.Helper()
	if err := w.devices.Up(ifindex); err != nil {
		w.t.Fatal(err)
	}
	w.mutations()
}

// began is started, whatever keeps it from being ready.
func (w *world) began() {
	w.t.Helper()
	w.start()
	w.listLinks()
	w.say(all(good()))
	w.pass(applyEvery)
}

// mends are all repairs of a port and what it takes to make one, each with a
// damage that asks for it; ops are what the repair does, the last one the one that
// is seen to fail. open says that frames
// pass the program once the damage is done, so that the device must go down.
var mends = []struct {
	name   string
	before func(*world) // there is an agent
	after  func(*world) // it runs
	ops    []string
	open   bool
	other  bool // there is another way, which mends it
}{
	{name: "pin", after: func(w *world) { w.devices.LosePin("v1") }, ops: []string{"pin v1"}},
	{name: "slot", after: func(w *world) { w.devices.LoseSlot("v1", 0) }, ops: []string{"slot v1/0"}},
	{name: "settings", after: func(w *world) { w.devices.LoseSilence(101) }, ops: []string{"silence v1"}},
	{name: "link", after: func(w *world) { w.devices.LoseLink("v1") }, ops: []string{"attach v1"}, open: true},
	{name: "program in the link", after: func(w *world) { w.devices.ExchangeProgram("v1") }, ops: []string{"exchange v1"}, open: true, other: true},
	{name: "nobody can tell", after: func(*world) {}, ops: []string{"keep v1"}, open: true},
	{name: "socket", after: func(w *world) {
		w.ask(func() { w.agent.ports.attached["v1"].broken = true; w.agent.ports.dirty = true })
	}, ops: []string{"open v1/0"}},
	{name: "socket, and the pin", after: func(w *world) {
		w.devices.LosePin("v1")
		w.ask(func() { w.agent.ports.attached["v1"].broken = true; w.agent.ports.dirty = true })
	}, ops: []string{"pin v1", "attach v1"}, open: true},
	{name: "first attach: query", before: func(w *world) { w.up(101) }, ops: []string{"query v1"}, open: true},
	{name: "first attach: settings", before: func(w *world) { w.up(101) }, ops: []string{"silence v1"}, open: true},
	{name: "first attach: program", before: func(w *world) { w.up(101) }, ops: []string{"attach v1"}, open: true},
	{name: "first attach: place", before: func(w *world) { w.up(101) }, ops: []string{"place"}},
	{name: "first attach: socket", before: func(w *world) { w.up(101) }, ops: []string{"open v1/0"}},
	{name: "first attach: slot", before: func(w *world) { w.up(101) }, ops: []string{"slot v1/0"}},
	{name: "first attach: up", ops: []string{"up v1"}},
	{name: "link, of a port that waits for its socket", before: func(w *world) { w.up(101) },
		after: func(w *world) { w.devices.LoseLink("v1") }, ops: []string{"open v1/0", "attach v1"}, open: true},
	{name: "left-over", before: func(w *world) {
		w.plug(109, "v9")
		w.devices.Plant(xdp.AttachOptions{IfIndex: 109, Kind: xdp.Workload, Queues: 1, Name: "v9"}, true)
	}, ops: []string{"remove-pin v9"}},
	{name: "uplink: pin", after: func(w *world) { w.devices.LosePin(uplinkName) }, ops: []string{"pin up0"}},
	{name: "uplink: slot", after: func(w *world) { w.devices.LoseSlot(uplinkName, 0) }, ops: []string{"slot up0/0"}},
	{name: "uplink: link", after: func(w *world) { w.devices.LoseLink(uplinkName) }, ops: []string{"attach up0"}},
	{name: "uplink: program in the link", after: func(w *world) { w.devices.ExchangeProgram(uplinkName) }, ops: []string{"exchange up0"}, other: true},
}

// unmended has the repair fail for ever, with more failing beside it.
func (w *world) unmended(i int, more ...string) {
	w.t.Helper()
	m := mends[i]
	fail := func() {
		for _, op := range append(m.ops, more...) {
			w.devices.Fail(op, -1)
		}
	}
	if m.before != nil {
		m.before(w)
	}
	if m.before != nil || m.after == nil {
		fail()
		w.began()
	} else {
		w.started()
	}
	fail()
	if m.after != nil {
		m.after(w)
	}
}

// What can never be mended is named, and closed: by its program, or, where frames
// may not meet that, by its device being down. The agent goes on, without a storm,
// does the rest, and mends it once it can. When it ends instead, everything stays
// closed.
func TestWhatCannotBeMendedIsClosedAndNamed(t *testing.T) {
	for i, m := range mends {
		for _, ends := range []bool{false, true} {
			name := m.name
			if ends {
				name += ", then the end"
			}
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.unmended(i)
					w.pass(aRefresh)
					w.closed("after a refresh")
					fails := m.ops[len(m.ops)-1]
					if m.other {
						w.pass(2 * lastRetry)
						w.healed()
					}
					w.named(fails, !m.other)
					calls, lines := w.devices.Calls(), w.log.count()
					for range 10 {
						w.pass(time.Minute)
						w.closed("later")
						w.named(fails, !m.other)
					}
					if err, ended := w.ended(); ended {
						t.Fatalf("the agent ended: %v", err)
					}
					if n := w.devices.Calls() - calls; n > 3000 {
						t.Errorf("%d calls in ten minutes", n)
					}
					if n := w.log.count() - lines; n > 40 {
						t.Errorf("%d log lines in ten minutes:\n%s", n, strings.Join(w.log.text[lines:], ""))
					}
					if ends {
						w.endInOrder()
						w.closed("after the end")
						return
					}
					for _, op := range m.ops {
						w.devices.Fail(op, 0)
					}
					w.pass(aRefresh + 2*lastRetry)
					if m.name != "left-over" {
						w.healed()
					}
					w.closed("mended")
				})
			})
		}
	}
}

// endInOrder ends the agent in order, and then its process.
func (w *world) endInOrder() {
	w.t.Helper()
	w.cancel()
	if err := errors.Join(<-w.end, w.agent.closePrograms()); err != nil {
		w.t.Error(err)
	}
	a := w.agent
	w.agent = nil
	if err := a.engine.Stop(); err != nil {
		w.t.Error(err)
	}
	w.devices.Die()
}

// What cannot be mended, is open, and cannot be set down either ends the agent
// within a bound, and says which device it is.
func TestWhatCannotBeShownClosedEndsTheAgent(t *testing.T) {
	for i, m := range mends {
		if !m.open {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.unmended(i, "down v1")
				w.pass(closeWithin - 2*time.Second)
				if err, ended := w.ended(); ended {
					t.Fatalf("ended too early: %v", err)
				}
				w.pass(aRefresh + lastRetry)
				err, ended := w.ended()
				if !ended || !errors.Is(err, ErrNotClosed) || !strings.Contains(err.Error(), "default/p1") || !strings.Contains(err.Error(), "v1") {
					t.Fatalf("ended %v: %v", ended, err)
				}
			})
		})
	}
}

// A device with somebody else's program is theirs: it is named, and neither set
// down nor a reason to end, even when its endpoint goes.
func TestDeviceWithAForeignProgramIsLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.up(101)
		w.devices.PlantForeign(101)
		w.began()
		w.pass(10 * time.Minute)
		if waiting := strings.Join(w.waiting(), "\n"); !strings.Contains(waiting, "v1") {
			t.Errorf("not named: %s", waiting)
		}
		w.say(desired.Diff(good(), without(1)))
		w.pass(time.Minute)
		if err, ended := w.ended(); ended {
			t.Fatal(err)
		}
		for _, m := range w.mutations() {
			if strings.HasSuffix(m, " v1") && m != "silence v1" {
				t.Errorf("%q", m)
			}
		}
		if waiting := w.waiting(); len(waiting) > 0 {
			t.Errorf("waiting: %q", waiting)
		}
	})
}
