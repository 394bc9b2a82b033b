// Package elected is the work of the one elected agent: it judges what no single
// node may judge for all. For now that is the Networks: of two with one ID the
// older is carried, then the one with the lower UID; the other gets condition
// DuplicateID, and every Network gets Ready.
//
// Run is to be called with the context of an election's term (k8s/lease). It
// holds no state between terms.
package elected
