// Package trace says what would become of a frame: the decision is
// fastpath.TracePort's and fastpath.TraceUplink's, the workers' own code, over a
// snapshot; this package makes the frame, puts words to what was decided, and
// decides nothing itself.
//
//	Request ─ parse ─ make.go, or the frame as given ─ run.go ─ fastpath ─ Result ─ print.go
//
// It sends nothing and changes nothing. All of it is for any goroutine.
package trace
