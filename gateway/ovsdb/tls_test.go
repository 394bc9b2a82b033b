package ovsdb

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"picot.dev/picot/gateway/ovsdb/ovsdbtest"
)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, dir, name string) authority {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	return authority{cert, key, writePEM(t, filepath.Join(dir, name+".pem"), "CERTIFICATE", der)}
}

// issue makes a certificate without any host name, as ovs-pki does.
func (a authority) issue(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	kd, _ := x509.MarshalPKCS8PrivateKey(k)
	return writePEM(t, filepath.Join(dir, name+"-cert.pem"), "CERTIFICATE", der), writePEM(t, filepath.Join(dir, name+"-key.pem"), "PRIVATE KEY", kd)
}

func writePEM(t *testing.T, file, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSSLRemoteAndRefusedCertificates(t *testing.T) {
	dir := t.TempDir()
	good, bad := newAuthority(t, dir, "good"), newAuthority(t, dir, "bad")
	serverCert, serverKey := good.issue(t, dir, "server")
	clientCert, clientKey := good.issue(t, dir, "client")
	otherCert, otherKey := bad.issue(t, dir, "other")
	port := freePort(t)
	ovsdbtest.Start(t, ovsdbtest.NB, fmt.Sprintf("--remote=pssl:%d:127.0.0.1", port), "--ca-cert="+good.file, "--certificate="+serverCert, "--private-key="+serverKey)
	for _, c := range []struct {
		name  string
		files Files
		want  error
	}{
		{"accepted", Files{CA: good.file, Certificate: clientCert, Key: clientKey}, nil},
		{"we refuse the server", Files{CA: bad.file, Certificate: clientCert, Key: clientKey}, ErrCertificate},
		{"the server refuses us", Files{CA: good.file, Certificate: otherCert, Key: otherKey}, ErrCertificate},
		{"another name", Files{CA: good.file, Certificate: clientCert, Key: clientKey, ServerName: "elsewhere"}, ErrCertificate},
		{"no file", Files{CA: dir + "/none", Certificate: clientCert, Key: clientKey}, os.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ParseRemote(fmt.Sprintf("ssl:127.0.0.1:%d", port), c.files)
			if err != nil {
				t.Fatal(err)
			}
			d := run(t, Options{Database: Northbound, Remote: r}, Table{Name: TableNBGlobal})
			if c.want == nil {
				session(t, d)
				return
			}
			eventually(t, "an error", func() bool { return d.Err() != nil && !errors.Is(d.Err(), ErrNotConnected) })
			if err := d.Err(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), Northbound) {
				t.Fatalf("got %v", err)
			}
			t.Log(d.Err())
		})
	}
}

// schemaWithout writes a schema that lacks one column.
func schemaWithout(t *testing.T, file, table, column string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: scripts/install-deps installs it", err)
	}
	var s map[string]any
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	delete(s["tables"].(map[string]any)[table].(map[string]any)["columns"].(map[string]any), column)
	out, _ := json.Marshal(s)
	to := filepath.Join(t.TempDir(), "cut.ovsschema")
	if err := os.WriteFile(to, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}
