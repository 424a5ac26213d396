// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// certificates makes a CA with a key pair for each name and returns the directory of the PEM files. "middle" is another CA, which signs those after it.
func certificates(t testing.TB, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(file, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca " + t.Name()}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(err)
	write("ca.pem", "CERTIFICATE", der)
	for i, name := range names {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		// As ovs-pki does: no names besides the common name, no extended usage.
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: name + " id:1"}, NotAfter: time.Now().Add(time.Hour),
			IsCA: name == "middle", BasicConstraintsValid: name == "middle",
		}
		der, err := x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, caKey)
		must(err)
		write(name+".pem", "CERTIFICATE", der)
		der, err = x509.MarshalECPrivateKey(key)
		must(err)
		write(name+".key", "EC PRIVATE KEY", der)
		if cert.IsCA {
			ca, caKey = cert, key
		}
	}
	return dir
}

// TestWhoIsTrusted: the chain of the server's certificate has to lead to the CA, whatever name it is for, and the agent shows its own.
func TestWhoIsTrusted(t *testing.T) {
	direct, chained, other := certificates(t, "agent", "server"), certificates(t, "agent", "middle", "server"), certificates(t)
	read := func(file string) []byte {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		dir, ca string
		shown   []string // certificates that the server shows
		want    string   // in the error
	}{
		{"the CA's", direct, direct + "/ca.pem", []string{"server"}, ""},
		{"by another CA in between", chained, chained + "/ca.pem", []string{"server", "middle"}, ""},
		{"by another CA that is not shown", chained, chained + "/ca.pem", []string{"server"}, "certificate"},
		{"of somebody else", direct, other + "/ca.pem", []string{"server"}, "certificate"},
		{"no certificate in the file", direct, junk, []string{"server"}, "no certificate in " + junk},
		{"no file", direct, junk + ".none", []string{"server"}, "no such file"},
	} {
		var chain []byte
		for _, name := range c.shown {
			chain = slices.Concat(chain, read(c.dir+"/"+name+".pem"))
		}
		own, err := tls.X509KeyPair(chain, read(c.dir+"/server.key"))
		if err != nil {
			t.Fatal(err)
		}
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		answer := json.RawMessage(`[{"rows":[]},{"rows":[]},{"rows":[]}]`)
		s := &fake.RPC{Handle: func(*fake.RPCConn, string, []json.RawMessage) (any, string) { return answer, "" }}
		var served sync.WaitGroup
		served.Go(func() { s.Accept(listener) })
		_, err = ovsdb.Look(t.Context(), ovsdb.Config{Endpoint: "ssl:" + listener.Addr().String(), SSL: ovsdb.SSL{
			PrivateKey: c.dir + "/agent.key", Certificate: c.dir + "/agent.pem", CACert: c.ca,
		}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		_ = listener.Close()
		served.Wait()
		s.Close()
	}
}
