// Package bridge brings the flows and the NO_FLOOD bits of one OVS bridge to what was asked for.
//
// A [Driver] reads the bridge back, compares by cookie and installs the smallest difference as
// one atomic bundle; flows with another cookie are never added to, changed or removed, and a
// flow another owner already holds under the same key is left to it. [Driver.Watch] follows
// the flow table and puts back within milliseconds what another program swept away.
//
// A Driver may be used from any goroutine; its methods exclude each other. It keeps no file
// and no flow of its own memory: a new process finds everything by the cookie.
package bridge
