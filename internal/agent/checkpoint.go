package agent

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"picot.dev/picot/internal/desired"
)

// A checkpoint is the desired state as it was last applied, in the run
// directory. An agent that starts while the API server is away forwards from
// it; nothing is swept or written until the sources are in sync.
type checkpoint struct {
	path    string
	node    string
	log     *slog.Logger
	dirty   bool
	next    time.Time
	writing chan error // nil: no write under way
}

// checkpointFormat changes when desired.State does in a way gob does not bear.
const checkpointFormat = 1

// checkpointEvery spaces writes: a crash loses at most so much of what changed.
const checkpointEvery = 2 * time.Second

type checkpointFile struct {
	Format int
	Node   string
	State  desired.State
}

func newCheckpoint(c *Config) *checkpoint {
	return &checkpoint{path: c.checkpointPath(), node: c.NodeName, log: c.Log}
}

func (c *Config) checkpointPath() string { return filepath.Join(c.RunDir, "checkpoint") }

// load returns the checkpoint; ok is false if there is none of this node.
func (c *checkpoint) load() (s desired.State, ok bool, err error) {
	f, err := os.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("checkpoint: %w", err)
	}
	defer f.Close()
	file := checkpointFile{State: desired.NewState()}
	if err := gob.NewDecoder(f).Decode(&file); err != nil {
		return s, false, fmt.Errorf("checkpoint %s: %w", c.path, err)
	}
	if file.Format != checkpointFormat || file.Node != c.node {
		return s, false, nil
	}
	return file.State, true, nil
}

// sync writes the state if it changed and it is time. The encoding runs beside
// the loop, on copies of the maps; values are immutable.
func (c *checkpoint) sync(now time.Time, s desired.State) (next time.Time) {
	if c.writing != nil {
		select {
		case err := <-c.writing:
			c.writing = nil
			if err != nil {
				c.log.Error("checkpoint not written", "error", err)
				c.dirty = true
			}
		default:
			return now.Add(checkpointEvery)
		}
	}
	if !c.dirty {
		return time.Time{}
	}
	if now.Before(c.next) {
		return c.next
	}
	c.dirty, c.next = false, now.Add(checkpointEvery)
	copied := desired.State{
		Networks: maps.Clone(s.Networks), Endpoints: maps.Clone(s.Endpoints), Nodes: maps.Clone(s.Nodes),
		FDB: maps.Clone(s.FDB), Neighbors: maps.Clone(s.Neighbors),
	}
	c.writing = make(chan error, 1)
	go func(done chan<- error) { done <- c.write(copied) }(c.writing)
	return c.next
}

// write replaces the file in one step.
func (c *checkpoint) write(s desired.State) error {
	f, err := os.CreateTemp(filepath.Dir(c.path), ".checkpoint-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = gob.NewEncoder(f).Encode(checkpointFile{Format: checkpointFormat, Node: c.node, State: s})
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), c.path)
}

// flush writes what is not written yet, at the agent's end.
func (c *checkpoint) flush(s desired.State) error {
	if c.writing != nil {
		if err := <-c.writing; err != nil {
			c.dirty = true
		}
		c.writing = nil
	}
	if !c.dirty {
		return nil
	}
	return c.write(s)
}
