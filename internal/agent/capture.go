package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/fastpath/table"
	"picot.dev/picot/internal/capture"
	"picot.dev/picot/internal/status"
)

// A capture is one request at the control socket. Its goroutine is the only reader
// of the workers' records; the loop begins it and ends it:
//
//	request ─ startCapture (loop) ─ every captureEvery: records ─ pcapng ─ reader ─┐
//	                                endCapture (loop) ◄── the reader is gone or slow, ─┘
//	                                                      stopped, count, duration, port gone
const (
	// captureEvery is how long a record waits at most, far less than a worker's fill.
	captureEvery = 2 * time.Millisecond
	// readWithin is how long a reader may take nothing.
	readWithin = 10 * time.Second
	// askAgain spaces questions for the endpoints of ports that came meanwhile.
	askAgain = time.Second
)

// capturing is a capture that runs.
type capturing struct {
	*fastpath.Capture
	request capture.Request
	device  fastpath.Device // the only one; none: all
	since   time.Time
	stop    chan struct{} // gets a token to end it

	// The request's goroutine's own, once it has begun.
	agent     *Agent
	ctx       context.Context // the agent's
	uplinks   []string
	endpoints map[table.PortID]string
	asked     time.Time
}

func (a *Agent) handleCapture(ctx context.Context, mux *http.ServeMux) {
	mux.HandleFunc("GET /capture", func(w http.ResponseWriter, r *http.Request) { a.serveCapture(ctx, w, r) })
	mux.HandleFunc("POST /capture/stop", func(w http.ResponseWriter, r *http.Request) {
		found := false
		if !a.answers(w, r, func() {
			if c := a.capture; c != nil && c.request.ID != "" && c.request.ID == r.URL.Query().Get("id") {
				found = true
				poke(c.stop)
			}
		}) {
			return
		}
		if !found {
			http.Error(w, "no such capture: it has ended", http.StatusNotFound)
		}
	})
}

func (a *Agent) serveCapture(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	request, err := capture.ParseQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var c *capturing
	if !a.answers(w, r, func() { c, err = a.startCapture(ctx, request) }) {
		return
	}
	if err != nil {
		code := http.StatusBadRequest
		if errors.Is(err, fastpath.ErrCapturing) {
			code = http.StatusConflict
		}
		http.Error(w, err.Error(), code)
		return
	}
	a.log.Info("capture begins", "filter", request.Query().Encode())
	why, err := c.serve(r.Context(), w)
	a.log.Info("capture ended", "why", why, "error", err)
}

// startCapture begins a capture. In the loop.
func (a *Agent) startCapture(ctx context.Context, r capture.Request) (*capturing, error) {
	if c := a.capture; c != nil {
		return nil, fmt.Errorf("%w since %s: end it first", fastpath.ErrCapturing, c.since.Format(time.TimeOnly))
	}
	o := r.Options()
	if r.Network != "" {
		id, ok := a.tables.ids[r.Network]
		if !ok {
			return nil, fmt.Errorf(`%w: --network %q is not known to node %s: see "picot show fdb", or its Network object`, capture.ErrRequest, r.Network, a.config.NodeName)
		}
		o.Network = id
	}
	if r.Port != "" {
		d, ok := a.deviceOf(r.Port)
		if !ok {
			return nil, fmt.Errorf(`%w: --port %q is neither a port nor an uplink of node %s: give a device or an endpoint of "picot show ports"`, capture.ErrRequest, r.Port, a.config.NodeName)
		}
		o.Device = d
	}
	c := &capturing{request: r, device: o.Device, since: time.Now(), stop: make(chan struct{}, 1), agent: a, ctx: ctx, endpoints: a.endpointNames()}
	for _, u := range a.ups.all {
		c.uplinks = append(c.uplinks, u.name)
	}
	var err error
	if c.Capture, err = a.engine.StartCapture(o); err != nil {
		return nil, err
	}
	a.capture = c
	return c, nil
}

// deviceOf finds a port by device or endpoint, or an uplink.
func (a *Agent) deviceOf(name string) (fastpath.Device, bool) {
	for device, p := range a.ports.attached {
		if p.entry.ID != 0 && (device == name || p.key.String() == name) {
			return fastpath.PortDevice(p.entry.ID), true
		}
	}
	for _, u := range a.ups.all {
		if u.name == name {
			return fastpath.UplinkDevice(u.number), true
		}
	}
	return fastpath.Device{}, false
}

func (a *Agent) endpointNames() map[table.PortID]string {
	names := map[table.PortID]string{}
	for _, p := range a.ports.attached {
		if p.entry.ID != 0 {
			names[p.entry.ID] = p.key.String()
		}
	}
	return names
}

// end ends the capture in the workers. It returns once that is done, or the agent
// ends, and its workers with it.
func (c *capturing) end() {
	_ = c.agent.ask(c.ctx, func() {
		if c.agent.capture == c {
			c.agent.engine.EndCapture(c.Capture)
			c.agent.capture = nil
		}
	})
}

// serve writes the capture until its end and says why that came. Nothing of it is
// on any more when it returns.
func (c *capturing) serve(ctx context.Context, w http.ResponseWriter) (why string, err error) {
	ended := false
	defer func() {
		if !ended {
			c.end()
		}
	}()
	h := w.Header()
	h.Set("Content-Type", "application/x-pcapng")
	h.Set("Trailer", status.CaptureEnd+", "+status.CaptureFrames+", "+status.CaptureMissed)
	out := &patient{w, http.NewResponseController(w)}
	first := c.device
	if first == (fastpath.Device{}) {
		first = fastpath.UplinkDevice(0)
	}
	file, err := capture.NewWriter(out, c.request, c, c.agent.config.NodeName, first)
	if err == nil {
		err = out.flush()
	}
	if err == nil {
		why, err = c.copy(ctx, file, out)
	}
	if err != nil {
		return "the reader is gone, or took nothing for " + readWithin.String(), err
	}
	c.end()
	ended = true
	if err := c.drain(file); err != nil {
		return why, err
	}
	var missed uint64
	c.Missed(func(_ bool, _ int, frames uint64) { missed += frames })
	h.Set(status.CaptureEnd, why)
	h.Set(status.CaptureFrames, strconv.FormatUint(file.Frames(), 10))
	h.Set(status.CaptureMissed, strconv.FormatUint(missed, 10))
	return why, errors.Join(file.Close(c.Missed), out.flush())
}

// copy writes what the workers tell, until there is a reason to end.
func (c *capturing) copy(ctx context.Context, file *capture.Writer, out *patient) (why string, err error) {
	tick := time.NewTicker(captureEvery)
	defer tick.Stop()
	var over <-chan time.Time
	if c.request.Duration > 0 {
		over = time.After(c.request.Duration)
	}
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-c.ctx.Done():
			return "the agent ends", nil
		case <-c.stop:
			return "stopped", nil
		case <-over:
			return "duration", nil
		case <-tick.C:
		}
		before := file.Frames()
		if err := c.drain(file); err != nil {
			return "", err
		}
		if file.Frames() > before {
			if err := errors.Join(file.Flush(), out.flush()); err != nil {
				return "", err
			}
		}
		if file.Full() {
			return "count", nil
		}
		if c.gone() {
			return "port " + c.request.Port + " is gone", nil
		}
	}
}

func (c *capturing) drain(file *capture.Writer) (err error) {
	c.Drain(func(r *fastpath.Captured) {
		if err == nil {
			err = file.Write(r)
		}
	})
	return err
}

// gone says that the only port to capture is not there any more.
func (c *capturing) gone() bool {
	id := c.device.Port
	if id == 0 {
		return false
	}
	s := c.Snapshot()
	return id.Index() >= len(s.Ports) || s.Ports[id.Index()].ID != id
}

// Snapshot, Endpoint and Uplink are the names for a capture.Writer.
func (c *capturing) Snapshot() *table.Snapshot { return c.agent.engine.Published() }

// Uplink is an uplink's device.
func (c *capturing) Uplink(number int) string {
	if number < len(c.uplinks) {
		return c.uplinks[number]
	}
	return fmt.Sprintf("uplink %d", number)
}

// Endpoint is a port's; those of new ports are asked for.
func (c *capturing) Endpoint(id table.PortID) string {
	if name, ok := c.endpoints[id]; ok || time.Since(c.asked) < askAgain {
		return name
	}
	// A loop that is busy is left alone as long as it was waited for, and longer.
	defer func() { c.asked = time.Now() }()
	ctx, cancel := context.WithTimeout(c.ctx, askAgain)
	defer cancel()
	var names map[table.PortID]string
	if c.agent.ask(ctx, func() { names = c.agent.endpointNames() }) == nil {
		c.endpoints = names
	}
	return c.endpoints[id]
}

// patient writes to a reader that takes something at least every readWithin.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	if err := p.control.SetWriteDeadline(time.Now().Add(readWithin)); err != nil {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

func (p *patient) flush() error {
	return errors.Join(p.control.SetWriteDeadline(time.Now().Add(readWithin)), p.control.Flush())
}
