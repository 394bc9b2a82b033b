package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// ErrCertificate: one side of an ssl remote refused the other's certificate.
var ErrCertificate = errors.New("certificate refused")

// explain replaces the error of a failed connection by the reason of a failed TLS handshake, if
// that was it. A server that refuses the client's certificate says so only after the handshake
// (RFC 8446 4.4.2), where libovsdb sees no more than a closed connection; so the handshake is made
// once more and the alert read.
func explain(ctx context.Context, r Remote, err error) error {
	if !r.usesTLS() {
		return err
	}
	cfg, cfgErr := r.Files.tlsConfig()
	if cfgErr != nil {
		return cfgErr
	}
	for _, e := range r.Endpoints {
		addr, ok := strings.CutPrefix(e, "ssl:")
		if !ok {
			continue
		}
		if cause := handshake(ctx, addr, cfg); cause != nil {
			return fmt.Errorf("%s: %w: %w (check the CA, certificate and key configured here, and the server's)", e, ErrCertificate, cause)
		}
	}
	return err
}

// handshake returns why TLS with addr fails, nil if it does not or addr cannot be reached at all.
func handshake(ctx context.Context, addr string, cfg *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var nd net.Dialer
	raw, err := nd.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil
	}
	defer raw.Close()
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, err = c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) {
		return nil // the server waits for a request: it accepted us; or it closed without an alert
	}
	return err
}
