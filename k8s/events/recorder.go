package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// Options of a Recorder. Zero values mean the defaults named.
type Options struct {
	Config *rest.Config
	Node   string  // whose agent this is
	Rate   float64 // Events a second; 5
	Burst  int     // Events at once after a rest; 50
	Log    *slog.Logger
}

// Recorder writes Events. Make one with New.
type Recorder struct {
	o    Options
	rest rest.Interface
	to   atomic.Pointer[record.EventRecorderLogger] // nil: not running
}

// maxMessage is what events.k8s.io/v1 lets a message have.
const maxMessage = 1024

// New returns a Recorder that drops what it is told until Run.
func New(o Options) (*Recorder, error) {
	if o.Config == nil || o.Node == "" {
		return nil, errors.New("events: give a configuration and the node's name")
	}
	if o.Rate == 0 {
		o.Rate = 5
	}
	if o.Burst == 0 {
		o.Burst = 50
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(o.Config)
	gv := corev1.SchemeGroupVersion
	c.GroupVersion, c.APIPath, c.QPS = &gv, "/api", -1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return &Recorder{o: o, rest: r}, nil
}

// Run writes until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(r.o.Log.Handler()))
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&sink{ctx: ctx, rest: r.rest, limit: rate.NewLimiter(rate.Limit(r.o.Rate), r.o.Burst)})
	to := b.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "picot-agent", Host: r.o.Node})
	r.to.Store(&to)
	<-ctx.Done()
	r.to.Store(nil)
	b.Shutdown()
}

// Endpoint tells something of an endpoint. warning says that somebody should
// look; reason is one UpperCamelCase word for machines.
func (r *Recorder) Endpoint(e desired.EndpointRef, warning bool, reason, format string, args ...any) {
	r.Object(desired.Ref{Kind: v1alpha1.KindNetworkEndpoint, Namespace: e.Namespace, Name: e.Name}, e.UID, warning, reason, format, args...)
}

// Object is Endpoint for an object of any of picot's kinds. Without its UID,
// kubectl describe does not show the Event.
func (r *Recorder) Object(ref desired.Ref, uid string, warning bool, reason, format string, args ...any) {
	to := r.to.Load()
	if to == nil || ref.Name == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	message := fmt.Sprintf(format, args...)
	(*to).Event(&corev1.ObjectReference{
		APIVersion: v1alpha1.APIVersion, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(uid),
	}, kind, reason, strings.ToValidUTF8(message[:min(len(message), maxMessage)], ""))
}

// sink is where client-go's recorder stores Events. It is called by one
// goroutine.
type sink struct {
	ctx   context.Context
	rest  rest.Interface
	limit *rate.Limiter
}

func (s *sink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.store(s.rest.Post().Namespace(e.Namespace).Resource("events").Body(e))
}

// Update is not used by the recorder: it patches.
func (s *sink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.store(s.rest.Put().Namespace(e.Namespace).Resource("events").Name(e.Name).Body(e))
}

func (s *sink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.store(s.rest.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(data))
}

func (s *sink) store(r *rest.Request) (*corev1.Event, error) {
	if err := s.limit.Wait(s.ctx); err != nil {
		return nil, err
	}
	out := &corev1.Event{}
	return out, r.Do(s.ctx).Into(out)
}
