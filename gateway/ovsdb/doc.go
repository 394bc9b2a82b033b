// Package ovsdb keeps one synchronised view of an OVSDB database: Open_vSwitch, OVN_Northbound
// or OVN_Southbound.
//
// A DB holds at most one Session, which is one connection with one monitor. A Session never
// reconnects: when the connection goes, the cache goes with it, and the DB opens a new Session
// from nothing, with a new number. Whoever reconciles sees the number change and resyncs in full;
// no missed delete can hide, because no cache outlives its connection. A changed set of watched
// rows is a new Session too, since libovsdb v0.8.1 has no monitor_cond_change and cannot cancel a
// monitor safely.
//
// Event handlers only set a flag. Nothing is decided from an event: libovsdb drops events past
// 65,536, so the cache is what is read.
//
// A DB is safe for use by several goroutines. Rows returned by a Session are shared and must not
// be changed. Every transaction has a deadline, and its results are checked operation by operation;
// a transaction whose outcome is unknown (deadline, broken connection) ends the Session.
//
// The models are kept by hand and hold only the columns picot reads; a test compares them with the
// schemas installed on the machine.
package ovsdb
