package apitest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
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

// maintain does a piece of an etcd operator's work.
func (s *Server) maintain(t testing.TB, what string) string {
	t.Helper()
	out, err := exec.Command(Binary(t), "etcd", "--endpoint", s.etcd, what).CombinedOutput()
	if err != nil {
		t.Fatalf("etcd %s: %v: %s", what, err, out)
	}
	return strings.TrimSpace(string(out))
}
