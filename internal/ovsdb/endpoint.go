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
	"os"
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

// managerTarget returns the target of the Manager row that makes ovsdb-server listen on the endpoint, written as the
// Python agent writes it: ptcp:PORT:IP.
func (e endpoint) managerTarget() string {
	host, port, _ := net.SplitHostPort(e.address)
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return "p" + e.scheme + ":" + port + ":" + host
}

// localSocket returns where the database of this host listens in any case.
func localSocket() string {
	dir := os.Getenv("OVS_RUNDIR")
	if dir == "" {
		dir = defaultRunDir
	}
	return dir + "/db.sock"
}

// refused says whether nobody listens at a tcp or ssl endpoint, which a Manager row can change.
func (e endpoint) refused(err error) bool {
	return e.network == "tcp" && errors.Is(err, syscall.ECONNREFUSED)
}

// addManager adds the Manager row for target through the local socket. A row that is there already is left alone.
func addManager(ctx context.Context, socket, target string, probe time.Duration) error {
	conn, err := endpoint{scheme: "unix", network: "unix", address: socket}.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	s := newSession(conn, func(string, json.RawMessage) error { return nil })
	served := make(chan struct{})
	go func() { defer close(served); _ = s.serve(ctx, 0) }()
	defer func() { s.close(context.Canceled); <-served }()

	var roots []result
	if roots, err = transact(ctx, s, []wire.Operation{
		{Op: wire.OperationSelect, Table: "Open_vSwitch", Columns: []string{"_uuid"}},
	}, nil); err != nil {
		return err
	}
	if len(roots) == 0 || len(roots[0].Rows) == 0 {
		return fmt.Errorf("the database has no row in Open_vSwitch")
	}
	row := wire.Row{"target": target}
	if probe > 0 {
		row["inactivity_probe"] = probe.Milliseconds()
	}
	zero := 0
	ops := []wire.Operation{
		{
			Op: wire.OperationWait, Table: "Manager", Timeout: &zero, Until: string(wire.WaitConditionNotEqual),
			Where:   []wire.Condition{wire.NewCondition("target", wire.ConditionEqual, target)},
			Columns: []string{"target"}, Rows: []wire.Row{{"target": target}},
		},
		{Op: wire.OperationInsert, Table: "Manager", UUIDName: "manager", Row: row},
		{
			Op: wire.OperationMutate, Table: "Open_vSwitch",
			Where: []wire.Condition{wire.NewCondition("_uuid", wire.ConditionEqual, roots[0].Rows[0]["_uuid"])},
			Mutations: []wire.Mutation{
				*wire.NewMutation("manager_options", wire.MutateOperationInsert, wire.UUID{GoUUID: "manager"}),
			},
		},
	}
	results, err := transact(ctx, s, ops, nil)
	if err != nil {
		return err
	}
	if results[0].Error == "timed out" {
		return nil // it exists; the refusal has another reason
	}
	for _, r := range results {
		if r.Error != "" {
			return fmt.Errorf("%s: %s", r.Error, r.Details)
		}
	}
	return nil
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
