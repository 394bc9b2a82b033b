package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"picot.dev/picot/internal/testnet"
)

// Whatever way a pin goes, its device is named; what comes is not told.
func TestPinWatchNamesTheDevice(t *testing.T) {
	dir := testnet.BPFFS(t) // directories alone need no programs
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(dir, "there"), 0o700))
	ctx, cancel := context.WithCancel(context.Background())
	taken, ended := make(chan string), make(chan error, 1)
	go func() { ended <- watchPins(ctx, dir, taken) }()
	named := func(want string) {
		t.Helper()
		for late := time.After(20 * time.Second); ; {
			select {
			case got := <-taken:
				if got == want {
					return
				}
				if got != "probe" { // of which several may have been told
					t.Errorf("%q is named, want %q", got, want)
				}
			case err := <-ended:
				t.Fatal(err)
			case <-late:
				t.Fatalf("%q is not named", want)
			}
		}
	}
	// Until the watch is there nobody is told: make and remove until it is.
	for told := false; !told; {
		must(os.Mkdir(filepath.Join(dir, "probe"), 0o700))
		must(os.Remove(filepath.Join(dir, "probe")))
		select {
		case <-taken:
			told = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, c := range []struct{ dir, name string }{{"there", "there"}, {"v%2e7", "v.7"}} {
		_ = os.Mkdir(filepath.Join(dir, c.dir), 0o700)
		must(os.Remove(filepath.Join(dir, c.dir)))
		named(c.name)
	}
	cancel()
	for {
		select {
		case <-taken:
			continue
		case err := <-ended:
			must(err)
		}
		break
	}
}
