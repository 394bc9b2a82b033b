package source

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// view names one thing that is followed.
type view struct {
	resource string
	selector selector
}

// Unheard says what cannot be listed or watched as of now, and the mend. It is no
// loss by itself: what was heard before stands.
func (s *Source) Unheard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Compact(slices.Sorted(maps.Values(s.unheard)))
}

// heard records how the last try of a view ended.
func (s *Source) heard(ctx context.Context, v view, err error) {
	if err != nil && ctx.Err() != nil {
		return // its end
	}
	text := ""
	name := v.resource + "." + v1alpha1.Group
	switch {
	case err == nil:
	case apierrors.IsNotFound(err):
		text = name + ": the API server does not know this kind: install picot's CRDs, deploy/crd"
	case apierrors.IsForbidden(err):
		text = fmt.Sprintf("%s: %v: install picot's roles, deploy/rbac", name, err)
	default:
		text = fmt.Sprintf("%s: %v", name, err)
	}
	s.mu.Lock()
	same := s.unheard[v] == text
	if s.unheard[v] = text; text == "" {
		delete(s.unheard, v)
	}
	s.mu.Unlock()
	if !same {
		poke(s.changed)
	}
}

// forget drops a view that is not followed any more.
func (s *Source) forget(v view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unheard, v)
}
