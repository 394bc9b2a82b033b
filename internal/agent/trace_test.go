package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/status"
	"picot.dev/picot/internal/trace"
)

// traces asks an agent as "picot trace" does.
func (w *world) traces(r trace.Request) (code int, body string) {
	w.t.Helper()
	mux := http.NewServeMux()
	w.agent.handleTrace(mux)
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/trace?"+r.Query(), nil))
	return rec.Code, rec.Body.String()
}

func (w *world) traced(r trace.Request) (got trace.Result) {
	w.t.Helper()
	code, body := w.traces(r)
	if code != http.StatusOK {
		w.t.Fatalf("%+v: %d %s", r, code, body)
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		w.t.Fatal(err)
	}
	return got
}

// TestTraceIsOfTheAgentsOwnTablesAndChangesNothing: the ports, uplink, other node and
// network of the agent, in both families; and status, tables and kernel are as before.
func TestTraceIsOfTheAgentsOwnTablesAndChangesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		state := func() (s status.Status, rows []any) {
			w.ask(func() {
				s = w.agent.status(true)
				rows = []any{fdbStatus(w.agent.tables.last), neighborStatus(w.agent.tables.last), w.agent.tables.last}
			})
			return s, rows
		}
		before, rows := state()
		for _, f := range families {
			question := trace.Request{In: "v1", ARPFor: f.of(4).String()}
			if f.name == "v6" {
				question = trace.Request{In: "v1", NDFor: f.of(4).String()}
			}
			for _, c := range []struct {
				request         trace.Request
				verdict, reason string
				out             string
			}{
				{trace.Request{In: "v1", Dst: f.of(2).String()}, "local", "", "v2"},
				{trace.Request{In: "default/p1", Dst: f.of(4).String()}, "remote", "", uplinkName},
				{trace.Request{In: "v1", Dst: f.of(9).String(), DstMAC: "02:00:00:00:00:99"}, "dropped", "unknown_unicast", ""},
				{question, "answered", "", "v1"},
				{trace.Request{In: uplinkName, FromNode: "node2", Network: "red", Src: f.of(4).String(), Dst: f.of(1).String()}, "local", "", "v1"},
				{trace.Request{In: uplinkName, FromNode: "node2", Network: "77", SrcMAC: "02:00:00:00:00:04", DstMAC: "02:00:00:00:00:01"}, "dropped", "outer_network_unknown", ""},
			} {
				for range 3 {
					got := w.traced(c.request)
					out := ""
					if got.Out != nil {
						out = got.Out.Device
					}
					if got.Verdict != c.verdict || got.Reason != c.reason || out != c.out || got.Node != "node1" || got.Snapshot != before.Snapshot {
						t.Errorf("%s: %+v: %s %s by %q", f.name, c.request, got.Verdict, got.Reason, out)
					}
				}
			}
		}
		w.pass(time.Second)
		after, now := state()
		if !reflect.DeepEqual(before, after) {
			t.Errorf("status was\n%+v\nand is\n%+v", before, after)
		}
		if !reflect.DeepEqual(rows, now) {
			t.Error("the tables changed")
		}
		w.want("after the traces")
	})
}

// TestTraceOfAnotherNodesPacketPassesVia: it has the SRH that this node's own spec.via
// asks others for.
func TestTraceOfAnotherNodesPacketPassesVia(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		self := good().Nodes["node1"]
		self.Via = []netip.Addr{netip.MustParseAddr("2001:db8:9::1")}
		w.say(desired.Delta{Nodes: map[string]*desired.Node{"node1": &self}})
		w.pass(time.Second)
		for _, f := range families {
			got := w.traced(trace.Request{In: uplinkName, FromNode: "node2", Network: "red", Src: f.of(4).String(), Dst: f.of(1).String()})
			if want := strings.ReplaceAll("2001:0db8:0009:0000:0000:0000:0000:0001", ":", ""); got.Verdict != "local" || !strings.Contains(got.Frame.Hex, want) {
				t.Errorf("%s: %s %s, %s", f.name, got.Verdict, got.Reason, got.Frame.Hex)
			}
		}
	})
}

// TestTraceOfWhatIsNoPort says which, and what to do.
func TestTraceOfWhatIsNoPort(t *testing.T) {
	inWorld(t, func(w *world) {
		w.started()
		e := endpoint(3)
		e.Interface = "gone"
		w.say(desired.Delta{Endpoints: map[desired.EndpointKey]*desired.Endpoint{e.EndpointKey: &e}})
		w.pass(time.Second)
		for in, say := range map[string]string{
			"v9":         "node node1 has no such device or endpoint",
			"gone":       "there is no device gone",
			"default/p3": "there is no device gone",
			"":           "no --in",
		} {
			code, body := w.traces(trace.Request{In: in, DstMAC: "02:00:00:00:00:01"})
			if code != http.StatusBadRequest || !strings.Contains(body, say) {
				t.Errorf("--in %q: %d %q, want %q", in, code, body, say)
			}
		}
		mux := http.NewServeMux()
		w.agent.handleTrace(mux)
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/trace?"+url.Values{"nonsense": {"1"}}.Encode(), nil))
		if rec.Code != http.StatusBadRequest {
			t.Errorf("a parameter that is none: %d", rec.Code)
		}
	})
}
