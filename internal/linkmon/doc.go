// Package linkmon watches the network devices of one network namespace.
//
// The kernel's link messages are hints that may come late, merged or, when a
// socket buffer overflows, not at all. So the monitor keeps three pictures apart:
// what the kernel says now (fed by messages and by dumps), what the handler was
// told, and the difference, which is what it tells next:
//
//	subscribe -> dump -> Tracker.Update/Delete/Replace -> Tracker.Flush -> handler
//
// It subscribes before it dumps, subscribes and dumps again after an overflow, and
// dumps at a jittered interval in any case: a lost deletion is found then.
//
// [Monitor.Run] is called once and calls the handler from its own goroutine, one
// call at a time. [Tracker] is pure (time is an argument) and has one owner.
package linkmon
