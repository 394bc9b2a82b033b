package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"picot.dev/picot/xsk/xdp"
)

// watchPins tells taken the name of each device a pin of which went, until ctx
// ends. Our own removals are among them. What it misses the next refresh finds:
// it only makes the time short in which the agent's death would open a port.
func watchPins(ctx context.Context, dir string, taken chan<- string) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the pins: %w", err)
	}
	defer w.Close()
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("watching the pins in %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("watching the pins: %w", err)
	}
	for _, e := range entries {
		_ = w.Add(filepath.Join(dir, e.Name())) // gone by now: an event of dir says so
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			return fmt.Errorf("watching the pins: %w", err)
		case e := <-w.Events:
			device := e.Name
			if of := filepath.Dir(e.Name); of != dir {
				device = of
			} else if e.Has(fsnotify.Create) {
				_ = w.Add(e.Name)
			}
			if !e.Has(fsnotify.Remove) && !e.Has(fsnotify.Rename) {
				continue
			}
			select {
			case taken <- xdp.PinName(filepath.Base(device)):
			case <-ctx.Done():
			}
		}
	}
}

// onTaken has the device's port or uplink looked at.
func (a *Agent) onTaken(device string) {
	if p := a.ports.attached[device]; p != nil {
		p.check, a.ports.dirty = true, true
	}
	for _, u := range a.ups.all {
		if u.name == device && u.program != nil {
			u.check, a.ups.dirty = true, true
		}
	}
}
