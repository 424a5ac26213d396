// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"net"
	"sync"
	"testing"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// proxy forwards TCP connections to the broker and can cut them, or let them hang, at any byte.
type proxy struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool
	hung     bool
	refusing bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, target: target, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refusing
		p.mu.Unlock()
		if refuse {
			_ = in.Close()
			continue
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(in, out) })
		p.wg.Go(func() { p.copy(out, in) })
	}
}

func (p *proxy) copy(dst, src net.Conn) {
	buf := make([]byte, 4096) // small, so that a cut falls inside messages
	for {
		n, err := src.Read(buf)
		p.mu.Lock()
		hung := p.hung
		p.mu.Unlock()
		if n > 0 && !hung {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			break
		}
	}
	_ = dst.Close()
	_ = src.Close()
	p.mu.Lock()
	delete(p.conns, src)
	delete(p.conns, dst)
	p.mu.Unlock()
}

// cut resets every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}

// refuse turns new connections away.
func (p *proxy) refuse(on bool) { p.mu.Lock(); p.refusing = on; p.mu.Unlock() }

// hang keeps connections open but swallows what is sent.
func (p *proxy) hang(on bool) { p.mu.Lock(); p.hung = on; p.mu.Unlock() }

// through makes a client connect by way of the proxy.
func (p *proxy) through(cfg *messaging.Config) {
	addr := p.l.Addr().(*net.TCPAddr)
	for i := range cfg.URL.Hosts {
		cfg.URL.Hosts[i].Name, cfg.URL.Hosts[i].Port = "127.0.0.1", addr.Port
	}
}
