package ovsdb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// ErrRemote is wrapped by every error about the form of a remote.
var ErrRemote = errors.New("bad OVSDB remote")

// Files names the PEM files of an ssl remote.
type Files struct {
	CA, Certificate, Key string
	// ServerName is compared with the server's certificate. Empty: only the chain is verified, as
	// OVS itself does (ovs-pki certificates carry no name of a host).
	ServerName string
}

// Remote is where a database is served: one or several endpoints, tried in order.
type Remote struct {
	Endpoints []string
	Files     Files
}

// ParseRemote reads a comma-separated list of unix:PATH, tcp:HOST:PORT and ssl:HOST:PORT, the
// connection methods of ovsdb(7). An IPv6 host stands in brackets.
func ParseRemote(s string, f Files) (Remote, error) {
	r := Remote{Files: f}
	for _, e := range strings.Split(s, ",") {
		e = strings.TrimSpace(e)
		method, rest, ok := strings.Cut(e, ":")
		if !ok || rest == "" {
			return Remote{}, fmt.Errorf("%w %q: want unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT", ErrRemote, e)
		}
		switch method {
		case "unix":
			// libovsdb reads endpoints as URLs and takes the path only of an absolute one
			if !strings.HasPrefix(rest, "/") {
				return Remote{}, fmt.Errorf("%w %q: the path of a unix remote must be absolute", ErrRemote, e)
			}
		case "tcp", "ssl":
			if _, port, err := net.SplitHostPort(rest); err != nil || port == "" {
				return Remote{}, fmt.Errorf("%w %q: want %s:HOST:PORT (an IPv6 host in brackets)", ErrRemote, e, method)
			}
			if method == "ssl" && (f.CA == "" || f.Certificate == "" || f.Key == "") {
				return Remote{}, fmt.Errorf("%w %q: ssl needs a CA, a certificate and a key file", ErrRemote, e)
			}
		default:
			return Remote{}, fmt.Errorf("%w %q: unknown method %q, want unix, tcp or ssl", ErrRemote, e, method)
		}
		r.Endpoints = append(r.Endpoints, e)
	}
	return r, nil
}

func (r Remote) String() string { return strings.Join(r.Endpoints, ",") }

// usesTLS tells whether any endpoint is ssl.
func (r Remote) usesTLS() bool {
	for _, e := range r.Endpoints {
		if strings.HasPrefix(e, "ssl:") {
			return true
		}
	}
	return false
}

// tlsConfig reads the files anew, so that rotated certificates serve from the next connection on.
func (f Files) tlsConfig() (*tls.Config, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA of the OVSDB remote: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the CA of the OVSDB remote: no certificate in %s", f.CA)
	}
	cert, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the client certificate of the OVSDB remote: %w", err)
	}
	c := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: f.ServerName, MinVersion: tls.VersionTLS12}
	if f.ServerName == "" {
		// the chain is verified below; what is skipped is only the name
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(roots, s.PeerCertificates) }
	}
	return c, nil
}

func verifyChain(roots *x509.CertPool, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("the server sent no certificate")
	}
	middle := x509.NewCertPool()
	for _, c := range chain[1:] {
		middle.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: middle})
	return err
}
