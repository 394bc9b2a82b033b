package manifests

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"picot.dev/picot/gateway/static"
	"picot.dev/picot/internal/desired"
)

// maxFile bounds one manifest, so that a wrong file is not read into memory.
const maxFile = 64 << 20

// State is what the directory asks for and where each object stands.
type State struct {
	desired.State
	Positions map[desired.Ref]Position
	// What the gateway asks of a cluster; the data plane has no use for it.
	OVNNodes   []static.Node
	OVNUplinks []static.Uplink
}

// At says where an object stands, as file:line, for whoever finds fault with it
// later; empty if it is not known.
func (s *State) At(ref desired.Ref) string {
	p, ok := s.Positions[ref]
	if !ok {
		return ""
	}
	return p.String()
}

// Load reads dir once. The errors are sorted by file and line; the State holds
// all that is good beside them.
func Load(dir string) (State, []Error) {
	return newReader(dir).read()
}

// reader reads a directory again and again and remembers what was good.
type reader struct {
	dir   string
	files map[string]*file // by base name
	last  State            // what the last read gave
}

// file is what is known of one file.
type file struct {
	text    []byte // nil: never read
	content content
	good    []object // content's objects and those that stay as they were
}

func newReader(dir string) *reader {
	return &reader{dir: dir, files: map[string]*file{}, last: State{State: desired.NewState()}}
}

// read returns the directory's state now.
func (r *reader) read() (State, []Error) {
	var errs []Error
	if err := r.list(); err != nil {
		errs = append(errs, ioError(r.dir, err, "create the directory, or name another; what was read before stays"))
	}
	for _, name := range r.names() {
		if err := r.files[name].update(filepath.Join(r.dir, name)); err != nil {
			errs = append(errs, ioError(filepath.Join(r.dir, name), err, "make it readable; what was read before stays"))
		}
		errs = append(errs, r.files[name].content.errors...)
	}
	objects, clashes := r.unique()
	errs = append(errs, clashes...)
	state, problems := resolve(objects, r.last.State)
	r.last = state
	for _, p := range problems {
		o := objects[p.Object]
		errs = append(errs, Error{Position{o.pos.File, o.line(p.Field)}, p})
	}
	slices.SortStableFunc(errs, func(a, b Error) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line)
	})
	return state, errs
}

func ioError(path string, err error, mend string) Error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the path is said already
	}
	return Error{Position{File: path}, desired.Problem{Reason: err.Error(), Mend: mend, Is: err}}
}

// list brings r.files to what the directory lists. While the directory cannot
// be listed nothing goes away.
func (r *reader) list() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		// Through a symbolic link; a dangling one shows when it is read.
		if st, err := os.Stat(filepath.Join(r.dir, e.Name())); err == nil && !st.Mode().IsRegular() {
			continue
		}
		there[e.Name()] = true
		if r.files[e.Name()] == nil {
			r.files[e.Name()] = &file{}
		}
	}
	for name := range r.files {
		if !there[name] {
			delete(r.files, name)
		}
	}
	return nil
}

// isManifest follows kubectl's choice of extensions, less the hidden files.
func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return name[0] != '.'
	}
	return false
}

func (r *reader) names() []string {
	names := make([]string, 0, len(r.files))
	for name := range r.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// update reads the file at path and decodes it if it changed. With an error
// nothing changes.
func (f *file) update(path string) error {
	text, err := readBounded(path)
	if err != nil {
		return err
	}
	if f.text != nil && bytes.Equal(f.text, text) {
		return nil
	}
	f.text = text
	f.content = decode(path, text)
	f.good = keep(f.content, f.good)
	return nil
}

func readBounded(path string) ([]byte, error) {
	h, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	text, err := io.ReadAll(io.LimitReader(h, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("more than %d MiB", maxFile>>20)
	}
	return text[:len(text):len(text)], nil
}

// keep returns the objects of c and those of before that c does not take away.
func keep(c content, before []object) []object {
	good := slices.Clip(c.objects)
	there := make(map[desired.Ref]bool, len(good))
	for i := range good {
		there[good[i].ref] = true
	}
	for _, o := range before {
		if !there[o.ref] && (c.unreadable || c.refused[o.ref]) {
			good = append(good, o)
		}
	}
	return good
}

// unique returns the objects of all files, one for each name: of two files that
// have one, the first that already had it, else the first by name.
func (r *reader) unique() (map[desired.Ref]*object, []Error) {
	objects := map[desired.Ref]*object{}
	var list []Error
	for _, name := range r.names() {
		f := r.files[name]
		for i := range f.good {
			o := &f.good[i]
			first := objects[o.ref]
			if first == nil {
				objects[o.ref] = o
				continue
			}
			loser := o
			if r.last.Positions[o.ref].File == o.pos.File {
				objects[o.ref], loser = o, first
			}
			list = append(list, Error{
				Position{loser.pos.File, loser.line("metadata.name")}, duplicate(o.ref, objects[o.ref].pos)})
		}
	}
	return objects, list
}

// resolve applies the rules between objects, in the order of files and lines.
func resolve(objects map[desired.Ref]*object, held desired.State) (State, []desired.Problem) {
	order := make([]*object, 0, len(objects))
	for _, o := range objects {
		order = append(order, o)
	}
	slices.SortFunc(order, func(a, b *object) int {
		return cmp.Or(strings.Compare(a.pos.File, b.pos.File), a.index-b.index, strings.Compare(a.ref.String(), b.ref.String()))
	})
	var c desired.Candidates
	state := State{Positions: make(map[desired.Ref]Position, len(objects))}
	for _, o := range order {
		switch {
		case o.network != nil:
			c.Networks = append(c.Networks, *o.network)
		case o.srv6Node != nil:
			c.Nodes = append(c.Nodes, *o.srv6Node)
		case o.endpoint != nil:
			c.Endpoints = append(c.Endpoints, *o.endpoint)
		case o.fdb != nil:
			c.FDB = append(c.FDB, *o.fdb)
		case o.neighbor != nil:
			c.Neighbors = append(c.Neighbors, *o.neighbor)
		case o.ovnNode != nil:
			state.OVNNodes = append(state.OVNNodes, *o.ovnNode)
		case o.uplink != nil:
			state.OVNUplinks = append(state.OVNUplinks, *o.uplink)
		}
	}
	for ref, o := range objects {
		state.Positions[ref] = o.pos
	}
	var problems []desired.Problem
	state.State, problems = desired.Resolve(c, &held)
	return state, problems
}

// same reports whether two results are the same to whoever applies them.
func same(a, b State, ea, eb []Error) bool {
	return reflect.DeepEqual(a, b) && reflect.DeepEqual(ea, eb)
}
