// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

const (
	database       = "Open_vSwitch"
	defaultPort    = "6640"
	defaultRunDir  = "/var/run/openvswitch"
	connectTimeout = 10 * time.Second
)

// SSL names the PEM files for ssl: endpoints, all of them required.
type SSL struct {
	PrivateKey  string
	Certificate string
	CACert      string
}

// endpoint is a parsed "unix:PATH", "tcp:IP[:PORT]" or "ssl:IP[:PORT]".
type endpoint struct {
	scheme  string
	network string
	address string
	tls     *tls.Config
}

func unixEndpoint(path string) endpoint {
	return endpoint{scheme: "unix", network: "unix", address: path}
}

func parseEndpoint(text string, ssl SSL) (endpoint, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok || rest == "" {
		return endpoint{}, fmt.Errorf("parsing endpoint %q: want unix:PATH, tcp:IP:PORT or ssl:IP:PORT", text)
	}
	e := endpoint{scheme: scheme, network: "tcp", address: rest}
	switch scheme {
	case "unix":
		e.network = "unix"
		return e, nil
	case "tcp", "ssl":
		host, port, err := net.SplitHostPort(rest)
		if err != nil {
			host, port = strings.Trim(rest, "[]"), defaultPort
		}
		e.address = net.JoinHostPort(host, port)
	default:
		return endpoint{}, fmt.Errorf("parsing endpoint %q: unknown scheme %q", text, scheme)
	}
	if scheme == "ssl" {
		var err error
		if e.tls, err = tlsConfig(ssl); err != nil {
			return endpoint{}, err
		}
	}
	return e, nil
}

// tlsConfig verifies the server's chain but not its name, as every OVSDB client does: certificates of ovs-pki carry none.
func tlsConfig(ssl SSL) (*tls.Config, error) {
	for option, file := range map[string]string{
		"ssl_key_file": ssl.PrivateKey, "ssl_cert_file": ssl.Certificate, "ssl_ca_cert_file": ssl.CACert,
	} {
		if file == "" {
			return nil, fmt.Errorf("configuring ssl for the database: option %s is required", option)
		}
	}
	cert, err := tls.LoadX509KeyPair(ssl.Certificate, ssl.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("configuring ssl for the database: %w", err)
	}
	pem, err := os.ReadFile(ssl.CACert)
	if err != nil {
		return nil, fmt.Errorf("configuring ssl for the database: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("configuring ssl for the database: no certificate in %s", ssl.CACert)
	}
	return &tls.Config{
		Certificates:       []tls.Certificate{cert},
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // only of the name; the chain is verified below
		VerifyConnection: func(state tls.ConnectionState) error {
			opts := x509.VerifyOptions{
				Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
			}
			for _, c := range state.PeerCertificates[1:] {
				opts.Intermediates.AddCert(c)
			}
			_, err := state.PeerCertificates[0].Verify(opts)
			return err
		},
	}, nil
}

func (e endpoint) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var conn net.Conn
	var err error
	if e.tls != nil {
		conn, err = (&tls.Dialer{Config: e.tls}).DialContext(ctx, e.network, e.address)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, e.network, e.address)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to %s:%s: %w", e.scheme, e.address, err)
	}
	return conn, nil
}

// localSocket returns where the database of this host listens in any case.
func localSocket() string {
	dir := os.Getenv("OVS_RUNDIR")
	if dir == "" {
		dir = defaultRunDir
	}
	return dir + "/db.sock"
}

// refused says whether nobody listens at a tcp or ssl endpoint.
func (e endpoint) refused(err error) bool {
	return e.network == "tcp" && errors.Is(err, syscall.ECONNREFUSED)
}

// onThisHost says whether a tcp or ssl endpoint is an address of this host: the database there is the one of the local socket.
func (e endpoint) onThisHost() bool {
	host, _, _ := net.SplitHostPort(e.address)
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.IsLoopback() {
		return err == nil
	}
	addrs, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().WithZone("") == ip
	})
}

// result is the server's answer to one operation. Not libovsdb's type, whose decoder panics on a uuid without a value.
type result struct {
	Error   string                       `json:"error"`
	Details string                       `json:"details"`
	Rows    []map[string]json.RawMessage `json:"rows"` // of a select
}

// transact sends operations and returns the results, as many as the server gave. Answered runs in the reader's order.
func transact(ctx context.Context, s *session, ops []wire.Operation, answered func()) ([]result, error) {
	var results []result
	err := s.call(ctx, "transact", wire.NewTransactArgs(database, ops...), func(raw json.RawMessage) error {
		if answered != nil {
			answered()
		}
		var err error
		results, err = decodeResults(raw)
		return err
	})
	return results, err
}

func decodeResults(raw json.RawMessage) (results []result, err error) {
	if err := json.Unmarshal(raw, &results); err != nil {
		return nil, fmt.Errorf("decoding the results of a transaction: %w", err)
	}
	return results, nil
}
