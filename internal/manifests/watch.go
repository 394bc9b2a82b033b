package manifests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long the directory must be still before it is read: an
	// editor's save and a volume's swap are several events.
	quiet = 100 * time.Millisecond
	// patience ends the wait for a directory that is never still.
	patience = 5 * time.Second
	// lookEvery is how often the directory is looked at without an event.
	lookEvery = 2 * time.Second
)

// Watch reads dir, gives the result to apply, and again after every change of
// it until ctx ends. apply is always called from the goroutine that called
// Watch, never twice with the same result. The error is ctx's, or says that
// there is no inotify to be had.
func Watch(ctx context.Context, dir string, apply func(State, []Error)) error {
	fsw, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w: raise fs.inotify.max_user_instances", dir, err)
	}
	defer fsw.Close()
	w := watcher{dir: filepath.Clean(dir), fsw: fsw, reader: newReader(dir)}
	w.follow()
	w.print = w.fingerprint()
	state, errs := w.reader.read()
	apply(state, errs)

	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev, ok := <-fsw.Events:
			if !ok || !w.concerns(ev) {
				continue
			}
			if err := w.settle(ctx); err != nil {
				return err
			}
		case <-fsw.Errors: // an overflow: something happened
		case <-look.C:
			w.follow()
			if w.fingerprint() == w.print {
				continue
			}
		}
		w.follow()
		w.print = w.fingerprint()
		s, e := w.reader.read()
		if same(state, s, errs, e) {
			continue
		}
		state, errs = s, e
		apply(state, errs)
	}
}

// watcher keeps inotify on a directory that may go and come.
type watcher struct {
	dir    string
	fsw    *fsnotify.Watcher
	reader *reader
	inode  uint64 // of the directory that is watched; 0: none
	print  string
}

// follow sees to it that what is at dir now is watched, and its parent, where a
// new one would appear. What fails is left to the next look.
func (w *watcher) follow() {
	_ = w.fsw.Add(filepath.Dir(w.dir))
	inode := inodeOf(w.dir)
	if inode == w.inode {
		return
	}
	_ = w.fsw.Remove(w.dir)
	w.inode = 0
	if inode != 0 && w.fsw.Add(w.dir) == nil {
		w.inode = inode
	}
}

func inodeOf(path string) uint64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}

// concerns reports whether an event may change what is read.
func (w *watcher) concerns(ev fsnotify.Event) bool {
	name := filepath.Clean(ev.Name)
	if name == w.dir {
		return true
	}
	// Hidden names count too: ..data of a volume is one.
	return filepath.Dir(name) == w.dir && !strings.HasSuffix(name, "~")
}

// settle waits until nothing has happened for a while.
func (w *watcher) settle(ctx context.Context) error {
	end := time.After(patience)
	still := time.NewTimer(quiet)
	defer still.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-w.fsw.Events:
			if w.concerns(ev) {
				still.Reset(quiet)
			}
		case <-w.fsw.Errors:
		case <-still.C:
			return nil
		case <-end:
			return nil
		}
	}
}

// fingerprint changes when the directory's manifests do, as far as their stat
// tells.
func (w *watcher) fingerprint() string {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		st, err := os.Stat(filepath.Join(w.dir, e.Name()))
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", e.Name(), err)
			continue
		}
		fmt.Fprintf(&b, "%s %d %d %d\n", e.Name(), st.Size(), st.ModTime().UnixNano(), inodeOf(filepath.Join(w.dir, e.Name())))
	}
	return b.String()
}
