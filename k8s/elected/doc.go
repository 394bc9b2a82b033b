// Package elected is the work of the one elected agent: it judges what no single
// node may judge for all.
//
//   - Networks: of two with one ID the older is carried, then the one with the
//     lower UID; the other gets condition DuplicateID, and every Network gets
//     Ready.
//   - Nodes: SRv6Node condition Alive, false when the node's Lease is stale; and
//     what a dead node leaves behind is deleted (learning/reclaim has the rules):
//     learned bindings; of a node that is gone the static ones of endpoints too,
//     then picot's finalizers, then its Lease. Each delete carries UID and
//     resourceVersion, so what changed since it was listed survives. A static
//     binding that an operator made stays.
//
// Run is to be called with the context of an election's term (k8s/lease). It
// holds no state between terms: whoever is elected next sees for itself.
package elected
