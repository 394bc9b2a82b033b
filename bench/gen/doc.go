// Package gen makes load for benchmarks and tests on veth devices, and counts
// what arrives.
//
// [New] is the fast source. The kernel runs a small XDP program over frames of
// its own page pool (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES,
// Documentation/bpf/bpf_prog_run.rst) and redirects them out of a device; no
// frame crosses from user space. Each of its calls takes the kernel a millisecond
// or so to set up. [NewRing] sends small bursts from many devices at a steady
// rate: an AF_XDP socket. [NewSocket] is the plain one: an AF_PACKET socket and a
// system call a frame.
//
// All send one template, with what changes from frame to frame written into
// it: a stamp of flow and sequence number, and 16-bit fields that count with
// the flow. [NewSink] is the other end: it counts frames and bytes, and follows
// each flow's sequence for lost, late and duplicate frames.
//
// A source whose device is one end of a veth pair reaches the other end only if
// that one receives in NAPI: it has an XDP program ([NewSink], an AF_XDP
// port), or GRO ([ReceiveInNAPI]). Else [New]'s frames are refused by the
// kernel and vanish, without any error; the sink then counts none.
//
// New, NewRing, NewSocket, NewSink and ReceiveInNAPI work in the network namespace of
// the calling thread; afterwards that does not matter. One goroutine uses a
// source at a time; a sink's counts may be read at any time.
package gen
