// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// run keeps one connection up until the client closes.
func (c *Client) run() {
	defer close(c.ran)
	next, failures, slow := 0, 0, 0
	began := time.Now()
	for c.running.Err() == nil {
		host := c.hosts[next%len(c.hosts)]
		if c.cfg.Rabbit.FailoverStrategy == "shuffle" {
			host = c.hosts[int(c.cfg.Rand()*float64(len(c.hosts)))]
		}
		s, err := c.connect(host, slow/len(c.hosts))
		if err == nil {
			err = s.run(began)
		}
		if s != nil && s.complete {
			failures, slow = 0, 0
		} else if tooSlow(err) {
			slow++
		}
		if s != nil {
			if c.isClosing() {
				return
			}
			began = time.Now()
			if s.ended(err) {
				// The same host again first: most disconnects are not the broker's end.
				c.sleep(reconnectDelay(c.cfg.Rabbit, c.cfg.Rand))
				continue
			}
		}
		failures++
		next++
		delay := failed(c, s, host, err, failures, slow)
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			next = c.knock(delay, next)
		} else {
			c.sleep(delay)
		}
	}
}

// ended reports the end of a connection, and tells whether nothing speaks against making it anew.
func (s *session) ended(err error) bool {
	lasting, changed := refusal(err) != nil, s.denied(err)
	s.c.update(func() { s.c.lastErr = err })
	if s.complete || !lasting {
		s.c.emit(Disconnected{s.addr, err})
	}
	return changed || s.complete && !lasting
}

// denied is layout.deny under the lock.
func (s *session) denied(err error) bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.layout.deny(err)
}

// failed reports a failure that trying again at once would not change, and returns when to try again.
func failed(c *Client, s *session, host Host, err error, failures, slow int) time.Duration {
	r, delay := refusal(err), retryDelay(c.cfg.Rabbit, failures, len(c.hosts), c.cfg.Rand)
	if errors.Is(err, amqp.ErrCredentials) && failures <= 2*len(c.hosts) {
		r = nil // the AMQP library takes every end of the connection during the login for that
	}
	if isInternalError(err) {
		// A queue's home node is just coming or going; hurrying makes it worse.
		delay = max(delay, 2*time.Second)
	}
	if slow > 0 && failures%len(c.hosts) == 0 {
		delay += time.Duration(c.cfg.Rand() * float64(patient(slowPause, slow/len(c.hosts))))
	}
	if r != nil {
		err, delay = r, refusalDelay(c.cfg.Rabbit, failures, len(c.hosts), c.cfg.Rand)
	}
	c.update(func() { c.lastErr = err })
	switch {
	case c.running.Err() != nil:
	case r != nil:
		c.emit(Refused{host.Addr(), r, delay})
	case s == nil:
		c.emit(ConnectFailed{host.Addr(), err, delay})
	}
	return delay
}

// slowPause spreads the clients for which all hosts took too long, before they come again; more so each time.
const slowPause = 15 * time.Second

// knockEvery is how often, on average, a host that could not be connected to is looked at during a longer pause.
const knockEvery = 2 * time.Second

// knock waits, but not longer than until a host accepts connections: the pauses grow to spare a broker that is there and
// busy, and one that nobody could connect to was not there. It returns the number of the host to try next.
func (c *Client) knock(d time.Duration, next int) int {
	for end := time.Now().Add(d); ; {
		wait := time.Duration((0.5 + c.cfg.Rand()) * float64(knockEvery)) // spreads the clients that wait for one broker
		if left := time.Until(end); left <= wait {
			c.sleep(left)
			return next
		}
		if c.sleep(wait); c.running.Err() != nil {
			return next
		}
		for i := range c.hosts {
			if c.cfg.accepts(c.running, c.hosts[(next+i)%len(c.hosts)]) {
				return next + i
			}
		}
	}
}

func (cfg *Config) accepts(ctx context.Context, host Host) bool {
	ctx, cancel := context.WithTimeout(ctx, knockEvery)
	defer cancel()
	conn, err := cfg.Dial(ctx, "tcp", host.Addr())
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func (c *Client) sleep(d time.Duration) { _ = pause(c.running, d) }

// reconnectDelay spreads the hosts that lost the same broker at the same moment.
func reconnectDelay(r Rabbit, rnd func() float64) time.Duration {
	return time.Duration(float64(r.ReconnectDelay)*(0.5+rnd()) + float64(r.ReconnectSplay)*rnd())
}

// retryDelay is the pause after the given number of failures in a row. The other hosts of the list are tried quickly;
// after each round the pause grows by the backoff, up to the maximum. It is drawn from the upper half of that value.
func retryDelay(r Rabbit, failures, hosts int, rnd func() float64) time.Duration {
	if failures%hosts != 0 {
		return time.Duration(float64(r.RetryInterval) / 4 * rnd())
	}
	d := r.RetryInterval + time.Duration(failures/hosts-1)*r.RetryBackoff
	if r.IntervalMax > 0 {
		d = min(d, r.IntervalMax)
	}
	return time.Duration(float64(d) * (0.5 + 0.5*rnd()))
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
