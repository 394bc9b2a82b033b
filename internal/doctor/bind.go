package doctor

import (
	"errors"
	"os"
	"time"

	"picot.dev/picot/xsk"
)

// bindWithin is longer than the kernel takes to free the queue of a closed socket.
const bindWithin = 100 * time.Millisecond

// bindOnce binds a socket in copy mode and lets go of it.
func bindOnce(index, queue int) (err error) {
	mem, err := xsk.NewMemory(xsk.MemoryOptions{ChunksPerShard: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mem.Close()) }()
	s, err := xsk.Open(mem, mem.Whole(), xsk.Options{
		IfIndex: index, Queue: queue, Fill: 1, RX: 1, TX: 1, Completion: 1, MultiBuffer: true, NeedWakeup: true, BindTimeout: bindWithin,
	})
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
