// Package events tells people what happened to their objects, as Kubernetes
// Events: kubectl describe shows them with the object.
//
// An Event is help, never a record: it is dropped when there are too many, when
// the API server is away for long, and before Run. Equal ones are counted, not
// repeated; similar ones are folded after ten; one object gets 25 at once and
// then one in five minutes (client-go's correlator); all objects of a node
// together get Options.Rate.
//
// A Recorder is safe for use by any number of goroutines and never blocks.
package events
