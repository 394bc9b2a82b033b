package apitest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"picot.dev/picot/k8s/client"
)

// Server is a running API server. Its data goes with the test.
type Server struct {
	Kubeconfig string // the administrator's
	PID        int

	admin *rest.Config
	args  []string
	quota int64
	etcd  string // URL
	dir   string
	cmd   *exec.Cmd
	dead  bool
}

// Options of a Server.
type Options struct {
	// Args are kube-apiserver's own, such as --audit-log-path=FILE.
	Args []string
	// Bare leaves out the CRDs and everything else of deploy.
	Bare bool
	// Quota is the size in bytes that etcd's database may have; 0: etcd's own.
	Quota int64
}

// Start builds the server if it is not in the cache, which takes minutes, and
// starts it. With -short the test is skipped.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("a real kube-apiserver is not for -short")
	}
	s := &Server{dir: t.TempDir(), args: o.Args, quota: o.Quota}
	s.Kubeconfig = filepath.Join(s.dir, "admin.kubeconfig")
	s.start(t, Binary(t), freePort)
	t.Cleanup(func() { s.Stop(t) })
	if !o.Bare {
		s.install(t)
	}
	return s
}

const freePort = 0

// start runs the binary and waits for READY.
func (s *Server) start(t testing.TB, binary string, port int) {
	t.Helper()
	args := []string{"--kubeconfig", s.Kubeconfig, "--data-dir", filepath.Join(s.dir, "data"), "--keep-data", "--port", fmt.Sprint(port), "--quota-backend-bytes", fmt.Sprint(s.quota)}
	if len(s.args) > 0 {
		args = append(append(args, "--"), s.args...)
	}
	s.cmd = exec.Command(binary, args...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer log.Close()
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	must(t, err)
	t.Log("starting the API server")
	// The thread that starts a child with Pdeathsig must outlive it.
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := s.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		select {} // the thread stays for the life of the test binary
	}()
	must(t, <-started)
	s.PID = s.cmd.Process.Pid
	s.dead = false
	ready := make(chan string, 1)
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if strings.HasPrefix(sc.Text(), "READY") {
				ready <- sc.Text()
				break
			}
		}
		for sc.Scan() {
		}
		close(ready)
	}()
	select {
	case line := <-ready:
		if line == "" {
			tail, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			t.Fatalf("the API server ended before it was ready:\n%s", last(tail, 2000))
		}
		t.Log(line)
		for _, f := range strings.Fields(line) {
			if url, ok := strings.CutPrefix(f, "etcd="); ok {
				s.etcd = url
			}
		}
	case <-time.After(3 * time.Minute):
		_ = s.cmd.Process.Kill()
		t.Fatal("the API server was not ready after 3 minutes")
	}
	s.admin, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	must(t, err)
	s.admin.QPS = -1
}

func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// Stop ends the server, if it runs. Its data stays for Restart.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if s.dead {
		return
	}
	s.dead = true
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-done
	}
}

// Kill ends the server as a crash would.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.dead = true
	must(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
}

// Restart starts it again on the same address with the same data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	var port int
	host := s.admin.Host
	if _, err := fmt.Sscanf(host[strings.LastIndex(host, ":"):], ":%d", &port); err != nil {
		t.Fatalf("port of %s: %v", host, err)
	}
	s.start(t, Binary(t), port)
}

// Config returns the administrator's configuration.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.admin) }

// Client returns an administrator's client of picot's kinds.
func (s *Server) Client(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(s.admin)
	must(t, err)
	return c
}

// Binary returns the path of the server's binary, which it builds unless the
// cache has one of these sources: $XDG_CACHE_HOME/picot/apiserver/<hash>.
func Binary(t testing.TB) string {
	t.Helper()
	src := filepath.Join(Root(), "test", "lab", "apiserver")
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(src, "*.go"))
	must(t, err)
	for _, path := range append([]string{filepath.Join(src, "go.mod"), filepath.Join(src, "go.sum")}, sources...) {
		b, err := os.ReadFile(path)
		must(t, err)
		h.Write(b)
	}
	cache, err := os.UserCacheDir()
	must(t, err)
	path := filepath.Join(cache, "picot", "apiserver", hex.EncodeToString(h.Sum(nil))[:16], "apiserver")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	t.Logf("building the API server into %s: minutes the first time", path)
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.Command("go", "build", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2", "-o", tmp, ".")
	cmd.Dir = src
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build of test/lab/apiserver: %v\n%s", err, last(out, 2000))
	}
	must(t, os.Rename(tmp, path))
	return path
}

// Root returns the root of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
