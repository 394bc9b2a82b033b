package source

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
)

func asJSON(t *testing.T, o any) []byte {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestRecordOfAWatch: what a watch makes of the JSON is what a list makes of the
// object.
func TestRecordOfAWatch(t *testing.T) {
	at := metav1.NewMicroTime(time.UnixMicro(1_700_000_000_123_456))
	e := bigFDB(7)
	e.Generation, e.ManagedFields = 3, []metav1.ManagedFieldsEntry{{Manager: "picot", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}}}
	e.Spec.Source, e.Status.Segment, e.Status.Moves, e.Status.LastObserved, e.Status.MovesSince, e.Status.FrozenUntil = v1alpha1.SourceLearned, 9, 2, &at, &at, &at
	e.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}}
	got, err := decodeFDB(watch.Modified, asJSON(t, e))
	if err != nil || !reflect.DeepEqual(got, fdbRecord(e)) {
		t.Errorf("%+v, %v\nwant %+v", got, err, fdbRecord(e))
	}
	yes := true
	n := bigNeighbor(7, addressesOf(7)[1])
	n.Status.Router, n.Status.LastObserved = &yes, &at
	got, err = decodeNeighbor(watch.Added, asJSON(t, n))
	if err != nil || !reflect.DeepEqual(got, neighborRecord(n)) {
		t.Errorf("%+v, %v\nwant %+v", got, err, neighborRecord(n))
	}
	got, err = decodeFDB(watch.Bookmark, []byte(`{"kind":"FDBEntry","metadata":{"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"network":"","mac":"","source":""}}`))
	if err != nil {
		t.Fatal(err)
	}
	if m := got.(*record[desired.FDBEntry]).GetObjectMeta(); m.GetResourceVersion() != "12" || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("the end of a list is %+v", m)
	}
}

// TestOneBadObject: an object that does not decode is refused by its name, and
// no longer binds; it is not the end of its collection.
func TestOneBadObject(t *testing.T) {
	p := newProjection("n1")
	p.setNetwork("red", network("red", 1, 1, "10.0.0.0/8", "fd00::/64"))
	good, ip := bigFDB(1), addressesOf(1)[0]
	p.setFDB(good, byNetwork, false)
	p.setNeighbor(bigNeighbor(1, ip), byNetwork, false)
	p.take()

	newer := func(raw []byte, from, to string) []byte {
		s := strings.Replace(string(raw), from, to, 1)
		if s == string(raw) {
			t.Fatalf("no %s in %s", from, raw)
		}
		return []byte(strings.Replace(s, `"resourceVersion":"`, `"resourceVersion":"9`, 1))
	}
	o, err := decodeFDB(watch.Modified, newer(asJSON(t, good), `"managingNode":`, `"segment":"seven","managingNode":`))
	if err != nil {
		t.Fatal(err)
	}
	p.fdbEvent(o.(*record[desired.FDBEntry]), byNetwork, false)
	o, err = decodeNeighbor(watch.Modified, newer(asJSON(t, bigNeighbor(1, ip)), `"managingNode":`, `"lastObserved":"noon","managingNode":`))
	if err != nil {
		t.Fatal(err)
	}
	p.neighborEvent(o.(*record[desired.Neighbor]), byNetwork, false)

	d := p.take()
	k := desired.FDBKey{Network: "red", MAC: macOf(2)}
	if v, told := d.FDB[k]; !told || v != nil {
		t.Errorf("the entry still binds: %v", d.FDB)
	}
	if v, told := d.Neighbors[desired.NeighborKey{Network: "red", IP: ip}]; !told || v != nil {
		t.Errorf("the neighbor still binds: %v", d.Neighbors)
	}
	for ref, field := range map[desired.Ref]string{{Kind: v1alpha1.KindFDBEntry, Name: good.Name}: "status.segment", {Kind: v1alpha1.KindNeighbor, Name: v1alpha1.NeighborName("red", ip)}: ""} {
		list := p.problems[ref]
		if len(list) != 1 || list[0].Field != field || !errors.Is(&list[0], desired.ErrInvalid) {
			t.Errorf("of %s is said: %v", ref, list)
		}
	}
	good.ResourceVersion = "99000000"
	p.setFDB(good, byNetwork, false)
	if d := p.take(); d.FDB[k] == nil || len(p.problems[desired.Ref{Kind: v1alpha1.KindFDBEntry, Name: good.Name}]) > 0 {
		t.Errorf("mended, it does not bind: %v, %v", d.FDB, p.problems)
	}
	// Nothing can be said of what has no name.
	if o, err := decodeFDB(watch.Added, []byte(`{"metadata":7}`)); err == nil {
		t.Errorf("a record of nothing: %v", o)
	}
}

// FuzzDecodeRecord: whatever is stored, a record has a name, a version to compare
// by and either binds or says why not.
func FuzzDecodeRecord(f *testing.F) {
	raw, _ := json.Marshal(bigFDB(1))
	f.Add(string(raw))
	f.Add(`{"metadata":{"name":"red.02-00-00-00-00-01"},"spec":{"mac":7}}`)
	f.Add(`{"metadata":{"name":"red.10.0.0.1"},"status":[]}`)
	f.Fuzz(func(t *testing.T, s string) {
		if o, err := decodeFDB(watch.Added, []byte(s)); err == nil {
			r := o.(*record[desired.FDBEntry])
			if r.binds && (r.more != nil && len(r.more.problems) > 0 || r.value.Name() != r.name) {
				t.Errorf("%q binds as %+v", s, r)
			}
		}
		if o, err := decodeNeighbor(watch.Added, []byte(s)); err == nil {
			r := o.(*record[desired.Neighbor])
			if r.binds && (r.more != nil && len(r.more.problems) > 0 || r.value.Name() != r.name) {
				t.Errorf("%q binds as %+v", s, r)
			}
		}
	})
}

// BenchmarkDecodeRecord is one entry of a watch, from the JSON to the record.
func BenchmarkDecodeRecord(b *testing.B) {
	o := bigFDB(7)
	o.CreationTimestamp, o.Labels = metav1.Now(), map[string]string{v1alpha1.NetworkLabel: "red"}
	raw, err := json.Marshal(o)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeFDB(watch.Added, raw); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzScanner holds what a scanner reads to what encoding/json does. It may give
// up on anything.
func FuzzScanner(f *testing.F) {
	e, _ := json.Marshal(bigFDB(1))
	n, _ := json.Marshal(bigNeighbor(1, addressesOf(1)[0]))
	for _, s := range []string{string(e), string(n), `{"metadata":{"generation":-7,"labels":{"a":["}",1e3,null]}},"status":{"moves":3,"router":true,"lastObserved":"2026-11-30T01:02:03.000004Z"}}`,
		`{ "spec" : { "mac" : "x" , "network":""} }`, `{"status":{"segment":01}}`, `{"status":{"endpoint":{"uid":"a"}},"status":{"endpoint":{"name":"b"}}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !json.Valid([]byte(s)) {
			return
		}
		var e, wantE stored[v1alpha1.FDBEntrySpec, v1alpha1.FDBEntryStatus]
		if (&scanner{b: []byte(s)}).fdb(&e) {
			if err := json.Unmarshal([]byte(s), &wantE); err != nil || !reflect.DeepEqual(e, wantE) {
				t.Errorf("%q is %+v, want %+v, %v", s, e, wantE, err)
			}
		}
		var n, wantN stored[v1alpha1.NeighborSpec, v1alpha1.NeighborStatus]
		if (&scanner{b: []byte(s)}).neighbor(&n) {
			if err := json.Unmarshal([]byte(s), &wantN); err != nil || !reflect.DeepEqual(n, wantN) {
				t.Errorf("%q is %+v, want %+v, %v", s, n, wantN, err)
			}
		}
	})
}

// TestScannerReadsWhatServersWrite: the short way is the one that is taken.
func TestScannerReadsWhatServersWrite(t *testing.T) {
	at := metav1.NewMicroTime(time.UnixMicro(1_700_000_000_123_456))
	yes := true
	e, n := bigFDB(1), bigNeighbor(1, addressesOf(1)[1])
	e.Labels, e.CreationTimestamp, e.Generation = map[string]string{"a": "b"}, metav1.Now(), 4
	e.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "picot", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:mac":{}}}`)}}}
	e.OwnerReferences = []metav1.OwnerReference{{Kind: "Network", Name: "red"}}
	e.Status.Segment, e.Status.Moves, e.Status.LastObserved = 5, 3, &at
	n.Status.Router, n.Status.MovesSince, n.Status.FrozenUntil = &yes, &at, &at
	var se stored[v1alpha1.FDBEntrySpec, v1alpha1.FDBEntryStatus]
	if s := (&scanner{b: asJSON(t, e)}); !s.fdb(&se) {
		t.Errorf("at %q it finds an entry strange", s.b[s.at:])
	}
	var sn stored[v1alpha1.NeighborSpec, v1alpha1.NeighborStatus]
	if s := (&scanner{b: asJSON(t, n)}); !s.neighbor(&sn) {
		t.Errorf("at %q it finds a neighbor strange", s.b[s.at:])
	}
}
