package manifests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
)

// follower runs Watch and keeps the latest result.
type follower struct {
	dir string

	mu    sync.Mutex
	state State
	errs  []Error
	calls int
}

func follow(t *testing.T, dir string) *follower {
	t.Helper()
	f := &follower{dir: dir}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Watch(ctx, dir, func(s State, e []Error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.state, f.errs = s, e
			f.calls++
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
	f.until(t, "the first result", func(State, []Error) bool { return true })
	return f
}

// until waits for a result that satisfies ok.
func (f *follower) until(t *testing.T, what string, ok func(State, []Error) bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		f.mu.Lock()
		good := f.calls > 0 && ok(f.state, f.errs)
		state, errs := f.state, f.errs
		f.mu.Unlock()
		if good {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no sight of %s: %d networks, errors %v", what, len(state.Networks), errs)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (f *follower) untilID(t *testing.T, what string, id uint32) {
	t.Helper()
	f.until(t, what, func(s State, _ []Error) bool { return s.Networks["red"].ID == id })
}

func red(id int) string {
	return fmt.Sprintf("apiVersion: picot.dev/v1alpha1\nkind: Network\nmetadata: {name: red}\nspec: {id: %d}\n", id)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchFollowsEditors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "red.yaml", red(1))
	f := follow(t, dir)
	path := filepath.Join(dir, "red.yaml")

	write(t, dir, "red.yaml", red(2)) // in place
	f.untilID(t, "a write in place", 2)

	write(t, dir, ".red.yaml.swp", red(3)) // write beside, rename over
	must(t, os.Rename(filepath.Join(dir, ".red.yaml.swp"), path))
	f.untilID(t, "a rename over the file", 3)

	must(t, os.Rename(path, path+"~")) // backup away, write anew
	write(t, dir, "red.yaml", red(4))
	f.untilID(t, "a backup and a new file", 4)

	must(t, os.Remove(path))
	f.untilID(t, "the removal", 0)
}

func TestWatchKeepsTheLastGoodState(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "red.yaml", red(1))
	f := follow(t, dir)
	write(t, dir, "red.yaml", red(2)+"spec: [\n")
	f.until(t, "the error", func(s State, errs []Error) bool {
		return len(errs) == 1 && errs[0].Line > 0 && s.Networks["red"].ID == 1
	})
	write(t, dir, "red.yaml", red(2))
	f.until(t, "the mended file", func(s State, errs []Error) bool { return len(errs) == 0 && s.Networks["red"].ID == 2 })
}

// TestWatchFollowsVolumeSwaps plays what a kubelet does to a ConfigMap volume.
func TestWatchFollowsVolumeSwaps(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) {
		name := fmt.Sprintf("..2026_%02d", n)
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name), "red.yaml", red(n))
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		if n > 1 {
			must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%02d", n-1))))
		}
	}
	version(1)
	must(t, os.Symlink("..data/red.yaml", filepath.Join(dir, "red.yaml")))
	f := follow(t, dir)
	f.untilID(t, "the first version", 1)
	for n := 2; n <= 4; n++ {
		version(n)
		f.untilID(t, "a swap", uint32(n))
	}
}

func TestWatchSurvivesItsDirectory(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "manifests")
	f := follow(t, dir) // not there yet
	f.until(t, "the error of a missing directory", func(_ State, errs []Error) bool {
		return len(errs) == 1 && errors.Is(errs[0], os.ErrNotExist)
	})
	must(t, os.Mkdir(dir, 0o700))
	write(t, dir, "red.yaml", red(1))
	f.untilID(t, "the new directory", 1)

	must(t, os.Rename(dir, dir+".old"))
	f.until(t, "the error of a directory moved away", func(s State, errs []Error) bool {
		return len(errs) > 0 && s.Networks["red"].ID == 1
	})
	write(t, dir+".old", "red.yaml", red(9)) // nobody's business now
	must(t, os.Mkdir(dir, 0o700))
	write(t, dir, "red.yaml", red(2))
	f.untilID(t, "a directory in the old one's place", 2)

	must(t, os.RemoveAll(dir))
	f.until(t, "the error of a removed directory", func(s State, errs []Error) bool {
		return len(errs) > 0 && s.Networks["red"].ID == 2
	})
	must(t, os.Mkdir(dir, 0o700))
	write(t, dir, "red.yaml", red(3))
	f.untilID(t, "the third directory", 3)
	write(t, dir, "red.yaml", red(4))
	f.untilID(t, "a change in it", 4)
}

// TestWatchLooksWhereInotifyIsBlind changes the target of a link in another
// directory.
func TestWatchLooksWhereInotifyIsBlind(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, elsewhere, "target", red(1))
	must(t, os.Symlink(filepath.Join(elsewhere, "target"), filepath.Join(dir, "red.yaml")))
	f := follow(t, dir)
	write(t, elsewhere, "target", red(20))
	f.untilID(t, "the target's change", 20)
}

// TestWatchIsQuiet makes changes that change nothing.
func TestWatchIsQuiet(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "red.yaml", red(1))
	f := follow(t, dir)
	write(t, dir, "red.yaml", red(1), "note.txt", "x", ".hidden.yaml", "[")
	write(t, dir, "blue.yaml", strings.ReplaceAll(red(2), "red", "blue"))
	f.until(t, "the second network", func(s State, _ []Error) bool { return len(s.Networks) == 2 })
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls != 2 {
		t.Errorf("%d results, want 2", f.calls)
	}
	if at := f.state.At(desired.Ref{Kind: "Network", Name: "blue"}); at != filepath.Join(dir, "blue.yaml")+":1" {
		t.Errorf("blue is at %s", at)
	}
}
