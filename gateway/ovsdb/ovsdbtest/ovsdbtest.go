// Package ovsdbtest runs real ovsdb-servers for tests and benchmarks: one process a database,
// started from the schemas installed on the machine, ended by its own process ID.
package ovsdbtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Schemas as the distribution's packages install them.
const (
	OVS = "/usr/share/openvswitch/vswitch.ovsschema"
	NB  = "/usr/share/ovn/ovn-nb.ovsschema"
	SB  = "/usr/share/ovn/ovn-sb.ovsschema"
)

// Server is one ovsdb-server with one database file.
type Server struct {
	File, Socket string
	args         []string
	dir          string
	cmd          *exec.Cmd
}

// New makes the database file from a schema and starts the server on a unix socket in dir, and on
// more remotes ("ptcp:0:127.0.0.1") or with more flags, if given.
func New(dir, schema string, flags ...string) (*Server, error) {
	name := filepath.Base(schema)
	s := &Server{File: filepath.Join(dir, name+".db"), Socket: filepath.Join(dir, name+".sock"), args: flags, dir: dir}
	if out, err := exec.Command("ovsdb-tool", "create", s.File, schema).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("ovsdb-tool create: %w: %s", err, out)
	}
	return s, s.Start()
}

// Start starts the server on its file and waits until it serves.
func (s *Server) Start() error {
	_ = os.Remove(s.Socket)
	name := filepath.Base(s.Socket)
	args := append([]string{"-vconsole:off", "-vfile:info", "--log-file=" + filepath.Join(s.dir, name+".log"), "--no-chdir",
		"--unixctl=" + filepath.Join(s.dir, name+".ctl"), "--remote=punix:" + s.Socket}, s.args...)
	s.cmd = exec.Command("ovsdb-server", append(args, s.File)...)
	s.cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir, "OVS_LOGDIR="+s.dir)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(s.Socket); err == nil {
			return nil
		}
	}
	s.Kill()
	return fmt.Errorf("ovsdb-server does not serve %s", s.Socket)
}

// Kill ends the server at once, as a crash does.
func (s *Server) Kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// PID gives the server's process ID, 0 while it does not run.
func (s *Server) PID() int {
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Remote gives the server's unix remote.
func (s *Server) Remote() string { return "unix:" + s.Socket }

// Start runs a server for the time of a test.
func Start(t testing.TB, schema string, flags ...string) *Server {
	t.Helper()
	for _, f := range []string{"ovsdb-server", "ovsdb-tool"} {
		if _, err := exec.LookPath(f); err != nil {
			t.Fatalf("no %s: run scripts/install-deps", f)
		}
	}
	// t.TempDir is too long a path for a unix socket when tests have long names
	dir, err := os.MkdirTemp("", "ovsdb")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(dir, schema, flags...)
	t.Cleanup(func() {
		if s != nil {
			s.Kill()
		}
		_ = os.RemoveAll(dir)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
