package source

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"picot.dev/picot/k8s/client"
)

// A list after the first counts, no later than what it changes is taken: who takes
// a node's end by it can tell that from a watch's word.
func TestRelistIsCountedWithWhatItChanges(t *testing.T) {
	expire := make(chan struct{})
	var lists atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		switch {
		case q.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case q.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			select {
			case <-expire:
			case <-r.Context().Done():
				return
			}
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
		default:
			items := ""
			n := lists.Add(1)
			if n == 1 {
				items = `{"apiVersion":"picot.dev/v1alpha1","kind":"SRv6Node","metadata":{"name":"node2","uid":"u"},"spec":{"locator":"2001:db8:0:2::/64"}}`
			}
			fmt.Fprintf(w, `{"apiVersion":"picot.dev/v1alpha1","kind":"SRv6NodeList","metadata":{"resourceVersion":"%d"},"items":[%s]}`, n, items)
		}
	}))
	defer server.Close()
	api, err := client.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Client: api, Node: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.followNodes(ctx) }()
	defer func() { cancel(); <-ended }()

	wait := func(there bool) {
		t.Helper()
		for late := time.After(20 * time.Second); ; {
			select {
			case <-s.Changes():
			case <-late:
				t.Fatal("no change")
			}
			delta, _ := s.Take()
			if n, ok := delta.Nodes["node2"]; ok && (n != nil) == there {
				return
			}
		}
	}
	wait(true)
	if n := s.Relists(); n != 0 {
		t.Errorf("%d lists again after the first", n)
	}
	close(expire)
	wait(false)
	if n := s.Relists(); n == 0 {
		t.Error("the second list is not counted")
	}
}
