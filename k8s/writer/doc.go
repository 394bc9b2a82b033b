// Package writer brings the API server to what a decider wants, one object at a
// time: coalesced, rate-limited, never blindly.
//
// The queue holds keys, not writes. When a key's turn comes the decider says
// from its cache what the next write is, if any; so a thousand changes of one
// key are one write, and a conflict is decided again from what the cache then
// holds. After a write the key rests until the cache shows its result: a
// decision is never made on a state that a write of our own has overtaken.
//
// Three classes share one token bucket, the node's budget: static, learned,
// refresh. Each write goes to the most urgent key there is when the budget
// allows it, so that learned churn never holds a static write up by more than
// the writes in flight, nor refreshes anything. The learned and the refresh
// class are bounded and refuse what does not fit; the static class is bounded by
// the objects there are.
//
// Failures back off per key, exponentially and jittered, up to a cap. While the
// API server is away every key waits so, and forwarding goes on.
//
// A Writer is safe for use by any number of goroutines. Renewals of Leases do
// not go through it.
package writer
