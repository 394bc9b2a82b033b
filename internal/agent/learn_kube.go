package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/packet"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/learned"
	"picot.dev/picot/k8s/source"
	"picot.dev/picot/learning"
)

// The learner's cluster is the Kubernetes API: kube is its sink, and clusterSide
// what the API tells it. The two sides know nothing of each other's types.

// Write implements sink.
func (k *kube) Write(w learning.Write) {
	verb := learned.Update
	switch w.Op {
	case learning.OpCreate:
		verb = learned.Create
	case learning.OpRefresh:
		verb = learned.Refresh
	case learning.OpDelete:
		verb = learned.Delete
	}
	k.learned.Write(learned.Write{
		Seq: w.Seq, Verb: verb, Key: toSourceKey(w.Key), New: toStored(w.New), From: desired.Version(w.From),
	})
}

// Event implements sink.
func (k *kube) Event(e learning.Event) {
	reason, warning, text := eventText(e)
	ref := desired.EndpointRef{EndpointKey: desired.EndpointKey(e.Endpoint.EndpointKey), UID: e.Endpoint.UID}
	// Moves are counted and kept for picot show moves; a log would drown in them.
	level := slog.LevelDebug
	if warning && k.said.once(e.Kind) {
		level = slog.LevelWarn
	}
	k.log.Log(context.Background(), level, "learning: "+text, "endpoint", ref.String(), "reason", reason)
	k.events.Endpoint(ref, warning, reason, "%s", text)
}

// sayEvery is how often the log tells of one kind of event.
const sayEvery = 10 * time.Second

// said is when the log last told of a kind of event. The learner's goroutine's.
type said map[learning.EventKind]time.Time

// once reports whether it is time to tell of a kind again.
func (s said) once(kind learning.EventKind) bool {
	now := time.Now()
	if last, ok := s[kind]; ok && now.Sub(last) < sayEvery {
		return false
	}
	s[kind] = now
	return true
}

func eventText(e learning.Event) (reason string, warning bool, text string) {
	switch e.Kind {
	case learning.EventMoved:
		return "Moved", false, fmt.Sprintf("%s is here now; it was at %s", e.Key, holderText(e.Holder))
	case learning.EventLost:
		return "Lost", false, fmt.Sprintf("%s is at %s now", e.Key, holderText(e.Holder))
	case learning.EventFrozen:
		return "Frozen", true, fmt.Sprintf("%s moved more than %d times: it stays here for a while. Two stations have one address, or there is a loop; picot fdb clear lets it move again", e.Key, e.Limit)
	case learning.EventReleased:
		return "Released", false, fmt.Sprintf("%s may move again", e.Key)
	case learning.EventCollision:
		return "Collision", true, fmt.Sprintf("%s is claimed, but %s has it and keeps it", e.Key, holderText(e.Holder))
	case learning.EventCollisionOver:
		return "CollisionOver", false, fmt.Sprintf("%s is nobody else's any more", e.Key)
	case learning.EventMACLimit:
		return "LearningLimit", true, fmt.Sprintf("the port has its %d learned MACs: others are not learned", e.Limit)
	case learning.EventAddressLimit:
		return "LearningLimit", true, fmt.Sprintf("%s has its %d learned addresses: others are not learned", e.Key, e.Limit)
	case learning.EventRateLimit:
		return "LearningLimit", true, fmt.Sprintf("the port makes more than %d claims a second: the rest is not looked at", e.Limit)
	}
	return "Learning", false, e.Kind.String()
}

func holderText(b learning.Binding) string {
	if b.Endpoint.Name == "" {
		return "node " + b.Node
	}
	return "endpoint " + b.Endpoint.EndpointKey.String() + " of node " + b.Node
}

// clusterSide is what the API tells a learner: it implements learned.Core.
type clusterSide struct{ *learner }

func (c clusterSide) Set(k source.Key, b learned.Binding) {
	c.onStored(fromSourceKey(k), fromStored(b))
}
func (c clusterSide) Gone(k source.Key, uid string) { c.onGone(fromSourceKey(k), uid) }
func (c clusterSide) Done(k source.Key, seq uint64, r learned.Result) {
	out := learning.Result{Version: learning.Version(r.Version), Known: r.Known}
	switch r.Outcome {
	case learned.Stored:
		out.Outcome = learning.Stored
	case learned.Conflict:
		out.Outcome = learning.Conflict
	default:
		out.Outcome = learning.Failed
	}
	if r.Current != nil {
		b := fromStored(*r.Current)
		out.Current = &b
	}
	c.onDone(fromSourceKey(k), seq, out)
}

func toSourceKey(k learning.Key) source.Key {
	if k.IsNeighbor() {
		return source.Key{Kind: v1alpha1.KindNeighbor, Network: k.Network, IP: k.IP.Addr()}
	}
	return source.Key{Kind: v1alpha1.KindFDBEntry, Network: k.Network, MAC: k.MAC}
}

func fromSourceKey(k source.Key) learning.Key {
	if k.Kind == v1alpha1.KindNeighbor {
		return learning.Neighbor(k.Network, packet.IPFromAddr(k.IP))
	}
	return learning.FDB(k.Network, k.MAC)
}

func toStored(b learning.Binding) learned.Binding {
	return learned.Binding{
		Owner: desired.Owner{
			Static: b.Static, Node: b.Node, Endpoint: desired.EndpointRef{EndpointKey: desired.EndpointKey(b.Endpoint.EndpointKey), UID: b.Endpoint.UID},
			LastObserved: b.LastObserved, Moves: b.Moves, MovesSince: b.MovesSince, FrozenUntil: b.FrozenUntil, Version: desired.Version(b.Version),
		},
		Segment: b.Segment, MAC: b.MAC, Router: desired.Router(b.Router),
	}
}

func fromStored(b learned.Binding) learning.Binding {
	return learning.Binding{
		Static: b.Static, Node: b.Node, Endpoint: learningRef(b.Endpoint),
		LastObserved: b.LastObserved, Moves: b.Moves, MovesSince: b.MovesSince, FrozenUntil: b.FrozenUntil, Version: learning.Version(b.Version),
		Segment: b.Segment, MAC: b.MAC, Router: learning.Router(b.Router),
	}
}
