// Package arpnd answers ARP requests and IPv6 Neighbor Solicitations in place
// of their owners, so that no group request has to leave the port it came from.
//
// The way of a message:
//
//	frame -> Parse   -> Message (or the rule it breaks: Malformed)
//	Message + View   -> Decide -> Outcome      (rules A1-A8 and N1-N10)
//	Answer           -> Reply, over the request's own bytes, tags kept
//	Message          -> Evidence, what learning may conclude from it
//
// Beside it stand the frames a network sends of its own accord to its local
// ports: BuildGARP and BuildUnsolicitedNA repair the caches of guests after a
// binding has moved, BuildProbe asks a silent host whether it still lives.
// Bucket bounds how many answers a port gets.
//
// Everything here is pure: no clock, no table, no I/O, no allocation. Any
// number of goroutines may call any function as long as they do not share the
// Message, the Bucket or the frame they pass in. The rules and where they come
// from are listed in docs/arp-ndp.md.
package arpnd
