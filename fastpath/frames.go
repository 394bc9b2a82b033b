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
	index  int
	owner  int
	region xsk.Region
	free   []xsk.Addr // a stack: the frame used last is the warmest
	total  int

	members []*sock // sockets that fill from this shard
	// seats is how many members there is a share for; as many empty ones are
	// spoken for, because what an idle port's ring holds never comes back to
	// those who join later.
	seats int
	share int
	// growth is how many frames all members together may have above their shares.
	growth int
	// lacking is the sum over members of what each is below its share: so many
	// free frames are spoken for. grown is the sum of what each is above it.
	lacking, grown int
}

// fillFloor is the least share of a member: no more may join. fillDeep is the
// size of a fill ring.
const (
	fillFloor = 32
	fillDeep  = 1024
)

func newShard(m *xsk.Memory, index, owner int) *shard {
	n := m.ChunksPerShard()
	s := &shard{index: index, owner: owner, region: m.Shard(index), free: make([]xsk.Addr, 0, n), total: n}
	base := m.ShardBase(index)
	for i := n - 1; i >= 0; i-- {
		s.free = append(s.free, base+xsk.Addr(i*xsk.ChunkSize))
	}
	s.seat(1)
	return s
}

// seat shares the shard out: three sixteenths are for frames under way, seven for
// those members who have use for them, the rest is shared among as many members.
// One alone has all of it as its share. What a ring holds it keeps until pace
// says otherwise.
func (s *shard) seat(seats int) {
	s.seats = max(seats, len(s.members))
	rings := s.total * 13 / 16
	shared := rings
	if s.seats > 1 {
		shared = s.total * 6 / 16
	}
	s.share = min(fillDeep, max(fillFloor, shared/s.seats))
	s.growth = max(0, rings-s.share*s.seats)
	s.lacking, s.grown = 0, 0
	for _, m := range s.members {
		m.depth = max(s.share, m.inFill)
		s.lacking += s.lack(m)
		s.grown += max(0, m.inFill-s.share)
	}
}

func (s *shard) join(k *sock) error {
	if (len(s.members)+1)*fillFloor > s.total/2 {
		return fmt.Errorf("shard %d: %d sockets share %d frames: raise --max-ports", s.index, len(s.members), s.total)
	}
	s.members = append(s.members, k)
	return nil
}

func (s *shard) leave(k *sock) {
	for i, m := range s.members {
		if m == k {
			s.members = append(s.members[:i], s.members[i+1:]...)
			return
		}
	}
}

// lack is what k is below its share.
func (s *shard) lack(k *sock) int { return max(0, s.share-k.inFill) }

// filled records that a member's fill changed by n.
func (s *shard) filled(k *sock, n int) {
	s.lacking -= s.lack(k)
	s.grown -= max(0, k.inFill-s.share)
	k.inFill += n
	s.lacking += s.lack(k)
	s.grown += max(0, k.inFill-s.share)
}

// spare is how many free frames may leave the shard for other use than
// filling members up to their shares.
func (s *shard) spare() int { return len(s.free) - s.lacking }

// fillable is how many frames may go into k's fill ring, negative if it holds
// too many: up to its share, and above it up to its depth from what is for growth.
func (s *shard) fillable(k *sock) int {
	more := max(0, min(s.spare()-s.share*(s.seats-len(s.members)), s.growth-s.grown))
	return min(k.depth-k.inFill, s.lack(k)+more, len(s.free))
}

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
