// Package ovnkube reads what the gateway wants of two kinds of foreign objects, in their JSON form:
// core v1 Node (its InternalIPs and ovn-kubernetes' annotation) and ovn-kubernetes' UplinkState.
// What it reads it checks; everything else of an object is left alone.
//
// Its functions are pure, for any goroutine.
package ovnkube
