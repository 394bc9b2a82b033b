// Package bench measures picot beside its peers on this machine: what
// "picot bench" runs.
//
// A benchmark makes its own network namespaces, which end with the process
// whatever happens to it, and compares in one run: two lanes take turns, A B,
// B A, A B, and the figure is the median of the pairs' ratios. Rates by
// themselves are shown for information; they say as much about the machine as
// about picot.
//
// The source of frames is [picot.dev/picot/bench/gen] on one CPU, the
// forwarder runs on another. A lane's run only counts if everything its
// forwarder says it sent arrived at the sink, or is a drop a device counted.
//
// [Run] is for one goroutine; it locks threads and starts processes of its own
// and has ended all of them when it returns.
package bench
