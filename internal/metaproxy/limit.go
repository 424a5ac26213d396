// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// Bounds of what VMs may have of the proxy. cloud-init asks for some hundred documents when a VM boots, one after the other.
const (
	requestEvery = 50 * time.Millisecond // for one VM, after
	requestBurst = 300                   // at once

	clientRequests    = 8 // of one VM at a time
	clientConnections = 32
	connections       = 1024 // of all
)

// bounds counts what each VM has of the proxy.
type bounds struct {
	mu    sync.Mutex
	rate  pace.Limits[netip.Addr]
	now   map[netip.Addr]int // requests
	conns map[netip.Addr]int
	all   int // connections
}

func newBounds() *bounds {
	return &bounds{rate: pace.Limits[netip.Addr]{Every: requestEvery, Burst: requestBurst}, now: map[netip.Addr]int{}, conns: map[netip.Addr]int{}}
}

// begin takes a request of a VM; without ok it has too many. Every request that was taken is ended.
func (b *bounds) begin(ip netip.Addr, at time.Time) (end func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now[ip] >= clientRequests || !b.rate.Take(ip, at) {
		return nil, false
	}
	b.now[ip]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		less(b.now, ip)
	}, true
}

func less(of map[netip.Addr]int, ip netip.Addr) {
	if of[ip]--; of[ip] <= 0 {
		delete(of, ip)
	}
}

func (b *bounds) open(ip netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= connections || b.conns[ip] >= clientConnections {
		return false
	}
	b.all++
	b.conns[ip]++
	return true
}

func (b *bounds) closed(ip netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	less(b.conns, ip)
}

// bounded is a listener that hangs up on who has too many connections.
type bounded struct {
	net.Listener
	*bounds
}

// Accept implements net.Listener.
func (l bounded) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		ip := addressOf(c.RemoteAddr().String())
		if l.open(ip) {
			return &counted{Conn: c, closed: sync.OnceFunc(func() { l.bounds.closed(ip) })}, nil
		}
		_ = c.Close()
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// addressOf returns the address of an address and port.
func addressOf(text string) netip.Addr {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
