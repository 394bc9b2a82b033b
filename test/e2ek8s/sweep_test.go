package e2ek8s

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// deletes is a webhook in the way of every delete of a binding: the API server has
// read the object and found the delete's preconditions true, but not deleted it.
type deletes struct {
	mu   sync.Mutex
	held map[string]func() // guarded by mu; by object, run once before the delete goes on
	done map[string]bool   // guarded by mu; what was run
}

func (c *cluster) newDeletes() *deletes {
	c.t.Helper()
	d := &deletes{held: map[string]func(){}, done: map[string]bool{}}
	s := httptest.NewTLSServer(http.HandlerFunc(d.serve))
	c.t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	c.server.Apply(c.t, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: deletes}
webhooks:
- name: deletes.picot.dev
  clientConfig: {url: "`+s.URL+`", caBundle: `+base64.StdEncoding.EncodeToString(ca)+`}
  rules: [{apiGroups: [picot.dev], apiVersions: ["*"], resources: [fdbentries, neighbors], operations: [DELETE]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 30
`)
	return d
}

func (d *deletes) serve(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Request    struct {
			UID  string `json:"uid"`
			Name string `json:"name"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	f := d.held[review.Request.Name]
	delete(d.held, review.Request.Name)
	d.mu.Unlock()
	if f != nil {
		f()
		d.mu.Lock()
		d.done[review.Request.Name] = true
		d.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind,
		"response": map[string]any{"uid": review.Request.UID, "allowed": true}})
}

// before has f run between the next delete's list and its deed.
func (d *deletes) before(object string, f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[object] = f
}

func (d *deletes) ran(object string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done[object]
}

// TestRefreshedAgainstSweep: what is refreshed, or taken over, between the list of
// a sweep and its delete survives, whether its own node sweeps or the elected
// agent does.
func TestRefreshedAgainstSweep(t *testing.T) {
	l := newLearnLab(t, mortal...)
	l.wantAlive(l.n2, l.n1, true)
	d := l.newDeletes()
	for i, tt := range []struct {
		name  string
		at    *wire
		to    string
		sweep func(s station) (stop func())
		// meanwhile makes the change, and is what the delete waits for.
		meanwhile func(s station)
	}{
		{"the elected agent, a refresh", l.w2, "node2", func(s station) func() {
			stop := l.w2.repeat(50*time.Millisecond, s.garp(t))
			l.server.Patch(t, "/api/v1/nodes/node2", `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}}`)
			return stop
		}, func(station) {
			l.server.Patch(t, "/api/v1/nodes/node2", `{"spec":{"taints":null}}`)
			l.wantAlive(l.n2, l.n1, true)
		}},
		{"its own node, a takeover", l.w1, "node2", func(station) func() { return func() {} }, func(s station) {
			l.w2.repeat(50*time.Millisecond, s.garp(t))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stationN(40 + i)
			from := "node1"
			if tt.at == l.w2 {
				from = "node2"
			}
			tt.at.send(s.garp(t))
			l.wantHolder(s, from, s.v4)
			object := name("red", s.mac.String())
			uid := l.fdbEntry(s.mac).UID
			written := len(l.writes())
			d.before(object, func() {
				listed := l.fdbEntry(s.mac)
				tt.meanwhile(s)
				for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					if now := l.fdbEntry(s.mac); now != nil && now.ResourceVersion != listed.ResourceVersion && now.Status.ManagingNode == tt.to {
						return
					}
				}
			})
			stop := tt.sweep(s)
			defer stop()
			l.eventually(30*time.Second, "a delete of "+object+" to be refused", func() error {
				got := countWrites(l.writes()[written:], object)
				if got["code 409: delete fdbentries"] == 0 {
					return fmt.Errorf("writes %v, something happened before the delete: %t", got, d.ran(object))
				}
				return nil
			})
			l.wantHolder(s, tt.to, s.v4)
			if now := l.fdbEntry(s.mac); now.UID != uid {
				t.Errorf("it was deleted, and made anew")
			}
			for what, n := range countWrites(l.writes()[written:], object) {
				if strings.HasPrefix(what, "delete") {
					t.Errorf("%d of %s came through", n, what)
				}
			}
		})
	}
}
