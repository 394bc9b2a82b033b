package manifests

import (
	"strconv"

	"picot.dev/picot/internal/desired"
)

// Position is a place in a manifest. Line counts from 1; 0: the whole file.
type Position struct {
	File string
	Line int
}

// String is file:line.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Error is a Problem and where it stands.
type Error struct {
	Position
	desired.Problem
}

// Error is "file:line: Kind name: field: reason: mend".
func (e Error) Error() string { return e.Position.String() + ": " + e.Problem.Error() }

// Unwrap returns the Problem's sentinel.
func (e Error) Unwrap() error { return e.Is }

// String is the error's text, of the two embedded forms the full one.
func (e Error) String() string { return e.Error() }
