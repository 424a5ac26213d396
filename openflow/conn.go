// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Config holds the choices of a connection. The zero Config is right for a
// local Open vSwitch.
type Config struct {
	// Versions to offer; OpenFlow 1.4 and 1.3 if empty. The highest that both
	// sides speak is used.
	Versions []Version
	// Timeout bounds every request whose context has no deadline, and every
	// write: 30 s if 0.
	Timeout time.Duration
	// Probe is the idle time after which the switch is asked for a sign of
	// life; it is given up after three times as long. 20 s if 0, never if
	// negative.
	Probe time.Duration
	// PacketIns is how many packet-ins wait for the user before more are
	// dropped and counted: 1024 if 0.
	PacketIns int
	// Events is how many other events wait before they are replaced by one
	// EventsLost: 1024 if 0.
	Events int
	// MaxBundle is the most messages that one bundle may hold, no limit if 0.
	// With a limit Commit sends a longer list as several bundles one after the
	// other, and then only each of them is atomic: if one fails the earlier
	// ones stay applied, and packets may see the state in between. It is meant
	// for Open vSwitch before 2.17, which takes gigabytes of memory for a
	// bundle of tens of thousands of flows; 5,000 suits it.
	MaxBundle int
}

func (c Config) withDefaults() Config {
	if len(c.Versions) == 0 {
		c.Versions = []Version{OpenFlow13, OpenFlow14}
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Probe == 0 {
		c.Probe = 20 * time.Second
	}
	if c.PacketIns <= 0 {
		c.PacketIns = 1024
	}
	if c.Events <= 0 {
		c.Events = 1024
	}
	return c
}

// A Conn is a connection to one bridge. Its methods may be used by several
// goroutines at once.
//
// A request whose context ends while its messages are being written breaks the
// connection, because half a message cannot be taken back.
type Conn struct {
	nc       net.Conn
	cfg      Config
	version  Version
	features Features
	writing  chan struct{} // has a token while somebody writes a chunk of whole messages
	pending  pending
	in       inbox
	wg       sync.WaitGroup
}

// NewConn makes a connection of one that the transport already has, by
// exchanging hellos and asking for the switch's features. It closes nc if that
// fails.
func NewConn(ctx context.Context, nc net.Conn, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	ctx, cancel := cfg.bound(ctx)
	defer cancel()
	c := &Conn{
		nc: nc, cfg: cfg, writing: make(chan struct{}, 1),
		pending: pending{done: make(chan struct{}), nextXID: 1, waiters: make(map[uint32]waiter)},
		in:      inbox{echoes: make(chan []byte, 16), packetIns: make(chan *PacketIn, cfg.PacketIns), events: make(chan Event, cfg.Events+1)},
	}
	growSendBuffer(nc)
	r := bufio.NewReaderSize(nc, readBuffer)
	var err error
	if c.version, err = hello(ctx, nc, r, cfg.Versions); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("openflow: hello: %w", err)
	}
	c.in.version, c.in.pending = c.version, &c.pending
	c.wg.Add(2)
	go c.read(r)
	go c.answer()
	body, err := c.request(ctx, typeFeaturesRequest, nil, typeFeaturesReply)
	if err == nil {
		c.features, err = decodeFeatures(body)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("openflow: asking for features: %w", err)
	}
	return c, nil
}

// readBuffer is the size of the buffer of the reader, writeChunk the amount
// that is written at once.
const (
	// It stays for as long as the connection does. Small messages come together in it; what is longer, as the parts of a dump are, goes
	// past it.
	readBuffer = 16 << 10
	writeChunk = 256 << 10
)

// bound gives ctx a deadline if it has none.
func (c *Config) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// hello exchanges hellos and settles the version.
func hello(ctx context.Context, nc net.Conn, r *bufio.Reader, versions []Version) (Version, error) {
	deadline, _ := ctx.Deadline()
	if err := nc.SetDeadline(deadline); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := nc.Write(appendHello(nil, versions, 0)); err != nil {
		return 0, err
	}
	h, body, err := readMessage(r)
	if err != nil {
		return 0, err
	}
	switch h.typ {
	case typeHello:
	case typeError:
		if e, err := decodeError(body); err == nil {
			return 0, e
		}
		return 0, malformed("hello", "an error that cannot be read")
	default:
		return 0, malformed("hello", "message of type %d came first", h.typ)
	}
	v, ok := negotiate(versions, decodeHello(h, body))
	if !ok {
		return 0, fmt.Errorf("the switch speaks none of %v", versions)
	}
	if !stop() {
		return 0, ctx.Err()
	}
	return v, nc.SetDeadline(time.Time{})
}

// Version returns the version of OpenFlow that was settled.
func (c *Conn) Version() Version { return c.version }

// Features returns what the switch said about itself.
func (c *Conn) Features() Features { return c.features }

// Done is closed when the connection has ended; Err then says why.
func (c *Conn) Done() <-chan struct{} { return c.pending.done }

// Err returns why the connection ended, nil while it lives, ErrClosed after
// Close.
func (c *Conn) Err() error {
	c.pending.mu.Lock()
	defer c.pending.mu.Unlock()
	return c.pending.err
}

// PacketIns returns the packets that the switch sends to the controller,
// closed at the end of the connection. EnablePacketIns makes them come.
func (c *Conn) PacketIns() <-chan *PacketIn { return c.in.packetIns }

// PacketInsDropped returns how many packet-ins were dropped because nobody
// read them in time.
func (c *Conn) PacketInsDropped() uint64 { return c.in.dropped.Load() }

// Events returns what else the switch sends on its own, closed at the end of
// the connection. Who does not need it need not read it.
func (c *Conn) Events() <-chan Event { return c.in.events }

// Close ends the connection and waits for its goroutines.
func (c *Conn) Close() error {
	c.end(ErrClosed)
	c.wg.Wait()
	return nil
}

// end records why the connection ended, once, and fails everyone who waits.
func (c *Conn) end(err error) {
	if waiters, first := c.pending.end(err); first {
		_ = c.nc.Close()
		for _, w := range waiters {
			w.fail(&ConnError{err})
		}
	}
}

// read is the reader goroutine: the only one that reads from the connection.
func (c *Conn) read(r *bufio.Reader) {
	defer c.wg.Done()
	defer close(c.in.packetIns)
	defer close(c.in.events)
	for {
		h, body, err := readMessage(r)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("closed by the switch")
			}
			c.end(err)
			return
		}
		c.in.received.Add(1)
		if err := c.in.dispatch(h, body); err != nil {
			c.end(err)
			return
		}
	}
}

// answer is the goroutine that answers echo requests and sends our own. The
// reader does not write, because it has to go on reading while a write waits.
func (c *Conn) answer() {
	defer c.wg.Done()
	var tick <-chan time.Time
	if c.cfg.Probe > 0 {
		t := time.NewTicker(c.cfg.Probe)
		defer t.Stop()
		tick = t.C
	}
	seen, silent := uint64(0), 0
	for {
		var msg []byte
		select {
		case <-c.pending.done:
			return
		case p := <-c.in.echoes:
			msg = appendSimple(nil, c.version, typeEchoReply, binary.BigEndian.Uint32(p), p[4:])
		case <-tick:
			n := c.in.received.Load()
			if n != seen {
				seen, silent = n, 0
				continue
			}
			if silent++; silent > 2 {
				c.end(fmt.Errorf("no sign of life for %v", 3*c.cfg.Probe))
				return
			}
			msg = appendSimple(nil, c.version, typeEchoRequest, 0, nil)
		}
		if err := c.write(context.Background(), msg); err != nil {
			return
		}
	}
}

// write writes whole messages. An error has ended the connection.
func (c *Conn) write(ctx context.Context, b []byte) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })
	defer stop()
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.cfg.Timeout)); err != nil {
		return c.broken(err)
	}
	if _, err := c.nc.Write(b); err != nil {
		return c.broken(err)
	}
	return nil
}

// broken ends the connection because of err and returns the error for the
// request.
func (c *Conn) broken(err error) error {
	c.end(err)
	return &ConnError{c.Err()}
}
