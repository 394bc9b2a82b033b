package agent

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"picot.dev/picot/internal/desired"
)

// A checkpoint is the desired state as it was last applied, in the run
// directory. An agent that starts while the API server is away forwards from
// it; nothing is swept or written until the sources are in sync.
//
//	header, part, part, ... | part, part, ...
//	the state, replaced whole | what changed since, appended
//
// Once as much was appended as there is, the file is written anew. A process that
// dies while it appends leaves a last part that is cut off: it is not taken.
type checkpoint struct {
	path    string
	node    string
	log     *slog.Logger
	next    time.Time
	failing bool       // the last write failed
	writing chan error // nil: no write under way; else file and encoder are its

	begun    bool          // there is a file of this process to append to
	whole    bool          // it is to be written anew
	changes  desired.Delta // else what is to be appended
	appended int           // values, since the file was

	file    *os.File // nil: none is open to append to
	encoder *gob.Encoder
}

// checkpointFormat changes when the parts do in a way gob does not bear.
const checkpointFormat = 2

const (
	// checkpointEvery spaces writes: a crash loses at most so much of what changed.
	checkpointEvery = 2 * time.Second
	// checkpointRetry spaces them while the run directory takes none.
	checkpointRetry = 30 * time.Second
	// partMost is how many bindings a part of the state has, so that its encoding
	// takes little memory.
	partMost = 1024
	// appendLeast is how much may be appended to the smallest of states.
	appendLeast = 1000
)

type checkpointHeader struct {
	Format int
	Node   string
}

// checkpointPart is some values, and keys of some that went.
type checkpointPart struct {
	Networks  []desired.Network
	Endpoints []desired.Endpoint
	Nodes     []desired.Node
	FDB       []*desired.FDBEntry
	Neighbors []*desired.Neighbor

	NoNetworks  []string
	NoEndpoints []desired.EndpointKey
	NoNodes     []string
	NoFDB       []desired.FDBKey
	NoNeighbors []desired.NeighborKey
}

func newCheckpoint(c *Config) *checkpoint {
	return &checkpoint{path: c.checkpointPath(), node: c.NodeName, log: c.Log}
}

func (c *Config) checkpointPath() string { return filepath.Join(c.RunDir, "checkpoint") }

// halfPattern names checkpoints until they are whole.
const halfPattern = ".checkpoint-*"

// halfCheckpoints are what processes left that died while they wrote.
func halfCheckpoints(dir string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, halfPattern)) // the pattern is a good one
	return paths
}

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
	decoder := gob.NewDecoder(bufio.NewReader(f))
	var header checkpointHeader
	if err := decoder.Decode(&header); err != nil {
		return s, false, fmt.Errorf("checkpoint %s: %w", c.path, err)
	}
	if header.Format != checkpointFormat || header.Node != c.node {
		return s, false, nil
	}
	s = desired.NewState()
	for {
		var p checkpointPart
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return s, true, nil
		case err != nil:
			return s, false, fmt.Errorf("checkpoint %s: %w", c.path, err)
		}
		p.apply(&s)
	}
}

// apply makes s what it is after p.
func (p *checkpointPart) apply(s *desired.State) {
	for _, v := range p.Networks {
		s.Networks[v.Name] = v
	}
	for _, v := range p.Endpoints {
		s.Endpoints[v.EndpointKey] = v
	}
	for _, v := range p.Nodes {
		s.Nodes[v.Name] = v
	}
	for _, v := range p.FDB {
		s.FDB[v.FDBKey] = v
	}
	for _, v := range p.Neighbors {
		s.Neighbors[v.NeighborKey] = v
	}
	deleteAll(s.Networks, p.NoNetworks)
	deleteAll(s.Endpoints, p.NoEndpoints)
	deleteAll(s.Nodes, p.NoNodes)
	deleteAll(s.FDB, p.NoFDB)
	deleteAll(s.Neighbors, p.NoNeighbors)
}

func deleteAll[K comparable, V any](m map[K]V, keys []K) {
	for _, k := range keys {
		delete(m, k)
	}
}

// note takes a change to write down. Call it when the state has it, or is about
// to.
func (c *checkpoint) note(d desired.Delta, s *desired.State) {
	n := d.Len()
	if n == 0 {
		return
	}
	c.appended += n
	if c.whole || !c.begun || c.appended > max(appendLeast, len(s.FDB)+len(s.Neighbors)) {
		c.whole, c.changes = true, desired.Delta{}
		return
	}
	c.changes.Merge(d)
}

// sync writes what changed if it is time. The encoding runs beside the loop:
// values are immutable.
func (c *checkpoint) sync(now time.Time, s desired.State) (next time.Time) {
	if c.writing != nil {
		select {
		case err := <-c.writing:
			c.wrote(err)
			if err != nil {
				c.next = now.Add(checkpointRetry)
			}
		default:
			return now.Add(checkpointEvery)
		}
	}
	if !c.whole && c.changes.Len() == 0 {
		return time.Time{}
	}
	if now.Before(c.next) {
		return c.next
	}
	c.next = now.Add(checkpointEvery)
	write := c.write(s)
	c.writing = make(chan error, 1)
	go func(done chan<- error) { done <- write() }(c.writing)
	return c.next
}

// flush writes what is not written yet, at the agent's end.
func (c *checkpoint) flush(s desired.State) error {
	if c.writing != nil {
		c.wrote(<-c.writing)
	}
	var err error
	if c.whole || c.changes.Len() > 0 {
		err = c.write(s)()
	}
	c.close()
	return err
}

// wrote takes the end of a write.
func (c *checkpoint) wrote(err error) {
	c.writing = nil
	switch {
	case err != nil && !c.failing:
		c.log.Error("checkpoint not written: until it is, a start without the API server forwards from an old one, or not at all", "error", err)
	case err == nil && c.failing:
		c.log.Info("checkpoint written again")
	}
	if c.failing = err != nil; c.failing {
		c.close()
		c.begun, c.whole, c.changes = false, true, desired.Delta{}
	}
}

func (c *checkpoint) close() {
	if c.file != nil {
		_ = c.file.Close()
	}
	c.file, c.encoder = nil, nil
}

// write returns what writes all that is to be written, to be called once.
func (c *checkpoint) write(s desired.State) func() error {
	if c.whole {
		c.begun, c.whole, c.changes, c.appended = true, false, desired.Delta{}, 0
		parts := partsOf(s)
		return func() error { return c.replace(parts) }
	}
	p := partOf(c.changes)
	c.changes = desired.Delta{}
	return func() error { return c.encoder.Encode(p) }
}

// replace writes a new file in one step, which is appended to from then on.
func (c *checkpoint) replace(parts []checkpointPart) (err error) {
	c.close()
	for _, left := range halfCheckpoints(filepath.Dir(c.path)) {
		_ = os.Remove(left) // else it stays: no harm but its size
	}
	f, err := os.CreateTemp(filepath.Dir(c.path), halfPattern)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	// The encoder writes each part at once, in one piece.
	encoder := gob.NewEncoder(f)
	if err := encoder.Encode(checkpointHeader{Format: checkpointFormat, Node: c.node}); err != nil {
		return err
	}
	for i := range parts {
		if err := encoder.Encode(&parts[i]); err != nil {
			return err
		}
		parts[i] = checkpointPart{}
	}
	if err := os.Rename(f.Name(), c.path); err != nil {
		return err
	}
	c.file, c.encoder = f, encoder
	return nil
}

// partsOf returns a state in parts.
func partsOf(s desired.State) []checkpointPart {
	var p checkpointPart
	for _, v := range s.Networks {
		p.Networks = append(p.Networks, v)
	}
	for _, v := range s.Endpoints {
		p.Endpoints = append(p.Endpoints, v)
	}
	for _, v := range s.Nodes {
		p.Nodes = append(p.Nodes, v)
	}
	parts := []checkpointPart{p}
	for some := range slices.Chunk(values(s.FDB), partMost) {
		parts = append(parts, checkpointPart{FDB: some})
	}
	for some := range slices.Chunk(values(s.Neighbors), partMost) {
		parts = append(parts, checkpointPart{Neighbors: some})
	}
	return parts
}

func values[K comparable, V any](m map[K]V) []V {
	out := make([]V, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

func partOf(d desired.Delta) *checkpointPart {
	var p checkpointPart
	for k, v := range d.Networks {
		p.Networks, p.NoNetworks = split(p.Networks, p.NoNetworks, k, v)
	}
	for k, v := range d.Endpoints {
		p.Endpoints, p.NoEndpoints = split(p.Endpoints, p.NoEndpoints, k, v)
	}
	for k, v := range d.Nodes {
		p.Nodes, p.NoNodes = split(p.Nodes, p.NoNodes, k, v)
	}
	for k, v := range d.FDB {
		if v == nil {
			p.NoFDB = append(p.NoFDB, k)
		} else {
			p.FDB = append(p.FDB, v)
		}
	}
	for k, v := range d.Neighbors {
		if v == nil {
			p.NoNeighbors = append(p.NoNeighbors, k)
		} else {
			p.Neighbors = append(p.Neighbors, v)
		}
	}
	return &p
}

func split[K, V any](there []V, gone []K, k K, v *V) ([]V, []K) {
	if v == nil {
		return there, append(gone, k)
	}
	return append(there, *v), gone
}
