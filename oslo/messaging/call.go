// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Target is where a call or cast goes.
type Target struct {
	Topic     string
	Server    string // one server of the topic, by its host name; "" leaves the choice to the broker
	Fanout    bool   // every server of the topic; casts only
	Namespace string
	Version   string // RPC version of the method, e.g. "1.4"
}

const (
	// retryPause separates attempts to publish on a connection that is up.
	retryPause = 100 * time.Millisecond
	// resendGrace is how long a call waits for its reply after a reconnect before it is sent again. The connection broke
	// before the broker confirmed the request; if the request arrived nevertheless, its reply is waiting in our queue,
	// and sending again would run the method twice on servers that do not recognise the repetition.
	resendGrace = 500 * time.Millisecond
)

// Call runs a method on a server and waits for its result, which is decoded into result unless that is nil. Args must
// encode to a JSON object (nil means no arguments); result may be a *json.RawMessage.
//
// Every call ends in its result, a *[RemoteError], a *[TimeoutError], ErrClosed, the error of a ctx that was cancelled,
// the broker's refusal, or a *[TooLargeError]. Without a deadline in ctx the method's adaptive timeout applies; see Config.Timeout.
//
// A request is published again, under the same ids, when the connection breaks before the broker has confirmed it. The
// method runs at most once on servers that recognise repetitions (this package; a Python server as long as fewer than 16
// other messages came to the same listener in between) and could in principle run twice on others. Once confirmed, a
// request is never repeated; if the server or its queue dies with it, the call times out.
func (c *Client) Call(ctx context.Context, t Target, method string, args, result any) error {
	if t.Fanout {
		return errors.New("messaging: a call cannot be sent to all servers")
	}
	began := time.Now()
	_, fixed := ctx.Deadline()
	timeout := c.timeouts.get(t, method)
	if !fixed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	w, err := c.call(ctx, t, method, args)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		if !fixed {
			c.timeouts.double(t, method, timeout)
		}
		return c.timeoutError(t, method, time.Since(began))
	case err != nil:
		return fmt.Errorf("calling %s on %s: %w", method, t.Topic, err)
	case w.refused != nil:
		return fmt.Errorf("reply to %s on %s refused: %w", method, t.Topic, w.refused)
	case w.failure != nil && !bytes.Equal(w.failure, []byte("null")):
		return decodeFailure(w.failure)
	case result == nil || w.result == nil:
		return nil
	}
	if err := json.Unmarshal(w.result, result); err != nil {
		return fmt.Errorf("decoding the result of %s: %w", method, err)
	}
	return nil
}

func (c *Client) timeoutError(t Target, method string, after time.Duration) error {
	spread := min(after, time.Minute)
	return &TimeoutError{
		Topic: t.Topic, Method: method, After: after, Last: c.trouble(),
		RetryAfter: time.Duration(float64(spread) * c.cfg.Rand()),
	}
}

func (c *Client) call(ctx context.Context, t Target, method string, args any) (*wire, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.handling.Done():
		return nil, ErrClosed
	}
	msgID := newID()
	m, err := c.outgoing(ctx, t, method, args, msgID)
	if err != nil {
		return nil, err
	}
	m.mandatory = true
	if deadline, ok := ctx.Deadline(); ok {
		m.expires = func() string { return strconv.FormatInt(max(time.Until(deadline).Milliseconds(), 1), 10) }
	}
	replies := make(chan *wire, 4)
	c.mu.Lock()
	c.waiters[msgID] = replies
	first := !c.wantReplies
	c.mu.Unlock()
	if first {
		c.update(func() { c.wantReplies = true })
	}
	defer func() {
		c.mu.Lock()
		delete(c.waiters, msgID)
		c.mu.Unlock()
	}()
	return c.exchange(ctx, m, replies)
}

// exchange publishes a request and waits for the reply, over as many connections as it takes.
func (c *Client) exchange(ctx context.Context, m *outgoing, replies chan *wire) (*wire, error) {
	topic := m.exchange.name + " " + m.key
	var lead chan struct{} // see silences
	defer func() { c.silences.leave(topic, lead) }()
	for {
		s, err := c.session(ctx, true)
		if err != nil {
			return nil, err
		}
		p, dc, err := s.post(ctx, m)
		if err == nil {
			w, err := c.confirmedOrAnswered(ctx, dc, replies)
			if w != nil || err != nil {
				return w, err
			}
			if dc.Acked() && !p.wasReturned(m.id) {
				c.silences.heard(topic)
				return c.answer(ctx, replies, nil)
			}
			if dc.Acked() {
				if lead, err = c.silences.wait(ctx, c.handling.Done(), topic, lead, c.cfg.Rand()); err != nil {
					return nil, err
				}
				continue
			}
		}
		lost := s.isDead() || err == nil && p.ch.IsClosed()
		if err := c.afterFailure(ctx, s, err); err != nil {
			return nil, err
		}
		if lost {
			if w, err := c.lateAnswer(ctx, replies); w != nil || err != nil {
				return w, err
			}
		}
	}
}

// lateAnswer waits on a new connection for a reply to what was sent on the lost one; both results are nil if none comes soon.
func (c *Client) lateAnswer(ctx context.Context, replies chan *wire) (*wire, error) {
	if _, err := c.session(ctx, true); err != nil {
		return nil, err
	}
	grace := time.NewTimer(resendGrace)
	defer grace.Stop()
	return c.answer(ctx, replies, grace.C)
}

// confirmedOrAnswered waits for whichever comes first; both results are nil when the confirmation does.
func (c *Client) confirmedOrAnswered(ctx context.Context, dc *amqp.DeferredConfirmation, replies chan *wire) (*wire, error) {
	for {
		select {
		case w := <-replies:
			if w = complete(w); w != nil {
				return w, nil
			}
		case <-dc.Done():
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.handling.Done():
			return nil, ErrClosed
		}
	}
}

// answer waits for the reply until stop, which gives neither reply nor error.
func (c *Client) answer(ctx context.Context, replies chan *wire, stop <-chan time.Time) (*wire, error) {
	var partial *wire
	for {
		select {
		case w := <-replies:
			if partial != nil && isNull(w.result) {
				w.result = partial.result
			}
			if done := complete(w); done != nil {
				return done, nil
			}
			if !isNull(w.result) {
				partial = w
			}
		case <-stop:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.handling.Done():
			return nil, ErrClosed
		}
	}
}

func isNull(raw []byte) bool { return raw == nil || string(raw) == "null" }

// complete drops the heartbeats that a server may send while it works on a call.
func complete(w *wire) *wire {
	if w.ending || !isNull(w.failure) || w.refused != nil {
		return w
	}
	return nil
}

// ackDelay is how long acknowledgements are saved up.
const ackDelay = 100 * time.Millisecond

// readReplies hands replies to the calls that wait for them. They are acknowledged together, a quarter of the prefetch count
// at a time or after ackDelay: a reply that is delivered again after a disconnect finds nobody waiting and is dropped.
func (c *Client) readReplies(r *reader) {
	timer := time.NewTimer(ackDelay)
	defer timer.Stop()
	unacked := 0
	for {
		select {
		case d, ok := <-r.deliveries:
			if !ok {
				return // the channel is gone, and our debts with it
			}
			c.takeReply(r, d)
			r.debts.owe(d.DeliveryTag)
			if unacked++; unacked == 1 {
				timer.Reset(ackDelay)
			}
			if unacked < replyPrefetch/4 {
				continue
			}
		case <-timer.C:
			if unacked == 0 {
				continue
			}
		}
		r.debts.pay()
		unacked = 0
	}
}

func (c *Client) takeReply(r *reader, d amqp.Delivery) {
	w, err := c.received(r, d, c.cfg.MaxMessage)
	r.intake.release(r.tag, len(d.Body))
	var large *TooLargeError
	switch {
	case errors.As(err, &large):
		w = &wire{msgID: answers(d.Body), refused: large}
	case err != nil:
		c.emit(Dropped{d.Exchange, d.RoutingKey, err})
		return
	}
	c.mu.Lock()
	replies := c.waiters[w.msgID]
	c.mu.Unlock()
	if replies == nil {
		if large != nil { // its call will time out, and this is why
			c.emit(Dropped{d.Exchange, d.RoutingKey, err})
		}
		return // its call has timed out, or this is a repetition
	}
	select {
	case replies <- w:
	default: // a server that sends heartbeats faster than the call reads them
	}
}

// answers finds the id of the call that a reply is for in the end of its body. Peers put it behind the result; of a
// compressed reply nothing can be read, and its call times out.
func answers(tail []byte) string {
	at := bytes.LastIndex(tail, []byte("_msg_id"))
	if at < 0 {
		return ""
	}
	rest := tail[at:]
	isHex := func(b byte) bool { return b >= '0' && b <= '9' || b >= 'a' && b <= 'f' }
	for i := 0; i < len(rest); i++ {
		n := i
		for n < len(rest) && isHex(rest[n]) {
			n++
		}
		if n-i == 32 {
			return string(rest[i:n])
		}
		i = n
	}
	return ""
}

// received decodes a delivery, unless the intake has refused it.
func (c *Client) received(r *reader, d amqp.Delivery, limit int64) (*wire, error) {
	if err := r.intake.verdict(deliveryKey{d.ConsumerTag, d.DeliveryTag}); err != nil {
		return nil, err
	}
	kind, _ := d.Headers["compression"].(string)
	body, err := decompress(d.Body, kind, limit)
	if err != nil {
		return nil, err
	}
	return decodeMessage(body)
}

func (c *Client) outgoing(ctx context.Context, t Target, method string, args any, msgID string) (*outgoing, error) {
	var fields map[string]any
	if c.cfg.Context != nil {
		fields = c.cfg.Context(ctx)
	}
	id := newID()
	c.mu.Lock()
	replyQ := c.layout.replyQ
	c.mu.Unlock()
	body, err := request(t, method, args, fields, id, msgID, replyQ)
	if err != nil {
		return nil, err
	}
	e, key := c.layout.route(t)
	return &outgoing{exchange: e, key: key, id: id, body: body}, nil
}

// Cast sends a message for which no reply is expected: to any server of a topic, to one, or to all of them. It returns
// when the broker has confirmed the message, which says nothing about whether anybody receives it. Without a deadline in
// ctx it gives up after Config.Timeout.
func (c *Client) Cast(ctx context.Context, t Target, method string, args any) error {
	began := time.Now()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	m, err := c.outgoing(ctx, t, method, args, "")
	if err != nil {
		return err
	}
	if c.isClosing() {
		err = ErrClosed
	} else {
		err = c.deliver(ctx, m)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return c.timeoutError(t, method, time.Since(began))
	}
	if err != nil {
		return fmt.Errorf("casting %s to %s: %w", method, t.Topic, err)
	}
	return nil
}

// timeouts remembers how long to wait for each method.
type timeouts struct {
	initial, max time.Duration
	mu           sync.Mutex
	by           map[string]time.Duration
}

func (t *timeouts) key(to Target, method string) string {
	return to.Topic + "\x00" + to.Namespace + "\x00" + method
}

func (t *timeouts) get(to Target, method string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d, ok := t.by[t.key(to, method)]; ok {
		return d
	}
	return t.initial
}

// double raises the timeout of a method that has timed out after d. Of many calls that time out together only the first
// one counts.
func (t *timeouts) double(to Target, method string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]time.Duration{}
	}
	k := t.key(to, method)
	t.by[k] = max(t.by[k], min(2*d, max(t.max, t.initial)))
}
