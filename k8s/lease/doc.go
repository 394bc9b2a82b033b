// Package lease elects one holder among the agents by a coordination.k8s.io
// Lease.
//
//	nobody holds it, or the holder let it go   take it
//	another holds it                           watch its renewals by our own
//	                                           clock; after Duration without
//	                                           one, take it
//	we hold it                                 renew every Retry; when no renewal
//	                                           went through for Renew, step down
//	                                           at once, before anybody may take it
//	we end                                     let it go
//
// And it keeps one Lease for each node, the sign that its agent lives and reaches
// the API server. Of several processes of one node, as in an upgrade, the one
// that has the Lease writes: a newer one waits until the older let it go.
//
// Every change carries the resourceVersion it was decided on, so two agents
// never both take it. Clocks of nodes are never compared: a record's age is
// counted from when this process first saw it. Renewals go straight to the API
// server, past every queue.
package lease
