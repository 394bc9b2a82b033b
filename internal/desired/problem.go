package desired

import (
	"errors"
	"fmt"
	"strings"
)

// What a Problem wraps, for errors.Is.
var (
	// ErrInvalid is a value that is wrong in itself.
	ErrInvalid = errors.New("invalid")
	// ErrDuplicate is a key, ID, address or device that another object holds.
	ErrDuplicate = errors.New("held by another object")
	// ErrUnknown is a reference to something that is not there.
	ErrUnknown = errors.New("not known")
	// ErrOutside is an address outside its network's prefixes.
	ErrOutside = errors.New("outside the network")
)

// Ref names an object.
type Ref struct{ Kind, Namespace, Name string }

// String is "Kind name" or "Kind namespace/name".
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Problem says what of an object was not taken, why, and how to mend it.
type Problem struct {
	Object Ref
	Field  string // path such as spec.prefixes[1]; empty: the whole object
	Reason string
	Mend   string // may be empty
	Is     error  // one of the Err values of this package
	// Holder names the object that holds what this one claims, with ErrDuplicate.
	Holder Ref
}

// Error is "Kind name: field: reason: mend".
func (p *Problem) Error() string {
	parts := make([]string, 0, 4)
	for _, s := range []string{p.Object.String(), p.Field, p.Reason, p.Mend} {
		if strings.TrimSpace(s) != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the sentinel.
func (p *Problem) Unwrap() error { return p.Is }

// problems collects what is wrong with one object.
type problems struct {
	object Ref
	list   []Problem
}

func (p *problems) invalid(field, mend, format string, args ...any) {
	p.list = append(p.list, Problem{Object: p.object, Field: field, Reason: fmt.Sprintf(format, args...), Mend: mend, Is: ErrInvalid})
}
