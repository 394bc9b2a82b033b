// Package packet reads and mends frames: addresses as comparable values, one
// parse that finds where the headers are, header views over the frame's own
// bytes, checksums, and the hash of a flow.
//
// It is pure: nothing here allocates, keeps state, or writes outside the bytes
// it was given, so any goroutine may call it on bytes it owns. Lengths are
// never trusted: [Parse] compares each with the frame, and each header view has
// a Valid that must hold before any getter is called.
package packet
