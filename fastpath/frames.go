package fastpath

import (
	"fmt"

	"picot.dev/picot/xsk"
)

// A frame's place, one word a chunk: the state in the top byte and, for fill
// and tx, the slot of the socket that holds it. It is written only by whoever
// holds the frame; hand-off rings order the writes between workers.
type place uint32

const (
	placeFree place = iota << 24
	placeFill
	placeBatch // in the hands of the worker that received it
	placeTX
	placeHandoff // in a ring between workers, either way

	stateMask place = 0xff << 24
)

func fillOf(slot int) place { return placeFill | place(slot) }
func txOf(slot int) place   { return placeTX | place(slot) }

// Census counts every frame by where it is. The sum is the whole pool, always.
type Census struct {
	Free, Fill, Batch, TX, Handoff int
}

// Total is the number of frames counted.
func (c Census) Total() int { return c.Free + c.Fill + c.Batch + c.TX + c.Handoff }

func census(places []place) Census {
	var c Census
	for _, p := range places {
		switch p & stateMask {
		case placeFree:
			c.Free++
		case placeFill:
			c.Fill++
		case placeBatch:
			c.Batch++
		case placeTX:
			c.TX++
		case placeHandoff:
			c.Handoff++
		}
	}
	return c
}

// shard is a part of the mapping that one worker hands frames out from. Its
// workload sockets registered this part only, so their frames come from here.
type shard struct {
	index int
	owner int
	free  []xsk.Addr // a stack: the frame used last is the warmest
	total int

	members []*sock // sockets that fill from this shard
	// lacking is the sum over members of what each is below its floor. So many
	// free frames are spoken for.
	lacking int
}

// Frames a member may always count on, and how deep its fill ring gets while
// the shard has plenty.
const (
	fillFloor = 32
	fillDeep  = 1024
)

func newShard(m *xsk.Memory, index, owner int) *shard {
	n := m.ChunksPerShard()
	s := &shard{index: index, owner: owner, free: make([]xsk.Addr, 0, n), total: n}
	base := m.ShardBase(index)
	for i := n - 1; i >= 0; i-- {
		s.free = append(s.free, base+xsk.Addr(i*xsk.ChunkSize))
	}
	return s
}

// depth is how many frames a member's fill ring is kept at. Five eighths of
// the shard are shared out for receiving; the rest is for frames under way.
func (s *shard) depth(most int) int {
	if len(s.members) == 0 {
		return min(most, fillDeep)
	}
	return min(most, fillDeep, max(fillFloor, s.total*5/8/len(s.members)))
}

func (s *shard) join(k *sock) error {
	if (len(s.members)+1)*fillFloor > s.total/2 {
		return fmt.Errorf("shard %d: %d sockets share %d frames: raise --max-ports", s.index, len(s.members), s.total)
	}
	s.members = append(s.members, k)
	s.lacking += lack(k.inFill)
	return nil
}

func (s *shard) leave(k *sock) {
	for i, m := range s.members {
		if m == k {
			s.members = append(s.members[:i], s.members[i+1:]...)
			s.lacking -= lack(k.inFill)
			return
		}
	}
}

func lack(inFill int) int { return max(0, fillFloor-inFill) }

// filled records that a member's fill changed by n.
func (s *shard) filled(k *sock, n int) {
	s.lacking -= lack(k.inFill)
	k.inFill += n
	s.lacking += lack(k.inFill)
}

// spare is how many free frames may leave the shard for other use than
// filling members up to their floors.
func (s *shard) spare() int { return len(s.free) - s.lacking }

// take gives a frame for sending; false if only reserved ones are left.
func (s *shard) take() (xsk.Addr, bool) {
	n := len(s.free)
	if n <= s.lacking {
		return 0, false
	}
	a := s.free[n-1]
	s.free = s.free[:n-1]
	return a, true
}

func (s *shard) put(a xsk.Addr) { s.free = append(s.free, a) }
