// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// errUnroutable says that a mandatory message reached no queue.
var errUnroutable = errors.New("no such queue")

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
func (s *session) post(ctx context.Context, m *outgoing) (*mainChannel, *amqp.DeferredConfirmation, error) {
	if err := s.passGate(ctx); err != nil {
		return nil, nil, err
	}
	if m.exchange.name != "" {
		if err := s.ensureExchange(m.exchange); err != nil {
			return nil, nil, err
		}
	}
	p, err := s.mainChannel()
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
	p.sending.Lock()
	defer p.sending.Unlock()
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
