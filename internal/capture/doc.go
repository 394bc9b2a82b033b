// Package capture is what lies between the data path's records of frames
// (fastpath.Capture) and who reads them: what may be asked for, and the pcapng
// that is given, with a comment on each frame.
//
// A Request is plain data. A Writer belongs to one goroutine. Neither knows an
// agent: names come by an interface.
package capture
