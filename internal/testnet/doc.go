// Package testnet builds small real networks for tests: network namespaces,
// veth pairs between them, private bpffs mounts, and the checks that nothing of
// it is left behind.
//
// Everything is made with a [testing.TB] and undone by its Cleanup. Objects are
// named after the process, so test binaries running side by side never meet, and
// what a killed run left is swept by the next one (only if that process is dead).
//
// Only tests import this package. An [NS] may be used from several goroutines;
// [NS.Run] and [NS.Do] move the calling goroutine, and only it, into the
// namespace: goroutines started inside run wherever the Go scheduler puts them.
package testnet
