// Package xdp puts picot's XDP program on a network device and hands it the
// AF_XDP sockets it redirects to.
//
// Two programs exist, one per [Kind] of port. The workload program puts an
// offloaded VLAN tag back into the frame and redirects every frame to the
// XSKMAP slot of its receive queue; an empty slot drops. The uplink program
// redirects only untagged IPv6 frames for the node's locator and passes
// everything else to the kernel, so the node keeps its own network.
//
// The link, the program and the maps are pinned in bpffs under
// PinDir/<name>/. The death of the process therefore opens nothing: the
// kernel empties the slots of the dead sockets, and an empty slot drops. A
// fresh process finds the pins, and takes them over without a moment in which
// the device has no program.
//
// A program that is not picot's is never detached ([ErrForeignProgram]).
//
// Concurrency: one goroutine at a time may call [Attach], [List], [Pin.Remove]
// and the mutating methods of one [Program]; [Program.Counters] may be called
// from any goroutine at any time before Close.
//
// Everything here works in the network namespace of the calling thread, and
// in the mount namespace of the process: see [EnsureBPFFS].
package xdp
