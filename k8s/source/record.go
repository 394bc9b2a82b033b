package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// record is one stored state of a binding, V its value. Of very many there is
// never more than this: a watch makes them of the JSON, one at a time.
type record[V any] struct {
	name    string
	value   *V // not changed any more
	binds   bool
	node    string // status.managingNode
	version desired.Version
	more    *remarks // nil: nothing is wrong, and nothing says so
	end     bool     // of the list, a bookmark's
}

// remarks is what there is to say of a binding that is wrong in itself, or whose
// status says so.
type remarks struct {
	generation int64
	conditions []metav1.Condition
	problems   []desired.Problem
}

func remarksOf(generation int64, conditions []metav1.Condition, problems []desired.Problem) *remarks {
	if len(conditions)+len(problems) == 0 {
		return nil
	}
	return &remarks{generation, conditions, problems}
}

func fdbRecord(o *v1alpha1.FDBEntry) *record[desired.FDBEntry] {
	v, binds, problems := desired.ParseFDB(o)
	v.Owner, v.Network = intern(v.Owner), canonical(v.Network)
	r := &record[desired.FDBEntry]{name: o.Name, value: &v, binds: binds, version: v.Version}
	var conditions []metav1.Condition
	if o.Status != nil {
		conditions, r.node = o.Status.Conditions, canonical(o.Status.ManagingNode)
	}
	r.more = remarksOf(o.Generation, conditions, problems)
	return r
}

func neighborRecord(o *v1alpha1.Neighbor) *record[desired.Neighbor] {
	v, binds, problems := desired.ParseNeighbor(o)
	v.Owner, v.Network = intern(v.Owner), canonical(v.Network)
	r := &record[desired.Neighbor]{name: o.Name, value: &v, binds: binds, version: v.Version}
	var conditions []metav1.Condition
	if o.Status != nil {
		conditions, r.node = o.Status.Conditions, canonical(o.Status.ManagingNode)
	}
	r.more = remarksOf(o.Generation, conditions, problems)
	return r
}

// header is what is read of a binding's metadata.
type header struct {
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Generation      int64  `json:"generation"`
	Annotations     struct {
		End string `json:"k8s.io/initial-events-end"`
	} `json:"annotations"`
}

func (h *header) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: h.Name, UID: types.UID(h.UID), ResourceVersion: h.ResourceVersion, Generation: h.Generation}
}

// stored is a binding's JSON.
type stored[Spec, Status any] struct {
	Metadata header  `json:"metadata"`
	Spec     Spec    `json:"spec"`
	Status   *Status `json:"status"`
}

func decodeFDB(t watch.EventType, raw []byte) (runtime.Object, error) {
	var s stored[v1alpha1.FDBEntrySpec, v1alpha1.FDBEntryStatus]
	return decode(t, raw, &s, (*scanner).fdb, v1alpha1.KindFDBEntry, func() *record[desired.FDBEntry] {
		return fdbRecord(&v1alpha1.FDBEntry{ObjectMeta: s.Metadata.meta(), Spec: s.Spec, Status: s.Status})
	}, fdbNamed)
}

func decodeNeighbor(t watch.EventType, raw []byte) (runtime.Object, error) {
	var s stored[v1alpha1.NeighborSpec, v1alpha1.NeighborStatus]
	return decode(t, raw, &s, (*scanner).neighbor, v1alpha1.KindNeighbor, func() *record[desired.Neighbor] {
		return neighborRecord(&v1alpha1.Neighbor{ObjectMeta: s.Metadata.meta(), Spec: s.Spec, Status: s.Status})
	}, neighborNamed)
}

// fdbNamed returns what an entry's name alone says of it.
func fdbNamed(name string) *desired.FDBEntry {
	network, rest, _ := strings.Cut(name, ".")
	mac, err := packet.ParseMAC(strings.ReplaceAll(rest, "-", ":"))
	if err != nil || v1alpha1.FDBName(network, mac) != name {
		return &desired.FDBEntry{}
	}
	return &desired.FDBEntry{FDBKey: macKey(canonical(network), mac)}
}

// neighborNamed returns what a neighbor's name alone says of it.
func neighborNamed(name string) *desired.Neighbor {
	network, rest, _ := strings.Cut(name, ".")
	ip, err := netip.ParseAddr(strings.ReplaceAll(rest, "-", ":"))
	if err != nil || v1alpha1.NeighborName(network, ip) != name {
		return &desired.Neighbor{}
	}
	return &desired.Neighbor{NeighborKey: desired.NeighborKey{Network: canonical(network), IP: ip}}
}

// decode makes the record of an object's JSON. One that is no binding's, because
// a field has the wrong type, becomes a record with that problem, which binds
// nothing: the others of its collection are none the worse for it.
func decode[Spec, Status, V any](t watch.EventType, raw []byte, s *stored[Spec, Status], scan func(*scanner, *stored[Spec, Status]) bool, kind string, whole func() *record[V], named func(string) *V) (runtime.Object, error) {
	if t != watch.Bookmark {
		if scan(&scanner{b: raw}, s) {
			return whole(), nil
		}
		*s = stored[Spec, Status]{}
	}
	err := json.Unmarshal(raw, s)
	h := s.Metadata
	switch {
	case err != nil:
		var only struct {
			Metadata header `json:"metadata"`
		}
		if json.Unmarshal(raw, &only) != nil || only.Metadata.Name == "" {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		h = only.Metadata
		return &record[V]{name: h.Name, value: named(h.Name), version: h.version(),
			more: &remarks{generation: h.Generation, problems: undecoded(kind, h.Name, err)}}, nil
	case t == watch.Bookmark:
		return &record[V]{value: new(V), version: h.version(), end: h.Annotations.End == "true"}, nil
	}
	return whole(), nil
}

func (h *header) version() desired.Version {
	return desired.Version{UID: h.UID, ResourceVersion: h.ResourceVersion}
}

func undecoded(kind, name string, err error) []desired.Problem {
	field, reason := "", err.Error()
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field, reason = wrong.Field, fmt.Sprintf("a %s cannot be a %s", wrong.Value, wrong.Type)
	}
	return []desired.Problem{{
		Object: desired.Ref{Kind: kind, Name: name}, Field: field, Reason: reason,
		Mend: "write the object anew, or delete it", Is: desired.ErrInvalid,
	}}
}

// A record goes through a reflector, which wants to see an object.

// GetObjectKind implements runtime.Object.
func (r *record[V]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (r *record[V]) DeepCopyObject() runtime.Object { return r }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *record[V]) GetObjectMeta() metav1.Object {
	m := &metav1.ObjectMeta{Name: r.name, ResourceVersion: r.version.ResourceVersion}
	if r.end {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return m
}
