package table

import (
	"errors"
	"fmt"

	"picot.dev/picot/fastpath/srv6"
	"picot.dev/picot/internal/packet"
)

var (
	// ErrInvalid is wrapped by errors about a value that can never be right.
	ErrInvalid = errors.New("invalid")
	// ErrConflict is wrapped by errors about a value that another holds; the
	// holder stays, and the claim may be tried again when it goes.
	ErrConflict = errors.New("conflict")
	// ErrFull is returned when no index is free: 65,535 ports, networks or
	// nodes, those in quarantine included.
	ErrFull = errors.New("no index free: delete some, or release older snapshots")
	// ErrQuarantined is returned for a port index that a snapshot not yet
	// released may still name.
	ErrQuarantined = errors.New("port index may still be in use")
)

// NetworkConflictError says two names claim one network ID, or one name two IDs.
type NetworkConflictError struct {
	ID, HeldID   NetworkID
	Name, Holder string
}

func (e *NetworkConflictError) Error() string {
	if e.ID == e.HeldID {
		return fmt.Sprintf("network %q: ID %d is held by network %q: choose another ID", e.Name, e.ID, e.Holder)
	}
	return fmt.Sprintf("network %q: ID %d: the name is held with ID %d: delete that first", e.Name, e.ID, e.HeldID)
}
func (e *NetworkConflictError) Unwrap() error { return ErrConflict }

// LocatorConflictError says two nodes' locators are the same or overlap.
type LocatorConflictError struct {
	Name, Holder string
	Locator      srv6.Locator
	Held         srv6.Locator
}

func (e *LocatorConflictError) Error() string {
	return fmt.Sprintf("node %q: locator %s overlaps %s of node %q: choose another locator", e.Name, e.Locator, e.Held, e.Holder)
}
func (e *LocatorConflictError) Unwrap() error { return ErrConflict }

// MACConflictError says a MAC is claimed twice in a network, at least once
// statically. Claim and Holder read "port NAME", "node NAME" or "the gateway".
type MACConflictError struct {
	Network       NetworkID
	MAC           packet.MAC
	Claim, Holder string
}

func (e *MACConflictError) Error() string {
	return fmt.Sprintf("network %d: MAC %s of %s is held by %s: give one of them another MAC", e.Network, e.MAC, e.Claim, e.Holder)
}
func (e *MACConflictError) Unwrap() error { return ErrConflict }

// PortConflictError says a port index is held by another generation.
type PortConflictError struct {
	ID, Held     PortID
	Name, Holder string
}

func (e *PortConflictError) Error() string {
	return fmt.Sprintf("port %q: index %d is held by port %q: delete that first", e.Name, e.ID.Index(), e.Holder)
}
func (e *PortConflictError) Unwrap() error { return ErrConflict }
