package agent

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
)

// unixPair is a connection and its other end.
func unixPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return conns[0], conns[1]
}

// Who waits for the state learns that it is written, also by one who is gone since,
// that the writer is gone without, or that nothing comes.
func TestStateIsAwaited(t *testing.T) {
	h := &fastpath.Handover{Config: fastpath.Config{Workers: 1, MaxPorts: 2, NUMANode: -1}}
	for name, c := range map[string]struct {
		write, gone bool
		within      time.Duration
		want        error
	}{
		"written":                    {write: true, within: time.Minute},
		"written by one who is gone": {write: true, gone: true, within: time.Minute},
		"gone":                       {gone: true, within: time.Minute, want: io.EOF},
		"nothing comes":              {within: 10 * time.Millisecond, want: os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := newStatePage(h)
			if err != nil {
				t.Fatal(err)
			}
			newer, older := unixPair(t)
			go func() {
				if c.write {
					page.tell()
				}
				if c.gone {
					_ = older.Close()
				}
			}()
			if err := page.await(newer, c.within); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if !page.take() || page.take() {
				t.Error("the token can be taken once")
			}
			if err := page.close(); err != nil {
				t.Error(err)
			}
		})
	}
}
