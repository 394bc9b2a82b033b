package apitest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"picot.dev/picot/k8s/api/v1alpha1"
)

// EtcdStatus is what etcd says of its database.
type EtcdStatus struct {
	Revision    int64
	Size, InUse int64 // bytes
	NoSpace     bool  // it takes no writes: its quota was exceeded
}

// EtcdStatus asks etcd.
func (s *Server) EtcdStatus(t testing.TB) (st EtcdStatus) {
	t.Helper()
	out := s.maintain(t, "status")
	if _, err := fmt.Sscanf(out, "revision=%d size=%d inUse=%d nospace=%t", &st.Revision, &st.Size, &st.InUse, &st.NoSpace); err != nil {
		t.Fatalf("etcd's status %q: %v", out, err)
	}
	return st
}

// Compact drops the history of etcd up to now: no watch can go on from before.
func (s *Server) Compact(t testing.TB) {
	t.Helper()
	s.maintain(t, "compact")
}

// Defragment gives freed space of etcd's database back.
func (s *Server) Defragment(t testing.TB) {
	t.Helper()
	s.maintain(t, "defrag")
}

// Disarm takes etcd's alarms back: it writes again.
func (s *Server) Disarm(t testing.TB) {
	t.Helper()
	s.maintain(t, "disarm")
}

// Load stores objects past the API server, which shows them as if they had been
// created: a name, and for each of them the JSON that is stored. It is for
// measurements that would spend their time on creates. Nothing is checked.
func (s *Server) Load(t testing.TB, resource string, objects iter.Seq2[string, any]) {
	t.Helper()
	in, out := io.Pipe()
	cmd := exec.Command(Binary(t), "etcd", "--endpoint", s.etcd, "load")
	cmd.Stdin = in
	failed := make(chan error, 1)
	go func() {
		said, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("etcd load: %w: %s", err, said)
		}
		_ = in.CloseWithError(err)
		failed <- err
	}()
	lines := bufio.NewWriter(out)
	for name, o := range objects {
		raw, err := json.Marshal(o)
		must(t, err)
		if _, err := fmt.Fprintf(lines, "/registry/%s/%s/%s\t%s\n", v1alpha1.Group, resource, name, raw); err != nil {
			break // said by failed
		}
	}
	_ = lines.Flush()
	_ = out.Close()
	must(t, <-failed)
}

// maintain does a piece of an etcd operator's work.
func (s *Server) maintain(t testing.TB, what string) string {
	t.Helper()
	out, err := exec.Command(Binary(t), "etcd", "--endpoint", s.etcd, what).CombinedOutput()
	if err != nil {
		t.Fatalf("etcd %s: %v: %s", what, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Fill stores blobs until etcd's database is within leave bytes of the server's
// quota. Free takes them away again.
func (s *Server) Fill(t testing.TB, leave int64) {
	t.Helper()
	r := s.raw(t)
	const size = 64 << 10
	blob := strings.Repeat("0123456789abcdef", size/16)
	n := 0
	for {
		gap := s.quota - leave - s.EtcdStatus(t).Size
		if gap <= 0 {
			return
		}
		for range 1 + gap/(2*size) { // the database grows by more than what is stored
			raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": fmt.Sprintf("blob-%d", n), "labels": map[string]any{"lab": "blob"}}, "data": map[string]any{"blob": blob}})
			must(t, err)
			must(t, create(r, raw))
			n++
		}
	}
}

// Free takes away what Fill stored, and makes etcd write again.
func (s *Server) Free(t testing.TB) {
	t.Helper()
	r := s.raw(t)
	raw, err := r.Get().AbsPath("/api/v1/namespaces/default/configmaps").Param("labelSelector", "lab=blob").DoRaw(context.Background())
	must(t, err)
	var list metav1.PartialObjectMetadataList
	must(t, json.Unmarshal(raw, &list))
	for _, o := range list.Items { // a full etcd still deletes
		must(t, r.Delete().AbsPath("/api/v1/namespaces/default/configmaps/"+o.Name).Do(context.Background()).Error())
	}
	s.Compact(t)
	s.Defragment(t)
	s.Disarm(t)
}
