// Package spsc is a bounded queue between exactly two threads: one producer, one
// consumer, no lock, no allocation after [New].
//
// It carries frame descriptors between workers and observations from a worker to
// the learner. [Ring.Push], [Ring.PushBatch] and [Ring.Free] belong to the
// producer; [Ring.Pop], [Ring.PopBatch] and [Ring.Len] to the consumer. Nothing
// else may be called concurrently. A ring wakes nobody: whoever sleeps on it is
// woken by its peer's own means (an eventfd).
//
// An element pushed is seen by the consumer complete, and a slot is reused only
// after the consumer copied it out: the two indexes are published with
// sequentially consistent atomic stores, one a batch. Each side keeps a private
// copy of the other's index and reads the shared one only when that copy says
// full or empty, so in steady state a batch costs one shared cache line.
package spsc
