package source

import (
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// setFDB and setNeighbor take whole objects, as a list brings them.
func (p *projection) setFDB(o *v1alpha1.FDBEntry, v views, gone bool) (desired.FDBKey, []Key) {
	return p.takeFDB(fdbRecord(o), v, gone)
}

func (p *projection) setNeighbor(o *v1alpha1.Neighbor, v views, gone bool) (desired.NeighborKey, []Key) {
	return p.takeNeighbor(neighborRecord(o), v, gone)
}
