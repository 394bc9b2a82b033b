package client

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// read returns what a watch of these bytes says, as "TYPE object".
func read(body string) (said []string, err error) {
	e := newEvents(io.NopCloser(strings.NewReader(body)), func(t watch.EventType, object []byte) (runtime.Object, error) {
		if !json.Valid(object) {
			return nil, errors.New("no JSON: " + string(object))
		}
		said = append(said, string(t)+" "+string(object))
		return &metav1.Status{}, nil
	})
	for {
		t, o, err := e.Decode()
		if err != nil {
			return said, err
		}
		if t == watch.Error {
			said = append(said, "ERROR "+o.(*metav1.Status).Message)
		}
	}
}

func TestStreamOfEvents(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", 200<<10) + `"}`
	for name, c := range map[string]struct {
		body string
		want []string
		err  string
	}{
		"events":     {`{"type":"ADDED","object":{"a":1}}` + "\n" + `{"type":"DELETED","object":{"a":{}}}` + "\n", []string{`ADDED {"a":1}`, `DELETED {"a":{}}`}, "EOF"},
		"bookmark":   {`{"type":"BOOKMARK","object":{}}` + "\n\n", []string{`BOOKMARK {}`}, "EOF"},
		"long line":  {`{"type":"ADDED","object":` + long + "}\n" + `{"type":"ADDED","object":{}}` + "\n", []string{"ADDED " + long, "ADDED {}"}, "EOF"},
		"other way":  {`{ "object": {"a":1}, "type": "ADDED" }` + "\r\n", []string{`ADDED {"a":1}`}, "EOF"},
		"error":      {`{"type":"ERROR","object":{"message":"too old"}}` + "\n", []string{"ERROR too old"}, "EOF"},
		"cut off":    {`{"type":"ADDED","object":{"a":1}}` + "\n" + `{"type":"ADDED","obj`, []string{`ADDED {"a":1}`}, "unexpected EOF"},
		"no type":    {`{"type":"NEWS","object":{}}` + "\n", nil, "no type of event"},
		"no JSON":    {`{"type":"ADDED"` + "\n", nil, "event of a watch"},
		"two in one": {`{"type":"ADDED","object":{}}{"type":"ADDED","object":{}}` + "\n", nil, "no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := read(c.body)
			if strings.Join(said, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("said %.200q, want %.200q", said, c.want)
			}
			if !strings.Contains(err.Error(), c.err) {
				t.Errorf("ended with %v, want %s", err, c.err)
			}
		})
	}
}

// FuzzEnvelope holds the short way to open an event to what encoding/json says.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{`{"type":"ADDED","object":{"a":1}}`, `{"type":"A","object":{},"object":{"b":2}}`, `{"type":"A\"","object":{}}`, `{"object":{"type":"X"},"type":"A"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var want struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if json.Unmarshal([]byte(line), &want) != nil || !strings.HasPrefix(string(want.Object), "{") {
			return // an object that is none is refused by whoever decodes it
		}
		kind, object, err := envelope([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		// Of an event with more than the two fields the object may not be one: that
		// is refused, too, and never taken for another object.
		if json.Valid(object) && (kind != want.Type || string(object) != string(want.Object)) {
			t.Errorf("%q is %s %s, want %s %s", line, kind, object, want.Type, want.Object)
		}
	})
}
