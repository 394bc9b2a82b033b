// Package delta keeps three sets apart for a driver that makes the world as
// wanted: desired (what should be), actual (what is, as last read back or
// written) and pending (the keys whose desired and actual differ).
//
//	SetDesired / DeleteDesired     from whoever decides
//	ReplaceActual                  from a read-back; anything unwanted in it is an orphan
//	Apply                          writes the difference, and nothing else
//
// A key that fails is retried alone, at growing intervals, and stops no other. A
// key whose difference vanished (deleted and made again before Apply, or repaired
// by somebody else) costs nothing. Work is proportional to the changes, not to the
// sets; order is always that of the keys.
//
// A [Tracker] has one owner goroutine. Time is an argument everywhere.
package delta
