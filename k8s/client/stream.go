package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Decode makes an object of its JSON, which it may not keep. It is told what
// happened to the object: of a bookmark there is hardly more than a version.
type Decode func(t watch.EventType, object []byte) (runtime.Object, error)

// Stream opens a watch like [Client.Watch], whose objects decode makes, one at a
// time: a collection of very many is then never held in any other form, and no
// JSON is read more often than once.
func (c *Client) Stream(ctx context.Context, r Resource, opts metav1.ListOptions, decode Decode) (watch.Interface, error) {
	opts.Watch = true
	req := c.rest.Get().NamespaceIfScoped(r.Namespace, r.Namespace != "").Resource(r.Name).
		VersionedParams(&opts, metav1.ParameterCodec)
	if opts.TimeoutSeconds != nil {
		req = req.Timeout(time.Duration(*opts.TimeoutSeconds) * time.Second)
	}
	body, err := req.Stream(ctx)
	if err != nil {
		return nil, err
	}
	return watch.NewStreamWatcher(newEvents(body, decode), apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")), nil
}

// events reads a watch: one event a line.
type events struct {
	body   io.Closer
	lines  *bufio.Reader
	long   []byte // of a line longer than the reader's buffer
	decode Decode
}

func newEvents(body io.ReadCloser, decode Decode) *events {
	return &events{body: body, lines: bufio.NewReaderSize(body, 64<<10), decode: decode}
}

// Close implements watch.Decoder.
func (e *events) Close() { _ = e.body.Close() }

// Decode implements watch.Decoder.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	line, err := e.line()
	if err != nil {
		return "", nil, err
	}
	t, object, err := envelope(line)
	if err != nil {
		return "", nil, fmt.Errorf("event of a watch: %w", err)
	}
	switch t {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		o, err := e.decode(t, object)
		return t, o, err
	case watch.Error:
		var s metav1.Status
		if err := json.Unmarshal(object, &s); err != nil {
			return "", nil, fmt.Errorf("error of a watch: %w", err)
		}
		return t, &s, nil
	}
	return "", nil, fmt.Errorf("event of a watch: %q is no type of event", t)
}

// line returns the next line that is not empty; it is valid until the next call.
func (e *events) line() ([]byte, error) {
	for {
		part, err := e.lines.ReadSlice('\n')
		line := part
		e.long = e.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			e.long = append(e.long, part...)
			part, err = e.lines.ReadSlice('\n')
			line = nil
		}
		if line == nil {
			e.long = append(e.long, part...)
			line = e.long
		}
		line = bytes.TrimSpace(line)
		switch {
		case err != nil && errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case len(line) > 0:
			return line, nil
		}
	}
}

// envelope opens an event. API servers write {"type":T,"object":O}; any other way
// to say the same takes longer.
func envelope(line []byte) (t watch.EventType, object []byte, err error) {
	if rest, ok := bytes.CutPrefix(line, []byte(`{"type":"`)); ok {
		name, rest, ok := bytes.Cut(rest, []byte(`","object":{`))
		if ok && bytes.HasSuffix(rest, []byte("}}")) {
			object = line[len(line)-len(rest)-1 : len(line)-1]
			switch t = watch.EventType(name); t {
			case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
				return t, object, nil
			}
		}
	}
	var e struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	err = json.Unmarshal(line, &e)
	return e.Type, e.Object, err
}
