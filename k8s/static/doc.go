// Package static keeps the static bindings of this node's endpoints: for every
// NetworkEndpoint here a finalizer, a static FDBEntry for its MAC and a static
// Neighbor for each of its addresses, and a status that says how that went.
//
//	endpoint here          its finalizer, then its FDBEntry, then its Neighbors,
//	                       then its status: 3 + n writes
//	key is free            created, whole, in one write
//	key is learned         claimed, whoever held it: static, managed here
//	key is static here of  claimed: nobody else will clear it up
//	an endpoint that is
//	gone or going
//	key is static of       the holder stays. Condition Conflict, an Event; tried
//	another endpoint       again when the holder goes
//	endpoint goes          bindings deleted, then the finalizer: 2 + n writes
//
// A Planner decides from the caches of k8s/source and has no memory of its own:
// a restarted node finds its bindings by managing node and endpoint UID, and a
// process killed between any two writes is carried on by the next one from what
// is stored.
package static
