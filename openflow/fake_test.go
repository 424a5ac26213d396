// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// fakeSwitch answers on a socket as a small Open vSwitch: it keeps flows and
// bundles, and fails where a test tells it to.
type fakeSwitch struct {
	t        *testing.T
	version  Version
	bitmap   uint32 // of versions in the hello, 0 for none
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	flows  map[Key]Entry
	conns  []net.Conn
	before func(f *fakeConn, h head, body []byte) (handled bool)
}

// fakeConn is the switch's end of one connection.
type fakeConn struct {
	*fakeSwitch
	nc      net.Conn
	bundles map[uint32][]fakeMod
}

type fakeMod struct {
	xid uint32
	mod FlowMod
}

func newFake(t *testing.T) *fakeSwitch {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSwitch{t: t, version: OpenFlow14, bitmap: 1<<1 | 1<<4 | 1<<5, listener: l, flows: map[Key]Entry{}}
	f.wg.Add(1)
	go f.accept()
	t.Cleanup(func() {
		_ = l.Close()
		f.drop()
		f.wg.Wait()
	})
	return f
}

func (f *fakeSwitch) target() string { return "unix:" + f.listener.Addr().String() }

func (f *fakeSwitch) accept() {
	defer f.wg.Done()
	for {
		nc, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, nc)
		f.mu.Unlock()
		f.wg.Add(1)
		go (&fakeConn{fakeSwitch: f, nc: nc, bundles: map[uint32][]fakeMod{}}).serve()
	}
}

// drop breaks all connections.
func (f *fakeSwitch) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, nc := range f.conns {
		_ = nc.Close()
	}
	f.conns = nil
}

// inject sets what happens before a message is handled.
func (f *fakeSwitch) inject(before func(f *fakeConn, h head, body []byte) bool) {
	f.mu.Lock()
	f.before = before
	f.mu.Unlock()
}

func (f *fakeSwitch) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.flows)
}

func (c *fakeConn) send(typ uint8, xid uint32, body []byte) {
	_, _ = c.nc.Write(appendSimple(nil, c.version, typ, xid, body))
}

func (c *fakeConn) sendError(xid uint32, typ, code uint16, data []byte) {
	b := binary.BigEndian.AppendUint16(nil, typ)
	b = binary.BigEndian.AppendUint16(b, code)
	c.send(typeError, xid, append(b, data...))
}

func (c *fakeConn) serve() {
	defer c.wg.Done()
	defer func() { _ = c.nc.Close() }()
	c.mu.Lock()
	var hello []byte
	if c.bitmap != 0 {
		hello = binary.BigEndian.AppendUint32([]byte{0, 1, 0, 8}, c.bitmap)
	}
	c.mu.Unlock()
	c.send(typeHello, 1, hello)
	r := bufio.NewReader(c.nc)
	for {
		h, body, err := readMessage(r)
		if err != nil {
			return
		}
		c.mu.Lock()
		before := c.before
		c.mu.Unlock()
		if before != nil && before(c, h, body) {
			continue
		}
		c.handle(h, body)
	}
}

func (c *fakeConn) handle(h head, body []byte) {
	switch h.typ {
	case typeFeaturesRequest:
		c.send(typeFeaturesReply, h.xid, append([]byte{0, 0, 0, 0, 0, 0, 0, 7}, make([]byte, 16)...))
	case typeBarrierRequest:
		c.send(typeBarrierReply, h.xid, nil)
	case typeEchoRequest:
		c.send(typeEchoReply, h.xid, body)
	case typeFlowMod:
		msg := appendSimple(nil, h.version, h.typ, h.xid, body)
		m, err := decodeFlowMod(msg)
		if err != nil {
			c.sendError(h.xid, 1, 6, nil)
			return
		}
		if !c.apply([]fakeMod{{h.xid, m}}) {
			c.sendError(h.xid, 12, 2, nil)
		}
	case typeBundleControl:
		c.bundleControl(h, body)
	case typeBundleAdd:
		m, err := decodeFlowMod(body[8:])
		if err != nil || m.Entry.Table() == 254 { // a table that cannot be
			c.sendError(h.xid, 5, 2, body[:8])
			return
		}
		id := binary.BigEndian.Uint32(body)
		c.bundles[id] = append(c.bundles[id], fakeMod{h.xid, m})
	case typeMultipartRequest:
		c.multipart(h, body)
	}
}

func (c *fakeConn) bundleControl(h head, body []byte) {
	id, typ := binary.BigEndian.Uint32(body), binary.BigEndian.Uint16(body[4:])
	switch typ {
	case bundleCommit:
		mods := c.bundles[id]
		delete(c.bundles, id)
		for _, m := range mods {
			if hasMeter(m.mod.Entry) {
				c.sendError(m.xid, 12, 2, nil)
				c.sendError(h.xid, 17, 13, nil)
				return
			}
		}
		c.apply(mods)
	case bundleDiscard:
		delete(c.bundles, id)
	}
	reply := append([]byte(nil), body...)
	reply[5]++
	c.send(typeBundleControl, h.xid, reply)
}

// hasMeter reports whether a flow uses a meter, of which the fake has none.
func hasMeter(e Entry) bool {
	f, err := e.Flow()
	if err != nil {
		return false
	}
	for _, a := range f.Actions {
		if _, ok := a.(Meter); ok {
			return true
		}
	}
	return false
}

func (c *fakeConn) apply(mods []fakeMod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range mods {
		k := m.mod.Entry.Key()
		switch m.mod.Command {
		case Add:
			if hasMeter(m.mod.Entry) {
				return false
			}
			c.flows[k] = m.mod.Entry
		case DeleteStrict:
			delete(c.flows, k)
		case Delete:
			clear(c.flows)
		}
	}
	return true
}

// multipart answers a dump in parts of ten flows.
func (c *fakeConn) multipart(h head, body []byte) {
	typ := binary.BigEndian.Uint16(body)
	c.mu.Lock()
	var parts [][]byte
	var part []byte
	n := 0
	for _, e := range c.flows {
		part = append(part, appendFlowStat(nil, e)...)
		if n++; n%10 == 0 {
			parts, part = append(parts, part), nil
		}
	}
	parts = append(parts, part)
	c.mu.Unlock()
	if typ == mpAggregate {
		b := append(make([]byte, 16), 0, 0, byte(n>>8), byte(n), 0, 0, 0, 0)
		parts = [][]byte{b}
	}
	for i, p := range parts {
		more := byte(0)
		if i < len(parts)-1 {
			more = 1
		}
		c.send(typeMultipartReply, h.xid, append([]byte{byte(typ >> 8), byte(typ), 0, more, 0, 0, 0, 0}, p...))
	}
}

func dialFake(t *testing.T, f *fakeSwitch, cfg Config) *Conn {
	t.Helper()
	c, err := Dial(context.Background(), f.target(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
