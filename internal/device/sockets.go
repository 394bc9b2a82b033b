package device

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"picot.dev/picot/fastpath"
	"picot.dev/picot/xsk"
)

// ErrNoQueue says that a device has no such receive queue in use.
var ErrNoQueue = errors.New("the device does not use this queue")

// EngineSockets are the sockets of a real data path.
type EngineSockets struct{ *fastpath.Engine }

// OpenPort implements Sockets.
func (s EngineSockets) OpenPort(port, queue, ifindex int, at fastpath.Place) (int, error) {
	mem := s.Memory()
	xs, err := open(mem, mem.Shard(at.Shard), xsk.Options{
		IfIndex: ifindex, Queue: queue, Fill: 1024, RX: 1024, TX: 512, Completion: 1024,
	})
	if err != nil {
		return -1, err
	}
	fd := xs.FD()
	if err := s.AddPort(port, queue, at, xs); err != nil {
		return -1, errors.Join(err, xs.Close())
	}
	return fd, nil
}

// OpenUplink implements Sockets.
func (s EngineSockets) OpenUplink(uplink, queue, ifindex int) (int, error) {
	mem := s.Memory()
	xs, err := open(mem, mem.Whole(), xsk.Options{
		IfIndex: ifindex, Queue: queue, Fill: 2048, RX: 2048, TX: 1024, Completion: 2048,
	})
	if err != nil {
		return -1, err
	}
	fd := xs.FD()
	if err := s.AddUplink(uplink, queue, xs); err != nil {
		return -1, errors.Join(err, xs.Close())
	}
	return fd, nil
}

// open opens a socket with what all of ours have in common.
func open(mem *xsk.Memory, region xsk.Region, o xsk.Options) (*xsk.Socket, error) {
	o.TXBudget, o.MultiBuffer, o.NeedWakeup, o.ZeroCopy = 256, true, true, xsk.ZeroCopyPrefer
	xs, err := xsk.Open(mem, region, o)
	if o.Queue > 0 && errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%w: %w", ErrNoQueue, err)
	}
	return xs, err
}

// ClosePort implements Sockets.
func (s EngineSockets) ClosePort(port int) error { return noneIsFine(s.RemovePort(port)) }

// CloseUplink implements Sockets.
func (s EngineSockets) CloseUplink(uplink int) error { return noneIsFine(s.RemoveUplink(uplink)) }

func noneIsFine(err error) error {
	if errors.Is(err, fastpath.ErrUnknown) {
		return nil
	}
	return err
}
