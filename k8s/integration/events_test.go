package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
	"picot.dev/picot/k8s/apitest"
	"picot.dev/picot/k8s/events"
)

// eventsOf lists the Events of an object by an administrator's client.
func eventsOf(t *testing.T, s *apitest.Server, ref desired.Ref) []corev1.Event {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	c := s.Config()
	c.GroupVersion, c.APIPath = &corev1.SchemeGroupVersion, "/api"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.RESTClientFor(c)
	must(t, err)
	var list corev1.EventList
	must(t, r.Get().Resource("events").Do(ctx()).Into(&list))
	var out []corev1.Event
	for _, e := range list.Items {
		if o := e.InvolvedObject; o.Kind == ref.Kind && o.Namespace == ref.Namespace && o.Name == ref.Name {
			out = append(out, e)
		}
	}
	return out
}

// TestEvents writes Events with an agent's token: equal ones are counted, an
// object that says too much is cut off, and the others are not.
func TestEvents(t *testing.T) {
	s := server(t)
	r, err := events.New(events.Options{Config: s.AgentConfig(t, "node-a"), Node: "node-a", Rate: 1000, Burst: 1000})
	must(t, err)
	run, stop := context.WithCancel(ctx())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(run) }()
	defer func() { stop(); <-done }()

	loud := desired.EndpointRef{EndpointKey: desired.EndpointKey{Namespace: "default", Name: "loud"}, UID: "u1"}
	calm := desired.EndpointRef{EndpointKey: desired.EndpointKey{Namespace: "default", Name: "calm"}, UID: "u2"}
	ref := func(e desired.EndpointRef) desired.Ref {
		return desired.Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: e.Namespace, Name: e.Name}
	}
	apitest.Eventually(t, "a first Event", func() error { // what comes before Run has begun is dropped
		r.Object(desired.Ref{Kind: v1alpha1.KindFDBEntry, Name: "red.02-00-00-00-00-01"}, "u3", false, "Released", "moves again")
		if len(eventsOf(t, s, desired.Ref{Kind: v1alpha1.KindFDBEntry, Name: "red.02-00-00-00-00-01"})) == 0 {
			return errNotYet
		}
		return nil
	})
	for i := range 100 {
		r.Endpoint(loud, true, "MACLimit", "%d MACs: %s", i%2, strings.Repeat("x", 2000))
	}
	r.Endpoint(calm, true, "Frozen", "moved %d times", 6)
	apitest.Eventually(t, "the calm one's Event", func() error {
		list := eventsOf(t, s, ref(calm))
		if len(list) != 1 {
			return fmt.Errorf("%d events", len(list))
		}
		e := list[0]
		if e.Type != "Warning" || e.Reason != "Frozen" || e.Message != "moved 6 times" || e.InvolvedObject.UID != "u2" ||
			e.Source.Host != "node-a" || e.Namespace != "default" {
			t.Fatalf("%+v", e)
		}
		return nil
	})
	list := eventsOf(t, s, ref(loud))
	count := int32(0)
	for _, e := range list {
		count += e.Count
		if len(e.Message) > 1024 {
			t.Errorf("a message of %d bytes", len(e.Message))
		}
	}
	if len(list) == 0 || len(list) > 3 || count < 20 || count > 40 {
		t.Errorf("%d Events that count %d of 100: want few, of what one object may say at once", len(list), count)
	}
}
