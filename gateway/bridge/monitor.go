package bridge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"picot.dev/picot/gateway/flows"
)

// place is a flow as flow monitor updates name it: they do not tell the priority.
type place struct {
	table uint8
	match string
}

// batch is what one read of the monitor told.
type batch struct {
	ready   bool    // the monitor is installed
	lost    []place // flows of ours that were removed or changed hands
	foreign []place // flows of others that were added or changed
	news    bool    // something else happened that a full check should see
}

// monitor is a running `ovs-ofctl monitor`, the switch's flow monitor (ovs-ofctl(8), watch:).
type monitor struct {
	batches chan batch // closed when the monitor ended
	err     error      // why, valid once batches is closed
	done    chan struct{}
}

func (m *monitor) wait() {
	for range m.batches { // let the reader go
	}
	<-m.done
}

// startMonitor starts the monitor process. It ends with ctx, and with this process: the
// kernel kills it when the thread that started it is gone, so that thread is kept for it.
func (d *Driver) startMonitor(ctx context.Context) (*monitor, error) {
	m := &monitor{batches: make(chan batch, 16), done: make(chan struct{})}
	started := make(chan error, 1)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("bridge %s: monitor: %w", d.opt.Bridge, err)
	}
	ended := make(chan error, 1)
	go func() {
		defer close(m.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.CommandContext(ctx, d.opt.Ofctl, "--no-names", "monitor", d.target(), "watch:!initial")
		cmd.Stdout, cmd.Stderr = w, w
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		w.Close()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		r.Close()
		return nil, d.fault(ctx, err, "")
	}
	go func() {
		defer close(m.batches)
		defer r.Close()
		tail := readUpdates(r, m.batches)
		m.err = d.fault(ctx, <-ended, tail)
	}()
	return m, nil
}

// readUpdates turns the monitor's text into batches until it ends, one for each read, so that
// nothing waits for more to come. It returns the last line that was not an update.
func readUpdates(r io.Reader, out chan<- batch) (tail string) {
	buf := make([]byte, 0, 64<<10)
	ready := false
	for {
		if len(buf) == cap(buf) { // a line longer than the buffer
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		end := bytes.LastIndexByte(buf, '\n') + 1
		var b batch
		for line := range strings.Lines(string(buf[:end])) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "event="):
				b.update(line)
			case strings.HasPrefix(line, "NXST_FLOW_MONITOR"), strings.Contains(line, "FLOW_MONITOR reply"):
				b.ready = b.ready || !ready
				ready = true
			case line != "":
				tail = line
			}
		}
		buf = buf[:copy(buf, buf[end:])]
		if b.ready {
			out <- batch{ready: true}
			b.ready = false
		}
		if len(b.lost)+len(b.foreign) > 0 || b.news {
			out <- b
		}
		if err != nil {
			return tail
		}
	}
}

// update reads one line such as
//
//	event=DELETED reason=delete table=0 cookie=0x7069636f74000001 arp,in_port=1 actions=NORMAL
func (b *batch) update(line string) {
	var event string
	for word := range strings.FieldsSeq(line) {
		if v, ok := strings.CutPrefix(word, "event="); ok {
			event = v
			break
		}
	}
	rest := line[len("event=")+len(event):]
	if i := strings.Index(rest, "reason="); i >= 0 {
		_, rest, _ = strings.Cut(rest[i:], " ")
	}
	if !strings.Contains(rest, "actions=") {
		rest += " actions="
	}
	f, err := flows.Parse(rest)
	if err != nil {
		return // ABBREV and the like carry no flow
	}
	at := place{f.Table, f.Match}
	switch ours := flows.Owned(f.Cookie); {
	case event == "DELETED" && ours:
		b.lost = append(b.lost, at)
	case event != "DELETED" && !ours:
		b.foreign = append(b.foreign, at)
	case event == "DELETED":
		b.news = true
	}
}
