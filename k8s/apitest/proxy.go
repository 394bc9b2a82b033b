package apitest

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Proxy is a way to a Server that can be cut: what goes through it then breaks,
// and nothing new gets through, while the server itself runs on.
type Proxy struct {
	server string // host:port
	in     net.Listener
	group  sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// Proxy opens a way to the server that ends with the test. The server may be
// restarted behind it.
func (s *Server) Proxy(t testing.TB) *Proxy {
	t.Helper()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &Proxy{server: strings.TrimPrefix(s.admin.Host, "https://"), in: in, conns: map[net.Conn]bool{}}
	p.group.Go(p.accept)
	t.Cleanup(func() {
		_ = in.Close()
		p.Cut()
		p.group.Wait()
	})
	return p
}

// Config returns c with the way through the proxy. The server's certificate is
// good for it: it names the host, not the port.
func (p *Proxy) Config(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Host = "https://" + p.in.Addr().String()
	return c
}

// Cut breaks what is open and lets nothing through.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Restore lets things through again.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *Proxy) accept() {
	for {
		c, err := p.in.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.server)
		if err != nil || !p.keep(c, far) {
			_ = c.Close()
			if far != nil {
				_ = far.Close()
			}
			continue
		}
		p.group.Go(func() { p.copy(c, far) })
		p.group.Go(func() { p.copy(far, c) })
	}
}

// keep notes both ends of a connection; false: the way is cut.
func (p *Proxy) keep(ends ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	for _, c := range ends {
		p.conns[c] = true
	}
	return true
}

// copy carries one direction; its end ends both.
func (p *Proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, to)
	delete(p.conns, from)
}
