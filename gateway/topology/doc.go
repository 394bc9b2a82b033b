// Package topology decides which gateway routers stand together on a bridge, which of them is the
// source of its group, and by which ports external frames come in.
//
// It is pure: Compute takes what the OVS and NB databases say now and what was designated before,
// and gives the groups. Nothing is remembered here and no name is ever taken apart: a network or a
// node may hold any separator, so names are built forward from known networks and compared.
//
// A group is the routers of one bridge. Groups never mix: two bridges may use the same addresses
// with other MACs. On the bridge of the default network the source is the default network's router
// and nothing else; on an uplink bridge one of the networks is designated, and stays so until its
// router or its patch port goes.
package topology
