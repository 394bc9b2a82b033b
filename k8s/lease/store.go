package lease

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// store is one Lease in the API server.
type store struct {
	rest            rest.Interface
	namespace, name string
}

func newStore(config *rest.Config, namespace, name string) (store, error) {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return store{}, err
	}
	c := rest.CopyConfig(config)
	gv := coordinationv1.SchemeGroupVersion
	c.GroupVersion, c.APIPath, c.QPS = &gv, "/apis", -1
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	r, err := rest.RESTClientFor(c)
	return store{r, namespace, name}, err
}

// get reads the Lease; one that is not there is empty.
func (s *store) get(ctx context.Context) (*coordinationv1.Lease, record, error) {
	var l coordinationv1.Lease
	err := s.rest.Get().Namespace(s.namespace).Resource("leases").Name(s.name).Do(ctx).Into(&l)
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}, record{}, nil
	}
	if err != nil {
		return nil, record{}, err
	}
	return &l, recordOf(&l), nil
}

func recordOf(l *coordinationv1.Lease) record {
	r := record{version: l.ResourceVersion}
	if h := l.Spec.HolderIdentity; h != nil {
		r.holder = *h
	}
	if d := l.Spec.LeaseDurationSeconds; d != nil {
		r.duration = time.Duration(*d) * time.Second
	}
	return r
}

// put stores l if it is still as it was read, and reads what was stored into it.
func (s *store) put(ctx context.Context, l *coordinationv1.Lease) error {
	if l.ResourceVersion == "" {
		return s.rest.Post().Namespace(s.namespace).Resource("leases").Body(l).Do(ctx).Into(l)
	}
	return s.rest.Put().Namespace(s.namespace).Resource("leases").Name(s.name).Body(l).Do(ctx).Into(l)
}
