package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/device"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/xsk/xdp"
)

// uplink is one of the node's ways out.
type uplink struct {
	name    string
	number  int
	link    linkmon.Link // zero: not attached
	locator string       // the program was attached for
	program device.Program
	broken  bool // its sockets must be made anew
	lost    bool // and so must its program
	check   bool // the kernel is to be asked whether all is still there
	backoff backoff
}

// uplinks attaches the configured uplinks once the node's own locator is known.
type uplinks struct {
	cache   *xdp.Cache // for all programs
	config  *Config
	kernel  device.Kernel
	sockets device.Sockets // of the data path
	log     *slog.Logger
	alive   func() // called between steps: slow is not hung
	all     []*uplink
	queues  []int  // room for queues, by uplink
	repairs uint64 // what was mended that somebody took away
	dirty   bool
}

// maxUplinkQueues bounds the queues of an uplink in use; the mapping has a
// shard for each.
const maxUplinkQueues = 64

// countQueues says how many queues the engine must be ready for.
func countQueues(name string) int {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 1 // it may come later
	}
	return min(max(1, l.Attrs().NumRxQueues), maxUplinkQueues)
}

// refresh has every uplink looked at in the next apply.
func (u *uplinks) refresh() {
	for _, x := range u.all {
		x.check = x.program != nil
	}
	u.dirty = true
}

// hurry has what failed tried at once: something changed.
func (u *uplinks) hurry() {
	for _, x := range u.all {
		x.backoff.due = time.Time{}
	}
	u.dirty = true
}

// waiting says whether an uplink is still to be attached.
func (u *uplinks) waiting() bool {
	return slices.ContainsFunc(u.all, func(x *uplink) bool { return x.program == nil })
}

// sync attaches what is not, and what changed anew. Without a node of its own,
// which keep says may only not be listed yet, it lets go of them. It returns when
// to be called again.
func (u *uplinks) sync(now time.Time, links map[string]linkmon.Link, self *desired.Node, keep bool) (next time.Time) {
	u.dirty = false
	for _, x := range u.all {
		u.alive()
		l, there := links[x.name]
		if x.program != nil && x.check && !now.Before(x.backoff.due) {
			u.keep(now, x)
		}
		gone := x.program != nil && (!there || l.Index != x.link.Index)
		moved := x.program != nil && self != nil && self.Locator.String() != x.locator
		unwanted := x.program != nil && self == nil && !keep
		if gone || moved || unwanted || x.broken && x.program != nil {
			if err := u.detach(x, gone || unwanted || x.lost); err != nil {
				u.log.Error("uplink not detached", "device", x.name, "error", err)
			}
		}
		if x.program == nil {
			u.try(now, x, l, there, self)
		}
		if x.backoff.err != nil && (next.IsZero() || x.backoff.due.Before(next)) {
			next = x.backoff.due
		}
	}
	return next
}

// try attaches an uplink, or says why not.
func (u *uplinks) try(now time.Time, x *uplink, l linkmon.Link, there bool, self *desired.Node) {
	var err error
	switch {
	case now.Before(x.backoff.due):
		return
	case self == nil:
		err = fmt.Errorf("no SRv6Node %s: add one with this node's locator", u.config.NodeName)
	case !there:
		err = fmt.Errorf("no such device: waiting for it; if it will not come, correct --uplink")
	default:
		err = u.attach(x, l, self)
	}
	if err == nil {
		x.backoff = backoff{}
		return
	}
	u.fail(now, x, err)
}

func (u *uplinks) fail(now time.Time, x *uplink, err error) {
	err = fmt.Errorf("--uplink %s: %w", x.name, err)
	if x.backoff.err == nil || x.backoff.err.Error() != err.Error() {
		u.log.Error("uplink not ready", "device", x.name, "error", err)
	}
	x.backoff.failed(now, err)
}

// keep mends what somebody took away of an uplink.
func (u *uplinks) keep(now time.Time, x *uplink) {
	mended, err := x.program.Keep()
	if errors.Is(err, xdp.ErrLost) || errors.Is(err, xdp.ErrUnsure) {
		u.log.Error("uplink is made anew", "device", x.name, "error", err)
		x.broken, x.lost = true, true
		return
	}
	errs := []error{err}
	for q, fd := range u.sockets.UplinkSockets(x.number) {
		filled, err := x.program.KeepSocket(q, fd)
		errs = append(errs, err)
		if filled && err == nil {
			mended = append(mended, fmt.Sprintf("slot %d", q))
		}
	}
	u.repairs += mendedNow(u.log, x.name, mended)
	if err := errors.Join(errs...); err != nil {
		u.fail(now, x, err)
		return
	}
	x.check, x.backoff = false, backoff{}
}

func (u *uplinks) attach(x *uplink, l linkmon.Link, self *desired.Node) (err error) {
	if err := u.kernel.CheckUplink(l.Index); err != nil {
		return err
	}
	d, err := u.kernel.Query(l.Index)
	if err != nil {
		return err
	}
	queues := u.queues[x.number]
	if err := u.takeProgram(x, l, self, d.Queues); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.detach(x, false))
		}
	}()
	used := 0
	for q := range queues {
		fd, err := u.sockets.OpenUplink(x.number, q, l.Index)
		if errors.Is(err, device.ErrNoQueue) {
			break
		}
		if err != nil {
			return err
		}
		if err := x.program.SetSocket(q, fd); err != nil {
			return err
		}
		used++
	}
	u.sockets.UseQueues(x.number, used)
	u.log.Info("uplink attached", "device", x.name, "locator", x.locator, "queues", used,
		"mode", x.program.Mode().String(), "reused", x.program.Reused())
	return nil
}

// takeProgram puts the uplink program on a device, or takes a pinned one over.
func (u *uplinks) takeProgram(x *uplink, l linkmon.Link, self *desired.Node, deviceQueues int) error {
	program, err := attachProgram(u.kernel, xdp.AttachOptions{
		IfIndex: l.Index, Kind: xdp.Uplink, Queues: max(u.queues[x.number], deviceQueues), Locator: self.Locator,
		PinDir: u.config.pinDir(), Name: x.name, AllowGeneric: u.config.AllowGeneric, Cache: u.cache,
	})
	if err != nil {
		return err
	}
	x.program, x.link, x.locator = program, l, self.Locator.String()
	return nil
}

// detach closes an uplink's sockets; its program goes with off, else it stays for
// the next attach.
func (u *uplinks) detach(x *uplink, off bool) error {
	err := u.sockets.CloseUplink(x.number)
	if off {
		err = errors.Join(err, x.program.Detach())
	} else {
		err = errors.Join(err, x.program.Close()) // the pin stays: closed, not open
	}
	x.program, x.link, x.broken, x.lost, x.check = nil, linkmon.Link{}, false, false, false
	return err
}

// number finds an uplink by its device's index.
func (u *uplinks) number(ifindex int) (int, bool) {
	for _, x := range u.all {
		if x.program != nil && x.link.Index == ifindex {
			return x.number, true
		}
	}
	return 0, false
}
