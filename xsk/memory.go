package xsk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// DefaultChunksPerShard is the size of a shard when MemoryOptions names none.
const DefaultChunksPerShard = 2816

// maxMemory bounds a mapping to what an int length and the kernel's 32-bit
// chunk count both hold.
const maxMemory = 1 << 40

// ErrMemoryGeometry says that shard count, shard size and mapping do not fit.
var ErrMemoryGeometry = errors.New("memory geometry does not fit")

// MemoryOptions is the shape of a Memory. The zero value is one shard of
// DefaultChunksPerShard chunks on normal pages, on any node.
type MemoryOptions struct {
	Shards         int // 0: 1
	ChunksPerShard int // 0: DefaultChunksPerShard
	// HugePages asks for 2 MiB pages. Where there are not enough of them the
	// Memory has normal pages and HugePagesError says why.
	HugePages bool
	// NUMABind prefers pages of NUMANode, the node of the device. A full node
	// is not an error: the kernel then takes another.
	NUMABind bool
	NUMANode int
}

func (o MemoryOptions) withDefaults() (MemoryOptions, error) {
	if o.Shards == 0 {
		o.Shards = 1
	}
	if o.ChunksPerShard == 0 {
		o.ChunksPerShard = DefaultChunksPerShard
	}
	if o.Shards < 0 || o.ChunksPerShard < 0 || o.ChunksPerShard > maxMemory/ChunkSize/o.Shards {
		return o, fmt.Errorf("%d shards of %d chunks: %w: use positive numbers of at most %d chunks in all",
			o.Shards, o.ChunksPerShard, ErrMemoryGeometry, maxMemory/ChunkSize)
	}
	return o, nil
}

func (o MemoryOptions) size() int { return o.Shards * o.ChunksPerShard * ChunkSize }

// Memory is the frames of all sockets: one shared mapping of a memfd.
type Memory struct {
	data           []byte // exactly the chunks; a huge-page mapping may be longer
	mapping        []byte
	fd             int
	shards         int
	chunksPerShard int
	huge           bool
	hugeErr        error
	numaErr        error
}

// NewMemory makes a Memory. The pages are pinned, and so taken, when a socket
// registers them.
func NewMemory(o MemoryOptions) (*Memory, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if !o.HugePages {
		return createMemory(o, false)
	}
	m, hugeErr := createMemory(o, true)
	if hugeErr == nil {
		return m, nil
	}
	if m, err = createMemory(o, false); err != nil {
		return nil, err
	}
	m.hugeErr = hugeErr
	return m, nil
}

func createMemory(o MemoryOptions, huge bool) (*Memory, error) {
	size, flags := o.size(), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING
	if huge {
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
		size = (size + hugePage - 1) &^ (hugePage - 1)
	}
	fd, err := unix.MemfdCreate("picot-umem", flags)
	if err != nil {
		return nil, fmt.Errorf("creating frame memory: %w", err)
	}
	m, err := setUpMemory(fd, size, o, huge)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return m, nil
}

const hugePage = 2 << 20

func setUpMemory(fd, size int, o MemoryOptions, huge bool) (*Memory, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("sizing frame memory to %d bytes: %w", size, err)
	}
	// Whoever inherits the descriptor must not be able to take pages away
	// under a mapping.
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("sealing frame memory: %w", err)
	}
	m, err := mapMemory(fd, size, o)
	if err != nil {
		return nil, err
	}
	m.huge = huge
	if o.NUMABind {
		m.numaErr = preferNode(m.mapping, o.NUMANode)
	}
	if huge {
		// A reservation can still fail at the fault (cgroup limit), as SIGBUS;
		// populate turns that into an error here.
		if err := unix.Madvise(m.mapping, unix.MADV_POPULATE_WRITE); err != nil {
			unix.Munmap(m.mapping)
			return nil, fmt.Errorf("populating %d bytes of huge pages: %w", size, err)
		}
	}
	return m, nil
}

func mapMemory(fd, size int, o MemoryOptions) (*Memory, error) {
	mapping, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of frame memory: %w", size, err)
	}
	n := o.size()
	return &Memory{
		data:           mapping[:n:n],
		mapping:        mapping,
		fd:             fd,
		shards:         o.Shards,
		chunksPerShard: o.ChunksPerShard,
	}, nil
}

// MemoryFromFD adopts the memfd of another process's Memory with the geometry
// of o (HugePages and NUMA are as the file has them). On success the Memory
// owns fd; on error the caller still does.
func MemoryFromFD(fd int, o MemoryOptions) (*Memory, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("adopting frame memory fd %d: %w", fd, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("adopting frame memory fd %d: %w", fd, err)
	}
	huge := uint32(fs.Type) == unix.HUGETLBFS_MAGIC
	size := o.size()
	if huge {
		size = (size + hugePage - 1) &^ (hugePage - 1)
	}
	if st.Size != int64(size) {
		return nil, fmt.Errorf("adopting frame memory fd %d of %d bytes as %d shards of %d chunks: %w",
			fd, st.Size, o.Shards, o.ChunksPerShard, ErrMemoryGeometry)
	}
	m, err := mapMemory(fd, size, o)
	if err != nil {
		return nil, err
	}
	m.huge = huge
	unix.CloseOnExec(fd)
	return m, nil
}

// populateAtOnce is how much Populate asks for by one call. The kernel holds the
// address space's lock meanwhile, and whoever maps or unmaps anything waits: a
// thread that starts, a heap that grows.
const populateAtOnce = hugePage

// Populate maps every page, taking those that are not there yet: else each is a
// page fault at its first use.
func (m *Memory) Populate() error {
	for rest := m.mapping; len(rest) > 0; {
		n := min(populateAtOnce, len(rest))
		if err := unix.Madvise(rest[:n], unix.MADV_POPULATE_WRITE); err != nil {
			return fmt.Errorf("populating %d bytes of frame memory: %w", len(m.mapping), err)
		}
		rest = rest[n:]
	}
	return nil
}

// Touch writes to every page of a region of m and changes nothing, whoever uses the
// frames meanwhile. A page that Populate has mapped is there for the processor, too,
// except on a virtual machine whose host keeps page tables of its own for each
// process: there the first access costs some 20 us. It ends early once enough says
// so, which it asks every 64 chunks; nil: never.
func (m *Memory) Touch(r Region, enough func() bool) {
	const atOnce = 64 * ChunkSize
	for rest := m.data[r.base:][:r.size]; len(rest) > 0 && (enough == nil || !enough()); {
		n := min(atOnce, len(rest))
		touch(rest[:n])
		rest = rest[n:]
	}
}

// Close unmaps the memory. Close every socket first, and keep no slice of
// Frame or Chunk: they would fault. Sockets another process holds keep the
// pages alive.
func (m *Memory) Close() error {
	if m.mapping == nil {
		return os.ErrClosed
	}
	err := errors.Join(unix.Munmap(m.mapping), unix.Close(m.fd))
	m.mapping, m.data = nil, nil
	return err
}

// FD is the memfd, to hand to another process. It stays the Memory's.
func (m *Memory) FD() int { return m.fd }

// Shards is the number of shards.
func (m *Memory) Shards() int { return m.shards }

// ChunksPerShard is the number of chunks of each shard.
func (m *Memory) ChunksPerShard() int { return m.chunksPerShard }

// Len is the size of all shards in bytes.
func (m *Memory) Len() int { return len(m.data) }

// HugePages reports whether the memory is on huge pages.
func (m *Memory) HugePages() bool { return m.huge }

// HugePagesError is why huge pages were asked for and not given; nil when they
// were given or not asked for.
func (m *Memory) HugePagesError() error { return m.hugeErr }

// NUMAError is why the preferred node could not be set; nil when it was, or
// was not asked for.
func (m *Memory) NUMAError() error { return m.numaErr }

// Frame is the n bytes from a, with the capacity up to the end of a's chunk.
// It panics, as a slice expression does, for bytes that are not all in one
// chunk of the mapping; a Desc from Receive never names such bytes.
func (m *Memory) Frame(a Addr, n int) []byte {
	return m.data[a : a+Addr(n) : a|(ChunkSize-1)+1]
}

// Chunk is the whole chunk that contains a.
func (m *Memory) Chunk(a Addr) []byte {
	a &^= ChunkSize - 1
	return m.data[a : a+ChunkSize : a+ChunkSize]
}

// ShardBase is the address of the first byte of shard i, 0 <= i < Shards.
func (m *Memory) ShardBase(i int) Addr {
	return Addr(i) * Addr(m.chunksPerShard) * ChunkSize
}

// ShardOf is the shard that holds a.
func (m *Memory) ShardOf(a Addr) int {
	return int(uint64(a) / (uint64(m.chunksPerShard) * ChunkSize))
}

// Shard is the region of shard i; empty when there is no such shard.
func (m *Memory) Shard(i int) Region {
	if i < 0 || i >= m.shards {
		return Region{}
	}
	return Region{base: m.ShardBase(i), size: uint64(m.chunksPerShard) * ChunkSize}
}

// Whole is the region of all shards.
func (m *Memory) Whole() Region { return Region{size: uint64(len(m.data))} }
