package e2e

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"picot.dev/picot/internal/lab"
)

// watch looks at every frame any device of a namespace shows to packet sockets,
// which is what its stack sees or sends, for frames with one of some markers.
type watch struct {
	name string
	fd   int
	end  chan struct{}

	mu    sync.Mutex
	seen  map[string]int
	first map[string]time.Time
}

// watchNetns starts to watch the namespace at path.
func watchNetns(t *testing.T, name, path string, markers ...string) *watch {
	t.Helper()
	w := &watch{name: name, end: make(chan struct{}), seen: map[string]int{}, first: map[string]time.Time{}}
	inNetns(t, path, func() (err error) {
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		return err
	})
	tv := unix.NsecToTimeval(int64(50 * time.Millisecond))
	must(t, unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	must(t, unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20))
	stop := make(chan struct{})
	go w.read(stop, markers)
	t.Cleanup(func() {
		close(stop)
		<-w.end
		_ = unix.Close(w.fd)
	})
	return w
}

func (w *watch) read(stop <-chan struct{}, markers []string) {
	defer close(w.end)
	buf := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, _, err := unix.Recvfrom(w.fd, buf, 0)
		if err != nil {
			continue // the timeout, or a device went down
		}
		now := time.Now()
		for _, m := range markers {
			if bytes.Contains(buf[:n], []byte(m)) {
				w.mu.Lock()
				if w.seen[m]++; w.seen[m] == 1 {
					w.first[m] = now
				}
				w.mu.Unlock()
			}
		}
	}
}

// count is how many frames with the marker there were, and when the first came.
func (w *watch) count(marker string) (int, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[marker], w.first[marker]
}

// watchAll watches everywhere a frame of a1 might come out: the node's stack and
// its other devices, the underlay, the other pods.
func (s *site) watchAll(markers ...string) []*watch {
	s.t.Helper()
	return []*watch{
		watchNetns(s.t, "node1's stack and devices", s.n1.Netns(), markers...),
		watchNetns(s.t, "the underlay", s.UnderlayNetns(), markers...),
		watchNetns(s.t, "node2's stack and devices", s.n2.Netns(), markers...),
		watchNetns(s.t, "pod a2", s.a2.Netns(), markers...),
		watchNetns(s.t, "pod b1", s.b1.Netns(), markers...),
	}
}

// everyKind is frames from a1 to whatever might take one: the other pods, the
// host's end itself, its stack, groups, unknown stations; each of both families, with
// their marks, and of neither, with the marker.
func (s *site) everyKind(marker string) [][]byte {
	s.t.Helper()
	host := s.hostMAC(s.a1.Device)
	src := mac(s.t, s.a1.MAC)
	var frames [][]byte
	for _, dst := range [][]byte{
		mac(s.t, s.a2.MAC), mac(s.t, s.b1.MAC), host, mac(s.t, "ff:ff:ff:ff:ff:ff"), mac(s.t, "33:33:00:00:00:01"),
		mac(s.t, "01:00:5e:00:00:01"), mac(s.t, "01:80:c2:00:00:00"), mac(s.t, "02:00:00:00:99:99"),
	} {
		for _, k := range []struct {
			family string
			header []byte
		}{
			{"v4", []byte{0x08, 0x00, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 11, 10, 0, 0, 12}},
			{"v6", []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, 59, 64}},
			{"", []byte{0x88, 0xb5}},
		} {
			f := append(append(append([]byte{}, dst...), src...), k.header...)
			for range 4 {
				f = append(f, marker+k.family...)
			}
			frames = append(frames, append(f, make([]byte, 64)...))
		}
	}
	return frames
}

// sendFromA1 sends frames as pod a1.
func (s *site) sendFromA1(frames [][]byte) {
	s.t.Helper()
	sendRaw(s.t, s.a1.Netns(), lab.PodDevice, frames...)
}
