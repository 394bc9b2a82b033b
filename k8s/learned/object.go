package learned

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/client"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/k8s/writer"
)

// place is where a key's object is stored.
func place(k source.Key) (client.Resource, string) {
	if k.Kind == v1alpha1.KindFDBEntry {
		return client.Resource{Name: v1alpha1.ResourceFDBEntries}, v1alpha1.FDBName(k.Network, k.MAC)
	}
	return client.Resource{Name: v1alpha1.ResourceNeighbors}, v1alpha1.NeighborName(k.Network, k.IP)
}

// op is the write of the API server that carries w out.
func (l *Learned) op(w *Write) writer.Op {
	var op writer.Op
	op.Resource, op.Name = place(w.Key)
	op.UID, op.Version = w.From.UID, w.From.ResourceVersion
	switch w.Verb {
	case Create:
		op.Verb = writer.Create
		l.create(&op, w)
		return op
	case Delete:
		op.Verb = writer.Delete
		return op
	}
	status := map[string]any{"lastObserved": stamp(w.New.LastObserved)}
	if w.Verb == Update {
		whole(status, w)
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": w.From.UID, "resourceVersion": w.From.ResourceVersion},
		"status":   status,
	})
	if err != nil { // maps of strings, numbers and times: cannot be
		return writer.Op{}
	}
	op.Verb, op.Patch = writer.Patch, raw
	op.Object = &v1alpha1.Neighbor{}
	if w.Key.Kind == v1alpha1.KindFDBEntry {
		op.Object = &v1alpha1.FDBEntry{}
	}
	return op
}

// whole fills in all of a status; what is nil goes.
func whole(status map[string]any, w *Write) {
	e := w.New.Endpoint
	status["endpoint"] = map[string]any{"namespace": e.Namespace, "name": e.Name, "uid": e.UID}
	status["managingNode"] = w.New.Node
	status["moves"], status["movesSince"], status["frozenUntil"] = nil, stamp(w.New.MovesSince), stamp(w.New.FrozenUntil)
	if w.New.Moves > 0 {
		status["moves"] = w.New.Moves
	}
	if w.Key.Kind == v1alpha1.KindFDBEntry {
		status["segment"] = w.New.Segment
		return
	}
	status["mac"], status["router"] = w.New.MAC.String(), router(w.New.Router)
}

func (l *Learned) create(op *writer.Op, w *Write) {
	k, b := w.Key, &w.New
	meta := metav1.ObjectMeta{Name: op.Name, Labels: map[string]string{v1alpha1.NetworkLabel: k.Network}}
	if uid := l.o.Source.NetworkUID(k.Network); uid != "" {
		meta.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNetwork, Name: k.Network, UID: types.UID(uid)}}
	}
	ref := &v1alpha1.EndpointReference{Namespace: b.Endpoint.Namespace, Name: b.Endpoint.Name, UID: b.Endpoint.UID}
	kind := metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: k.Kind}
	if k.Kind == v1alpha1.KindFDBEntry {
		op.Object = &v1alpha1.FDBEntry{TypeMeta: kind, ObjectMeta: meta,
			Spec: v1alpha1.FDBEntrySpec{Network: v1alpha1.NetworkName(k.Network), MAC: v1alpha1.MACAddress(k.MAC.String()), Source: v1alpha1.SourceLearned},
			Status: &v1alpha1.FDBEntryStatus{Endpoint: ref, ManagingNode: b.Node, Segment: v1alpha1.Segment(b.Segment),
				LastObserved: stamp(b.LastObserved), Moves: int32(b.Moves), MovesSince: stamp(b.MovesSince), FrozenUntil: stamp(b.FrozenUntil)}}
		return
	}
	op.Object = &v1alpha1.Neighbor{TypeMeta: kind, ObjectMeta: meta,
		Spec: v1alpha1.NeighborSpec{Network: v1alpha1.NetworkName(k.Network), IP: v1alpha1.IPAddress(k.IP.String()), Source: v1alpha1.SourceLearned},
		Status: &v1alpha1.NeighborStatus{Endpoint: ref, ManagingNode: b.Node, MAC: v1alpha1.MACAddress(b.MAC.String()), Router: router(b.Router),
			LastObserved: stamp(b.LastObserved), Moves: int32(b.Moves), MovesSince: stamp(b.MovesSince), FrozenUntil: stamp(b.FrozenUntil)}}
}

// stamp is a time of the API from Unix microseconds; 0: none.
func stamp(micros int64) *metav1.MicroTime {
	if micros == 0 {
		return nil
	}
	t := metav1.NewMicroTime(time.UnixMicro(micros))
	return &t
}

func router(r desired.Router) *bool {
	if r == desired.RouterUnknown {
		return nil
	}
	yes := r == desired.RouterYes
	return &yes
}

// get asks the API server for a binding.
func get(ctx context.Context, api API, k source.Key) (b Binding, binds bool, err error) {
	r, name := place(k)
	if k.Kind == v1alpha1.KindFDBEntry {
		var o v1alpha1.FDBEntry
		if err := api.Get(ctx, r, name, &o); err != nil {
			return b, false, err
		}
		e, binds, _ := desired.ParseFDB(&o)
		return Binding{Owner: e.Owner, Segment: e.Segment}, binds, nil
	}
	var o v1alpha1.Neighbor
	if err := api.Get(ctx, r, name, &o); err != nil {
		return b, false, err
	}
	n, binds, _ := desired.ParseNeighbor(&o)
	return Binding{Owner: n.Owner, MAC: n.MAC, Router: n.Router}, binds, nil
}
