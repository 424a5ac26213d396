// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Bounds on what depends on the broker alone.
const (
	handshakeTimeout = 30 * time.Second // TCP; and that, TLS and AMQP handshake together
	setupTimeout     = 30 * time.Second // one declaration; a broker that does not answer is as good as gone
	mostPatience     = 4                // times that these double, for a broker that has too many clients to set up
)

// errUnanswered ends a connection whose broker does not answer.
var errUnanswered = errors.New("the broker does not answer a declaration")

// patient returns how long the broker may take, and d at first, after so many rounds in which all hosts took too long. Thousands of clients that come at once, as after
// a restart of the broker, may need longer for all of them than one may wait. If each gave up after the same time and came again, none would ever be done.
func patient(d time.Duration, rounds int) time.Duration { return d << min(rounds, mostPatience) }

// tooSlow returns whether a host that accepts connections took too long to set one up. One that accepts none is not there.
func tooSlow(err error) bool {
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	return errors.Is(err, errUnanswered) || errors.Is(err, context.DeadlineExceeded)
}

// session is one established connection. It has one channel, as long as the broker does not close that; see mainChannel.
type session struct {
	c    *Client
	addr string
	tls  string
	raw  net.Conn
	channels

	intake *intake

	dead chan struct{} // closed when the connection is gone
	err  error         // why; valid after dead

	killOnce sync.Once
	killErr  error

	gateMu sync.Mutex
	gate   chan struct{} // non-nil while the broker blocks us; closed when it no longer does

	applyMu  sync.Mutex         // held while queues are set up, and to the end once they are deleted
	lost     chan *reader       // consumers that the broker ended
	readers  map[string]*reader // by queue; used by run only
	tags     int                // consumers so far; used by run only
	complete bool               // everything wanted was set up at least once
}

// liveConn ends reads and writes that make no progress. The broker sends a heartbeat at least every half of the
// negotiated time, so a longer silence means that it is gone, which a plain TCP connection may not notice for hours.
type liveConn struct {
	net.Conn
	in   *frames
	mu   sync.Mutex
	idle time.Duration // 0 means no limit
}

// readAhead is enough for a dozen messages: when many come, most cost no system call. The AMQP library's own buffer is
// smaller than one.
const readAhead = 64 << 10

func newLiveConn(c net.Conn, idle time.Duration, i *intake) *liveConn {
	l := &liveConn{Conn: c, idle: idle}
	l.in = newFrames(bufio.NewReaderSize(limitedReader{l}, readAhead), i)
	return l
}

// limitedReader reads from the connection itself.
type limitedReader struct{ l *liveConn }

func (r limitedReader) Read(b []byte) (int, error) {
	if err := r.l.Conn.SetReadDeadline(r.l.limit()); err != nil {
		return 0, err
	}
	return r.l.Conn.Read(b)
}

func (l *liveConn) limit() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle == 0 {
		return time.Time{}
	}
	return time.Now().Add(l.idle)
}

func (l *liveConn) setIdle(d time.Duration) { l.mu.Lock(); l.idle = d; l.mu.Unlock() }

func (l *liveConn) Read(b []byte) (int, error) { return l.in.Read(b) }

func (l *liveConn) Write(b []byte) (int, error) {
	if err := l.Conn.SetWriteDeadline(l.limit()); err != nil {
		return 0, err
	}
	return l.Conn.Write(b)
}

// The AMQP library's own, laxer deadlines would override ours.
func (l *liveConn) SetDeadline(time.Time) error      { return nil }
func (l *liveConn) SetReadDeadline(time.Time) error  { return nil }
func (l *liveConn) SetWriteDeadline(time.Time) error { return nil }

func (c *Client) connect(host Host, rounds int) (*session, error) {
	ctx, cancel := context.WithTimeout(c.running, patient(handshakeTimeout, rounds))
	defer cancel()
	raw, verified, err := c.dial(ctx, host)
	if err != nil {
		return nil, err
	}
	in := newIntake()
	live := newLiveConn(raw, patient(handshakeTimeout, rounds)+time.Second, in) // ctx ends first and so is the reason
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()

	r := &c.cfg.Rabbit
	conn, err := amqp.Open(live, amqp.Config{
		SASL:      []amqp.Authentication{login(r.LoginMethod, host)},
		Vhost:     c.cfg.URL.vhost(),
		FrameSize: 131072,
		Heartbeat: r.HeartbeatThreshold,
		Locale:    "en_US",
		Properties: amqp.Table{
			"product":         "oslo/messaging",
			"platform":        "Go",
			"connection_name": fmt.Sprintf("%s:%d:%s", c.cfg.Program, os.Getpid(), dashed(newID())),
		},
	})
	if err != nil {
		_ = raw.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("logging in to %s: %w", host.Addr(), err)
	}
	live.setIdle(r.HeartbeatThreshold)
	s := &session{
		c: c, addr: host.Addr(), tls: verified, raw: raw, intake: in,
		dead: make(chan struct{}), lost: make(chan *reader), readers: map[string]*reader{},
		channels: channels{conn: conn, patience: patient(setupTimeout, rounds), reading: &c.reading, declared: map[string]bool{}},
	}
	s.cut = s.kill
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	c.reading.Go(func() { s.watch(closed) })
	c.reading.Go(func() { s.watchBlocked(blocked) })
	return s, nil
}

// product is what the broker says that it is.
func (s *session) product() string {
	name, _ := s.conn.Properties["product"].(string)
	version, _ := s.conn.Properties["version"].(string)
	return strings.TrimSpace(name + " " + version)
}

func (c *Client) dial(ctx context.Context, host Host) (net.Conn, string, error) {
	dialing, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, err := c.cfg.Dial(dialing, "tcp", host.Addr())
	if err != nil {
		return nil, "", fmt.Errorf("connecting to %s: %w", host.Addr(), err)
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true)
	}
	if !c.cfg.Rabbit.TLS {
		return conn, "", nil
	}
	cfg, verified, err := c.cfg.Rabbit.tlsConfig(host.Name)
	if err != nil {
		_ = conn.Close()
		return nil, "", err
	}
	t := tls.Client(conn, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, "", fmt.Errorf("TLS handshake with %s: %w", host.Addr(), err)
	}
	return t, verified, nil
}

func login(method string, h Host) amqp.Authentication {
	switch strings.ToUpper(method) {
	case "PLAIN":
		return &amqp.PlainAuth{Username: h.Username, Password: string(h.Password)}
	case "EXTERNAL":
		return &amqp.ExternalAuth{}
	}
	return &amqp.AMQPlainAuth{Username: h.Username, Password: string(h.Password)}
}

func dashed(id string) string {
	return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
}

func (s *session) watch(closed chan *amqp.Error) {
	e := <-closed
	s.kill(nil)
	switch {
	case s.killErr != nil:
		s.err = s.killErr
	case e != nil:
		s.err = e
	default:
		s.err = amqp.ErrClosed
	}
	close(s.dead)
}

// kill cuts the connection; everything that uses it notices.
func (s *session) kill(why error) {
	s.killOnce.Do(func() {
		s.killErr = why
		_ = s.raw.Close()
	})
}

func (s *session) watchBlocked(blocked chan amqp.Blocking) {
	for b := range blocked {
		s.gateMu.Lock()
		if b.Active && s.gate == nil {
			s.gate = make(chan struct{})
		} else if !b.Active && s.gate != nil {
			close(s.gate)
			s.gate = nil
		}
		s.gateMu.Unlock()
		if b.Active {
			s.c.emit(Blocked{b.Reason})
		} else {
			s.c.emit(Unblocked{})
		}
	}
}

// passGate waits while the broker blocks publishers.
func (s *session) passGate(ctx context.Context) error {
	s.gateMu.Lock()
	gate := s.gate
	s.gateMu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-s.dead:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run sets up what the client wants, again whenever that changes or the broker ends a consumer, until the connection is
// gone; it returns why.
func (s *session) run(began time.Time) error {
	c := s.c
	c.mu.Lock()
	c.live = s
	c.layout.learn(s.conn.Properties)
	c.mu.Unlock()
	defer c.update(func() {
		c.live, c.sess, c.repliesReady = nil, nil, false
		c.layout.streamDown = c.layout.streamDown && !s.complete // the next connection tries it again
	})
	retry := time.NewTimer(time.Hour) // set when something failed
	defer retry.Stop()
	check, checks := time.NewTimer(spreadCheck(firstCheck, c.cfg.Rand())), 0
	defer check.Stop()
	failures := 0
	announced := false
	for {
		s.applyMu.Lock()
		c.mu.Lock()
		changed, closing := c.changed, c.closing
		c.mu.Unlock()
		var err error
		if !closing {
			err = s.apply(!announced)
		}
		s.applyMu.Unlock()
		switch {
		case err == nil && !announced && !closing:
			announced, s.complete, failures = true, true, 0
			c.mu.Lock()
			c.lastErr = nil
			c.mu.Unlock()
			c.emit(Connected{s.addr, s.tls, time.Since(began), s.product()})
		case err == nil && failures > 0:
			failures = 0
			c.mu.Lock()
			c.lastErr = nil
			c.mu.Unlock()
		case err != nil && !s.isDead():
			failures++
			delay, lasting := s.setupFailed(err, failures)
			announced = announced && !lasting
			retry.Reset(delay)
		}
		select {
		case <-s.dead:
			return s.err
		case <-c.running.Done():
			s.kill(ErrClosed)
			<-s.dead
			return s.err
		case r := <-s.lost:
			s.forget(r)
		case <-check.C:
			s.checkHub(checks == 0)
			checks++
			check.Reset(spreadCheck(checkEvery, c.cfg.Rand()))
		case <-retry.C:
		case <-changed:
		}
	}
}

// setupFailed reports that setting up what is wanted failed, and returns when to try again and whether it was refused.
func (s *session) setupFailed(err error, failures int) (delay time.Duration, lasting bool) {
	c := s.c
	r := refusal(err)
	if r != nil {
		err, delay = r, refusalDelay(c.cfg.Rabbit, failures, 1, c.cfg.Rand)
	} else {
		delay = retryDelay(c.cfg.Rabbit, failures, 1, c.cfg.Rand)
	}
	c.mu.Lock()
	c.lastErr = err
	c.mu.Unlock()
	var se *setupError
	switch {
	case r != nil:
		c.emit(Refused{s.addr, r, delay})
	case errors.As(err, &se):
		c.emit(SetupFailed{se.queue, err, delay})
	default:
		c.emit(SetupFailed{"", err, delay})
	}
	return delay, r != nil
}

func (s *session) isDead() bool {
	select {
	case <-s.dead:
		return true
	default:
		// The library knows before our watcher does.
		return s.conn.IsClosed()
	}
}

// close deletes the queues nobody else consumes and closes the connection in an orderly way.
func (s *session) close(ctx context.Context) error {
	cut := context.AfterFunc(ctx, func() { s.kill(ctx.Err()) })
	defer cut()
	// Nothing may be made anew behind our back.
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	var err error
	for _, name := range s.c.ownQueues() {
		err = errors.Join(err, s.declaring(func(ch *amqp.Channel) error {
			_, e := ch.QueueDelete(name, false, false, false)
			return e
		}))
	}
	if e := s.conn.Close(); e != nil && !errors.Is(e, amqp.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}
