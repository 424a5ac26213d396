// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Config describes a Client. URL, Program and Host are required.
type Config struct {
	URL      URL
	Exchange string // control_exchange; default "openstack"
	Rabbit   Rabbit // default DefaultRabbit; the URL's query is applied on top

	Program string // names the connection and the queues, e.g. "neutron-openvswitch-agent"
	Host    string // the server name that directed messages carry, e.g. DEFAULT.host

	// Context gives the fields of the request context to send with a call or cast; nil sends none.
	Context func(context.Context) map[string]any

	// Timeout bounds a call whose context has no deadline (rpc_response_timeout; default 60 s). Each time a method times
	// out its bound doubles, up to MaxTimeout (rpc_response_max_timeout; default 10 times Timeout). It is never lowered.
	Timeout, MaxTimeout time.Duration

	// QueueTTL is how long the broker keeps this client's queues without a consumer; default the smaller of
	// rabbit_transient_queues_ttl and 240 s.
	QueueTTL time.Duration
	// Instance tells apart several clients of one program on one host, when use_queue_manager makes queue names
	// stable; default 1.
	Instance int
	// MaxInFlight bounds the calls that wait for a reply, and the replies being sent; further ones wait for their turn.
	// Default 1024.
	MaxInFlight int
	// MaxMessage bounds the bytes of a reply, before and after decompression, and those of all replies that no call has
	// taken yet; default 128 MiB. A call whose reply has more ends in a *[TooLargeError].
	MaxMessage int64
	// MaxBacklog bounds in the same way what one queue has delivered and no handler has taken over yet; default 64 MiB. A
	// message over it is [Dropped]. Prefetch counts messages, so without this their size alone could fill the memory.
	MaxBacklog int64

	// Hub, if it is not empty, begins the name of an exchange that stands behind the fanout exchanges of all topics and is shared by all clients
	// with the same topics. Each client's queue then has two bindings, whatever the number of topics: one to the hub, and one
	// for all messages that are directed to Host. It is for programs that run on thousands of hosts.
	Hub string
	// HubStream has the clients of a hub read what is sent to all from one stream, instead of a copy in the queue of each. The broker then confirms a
	// publication to all as soon as the stream has it, whatever the number of clients. Where the broker has no streams (before RabbitMQ 3.9), or does not let
	// the user make one, the queues have their copies, and the event is [NoStream].
	HubStream bool

	// OnEvent is told what happens to the connection and the queues; see [Event]. Nil ignores events.
	OnEvent func(Event)

	// Dial replaces the TCP dialer, and Rand the source of jitter (uniform in [0,1)). Both are optional.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	Rand func() float64
}

func (cfg *Config) fill() error {
	if cfg.Rabbit == (Rabbit{}) {
		cfg.Rabbit = DefaultRabbit()
	}
	for name, value := range cfg.URL.Query {
		if err := cfg.Rabbit.Set(name, value); err != nil {
			return fmt.Errorf("transport URL: %w", err)
		}
	}
	if err := cfg.Rabbit.Validate(); err != nil {
		return err
	}
	if cfg.Rabbit.RetryInterval <= 0 {
		cfg.Rabbit.RetryInterval = time.Second
	}
	if cfg.Program == "" || cfg.Host == "" {
		return errors.New("messaging: Config.Program and Config.Host are required")
	}
	if cfg.URL.Transport == "" {
		return errors.New("messaging: Config.URL is required")
	}
	if cfg.Exchange == "" {
		cfg.Exchange = "openstack"
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.MaxTimeout <= 0 {
		cfg.MaxTimeout = 10 * cfg.Timeout
	}
	if cfg.Instance == 0 {
		cfg.Instance = 1
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = 1024
	}
	if cfg.MaxMessage <= 0 {
		cfg.MaxMessage = 128 << 20
	}
	if cfg.MaxBacklog <= 0 {
		cfg.MaxBacklog = 64 << 20
	}
	if cfg.OnEvent == nil {
		cfg.OnEvent = func(Event) {}
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	return nil
}

// Client is one connection to the broker, kept up in the background, for calling, casting and serving. Its methods may
// be used by many goroutines.
type Client struct {
	cfg   Config
	hosts []Host // shuffled once

	seen     *seenIDs
	timeouts timeouts
	slots    chan struct{} // one per call in flight
	// handlers has a token for each handler that is running; made by the first Serve, before anything is consumed.
	handlers chan struct{}
	// replySlots bounds the replies on their way out.
	replySlots chan struct{}
	gone       goneQueues
	silences   silences

	eventMu sync.Mutex

	mu           sync.Mutex
	layout       layout        // names and flags; the names of our own queues and what the broker denies change under the lock
	changed      chan struct{} // closed and replaced whenever something below changes
	live         *session      // the connection, also while it is being set up
	sess         *session      // the connection to publish on, nil while there is none
	repliesReady bool          // the reply queue is consumed on sess
	wantReplies  bool
	service      *Service
	serviceGen   int // counts Serve calls; appliedGen follows when the broker has what was asked for
	appliedGen   int
	lastErr      error // why there is no connection or no service
	waiters      map[string]chan *wire
	closing      bool
	feeds        map[string]*feed // by queue; what is known about a queue across connections

	handling context.Context // given to handlers; ends when Close begins
	stopWork context.CancelFunc
	running  context.Context // ends when Close is done with the broker
	stopRun  context.CancelFunc
	ran      chan struct{} // closed when the connection's goroutine has ended
	replying sync.WaitGroup
	reading  sync.WaitGroup
}

// Open checks the configuration and begins to connect in the background. It does not wait for the broker: calls and
// Serve do, within their deadlines, and events tell how it goes.
func Open(cfg Config) (*Client, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg:    cfg,
		layout: newLayout(&cfg, newID),
		hosts:  cfg.URL.hosts(),
		seen:   newSeenIDs(seenMax),
		slots:  make(chan struct{}, cfg.MaxInFlight),

		replySlots: make(chan struct{}, cfg.MaxInFlight),
		changed:    make(chan struct{}),
		waiters:    map[string]chan *wire{},
		feeds:      map[string]*feed{},
		ran:        make(chan struct{}),
	}
	c.timeouts.initial, c.timeouts.max = cfg.Timeout, cfg.MaxTimeout
	if cfg.Rabbit.TLS {
		// Missing files and unknown versions are configuration errors, better reported now than on every attempt.
		if _, _, err := cfg.Rabbit.tlsConfig(c.hosts[0].Name); err != nil {
			return nil, err
		}
	}
	for i := len(c.hosts) - 1; i > 0; i-- {
		j := int(cfg.Rand() * float64(i+1))
		c.hosts[i], c.hosts[j] = c.hosts[j], c.hosts[i]
	}
	c.handling, c.stopWork = context.WithCancel(context.Background())
	c.running, c.stopRun = context.WithCancel(context.Background())
	go c.run()
	return c, nil
}

// emit hands events out one at a time.
func (c *Client) emit(e Event) {
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	c.cfg.OnEvent(e)
}

// update changes the shared state under its lock and wakes whoever waits for a change.
func (c *Client) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until cond, which is called with the lock held, is true. It fails when ctx ends or the client closes.
func (c *Client) await(ctx context.Context, cond func() bool) error {
	for {
		c.mu.Lock()
		ok, closing, changed := cond(), c.closing, c.changed
		c.mu.Unlock()
		switch {
		case closing:
			return ErrClosed
		case ok:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// session waits for a connection to publish on, and for the reply queue too if replies is set.
func (c *Client) session(ctx context.Context, replies bool) (*session, error) {
	var s *session
	err := c.await(ctx, func() bool {
		s = c.sess
		return s != nil && (!replies || c.repliesReady)
	})
	return s, err
}

// Ready waits until the client is connected.
func (c *Client) Ready(ctx context.Context) error {
	if _, err := c.session(ctx, false); err != nil {
		return c.explain(err)
	}
	return nil
}

// explain adds why there is no connection to the error of a context that ended waiting for one.
func (c *Client) explain(err error) error {
	if last := c.trouble(); last != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

func (c *Client) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

func (c *Client) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastErr
}

// Close ends serving and calling, waits for handlers that are running and for their replies, deletes this client's queues
// and closes the connection. When ctx ends first the connection is cut instead, and the queues expire by themselves.
// Calls in flight end with ErrClosed.
func (c *Client) Close(ctx context.Context) error {
	already := false
	c.update(func() { already, c.closing = c.closing, true })
	if already {
		return ErrClosed
	}
	c.stopWork()

	idle := make(chan struct{})
	go func() {
		for range cap(c.handlers) {
			c.handlers <- struct{}{}
		}
		c.replying.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	s := c.live
	c.mu.Unlock()
	if s != nil {
		err = errors.Join(err, s.close(ctx))
	}
	c.stopRun()
	ended := make(chan struct{})
	go func() {
		<-c.ran
		c.reading.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	return nil
}
