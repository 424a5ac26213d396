// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair is a certificate, its key, and the files that have them.
type pair struct {
	tls.Certificate
	cert, key string
}

// sign makes a certificate, signed by an authority or, without one, by itself.
func sign(t *testing.T, name string, by *pair) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: by == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secretKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{cert: filepath.Join(t.TempDir(), name+".crt"), key: filepath.Join(t.TempDir(), name+".key")}
	certText, keyText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secretKey})
	for file, text := range map[string][]byte{p.cert: certText, p.key: keyText} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if p.Certificate, err = tls.X509KeyPair(certText, keyText); err != nil {
		t.Fatal(err)
	}
	return p
}

// Nova behind https is asked only if its certificate is that of an authority that the options name, or if they say that it does not matter; and it is
// shown the certificate of the options.
func TestNovaWithTLS(t *testing.T) {
	authority, other := sign(t, "authority", nil), sign(t, "other", nil)
	client, stranger := sign(t, "client", authority), sign(t, "stranger", other)
	clients := x509.NewCertPool()
	clients.AddCert(authority.Leaf)
	serve := func(wants tls.ClientAuthType) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(nova))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{sign(t, "nova", authority).Certificate}, ClientAuth: wants, ClientCAs: clients, MinVersion: tls.VersionTLS12}
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL
	}
	open, closed := serve(tls.NoClientCert), serve(tls.RequireAndVerifyClientCert)
	for name, c := range map[string]struct {
		nova Nova
		code int
	}{
		"the authority that signed":            {Nova{URL: open, CACert: authority.cert}, 200},
		"another authority":                    {Nova{URL: open, CACert: other.cert}, 502},
		"the authorities of the host":          {Nova{URL: open}, 502},
		"nova_metadata_insecure":               {Nova{URL: open, Insecure: true}, 200},
		"insecure, and another authority":      {Nova{URL: open, CACert: other.cert, Insecure: true}, 200},
		"http in place of https":               {Nova{URL: strings.Replace(open, "https:", "http:", 1)}, 400},
		"no certificate, where one is wanted":  {Nova{URL: closed, CACert: authority.cert}, 502},
		"the certificate that is wanted":       {Nova{URL: closed, CACert: authority.cert, Cert: client.cert, Key: client.key}, 200},
		"a certificate of another authority":   {Nova{URL: closed, CACert: authority.cert, Cert: stranger.cert, Key: stranger.key}, 502},
		"its certificate, and Nova's is wrong": {Nova{URL: closed, CACert: other.cert, Cert: client.cert, Key: client.key}, 502},
	} {
		c.nova.Secret = secret
		p, err := New(c.nova, nil, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p.Give(served)
		code, body := ask(p, one, get("/latest"))
		if code != c.code || code == 200 && body != "vm1 [blue] [10.5.0.11] /latest" {
			t.Errorf("%s: %d %q, want %d", name, code, body, c.code)
		}
		p.forward.Transport.(*http.Transport).CloseIdleConnections()
	}
}

// Files that cannot be used stop the start, and the error names the option.
func TestNovaWithBadFiles(t *testing.T) {
	good, empty := sign(t, "good", nil), filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, nova := range map[string]Nova{
		"auth_ca_cert: open":                           {CACert: "/nonexistent"},
		"auth_ca_cert: " + empty:                       {CACert: empty},
		"nova_client_cert and nova_client_priv_key":    {Cert: good.cert, Key: "/nonexistent"},
		"nova_client_cert and nova_client_priv_key: t": {Cert: good.cert, Key: sign(t, "another", nil).key},
	} {
		nova.URL = "https://127.0.0.1:1"
		if _, err := New(nova, nil, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
