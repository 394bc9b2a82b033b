package linkmon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"picot.dev/picot/internal/testnet"
)

func TestMain(m *testing.M) { os.Exit(testnet.Main(m)) }

const patience = 20 * time.Second

// watch follows a namespace and keeps what it was told.
type watch struct {
	mu     sync.Mutex
	calls  int
	events []Event
	errs   []error
	gate   chan struct{} // when not nil, each call waits for it
}

func start(t *testing.T, n *testnet.NS, o Options) *watch {
	t.Helper()
	return startGated(t, n, o, nil)
}

func startGated(t *testing.T, n *testnet.NS, o Options, gate chan struct{}) *watch {
	t.Helper()
	w := &watch{gate: gate}
	ns := netns.NsHandle(n.FD())
	o.NetNS = &ns
	o.OnError = func(err error) { w.mu.Lock(); w.errs = append(w.errs, err); w.mu.Unlock() }
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx, func(events []Event) {
			w.mu.Lock()
			w.calls++
			w.events = append(w.events, events...)
			w.mu.Unlock()
			if w.gate != nil {
				<-w.gate
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	testnet.Eventually(t, patience, "in sync", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.calls == 0 {
			return fmt.Errorf("no call yet")
		}
		return nil
	})
	return w
}

// expect waits for an event that reads as want and forgets everything up to it.
func (w *watch) expect(t *testing.T, want string) Event {
	t.Helper()
	var found Event
	testnet.Eventually(t, patience, want, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, e := range w.events {
			if e.Kind.String()+" "+e.Link.Name == want {
				found = e
				w.events = w.events[i+1:]
				return nil
			}
		}
		return fmt.Errorf("only heard: %s", script(w.events))
	})
	return found
}

func TestRealLinks(t *testing.T) {
	n, other := testnet.New(t, "mon"), testnet.New(t, "other")
	testnet.Veth(t, testnet.End{NS: n, Name: "old"}, testnet.End{NS: other, Name: "peer"})
	w := start(t, n, Options{Resync: time.Hour})
	w.expect(t, "added lo")
	if e := w.expect(t, "added old"); !e.Link.Up || e.Link.Type != "veth" || e.Link.MTU != 1500 {
		t.Errorf("existing link: %+v", e.Link)
	}

	n.IP(t, "link add v0 type veth peer name v1")
	w.expect(t, "added v0")
	n.Up(t, "v0")
	n.Up(t, "v1")
	w.expect(t, "up v0")
	n.Down(t, "v1") // takes the carrier of v0
	if e := w.expect(t, "down v0"); !e.Link.Admin || e.Link.Carrier {
		t.Errorf("carrier down: %+v", e.Link)
	}
	n.Up(t, "v1")
	w.expect(t, "up v0")
	n.Down(t, "v0")
	if e := w.expect(t, "down v0"); e.Link.Admin {
		t.Errorf("admin down: %+v", e.Link)
	}
	n.IP(t, "link set v0 mtu 1400")
	if e := w.expect(t, "mtu-changed v0"); e.Link.MTU != 1400 || e.Old.MTU != 1500 {
		t.Errorf("mtu: %d, was %d", e.Link.MTU, e.Old.MTU)
	}
	n.IP(t, "link set v0 name w0")
	if e := w.expect(t, "renamed w0"); e.Old.Name != "v0" {
		t.Errorf("renamed from %q", e.Old.Name)
	}
	n.IP(t, "link set w0 address 02:00:00:00:00:77")
	if e := w.expect(t, "changed w0"); e.Link.MAC != "02:00:00:00:00:77" {
		t.Errorf("mac %q", e.Link.MAC)
	}
	n.IP(t, "link set w0 netns "+other.Name)
	w.expect(t, "removed w0")
	other.IP(t, "link set w0 netns "+n.Name)
	w.expect(t, "added w0")
	n.IP(t, "link del w0")
	w.expect(t, "removed w0")
	if len(w.errs) != 0 {
		t.Errorf("errors: %v", w.errs)
	}
}

// A bridge port that leaves its bridge is still a link.
func TestBridgePortLeaving(t *testing.T) {
	n := testnet.New(t, "br")
	n.IP(t, "link add br0 type bridge")
	n.IP(t, "link add v0 type veth peer name v1")
	n.IP(t, "link set v0 master br0 up")
	w := start(t, n, Options{Resync: time.Hour})
	w.expect(t, "added v0")
	n.IP(t, "link set v0 nomaster")
	if e := w.expect(t, "changed v0"); e.Link.Master != 0 {
		t.Errorf("master %d", e.Link.Master)
	}
	n.IP(t, "link set v0 mtu 1300")
	w.expect(t, "mtu-changed v0")
	for _, e := range w.events {
		if e.Kind == Removed {
			t.Errorf("heard %s", e)
		}
	}
}

// The name comes back at once on another device. Whether one batch has both
// messages is the scheduler's choice, so both ways to tell it are right: the old
// index is told gone not later than the new one is told there.
func TestSameNameNewIndex(t *testing.T) {
	n := testnet.New(t, "same")
	n.IP(t, "link add v0 type veth peer name v1")
	old := n.Link(t, "v0").Attrs().Index
	w := start(t, n, Options{Resync: time.Hour})
	n.IP(t, "link del v0")
	n.IP(t, "link add v0 type veth peer name v1")
	fresh := n.Link(t, "v0").Attrs().Index
	if fresh == old {
		t.Fatalf("the kernel reused index %d", old)
	}
	testnet.Eventually(t, patience, "old gone, then new there", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		gone := false
		for _, e := range w.events {
			if e.Old.Index == old && (e.Kind == Removed || e.Kind == Replaced) {
				gone = true
			}
			if e.Link.Index == fresh && (e.Kind == Added || e.Kind == Replaced) {
				if !gone {
					t.Fatalf("new one told first: %s", script(w.events))
				}
				return nil
			}
		}
		return fmt.Errorf("heard: %s", script(w.events))
	})
}

// The socket overflows while the handler is busy: the monitor subscribes again and
// finds what it missed, the deletion too.
func TestOverflowResubscribes(t *testing.T) {
	n := testnet.New(t, "nobufs")
	n.IP(t, "link add gone type veth peer name gone-peer")
	n.IP(t, "link add kept type veth peer name kept-peer")
	gate := make(chan struct{})
	w := startGated(t, n, Options{Resync: time.Hour, ReceiveBuffer: 4096}, gate)
	kept := n.Link(t, "kept")
	for i := range 1500 {
		if err := n.Netlink().LinkSetMTU(kept, 1400+i%2); err != nil {
			t.Fatal(err)
		}
	}
	n.IP(t, "link del gone")
	n.IP(t, "link set kept mtu 1234")
	close(gate)
	w.expect(t, "removed gone")
	testnet.Eventually(t, patience, "last MTU told", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		mtu := 0
		for _, e := range w.events {
			if e.Link.Name == "kept" {
				mtu = e.Link.MTU
			}
		}
		if mtu != 1234 { // within one batch removals are told first
			return fmt.Errorf("mtu %d", mtu)
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) == 0 || !strings.Contains(w.errs[0].Error(), "no buffer space") {
		t.Errorf("the socket did not overflow: %v", w.errs)
	}
}

// A deletion nobody announced is found by the periodic dump. The lost message is
// played by a tracker that never got it.
func TestPeriodicDumpFindsLostDeletion(t *testing.T) {
	n := testnet.New(t, "dump")
	n.IP(t, "link add v0 type veth peer name v1")
	ns := netns.NsHandle(n.FD())
	m, err := New(Options{NetNS: &ns, Resync: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tracker := NewTracker(m.o.Damping)
	ghost := Link{Index: 4242, Name: "ghost", Type: "veth"}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	planted, found := false, false
	m.session(ctx, tracker, func(events []Event) {
		if !planted { // after the session's first dump: only a later one can find it
			planted = true
			tracker.Update(time.Now(), ghost)
			tracker.Flush(time.Now())
			return
		}
		if script(events) == "removed ghost(4242)" {
			found = true
			cancel()
		}
	})
	if !found {
		t.Fatal("the lost deletion was never found")
	}
}

func TestNewInTheCallersNamespace(t *testing.T) {
	n := testnet.New(t, "here")
	if err := n.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "only-here"}, PeerName: "its-peer"}); err != nil {
		t.Fatal(err)
	}
	var m *Monitor
	n.Run(t, func() {
		var err error
		if m, err = New(Options{}); err != nil {
			t.Fatal(err)
		}
	})
	defer m.Close()
	links, err := m.dump()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Name == "only-here" {
			return
		}
	}
	t.Errorf("New did not open the calling thread's namespace: %+v", links)
}
