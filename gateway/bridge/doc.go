// Package bridge brings the flows, the NO_FLOOD bits and the host's MAC entry of one OVS bridge to
// what was asked for.
//
// A [Driver] reads the bridge back, compares by cookie and installs the smallest difference as
// one atomic bundle; flows with another cookie are never added to, changed or removed, and a
// flow another owner already holds under the same key is left to it. [Driver.Watch] follows
// the flow table and puts back within milliseconds what another program swept away.
//
// A Driver may be used from any goroutine; Apply and the repairs of Watch exclude each other. It keeps no file
// and needs no memory: a new process finds everything by the cookie.
package bridge
