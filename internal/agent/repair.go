package agent

import (
	"log/slog"
	"time"

	"picot.dev/picot/arpnd"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
)

// repair tells this node's own ports when an address has a new MAC, so that
// their caches need no time to find out: a gratuitous ARP or an unsolicited NA
// to each port of the network but the owner's own. Nothing leaves the node;
// every node does the same.
type repair struct {
	config *Config
	engine sender
	tables *tables
	ports  *ports
	log    *slog.Logger

	// gone is the MAC of each address that went, remembered for a while: a pod's
	// address often comes back elsewhere a moment later.
	gone    map[desired.NeighborKey]lastMAC
	pending map[desired.NeighborKey]map[int]bool // ports still to be told
	bucket  arpnd.Bucket
	start   time.Time
}

// sender is the part of the data path a repair needs: fastpath.Engine.
type sender interface {
	Send(port int, frame []byte) error
}

type lastMAC struct {
	mac packet.MAC
	at  time.Time // when it went
}

const (
	repairRate  = 1000 // frames a second
	repairBurst = 1000
	// rememberFor exceeds the time any stack keeps an unconfirmed entry in use.
	rememberFor = 20 * time.Minute
)

func newRepair(c *Config, t *tables, p *ports) *repair {
	return &repair{
		config: c, tables: t, ports: p, log: c.Log, start: time.Now(),
		gone: map[desired.NeighborKey]lastMAC{}, pending: map[desired.NeighborKey]map[int]bool{},
		bucket: arpnd.NewBucket(repairRate, repairBurst, 0),
	}
}

// onDesired notes changes; call it before the tables take the delta in.
func (r *repair) onDesired(now time.Time, d desired.Delta) {
	for k, v := range d.Neighbors {
		old, known := r.gone[k]
		if nb := r.tables.state.Neighbors[k]; nb != nil {
			old, known = lastMAC{nb.MAC, now}, true
		}
		switch {
		case v == nil && known:
			r.gone[k] = old
		case v != nil:
			if known && old.mac != v.MAC {
				r.pending[k] = nil
			}
			delete(r.gone, k)
		}
	}
	for k, l := range r.gone {
		if now.Sub(l.at) > rememberFor {
			delete(r.gone, k)
		}
	}
}

// sync sends what is pending, as fast as allowed. Call it when the snapshot
// with the new MACs is in use: an answer to what the repair stirs up must not
// be the old one.
func (r *repair) sync(now time.Time) (next time.Time) {
	var frame [arpnd.NALen]byte
	for k, todo := range r.pending {
		nb, ok := r.tables.state.Neighbors[k]
		if !ok {
			delete(r.pending, k)
			continue
		}
		if todo == nil {
			todo = r.audience(nb)
			r.pending[k] = todo
		}
		n := build(frame[:], nb)
		for port := range todo {
			if !r.bucket.Take(int64(now.Sub(r.start))) {
				return now.Add(10 * time.Millisecond)
			}
			if err := r.engine.Send(port, frame[:n]); err == nil || !r.ports.has(port) {
				delete(todo, port)
			}
		}
		if len(todo) > 0 {
			next = now.Add(10 * time.Millisecond)
			continue
		}
		r.log.Debug("caches repaired", "network", k.Network, "address", k.IP, "mac", nb.MAC)
		delete(r.pending, k)
	}
	return next
}

// audience is every local port of the neighbour's network but its owner's.
func (r *repair) audience(nb *desired.Neighbor) map[int]bool {
	ports := map[int]bool{}
	for _, p := range r.ports.attached {
		own := nb.Node == r.config.NodeName && (p.key == nb.Endpoint.EndpointKey || p.entry.MAC == nb.MAC)
		if p.entry.ID != 0 && !own && r.tables.state.Endpoints[p.key].Network == nb.Network {
			ports[p.entry.ID.Index()] = true
		}
	}
	return ports
}

func build(b []byte, nb *desired.Neighbor) int {
	ip := packet.IPFromAddr(nb.IP)
	if nb.IP.Is4() {
		return arpnd.BuildGARP(b, ip, nb.MAC)
	}
	return arpnd.BuildUnsolicitedNA(b, ip, nb.MAC, nb.Router == desired.RouterYes)
}
