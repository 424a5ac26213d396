// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// tlsConfig follows the ssl_* options for one broker host. The files are read anew for each connection, so renewed
// certificates are picked up. The second result says how far the broker is verified, in the words of [Connected].
func (r *Rabbit) tlsConfig(host string) (*tls.Config, string, error) {
	if r.TLSEnforceFIPSMode && !fips140.Enabled() {
		return nil, "", errors.New("ssl_enforce_fips_mode is set, but the program runs without FIPS mode (GODEBUG=fips140=on)")
	}
	cfg := &tls.Config{ServerName: host}
	switch strings.ToLower(r.TLSVersion) {
	case "", "sslv23":
		cfg.MinVersion = tls.VersionTLS12
	case "tlsv1":
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	case "tlsv1_1":
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	case "tlsv1_2":
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	default:
		return nil, "", fmt.Errorf("ssl_version %q is not supported", r.TLSVersion)
	}
	if r.TLSCertFile != "" {
		key := r.TLSKeyFile
		if key == "" {
			key = r.TLSCertFile
		}
		cert, err := tls.LoadX509KeyPair(r.TLSCertFile, key)
		if err != nil {
			return nil, "", fmt.Errorf("reading ssl_cert_file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	if r.TLSCAFile == "" {
		cfg.InsecureSkipVerify = true
		return cfg, "unverified", nil
	}
	pem, err := os.ReadFile(r.TLSCAFile)
	if err != nil {
		return nil, "", fmt.Errorf("reading ssl_ca_file: %w", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, "", errors.New("reading ssl_ca_file: it holds no certificate")
	}
	if r.TLSVerifyHostname {
		return cfg, "verified", nil
	}
	// The chain is verified, the name is not: crypto/tls has no switch for that.
	cfg.InsecureSkipVerify = true
	roots := cfg.RootCAs
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(opts)
		return err
	}
	return cfg, "chain", nil
}
