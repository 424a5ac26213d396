// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

const (
	minBackoff   = 50 * time.Millisecond
	maxBackoff   = 8 * time.Second
	defaultProbe = 10 * time.Second
	// noTransaction as the last one seen asks for a whole dump.
	noTransaction = "00000000-0000-0000-0000-000000000000"
	monitorName   = "patchbay"
)

// Config says where the database is and how to speak with it. Only Endpoint is required, or Dial.
type Config struct {
	// Endpoint is [ovs] ovsdb_connection: unix:PATH, tcp:IP:PORT or ssl:IP:PORT.
	Endpoint string
	SSL      SSL
	// InactivityProbe is the silence after which the server is asked for a sign of life; after twice that the connection
	// counts as lost. 0 means 10 s, less than 0 never.
	InactivityProbe time.Duration
	// Timeout bounds how long the server may take for a transaction, [ovs] ovsdb_timeout; 0: the context alone does.
	Timeout time.Duration
	// LocalSocket is used instead when nobody listens at a tcp or ssl endpoint of this host. Empty means db.sock in
	// $OVS_RUNDIR or the default run directory.
	LocalSocket string
	// PreferLocal uses LocalSocket and not Endpoint, if there is a directory for it: nobody has chosen the endpoint.
	PreferLocal bool
	// OnLocalSocket is called when the endpoint refuses, with the socket and the refusal; once until the endpoint is reached.
	OnLocalSocket func(socket string, refused error)
	// Dial, if set, makes the connections instead, and no other setting about endpoints counts. It is for databases in memory.
	Dial func(context.Context) (net.Conn, error)
}

// Client keeps the connection to the database. Its methods may be used from any goroutine.
type Client struct {
	cfg      Config
	endpoint endpoint
	dial     func(context.Context) (net.Conn, error)
	jitter   func() float64 // in [0, 1)

	changes chan *Batch
	queue   queue

	// Only the goroutine that reads from the server uses these.
	state    *View
	started  bool // the initial batch was delivered
	monitor  string
	lastSeen string // id of the last transaction, for monitor_cond_since
	local    bool   // OnLocalSocket was called

	mu      sync.Mutex
	session *session     // nil while there is none that is in sync
	root    *OpenVSwitch // nil before the initial batch
	seq     uint64
	moved   chan struct{} // closed and replaced when root changes
}

// New returns a client that will connect when it is run. It fails for endpoints and files that cannot work.
func New(cfg Config) (*Client, error) {
	var e endpoint
	if cfg.Dial == nil {
		var err error
		if e, err = parseEndpoint(cfg.Endpoint, cfg.SSL); err != nil {
			return nil, err
		}
	}
	if cfg.LocalSocket == "" {
		cfg.LocalSocket = localSocket()
	}
	dial := e.dial
	switch {
	case cfg.Dial != nil:
		dial = cfg.Dial
	case cfg.PreferLocal:
		dial = func(ctx context.Context) (net.Conn, error) {
			// While ovsdb-server is away its socket is too, but the directory stays: nobody else gets to be asked.
			if _, err := os.Stat(filepath.Dir(cfg.LocalSocket)); err == nil {
				return unixEndpoint(cfg.LocalSocket).dial(ctx)
			}
			return e.dial(ctx)
		}
	}
	if cfg.InactivityProbe == 0 {
		cfg.InactivityProbe = defaultProbe
	}
	return &Client{
		cfg:      cfg,
		endpoint: e,
		dial:     dial,
		jitter:   rand.Float64,
		changes:  make(chan *Batch),
		queue:    queue{ready: make(chan struct{}, 1)},
		state:    NewView(),
		monitor:  wire.ConditionalMonitorSinceRPC,
		lastSeen: noTransaction,
		moved:    make(chan struct{}),
	}, nil
}

// Changes returns the stream of batches. Batches wait in memory until they are read; the channel is closed when Run ends.
func (c *Client) Changes() <-chan *Batch { return c.changes }

// Run connects, and connects again, until ctx ends. It is called once.
func (c *Client) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.queue.pump(ctx, c.changes) })
	backoff, logged := minBackoff, ""
	for {
		synced, err := c.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		if synced {
			backoff, logged = minBackoff, ""
		}
		if err.Error() != logged {
			logged = err.Error()
			c.deliver(&Batch{Seq: c.state.seq + 1, Kind: Disconnected, Err: err}, nil)
		}
		// Between half and the whole of it, so that many clients do not come back at once.
		timer := time.NewTimer(backoff/2 + time.Duration(c.jitter()*float64(backoff/2)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// connect makes one connection and stays with it until it ends. Synced says whether it ever had the state.
func (c *Client) connect(ctx context.Context) (synced bool, err error) {
	conn, err := c.dial(ctx)
	switch {
	case err == nil:
		c.local = false
	case c.endpoint.refused(err) && c.endpoint.onThisHost():
		conn, err = c.dialLocally(ctx, err)
	}
	if err != nil {
		return false, err
	}
	return c.converse(ctx, conn)
}

// dialLocally connects to the socket that ovsdb-server has in any case. The Python agent uses that socket to have the server listen
// on TCP instead, where every account of the host can write to the database.
func (c *Client) dialLocally(ctx context.Context, refused error) (net.Conn, error) {
	conn, err := unixEndpoint(c.cfg.LocalSocket).dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; %w", refused, err)
	}
	if !c.local && c.cfg.OnLocalSocket != nil {
		c.cfg.OnLocalSocket(c.cfg.LocalSocket, refused)
	}
	c.local = true
	return conn, nil
}

// converse stays with a connection until it ends.
func (c *Client) converse(ctx context.Context, conn net.Conn) (synced bool, err error) {
	s := newSession(conn, c.notified)
	var wg sync.WaitGroup
	last := c.lastSeen
	wg.Go(func() {
		if err := c.subscribe(ctx, s, last); err != nil {
			s.close(fmt.Errorf("subscribing to changes: %w", err))
		}
	})
	err = s.serve(ctx, c.cfg.InactivityProbe)
	wg.Wait()

	c.mu.Lock()
	defer c.mu.Unlock()
	synced = c.session != nil
	c.session = nil
	return synced, err
}

// subscribe asks for the rows. The newest method gives only what changed since the last transaction seen, if the server
// still knows it; servers before Open vSwitch 2.12 have only the older one.
func (c *Client) subscribe(ctx context.Context, s *session, last string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*connectTimeout)
	defer cancel()
	params := []any{database, monitorName, c.state.schema.monitorRequests()}
	if c.monitor == wire.ConditionalMonitorSinceRPC {
		params = append(params, last)
	}
	err := s.call(ctx, c.monitor, params, func(raw json.RawMessage) error { return c.subscribed(s, raw) })
	var refused *rpcError
	if errors.As(err, &refused) && c.monitor == wire.ConditionalMonitorSinceRPC {
		c.monitor = wire.ConditionalMonitorRPC
		return c.subscribe(ctx, s, last)
	}
	return err
}

func (c *Client) subscribed(s *session, raw json.RawMessage) error {
	found, last, updates := false, noTransaction, raw
	if c.monitor == wire.ConditionalMonitorSinceRPC {
		var parts []json.RawMessage
		if err := json.Unmarshal(raw, &parts); err != nil || len(parts) != 3 {
			return fmt.Errorf("decoding the answer to %s: not an array of three elements", c.monitor)
		}
		if err := errors.Join(json.Unmarshal(parts[0], &found), json.Unmarshal(parts[1], &last)); err != nil {
			return fmt.Errorf("decoding the answer to %s: %w", c.monitor, err)
		}
		updates = parts[2]
	}
	kind := Reconnected
	if !c.started {
		kind = Initial
	}
	if err := c.advance(kind, updates, !found, s); err != nil {
		return err
	}
	c.started, c.lastSeen = true, last
	return nil
}

// notified handles update2 [name, updates] and update3 [name, transaction, updates]. Other notifications do not concern us.
func (c *Client) notified(method string, raw json.RawMessage) error {
	if method != "update2" && method != "update3" {
		return nil
	}
	var params []json.RawMessage
	if err := json.Unmarshal(raw, &params); err != nil || len(params) < 2 {
		return fmt.Errorf("decoding %s: too few elements", method)
	}
	last := noTransaction
	if method == "update3" {
		if err := json.Unmarshal(params[1], &last); err != nil || len(params) < 3 {
			return fmt.Errorf("decoding %s: no transaction id or no updates", method)
		}
	}
	if err := c.advance(Update, params[len(params)-1], false, nil); err != nil {
		return err
	}
	c.lastSeen = last
	return nil
}

// advance moves the state on and delivers the difference; s is given when it is in sync from now on. After an error the
// state is as before, and the next connection asks for a whole dump.
func (c *Client) advance(kind Kind, raw json.RawMessage, whole bool, s *session) error {
	var updates tableUpdates
	if err := json.Unmarshal(raw, &updates); err != nil {
		c.lastSeen = noTransaction
		return fmt.Errorf("decoding updates: %w", err)
	}
	b, err := c.state.advance(updates, whole)
	if err != nil {
		c.lastSeen = noTransaction
		return err
	}
	if kind == Update && b.Len() == 0 {
		c.state.seq--
		return nil
	}
	b.Kind = kind
	c.deliver(b, s)
	return nil
}

func (c *Client) deliver(b *Batch, s *session) {
	c.state.seq = b.Seq
	c.mu.Lock()
	c.seq = b.Seq
	if s != nil {
		// Before the batch is out: who reads it may commit.
		c.session = s
	}
	if len(b.OpenVSwitch) > 0 {
		c.root = c.state.Root()
		c.wake()
	}
	c.mu.Unlock()
	c.queue.push(b)
}

// wake lets those waiting for a change of root look again. The caller holds mu.
func (c *Client) wake() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// Capabilities returns what the state report says about the switch. It waits for the first connection.
func (c *Client) Capabilities(ctx context.Context) (Capabilities, error) {
	root, err := c.await(ctx, func() bool { return c.root != nil })
	if err != nil {
		return Capabilities{}, fmt.Errorf("waiting for the database: %w", err)
	}
	return root.Capabilities(), nil
}

// await waits until the condition, which is asked with mu held, is true, and returns the row of then.
func (c *Client) await(ctx context.Context, condition func() bool) (*OpenVSwitch, error) {
	for {
		c.mu.Lock()
		ok, root, moved := condition(), c.root, c.moved
		c.mu.Unlock()
		if ok {
			return root, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, ErrTimedOut
			}
			return nil, ctx.Err()
		}
	}
}

// queue holds batches until they are read, so that a reader that takes its time never keeps us from answering the server.
type queue struct {
	mu      sync.Mutex
	batches []*Batch
	ready   chan struct{}
}

func (q *queue) push(b *Batch) {
	q.mu.Lock()
	q.batches = append(q.batches, b)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) pump(ctx context.Context, out chan<- *Batch) {
	defer close(out)
	for {
		q.mu.Lock()
		batches := q.batches
		q.batches = nil
		q.mu.Unlock()
		for i, b := range batches {
			batches[i] = nil // free what was read
			select {
			case out <- b:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return
		}
	}
}
