// Package learned carries out what learning decided: it turns a Write into one
// write of the API server with its precondition, and tells what came of it.
//
//	decision -> Write -> queue (k8s/writer) -> API server -> Done
//	                        ^                                 |
//	   refreshes go last ---+      decided anew by the core <-+
//
// It decides nothing itself and repeats nothing: a conflict is told, with what
// there is now, and whoever decided decides again. A write that the cache shows
// to be overtaken is not sent at all. Static bindings are not its business: they
// are k8s/static's, and of one key its writes go first.
//
// A binding is created, taken over, changed and released in one write each, so no
// crash leaves one half made. A refresh writes lastObserved alone.
//
// A Learned is safe for use by any number of goroutines and never blocks its
// callers.
package learned
