package table

import "slices"

// node is a node by its name, from its first mention on.
type node struct {
	name   string
	index  NodeIndex
	known  bool // set by SetNode; else only named by entries
	claims int  // that name it
	spec   Node
}

// node returns the state of a name, making it at its first mention.
func (b *Builder) node(name string) (*node, error) {
	if name == "" {
		return nil, invalid("node: give it a name")
	}
	if n := b.nodes[name]; n != nil {
		return n, nil
	}
	i, err := b.nodeIndex.take(b.released)
	if err != nil {
		return nil, err
	}
	n := &node{name: name, index: NodeIndex(i)}
	b.nodes[name] = n
	b.nodesDirty = true
	return n, nil
}

// dropNode lets a node go that nothing names any more.
func (b *Builder) dropNode(n *node) {
	if n.known || n.claims > 0 {
		return
	}
	delete(b.nodes, n.name)
	b.nodeIndex.give(uint16(n.index), b.version)
	b.nodesDirty = true
}

// SetNode adds or changes a node; no FDB shard is touched. Our own node may be
// set like any other: its locator then takes part in the search for conflicts,
// but it is never a source. The error wraps [ErrInvalid] or is a
// [LocatorConflictError].
func (b *Builder) SetNode(c Node) error {
	if c.Locator.Bits == 0 || c.Locator.Hi == 0 {
		return invalid("node %q: locator %s: give a prefix of 32 to 64 bits", c.Name, c.Locator)
	}
	held := b.nodes[c.Name]
	moved := held == nil || !held.known || held.spec.Locator != c.Locator
	if moved {
		for _, o := range b.nodes {
			if o.known && o.name != c.Name && o.spec.Locator.Overlaps(c.Locator) {
				return &LocatorConflictError{Name: c.Name, Holder: o.name, Locator: c.Locator, Held: o.spec.Locator}
			}
		}
	}
	n, err := b.node(c.Name)
	if err != nil {
		return err
	}
	c.NextHops = slices.Clone(c.NextHops)
	n.known, n.spec = true, c
	b.nodesDirty = true
	b.sourcesDirty = b.sourcesDirty || moved
	return nil
}

// DeleteNode deletes a node. Entries that name it stay: they lead to a node that
// is not Known and has no next hop until it comes back or they go.
func (b *Builder) DeleteNode(name string) {
	n := b.nodes[name]
	if n == nil || !n.known {
		return
	}
	n.known, n.spec = false, Node{}
	b.nodesDirty, b.sourcesDirty = true, true
	b.dropNode(n)
}
