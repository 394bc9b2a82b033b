package linkmon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Options of a Monitor; the zero value means the defaults.
type Options struct {
	// NetNS is watched; nil: the namespace of the thread that calls New.
	NetNS *netns.NsHandle
	// Damping of flapping links; zero: 3 flaps in 10 s, then 1 s of silence.
	Damping Damping
	// Resync is the mean interval of dumps that find what messages missed,
	// jittered by a quarter. Default 30 s.
	Resync time.Duration
	// ReceiveBuffer of the subscription in bytes. Default 1 MiB.
	ReceiveBuffer int
	// OnError hears of every lost subscription and failed dump (the monitor
	// recovers by itself). Called from Run.
	OnError func(error)
}

// Monitor watches the links of one namespace.
type Monitor struct {
	o      Options
	ns     netns.NsHandle
	handle *netlink.Handle
}

// New opens a monitor. Close it after Run returned.
func New(o Options) (*Monitor, error) {
	if o.Damping == (Damping{}) {
		o.Damping = defaultDamping
	}
	if o.Resync <= 0 {
		o.Resync = 30 * time.Second
	}
	if o.ReceiveBuffer <= 0 {
		o.ReceiveBuffer = 1 << 20
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	// The namespace is held by a descriptor, because a new subscription is made
	// from whatever thread runs then.
	ns, err := openNetNS(o.NetNS)
	if err != nil {
		return nil, err
	}
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	return &Monitor{o: o, ns: ns, handle: h}, nil
}

func openNetNS(given *netns.NsHandle) (netns.NsHandle, error) {
	if given == nil {
		ns, err := netns.Get()
		if err != nil {
			return ns, fmt.Errorf("open own network namespace: %w", err)
		}
		return ns, nil
	}
	fd, err := unix.FcntlInt(uintptr(*given), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return netns.None(), fmt.Errorf("duplicate network namespace descriptor: %w", err)
	}
	return netns.NsHandle(fd), nil
}

// Close frees the monitor's descriptors.
func (m *Monitor) Close() error {
	m.handle.Close()
	return m.ns.Close()
}

// Run watches until ctx ends and returns its error. The first call of handle says
// everything there is, even if that is nothing: from then on the caller is in
// sync. Later calls carry at least one event.
func (m *Monitor) Run(ctx context.Context, handle func([]Event)) error {
	t := NewTracker(m.o.Damping)
	synced := false
	backoff := 50 * time.Millisecond
	for ctx.Err() == nil {
		err := m.session(ctx, t, func(events []Event) {
			backoff = 50 * time.Millisecond
			if len(events) > 0 || !synced {
				synced = true
				handle(events)
			}
		})
		if ctx.Err() != nil {
			break
		}
		m.o.OnError(err)
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, 5*time.Second)
	}
	return ctx.Err()
}

// errSubscription ends a session whose messages stopped coming.
var errSubscription = errors.New("link subscription ended")

// session is one subscription: from its dump until it breaks or ctx ends.
func (m *Monitor) session(ctx context.Context, t *Tracker, handle func([]Event)) error {
	updates := make(chan netlink.LinkUpdate, 256)
	done := make(chan struct{})
	failed := make(chan error, 1)
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		Namespace: &m.ns, ReceiveBufferSize: m.o.ReceiveBuffer, ReceiveBufferForceSize: true,
		ErrorCallback: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	})
	if err != nil {
		return fmt.Errorf("subscribe to links: %w", err)
	}
	defer func() {
		close(done)
		for range updates { // until its goroutine ended
		}
	}()

	dump := func() error {
		links, err := m.dump()
		if err == nil {
			t.Replace(time.Now(), links)
		}
		return err
	}
	if err := dump(); err != nil {
		return err
	}
	resync := time.NewTimer(m.jittered())
	defer resync.Stop()
	settle := time.NewTimer(time.Hour)
	defer settle.Stop()
	for {
		if !drain(t, updates) {
			return subscriptionError(failed)
		}
		events, due := t.Flush(time.Now())
		handle(events)
		if !due.IsZero() {
			settle.Reset(max(time.Until(due), 0))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u, ok := <-updates:
			if !ok {
				return subscriptionError(failed)
			}
			apply(t, u)
		case <-resync.C:
			resync.Reset(m.jittered())
			if err := dump(); err != nil {
				m.o.OnError(err)
			}
		case <-settle.C:
		}
	}
}

func subscriptionError(failed <-chan error) error {
	select {
	case err := <-failed:
		return fmt.Errorf("%w: %w", errSubscription, err)
	default:
		return errSubscription
	}
}

// drain applies every message that is already here; false: the channel is closed.
func drain(t *Tracker, updates <-chan netlink.LinkUpdate) bool {
	for {
		select {
		case u, ok := <-updates:
			if !ok {
				return false
			}
			apply(t, u)
		default:
			return true
		}
	}
}

func apply(t *Tracker, u netlink.LinkUpdate) {
	// Bridge ports are announced in the same group by the bridge family: a
	// deletion there means "left the bridge".
	if u.Family == unix.AF_BRIDGE {
		return
	}
	if u.Header.Type == unix.RTM_DELLINK {
		t.Delete(int(u.Index))
		return
	}
	t.Update(time.Now(), FromNetlink(u.Link))
}

// dump lists all links; an interrupted dump is repeated.
func (m *Monitor) dump() ([]Link, error) {
	var links []netlink.Link
	err := error(netlink.ErrDumpInterrupted)
	for try := 0; errors.Is(err, netlink.ErrDumpInterrupted) && try < 10; try++ {
		links, err = m.handle.LinkList()
	}
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	out := make([]Link, len(links))
	for i, l := range links {
		out[i] = FromNetlink(l)
	}
	return out, nil
}

func (m *Monitor) jittered() time.Duration {
	quarter := max(m.o.Resync/4, 1)
	return m.o.Resync - quarter + rand.N(2*quarter)
}
