package source

import "strconv"

// views says which watches have an object.
type views uint8

const (
	byNode      views = 1 << iota // status.managingNode is this node
	byNetwork                     // the label of a hosted network
	byNetworkTo                   // the same, while the set of networks changes
)

// row is the newest state of one binding object. The value is shared with whoever
// carries it: another state is another value.
type row[V any] struct {
	value *V
	binds bool // names its owner and is valid
	rv    uint64
	views views
}

// rows are the bindings of one kind, by network and key.
type rows[K comparable, V any] struct {
	networks map[string]map[K]*row[V]
	count    int
}

func newRows[K comparable, V any]() rows[K, V] {
	return rows[K, V]{networks: map[string]map[K]*row[V]{}}
}

func (t *rows[K, V]) get(network string, k K) *row[V] { return t.networks[network][k] }

// binding returns the newest state of an object that binds, else nil.
func (t *rows[K, V]) binding(network string, k K) *V {
	r := t.get(network, k)
	if r == nil || !r.binds {
		return nil
	}
	return r.value
}

// put records that view v has the object in this state, which counts unless a
// newer one is known.
func (t *rows[K, V]) put(network string, k K, v views, rv uint64, value *V, binds bool) {
	n := t.networks[network]
	if n == nil {
		n = map[K]*row[V]{}
		t.networks[network] = n
	}
	r := n[k]
	if r == nil {
		r = &row[V]{}
		n[k] = r
		t.count++
	}
	r.views |= v
	if rv >= r.rv {
		r.rv, r.value, r.binds = rv, value, binds
	}
}

// drop records that view v no longer has the object. It goes when no view has
// it.
func (t *rows[K, V]) drop(network string, k K, v views) {
	r := t.get(network, k)
	if r == nil {
		return
	}
	r.views &^= v
	if r.views != 0 {
		return
	}
	n := t.networks[network]
	delete(n, k)
	t.count--
	if len(n) == 0 {
		delete(t.networks, network)
	}
}

// missing calls f for what view v has and a list of version rv has not. f may
// drop it.
func (t *rows[K, V]) missing(v views, rv uint64, listed func(network string, k K) bool, f func(network string, k K)) {
	for network, n := range t.networks {
		for k, r := range n {
			if r.views&v != 0 && r.rv <= rv && !listed(network, k) {
				f(network, k)
			}
		}
	}
}

// version makes a resourceVersion comparable: versions of one kind of object
// grow. One that is no number compares as the oldest.
func version(rv string) uint64 {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
