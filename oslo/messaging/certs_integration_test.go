// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// writeCertificates makes an authority, a server certificate for the name localhost (not for 127.0.0.1), a client
// certificate for the user "bycert", and a second authority that signed neither.
func writeCertificates(dir string) error {
	ca, caKey, err := certificate(dir, "ca", "Test CA", nil, nil)
	if err != nil {
		return err
	}
	if _, _, err := certificate(dir, "server", "localhost", ca, caKey); err != nil {
		return err
	}
	if _, _, err := certificate(dir, "client", "bycert", ca, caKey); err != nil {
		return err
	}
	_, _, err = certificate(dir, "other-ca", "Other CA", nil, nil)
	return err
}

func certificate(dir, file, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{name}, BasicConstraintsValid: true,
	}
	if ca == nil {
		t.IsCA, t.KeyUsage, t.DNSNames = true, x509.KeyUsageCertSign, nil
		ca, caKey = t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	for path, b := range map[string]*pem.Block{
		file + ".pem": {Type: "CERTIFICATE", Bytes: der}, file + "-key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, path), pem.EncodeToMemory(b), 0o600); err != nil {
			return nil, nil, err
		}
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}
