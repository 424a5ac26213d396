// SPDX-License-Identifier: Apache-2.0

// Package broker runs a private RabbitMQ node: for the lab, and for tests that need a real broker.
//
// A node lives entirely in one directory (database, logs, cookie, pid files) and on ports of its own, including a port
// mapper (epmd) of its own, so several nodes and a system-wide RabbitMQ do not see each other. The node outlives the
// process that started it; whoever opens the same directory later finds it again and can stop it. Processes are only
// ever signalled by the pid recorded in that directory, after checking that the pid still is what was started.
//
//	b, err := broker.Start(ctx, broker.Config{Dir: "/var/tmp/lab/rabbit"})
//	...
//	fmt.Println(b.URL()) // rabbit://patchbay:patchbay@127.0.0.1:41003/
//	...
//	err = b.Stop(ctx)
//
// Tests use [New], which picks a temporary directory and free ports and stops the node when the test ends.
package broker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Config says where a node lives and who may use it. Only Dir is required. What is left zero on the first Start is
// chosen then and remembered in Dir, so that later calls need nothing but Dir.
type Config struct {
	Dir  string // everything the node writes; created with mode 0700
	Addr string // the only address it listens on for AMQP; default 127.0.0.1
	Port int    // AMQP; 0 picks a free port

	TLS     *TLSFiles // non-nil adds a TLS listener
	TLSPort int       // 0 picks a free port, if TLS is set

	User, Password string // default patchbay, patchbay
	VHost          string // default /

	// Root is the root directory of another Debian suite, as package release has them; empty means the machine's RabbitMQ. TLS files
	// have to be in Dir then.
	Root string

	// Conf is what rabbitmq.conf says besides, such as "deprecated_features.permit.transient_nonexcl_queues = false\n".
	Conf string

	// Schedulers is how many cores the node uses; default 1, so that many nodes and tests share few cores.
	Schedulers int
	// Memory is how many bytes the node may take before it blocks publishers; default 512 MiB.
	Memory int64

	// Plugins are enabled in addition to none; for instance rabbitmq_auth_mechanism_ssl for EXTERNAL logins.
	Plugins []string
}

// TLSFiles are PEM files for the TLS listener. Client certificates are asked for and verified against CA, not required.
type TLSFiles struct{ CA, Cert, Key string }

// state is what Dir remembers: the effective configuration and the internal ports.
type state struct {
	Config
	DistPort, EPMDPort int
	Cookie             string
}

// Broker is one node, running or not.
type Broker struct{ s state }

// Start makes sure that the node of cfg.Dir runs and accepts logins, and returns when it does. A node that already runs
// is left alone. When the node does not come up, the error carries the end of its log.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	b, err := open(cfg, true)
	if err != nil {
		return nil, err
	}
	if b.Running() {
		return b, b.awaitLogin(ctx)
	}
	if err := b.start(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return nil, errors.Join(err, b.Stop(stopCtx))
	}
	return b, nil
}

// Open returns the node of cfg.Dir without starting it. The directory must have been used by Start before.
func Open(cfg Config) (*Broker, error) { return open(cfg, false) }

func open(cfg Config, create bool) (*Broker, error) {
	if cfg.Dir == "" {
		return nil, errors.New("broker: Config.Dir is empty")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the broker's directory: %w", err)
	}
	cfg.Dir = dir
	path := filepath.Join(dir, "broker.json")
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		b := &Broker{}
		if err := json.Unmarshal(text, &b.s); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		b.s.Dir = dir
		return b, nil
	case !errors.Is(err, os.ErrNotExist) || !create:
		return nil, fmt.Errorf("opening the broker's directory: %w", err)
	}
	b := &Broker{s: state{Config: cfg}}
	if err := b.s.fill(); err != nil {
		return nil, err
	}
	return b, b.writeFiles()
}

// fill chooses what the caller left open.
func (s *state) fill() error {
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	def(&s.Addr, "127.0.0.1")
	def(&s.User, "patchbay")
	def(&s.Password, "patchbay")
	def(&s.VHost, "/")
	type want struct {
		port *int
		addr string
	}
	wants := []want{{&s.DistPort, "127.0.0.1"}, {&s.EPMDPort, "127.0.0.1"}}
	if s.Port == 0 {
		wants = append(wants, want{&s.Port, s.Addr})
	}
	if s.TLS != nil && s.TLSPort == 0 {
		wants = append(wants, want{&s.TLSPort, s.Addr})
	}
	// All listeners are held until every port is chosen, so that no port is chosen twice.
	for _, w := range wants {
		l, err := net.Listen("tcp", net.JoinHostPort(w.addr, "0"))
		if err != nil {
			return fmt.Errorf("finding a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		*w.port = l.Addr().(*net.TCPAddr).Port
	}
	cookie := make([]byte, 16)
	if _, err := rand.Read(cookie); err != nil {
		return fmt.Errorf("making a cookie: %w", err)
	}
	s.Cookie = hex.EncodeToString(cookie)
	return nil
}

// Addr is the address and port of the AMQP listener.
func (b *Broker) Addr() string { return net.JoinHostPort(b.s.Addr, strconv.Itoa(b.s.Port)) }

// TLSAddr is the address and port of the TLS listener; its port is 0 when there is none.
func (b *Broker) TLSAddr() string { return net.JoinHostPort(b.s.Addr, strconv.Itoa(b.s.TLSPort)) }

// Config is the effective configuration.
func (b *Broker) Config() Config { return b.s.Config }

// URL is the oslo transport_url of the AMQP listener, with the password.
func (b *Broker) URL() string { return b.transportURL(b.Addr()) }

// TLSURL is the oslo transport_url of the TLS listener, with the password.
func (b *Broker) TLSURL() string { return b.transportURL(b.TLSAddr()) + "?ssl=1" }

func (b *Broker) transportURL(addr string) string {
	u := url.URL{Scheme: "rabbit", Host: addr, User: url.UserPassword(b.s.User, b.s.Password), Path: "/"}
	if b.s.VHost != "/" {
		return u.String() + url.PathEscape(b.s.VHost)
	}
	return u.String()
}

func (b *Broker) path(elem ...string) string {
	return filepath.Join(append([]string{b.s.Dir}, elem...)...)
}

// node is the Erlang node name; it depends on the directory only.
func (b *Broker) node() string {
	h := fnv.New64a()
	h.Write([]byte(b.s.Dir))
	return fmt.Sprintf("patchbay-%x@localhost", h.Sum64())
}

// awaitLogin waits until the node accepts the configured user on the configured virtual host.
func (b *Broker) awaitLogin(ctx context.Context) error {
	for {
		err := b.tryLogin(ctx)
		if err == nil {
			return nil
		}
		if !b.Running() {
			return fmt.Errorf("RabbitMQ exited while starting; end of its log:\n%s", b.logTail())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for RabbitMQ on %s: %w (last: %w); end of its log:\n%s", b.Addr(), ctx.Err(), err, b.logTail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *Broker) tryLogin(ctx context.Context) error {
	c, err := amqp.DialConfig("amqp://"+b.Addr(), amqp.Config{
		SASL:  []amqp.Authentication{&amqp.PlainAuth{Username: b.s.User, Password: b.s.Password}},
		Vhost: b.s.VHost,
		Dial: func(network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: 2 * time.Second}
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			// Cleared by amqp once the handshake is done.
			return conn, conn.SetDeadline(time.Now().Add(5 * time.Second))
		},
	})
	if err != nil {
		return err
	}
	return c.Close()
}
