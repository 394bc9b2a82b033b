package source

import (
	"unique"

	"picot.dev/picot/internal/desired"
)

// canonical returns one shared copy of a text that many bindings hold, so that
// the JSON it was decoded from can go.
func canonical(s string) string { return unique.Make(s).Value() }

// canonicalBytes is canonical for the bytes of a text.
func canonicalBytes(b []byte) string { return unique.Make(string(b)).Value() }

// intern shares the names in an owner that very many bindings have. An endpoint's
// own name and UID are not worth it: it has a few.
func intern(o desired.Owner) desired.Owner {
	o.Node = canonical(o.Node)
	o.Endpoint.Namespace = canonical(o.Endpoint.Namespace)
	return o
}
