// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// publisher is the channel messages go out on, with the broker's confirmations and returns.
type publisher struct {
	ch      *amqp.Channel
	settled chan chan struct{} // asks that all returns received so far be recorded
	done    chan struct{}

	mu       sync.Mutex
	returned map[string]bool // by message id
}

// errUnroutable says that a mandatory message reached no queue.
var errUnroutable = errors.New("no such queue")

// publisher gives the channel to publish on, opening it if necessary.
func (s *session) publisher() (*publisher, error) {
	s.pubMu.Lock()
	defer s.pubMu.Unlock()
	if s.pub != nil && !s.pub.ch.IsClosed() {
		return s.pub, nil
	}
	ch, err := s.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("opening a channel: %w", err)
	}
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("asking for confirmations: %w", err)
	}
	p := &publisher{ch: ch, settled: make(chan chan struct{}), done: make(chan struct{}), returned: map[string]bool{}}
	// Not buffered: the library's reader hands a return over before it looks at the confirmation that follows.
	returns := ch.NotifyReturn(make(chan amqp.Return))
	s.c.reading.Go(func() { p.drain(returns) })
	s.pub = p
	// A channel is closed when a message goes to an exchange that no longer exists.
	clear(s.declared)
	return p, nil
}

func (p *publisher) drain(returns chan amqp.Return) {
	defer close(p.done)
	for {
		select {
		case r, ok := <-returns:
			if !ok {
				return
			}
			p.mu.Lock()
			p.returned[r.MessageId] = true
			p.mu.Unlock()
		case ask := <-p.settled:
			close(ask)
		}
	}
}

// wasReturned tells, for a message that has been confirmed, whether it had been returned before.
func (p *publisher) wasReturned(id string) bool {
	ask := make(chan struct{})
	select {
	case p.settled <- ask:
		<-ask
	case <-p.done:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	yes := p.returned[id]
	delete(p.returned, id)
	return yes
}

// outgoing is a message and where it goes.
type outgoing struct {
	exchange  exchange // no name for the default exchange, which is not declared
	key       string
	mandatory bool
	id        string
	body      []byte
	expires   func() string
}

// post hands a message to the broker once. The confirmation comes later.
func (s *session) post(ctx context.Context, m *outgoing) (*publisher, *amqp.DeferredConfirmation, error) {
	if err := s.passGate(ctx); err != nil {
		return nil, nil, err
	}
	if m.exchange.name != "" {
		if err := s.ensureExchange(m.exchange); err != nil {
			return nil, nil, err
		}
	}
	p, err := s.publisher()
	if err != nil {
		return nil, nil, err
	}
	msg := amqp.Publishing{
		ContentType: "application/json", ContentEncoding: "utf-8", DeliveryMode: amqp.Persistent, Body: m.body,
	}
	if m.mandatory {
		msg.MessageId = m.id
	}
	if m.expires != nil {
		msg.Expiration = m.expires()
	}
	if s.c.cfg.Rabbit.Compression != "" {
		if msg.Body, err = compress(m.body); err != nil {
			return nil, nil, err
		}
		msg.Headers = amqp.Table{"compression": headerGzip}
	}
	dc, err := p.ch.PublishWithDeferredConfirm(m.exchange.name, m.key, m.mandatory, false, msg)
	if err != nil {
		return nil, nil, fmt.Errorf("publishing: %w", err)
	}
	return p, dc, nil
}

// deliver hands a message to the broker until it confirms that it has it, over as many connections as it takes. The error
// is errUnroutable, ErrClosed, ctx's, or the broker's refusal.
func (c *Client) deliver(ctx context.Context, m *outgoing) error {
	for {
		s, err := c.deliverySession(ctx)
		if err != nil {
			return err
		}
		p, dc, err := s.post(ctx, m)
		if err == nil {
			select {
			case <-dc.Done():
				if dc.Acked() {
					if m.mandatory && p.wasReturned(m.id) {
						return errUnroutable
					}
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := c.afterFailure(ctx, s, err); err != nil {
			return err
		}
	}
}

// deliverySession is session, but serves replies also while the client closes.
func (c *Client) deliverySession(ctx context.Context) (*session, error) {
	c.mu.Lock()
	s, closing := c.sess, c.closing
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	if closing {
		return nil, ErrClosed
	}
	return c.session(ctx, false)
}

// afterFailure decides what a failed or refused publication means: an error that repeating cannot change is returned,
// otherwise it waits until repeating makes sense.
func (c *Client) afterFailure(ctx context.Context, s *session, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !s.isDead() {
		if refused(err, amqp.AccessRefused) || refused(err, amqp.PreconditionFailed) {
			return err
		}
		// A negative confirmation, or a channel that was closed: a moment later it may work.
		return pause(ctx, retryPause)
	}
	select {
	case <-s.dead:
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.await(ctx, func() bool { return c.sess != s })
}
