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
	"sync/atomic"
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

// An Event is a message that the switch sent on its own: *PortStatus,
// *FlowRemoved, *MonitorUpdate or EventsLost.
type Event interface{ isEvent() }

func (*PortStatus) isEvent()    {}
func (*FlowRemoved) isEvent()   {}
func (*MonitorUpdate) isEvent() {}
func (EventsLost) isEvent()     {}

// EventsLost stands for events that were dropped because nobody read them in
// time. Whoever follows a state from events has to read it anew.
type EventsLost struct{}

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

	writing chan struct{} // has a token while somebody writes a chunk of whole messages

	mu       sync.Mutex
	err      error // why the connection ended
	nextXID  uint32
	waiters  map[uint32]waiter
	batches  []*batch
	monitors *monitorWait // the monitor request under way

	done      chan struct{} // closed when err is set
	wg        sync.WaitGroup
	received  atomic.Uint64 // messages, to see signs of life
	echoes    chan []byte   // payloads of echo requests to answer
	packetIns chan *PacketIn
	dropped   atomic.Uint64
	events    chan Event
	lost      bool // the last event queued is EventsLost; reader only
}

// A waiter receives the replies to one request. Its methods are called by the
// reader and must not block.
type waiter interface {
	// deliver takes a reply, whose body it may keep, and says whether it was
	// the last one.
	deliver(h head, body []byte) (last bool)
	// fail ends the wait.
	fail(err error)
}

// NewConn makes a connection of one that the transport already has, by
// exchanging hellos and asking for the switch's features. It closes nc if that
// fails.
func NewConn(ctx context.Context, nc net.Conn, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	ctx, cancel := cfg.bound(ctx)
	defer cancel()
	c := &Conn{
		nc: nc, cfg: cfg, nextXID: 1,
		waiters:   make(map[uint32]waiter),
		done:      make(chan struct{}),
		writing:   make(chan struct{}, 1),
		echoes:    make(chan []byte, 16),
		packetIns: make(chan *PacketIn, cfg.PacketIns),
		events:    make(chan Event, cfg.Events+1),
	}
	growSendBuffer(nc)
	r := bufio.NewReaderSize(nc, readBuffer)
	if err := c.hello(ctx, r); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("openflow: hello: %w", err)
	}
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
	readBuffer = 256 << 10
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
func (c *Conn) hello(ctx context.Context, r *bufio.Reader) error {
	deadline, _ := ctx.Deadline()
	if err := c.nc.SetDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.nc.Write(appendHello(nil, c.cfg.Versions, 0)); err != nil {
		return err
	}
	h, body, err := readMessage(r)
	if err != nil {
		return err
	}
	switch h.typ {
	case typeHello:
	case typeError:
		if e, err := decodeError(body); err == nil {
			return e
		}
		return malformed("hello", "an error that cannot be read")
	default:
		return malformed("hello", "message of type %d came first", h.typ)
	}
	v, ok := negotiate(c.cfg.Versions, decodeHello(h, body))
	if !ok {
		return fmt.Errorf("the switch speaks none of %v", c.cfg.Versions)
	}
	c.version = v
	if !stop() {
		return ctx.Err()
	}
	return c.nc.SetDeadline(time.Time{})
}

// Version returns the version of OpenFlow that was settled.
func (c *Conn) Version() Version { return c.version }

// Features returns what the switch said about itself.
func (c *Conn) Features() Features { return c.features }

// Done is closed when the connection has ended; Err then says why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, nil while it lives, ErrClosed after
// Close.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// PacketIns returns the packets that the switch sends to the controller,
// closed at the end of the connection. EnablePacketIns makes them come.
func (c *Conn) PacketIns() <-chan *PacketIn { return c.packetIns }

// PacketInsDropped returns how many packet-ins were dropped because nobody
// read them in time.
func (c *Conn) PacketInsDropped() uint64 { return c.dropped.Load() }

// Events returns what else the switch sends on its own, closed at the end of
// the connection. Who does not need it need not read it.
func (c *Conn) Events() <-chan Event { return c.events }

// Close ends the connection and waits for its goroutines.
func (c *Conn) Close() error {
	c.end(ErrClosed)
	c.wg.Wait()
	return nil
}

// end records why the connection ended, once, and fails everyone who waits.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	failure := &ConnError{err}
	if c.monitors != nil {
		c.monitors.fail(failure) // read under the lock, as soon as the barrier behind it is answered
	}
	waiters, batches := c.waiters, c.batches
	c.waiters, c.batches, c.monitors = nil, nil, nil
	close(c.done)
	c.mu.Unlock()
	_ = c.nc.Close()
	for _, w := range waiters {
		w.fail(failure)
	}
	for _, b := range batches {
		b.fail(failure)
	}
}

// read is the reader goroutine: the only one that reads from the connection.
func (c *Conn) read(r *bufio.Reader) {
	defer c.wg.Done()
	defer close(c.packetIns)
	defer close(c.events)
	for {
		h, body, err := readMessage(r)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("closed by the switch")
			}
			c.end(err)
			return
		}
		c.received.Add(1)
		if err := c.dispatch(h, body); err != nil {
			c.end(err)
			return
		}
	}
}

// readMessage reads one message. The body is memory of its own.
func readMessage(r *bufio.Reader) (head, []byte, error) {
	b, err := r.Peek(headerLen)
	if err != nil {
		return head{}, nil, err
	}
	h := parseHead(b)
	if h.length < headerLen {
		return h, nil, malformed("message", "length %d", h.length)
	}
	_, _ = r.Discard(headerLen)
	body := make([]byte, h.length-headerLen)
	_, err = io.ReadFull(r, body)
	return h, body, err
}

// dispatch handles a message. An error ends the connection: it is returned
// only for messages that make everything after them doubtful.
func (c *Conn) dispatch(h head, body []byte) error {
	switch h.typ {
	case typeEchoRequest:
		payload := binary.BigEndian.AppendUint32(nil, h.xid)
		select {
		case c.echoes <- append(payload, body...):
		default: // so many unanswered ones say that we cannot write anyway
		}
		return nil
	case typeError:
		return c.dispatchError(h, body)
	case typePacketIn:
		return c.packetIn(decodePacketIn(body))
	case typePortStatus:
		s, err := decodePortStatus(c.version, body)
		if err != nil {
			return err
		}
		c.event(s)
		return nil
	case typeFlowRemoved:
		r, err := decodeFlowRemoved(body)
		if err != nil {
			return err
		}
		c.event(r)
		return nil
	case typeExperimenter:
		if done, err := c.dispatchExperimenter(body); done {
			return err
		}
	case typeMultipartReply:
		if done, err := c.dispatchUpdates(h, body); done {
			return err
		}
	}
	c.mu.Lock()
	w := c.waiters[h.xid]
	if w != nil && w.deliver(h, body) {
		delete(c.waiters, h.xid)
	}
	c.mu.Unlock()
	return nil
}

func (c *Conn) dispatchError(h head, body []byte) error {
	e, err := decodeError(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiters[h.xid]; w != nil {
		w.fail(e)
		delete(c.waiters, h.xid)
		return nil
	}
	for _, b := range c.batches {
		if i := h.xid - b.first; i < b.n {
			b.errs = append(b.errs, batchError{int(i), e})
			return nil
		}
	}
	// Open vSwitch builds the error about a monitor request from a wrong place
	// of its memory: the transaction id may be anything, mostly 0, the code is
	// not always the right one, and the data is none of our business.
	if c.monitors != nil && c.monitors.err == nil {
		e.Data = nil
		c.monitors.err = e
	}
	return nil
}

// dispatchExperimenter handles Nicira's and ONF's messages that are no
// replies.
func (c *Conn) dispatchExperimenter(b []byte) (done bool, err error) {
	if len(b) < 8 {
		return true, malformed("experimenter message", "%d bytes", len(b))
	}
	switch exp, typ := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]); {
	case exp == experimenterNicira && typ == nxtPacketIn2:
		return true, c.packetIn(decodePacketIn2(b[8:]))
	case exp == experimenterONF && typ == onfFlowMonitor+1:
		c.event(&MonitorUpdate{[]FlowUpdate{{Event: FlowsPaused}}})
		return true, nil
	case exp == experimenterONF && typ == onfFlowMonitor+2:
		c.event(&MonitorUpdate{[]FlowUpdate{{Event: FlowsResumed}}})
		return true, nil
	}
	return false, nil
}

// dispatchUpdates handles the replies of a flow monitor.
func (c *Conn) dispatchUpdates(h head, body []byte) (done bool, err error) {
	typ, _, rest, err := cutMultipart(body)
	if err != nil {
		return true, err
	}
	switch {
	case typ == mpFlowMonitor:
	case typ == mpExperimenter && len(rest) >= 8 && binary.BigEndian.Uint32(rest) == experimenterONF &&
		binary.BigEndian.Uint32(rest[4:]) == onfFlowMonitor:
		rest = rest[8:]
	default:
		return false, nil
	}
	list, err := decodeUpdates(c.version, rest, h.xid != 0)
	if err != nil {
		return true, err
	}
	if len(list) > 0 {
		c.event(&MonitorUpdate{list})
	}
	return true, nil
}

func (c *Conn) packetIn(p *PacketIn, err error) error {
	if err != nil {
		return err
	}
	select {
	case c.packetIns <- p:
	default:
		c.dropped.Add(1)
	}
	return nil
}

// event queues an event. The queue has one place more than it may hold events;
// that place is for EventsLost, so that the loss is always told.
func (c *Conn) event(ev Event) {
	if len(c.events) < cap(c.events)-1 {
		c.lost = false
		c.events <- ev
	} else if !c.lost {
		c.lost = true
		c.events <- EventsLost{}
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
		case <-c.done:
			return
		case p := <-c.echoes:
			msg = appendSimple(nil, c.version, typeEchoReply, binary.BigEndian.Uint32(p), p[4:])
		case <-tick:
			n := c.received.Load()
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

// reserve takes n consecutive transaction ids and returns the first. Ids are
// never 0, which the switch uses for what it sends on its own.
func (c *Conn) reserve(n uint32) uint32 {
	if c.nextXID > ^uint32(0)-n-1 {
		c.nextXID = 1
	}
	first := c.nextXID
	c.nextXID += n
	return first
}
