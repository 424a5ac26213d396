// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// defaultRunDir is where Open vSwitch keeps its sockets unless told otherwise.
const defaultRunDir = "/var/run/openvswitch"

// MgmtSocket returns the target of a bridge's management socket, found as
// ovs-ofctl does: in $OVS_RUNDIR, else in the default run directory.
func MgmtSocket(bridge string) string {
	dir := os.Getenv("OVS_RUNDIR")
	if dir == "" {
		dir = defaultRunDir
	}
	return "unix:" + filepath.Join(dir, bridge+".mgmt")
}

// Dial connects to a switch. The target is unix:PATH, tcp:HOST:PORT, or the
// name of a local bridge.
func Dial(ctx context.Context, target string, cfg Config) (*Conn, error) {
	network, addr, err := splitTarget(target)
	if err != nil {
		return nil, err
	}
	ctx, cancel := cfg.withDefaultTimeout(ctx)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("openflow: connecting to %s: %w", target, err)
	}
	c, err := NewConn(ctx, nc, cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", target, err)
	}
	return c, nil
}

func (c Config) withDefaultTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	c = c.withDefaults()
	return c.bound(ctx)
}

func splitTarget(target string) (network, addr string, err error) {
	network, addr, ok := strings.Cut(target, ":")
	switch {
	case !ok && target != "":
		_, addr, _ = strings.Cut(MgmtSocket(target), ":")
		return "unix", addr, nil
	case (network == "unix" || network == "tcp") && addr != "":
		return network, addr, nil
	}
	return "", "", fmt.Errorf("openflow: target %q is not unix:PATH, tcp:HOST:PORT or a bridge", target)
}

// A Listener accepts switches that connect to us, as those do that have a
// Controller row with our address. Mind that adding the first and removing the
// last Controller row of a bridge deletes all of its flows.
type Listener struct {
	l   net.Listener
	cfg Config

	mu     sync.Mutex
	closed bool
}

// Listen listens on tcp:HOST:PORT or unix:PATH.
func Listen(ctx context.Context, target string, cfg Config) (*Listener, error) {
	network, addr, err := splitTarget(target)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("openflow: listening on %s: %w", target, err)
	}
	return &Listener{l: l, cfg: cfg}, nil
}

// Addr returns the address that switches connect to.
func (l *Listener) Addr() net.Addr { return l.l.Addr() }

// Accept waits for a switch. The connection's Features tell which one it is. A
// switch that does not get through the handshake is reported as an error and
// does no harm to the next Accept. When ctx ends, the listener is closed.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	nc, err := l.l.Accept()
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if l.isClosed() {
			return nil, ErrClosed
		}
		return nil, fmt.Errorf("openflow: accepting: %w", err)
	}
	c, err := NewConn(ctx, nc, l.cfg)
	if err != nil {
		return nil, fmt.Errorf("accepting %s: %w", nc.RemoteAddr(), err)
	}
	return c, nil
}

// Close ends the listener; connections that it accepted live on.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.l.Close()
}

func (l *Listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
