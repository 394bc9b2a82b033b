package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cilium/ebpf/btf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/linkmon"
	"picot.dev/picot/internal/routes"
	"picot.dev/picot/xsk"
	"picot.dev/picot/xsk/xdp"
)

// uplink is one of the node's ways out.
type uplink struct {
	name    string
	number  int
	link    linkmon.Link // zero: not attached
	locator string       // the program was attached for
	program *xdp.Program
	broken  bool // its sockets must be made anew
	backoff backoff
}

// uplinks attaches the configured uplinks once the node's own locator is known.
type uplinks struct {
	types  *btf.Cache // of the kernel, for all programs
	config *Config
	engine *fastpath.Engine
	log    *slog.Logger
	all    []*uplink
	queues []int // room for queues, by uplink
	dirty  bool
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

// sync attaches what is not, and what changed anew. It returns when to be
// called again.
func (u *uplinks) sync(now time.Time, links map[string]linkmon.Link, self *desired.Node) (next time.Time) {
	u.dirty = false
	for _, x := range u.all {
		l, there := links[x.name]
		gone := x.program != nil && (!there || l.Index != x.link.Index)
		moved := x.program != nil && self != nil && self.Locator.String() != x.locator
		if gone || moved || x.broken && x.program != nil {
			if err := u.detach(x, gone); err != nil {
				u.log.Error("uplink not detached", "device", x.name, "error", err)
			}
		}
		if x.program != nil {
			continue
		}
		var err error
		switch {
		case now.Before(x.backoff.due):
			err = x.backoff.err
		case self == nil:
			err = fmt.Errorf("no SRv6Node %s: add one with this node's locator", u.config.NodeName)
		case !there:
			err = fmt.Errorf("no such device: waiting for it; if it will not come, correct --uplink")
		default:
			err = u.attach(x, l, self)
		}
		if err != nil && x.backoff.err != err {
			err = fmt.Errorf("--uplink %s: %w", x.name, err)
		}
		if err == nil {
			x.backoff = backoff{}
			continue
		}
		if x.backoff.err == nil || x.backoff.err.Error() != err.Error() {
			u.log.Error("uplink not ready", "device", x.name, "error", err)
		}
		if !now.Before(x.backoff.due) {
			x.backoff.failed(now, err)
		}
		if next.IsZero() || x.backoff.due.Before(next) {
			next = x.backoff.due
		}
	}
	return next
}

func (u *uplinks) attach(x *uplink, l linkmon.Link, self *desired.Node) (err error) {
	nl, err := netlink.LinkByIndex(l.Index)
	if err != nil {
		return fmt.Errorf("looking it up: %w", err)
	}
	var master netlink.Link
	if l.Master != 0 {
		if master, err = netlink.LinkByIndex(l.Master); err != nil {
			return fmt.Errorf("looking its master up: %w", err)
		}
	}
	if err := routes.CheckUplink(nl, master); err != nil {
		return err
	}
	queues := u.queues[x.number]
	if err := u.takeProgram(x, l, self, nl.Attrs().NumRxQueues); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.detach(x, false))
		}
	}()
	mem := u.engine.Memory()
	used := 0
	for q := range queues {
		s, err := xsk.Open(mem, mem.Whole(), xsk.Options{
			IfIndex: l.Index, Queue: q, Fill: 2048, RX: 2048, TX: 1024, Completion: 2048,
			TXBudget: 256, MultiBuffer: true, NeedWakeup: true, ZeroCopy: xsk.ZeroCopyPrefer,
		})
		if q > 0 && errors.Is(err, unix.EINVAL) {
			break // fewer queues in use than the device could have
		}
		if err != nil {
			return err
		}
		fd := s.FD()
		if err := u.engine.AddUplink(x.number, q, s); err != nil {
			return errors.Join(err, s.Close())
		}
		if err := x.program.SetSocket(q, fd); err != nil {
			return err
		}
		used++
	}
	u.engine.UseQueues(x.number, used)
	u.log.Info("uplink attached", "device", x.name, "locator", x.locator, "queues", used,
		"mode", x.program.Mode().String(), "reused", x.program.Reused())
	return nil
}

// takeProgram puts the uplink program on a device, or takes a pinned one over.
func (u *uplinks) takeProgram(x *uplink, l linkmon.Link, self *desired.Node, deviceQueues int) error {
	program, err := xdp.Attach(xdp.AttachOptions{
		IfIndex: l.Index, Kind: xdp.Uplink, Queues: max(u.queues[x.number], deviceQueues), Locator: self.Locator,
		PinDir: u.config.pinDir(), Name: x.name, AllowGeneric: u.config.AllowGeneric, Types: u.types,
	})
	if err != nil {
		return err
	}
	x.program, x.link, x.locator = program, l, self.Locator.String()
	return nil
}

func (u *uplinks) detach(x *uplink, gone bool) error {
	err := u.engine.RemoveUplink(x.number)
	if errors.Is(err, fastpath.ErrUnknown) {
		err = nil
	}
	if gone {
		err = errors.Join(err, x.program.Detach())
	} else {
		err = errors.Join(err, x.program.Close()) // the pin stays: closed, not open
	}
	x.program, x.link, x.broken = nil, linkmon.Link{}, false
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
