// Package xsk is AF_XDP as picot uses it: one memory mapping cut into chunks,
// and sockets whose four rings hand those chunks to the kernel and back.
//
// # Memory
//
// A [Memory] is one memfd mapping of 4096-byte chunks, cut into shards. A
// [Region] is the part of it a socket registers as its UMEM: one shard, or the
// whole mapping. Both may be registered at once; they are the same pages.
//
// # Addresses
//
// Everything outside this package speaks [Addr], a byte offset from the start
// of the whole mapping. The rings speak offsets from the start of the socket's
// region. The second type is not exported and only this package translates: an
// untranslated address would send another port's memory without any error.
//
// # Ownership of a frame
//
// A chunk given to [Socket.Fill] or [Socket.Transmit] belongs to the kernel
// until [Socket.Receive] or [Socket.Complete] returns it. Nothing here tracks
// which chunk is where; that is the caller's frame state.
//
// What the kernel writes into a ring is not trusted: an index outside the ring
// is ignored and an address outside the region is dropped, both counted in
// [Faults], so no value of the kernel's side can make an access leave the
// mapping.
//
// # Concurrency
//
// A Socket's ring calls (Fill, Receive, Transmit, Complete, Kick, WakeFill and
// the plain getters beside them) belong to one goroutine, its owner. FD, Stats,
// Options and Region may be called from any goroutine until Close. A Memory may
// be read by all; who may touch which bytes is the ownership of the frame.
//
// # Closing
//
// The kernel frees a (device, queue) only when the rings are unmapped, the
// descriptor is closed and the last packet in flight is freed, the last part
// asynchronously. [Socket.Close] does the first two in that order, [Open] waits
// out the third within a bound.
//
// The only unsafe code of the module is in this package's *_unsafe.go files.
package xsk
