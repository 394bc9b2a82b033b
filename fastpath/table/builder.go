package table

import (
	"fmt"
	"math/rand/v2"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/packet"
)

// Builder holds the canonical state and compiles snapshots of it. It belongs to
// one goroutine. A Set that returns an error changed nothing, but see
// [Builder.SetNetwork].
type Builder struct {
	version  uint64 // of the last snapshot
	released uint64 // snapshots before this one have no reader

	self     srv6.Locator
	function uint16
	hashKey  packet.HashKey
	seed     seed

	networks  map[NetworkID]*network
	names     map[string]*network // the known ones
	netIndex  allocator
	nodes     map[string]*node
	nodeIndex allocator
	ports     []portState
	claims    map[PortID]map[claimKey]struct{} // what names each port, present or not

	fdb       *dictionary[uint64]
	neighbor4 *dictionary[uint64]
	neighbor6 *dictionary[key6]
	ids       *dictionary[uint64]

	// The slices of the last snapshot and whether they are out of date.
	portView                                            []Port
	networkView                                         []NetworkView
	nodeView                                            []NodeView
	sources                                             []sourceTable
	portsDirty, networksDirty, nodesDirty, sourcesDirty bool
}

// NewBuilder returns a Builder of the empty state.
func NewBuilder() *Builder {
	b := &Builder{
		seed:     seed{rand.Uint64(), rand.Uint64() | 1},
		networks: map[NetworkID]*network{}, names: map[string]*network{},
		nodes: map[string]*node{}, claims: map[PortID]map[claimKey]struct{}{},
		portsDirty: true, networksDirty: true, nodesDirty: true, sourcesDirty: true,
	}
	b.fdb, b.neighbor4, b.ids = newDictionary(b.seed.hash1), newDictionary(b.seed.hash1), newDictionary(b.seed.hash1)
	b.neighbor6 = newDictionary(b.seed.hash6)
	return b
}

// SetSelf sets our own locator and End.DT2U function and the flow hash's key.
func (b *Builder) SetSelf(locator srv6.Locator, function uint16, hashKey packet.HashKey) {
	if locator != b.self {
		b.sourcesDirty = true
	}
	b.self, b.function, b.hashKey = locator, function, hashKey
}

// Release says that no reader uses a snapshot older than version any more.
// Indexes that only older snapshots name may then be given out again.
func (b *Builder) Release(version uint64) { b.released = max(b.released, version) }

// Snapshot publishes the state. Versions increase by one; what did not change is
// shared with the last snapshot.
func (b *Builder) Snapshot() *Snapshot {
	b.version++
	if b.nodesDirty {
		b.nodeView = b.compileNodes()
	}
	if b.sourcesDirty {
		b.sources = compileSources(b.nodeView, b.self)
	}
	if b.networksDirty {
		b.networkView = b.compileNetworks()
	}
	if b.portsDirty {
		b.portView = b.compilePorts()
	}
	b.portsDirty, b.networksDirty, b.nodesDirty, b.sourcesDirty = false, false, false, false
	return &Snapshot{
		Version: b.version, Self: b.self, Function: b.function, HashKey: b.hashKey,
		Ports: b.portView, Networks: b.networkView, Nodes: b.nodeView,
		seed: b.seed, fdb: b.fdb.publish(), neighbor4: b.neighbor4.publish(), neighbor6: b.neighbor6.publish(),
		ids: b.ids.publish(), sources: b.sources,
	}
}

func (b *Builder) compileNodes() []NodeView {
	view := make([]NodeView, b.nodeIndex.top()+1)
	for _, n := range b.nodes {
		view[n.index] = NodeView{Node: n.spec, Known: n.known}
		view[n.index].Name = n.name
	}
	return view
}

func (b *Builder) compileNetworks() []NetworkView {
	view := make([]NetworkView, b.netIndex.top()+1)
	for _, n := range b.networks {
		if n.known {
			view[n.index] = NetworkView{Network: n.spec, Known: true, prefixes: n.prefixes, isolation: n.isolation}
		} else {
			view[n.index].ID = n.id
		}
	}
	return view
}

func (b *Builder) compilePorts() []Port {
	view := make([]Port, max(1, len(b.ports)))
	for i := range b.ports {
		p := &b.ports[i]
		if !p.present {
			continue
		}
		view[i] = p.spec
		view[i].Net = 0
		if p.network.known {
			view[i].Net = p.network.index
		}
	}
	return view
}

// allocator gives out dense indexes from 1 and keeps those let go until no
// snapshot that named them has a reader.
type allocator struct {
	last uint16
	free []freed // oldest first
}

type freed struct {
	index   uint16
	version uint64 // last snapshot that may name it
}

func (a *allocator) top() int { return int(a.last) }

func (a *allocator) take(released uint64) (uint16, error) {
	if len(a.free) > 0 && a.free[0].version < released {
		i := a.free[0].index
		a.free = a.free[1:]
		return i, nil
	}
	if a.last == 1<<16-1 {
		return 0, ErrFull
	}
	a.last++
	return a.last, nil
}

func (a *allocator) give(index uint16, version uint64) {
	a.free = append(a.free, freed{index, version})
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
