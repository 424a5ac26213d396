// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Handler takes over one message. For a call, what it returns is sent as the reply: the result, which must encode to JSON,
// or the error, as a Python exception (a *[RemoteError] as it is, anything else as RuntimeError). For a cast both are
// ignored. Ctx ends when the Client closes.
//
// The message is acknowledged when Handler has returned, perhaps together with those that follow at once. Until then the
// broker keeps it, so a handler must have put the message where it will not be forgotten before it returns.
type Handler func(ctx context.Context, m *Message) (any, error)

// Service is what a Client serves.
type Service struct {
	// Topics are served under Config.Host: messages to all servers of a topic, and to this one.
	Topics []string
	// Directed are topics of which messages to this server are served, and those to all need not be: with a hub the broker keeps
	// them. Without one they come all the same.
	Directed []string
	// Shared also takes messages addressed to any one server of a topic, in turn with the others. Agents that nobody
	// calls that way leave it off, and save a queue per topic.
	Shared bool
	// Concurrency is how many handlers run at a time. With 1, the default, messages of one sender to one exchange are
	// handled in the order they were sent, barring disconnects. It is fixed by the first Serve.
	Concurrency int
	Handler     Handler
}

// Message is a received call or cast.
type Message struct {
	Topic     string
	Fanout    bool // sent to all servers of the topic
	Directed  bool // sent to this server
	Method    string
	Namespace string
	Version   string
	Args      json.RawMessage // an object; not looked into yet
	Call      bool            // the sender waits for a reply
	ID        string          // unique id of the message

	wire *wire
}

// Context gives the fields of the sender's request context.
func (m *Message) Context() map[string]json.RawMessage { return m.wire.context() }

// Serve makes the client serve exactly svc from now on, and returns when the broker has everything bound and consumed: no
// message sent after that is missed. It can be called again with other topics or another handler. When ctx ends first the
// client goes on trying.
func (c *Client) Serve(ctx context.Context, svc Service) error {
	if svc.Handler == nil {
		return errors.New("messaging: Service.Handler is required")
	}
	svc.Topics, svc.Directed = slices.Clone(svc.Topics), slices.Clone(svc.Directed)
	gen := 0
	c.update(func() {
		c.serviceGen++
		gen = c.serviceGen
		c.service = &svc
		if c.closing {
			return
		}
		if c.handlers == nil {
			c.handlers = make(chan struct{}, max(svc.Concurrency, 1))
		}
	})
	if err := c.await(ctx, func() bool { return c.appliedGen >= gen && c.sess != nil }); err != nil {
		return fmt.Errorf("serving: %w", c.explain(err))
	}
	return nil
}

// serve handles what a queue delivers until its channel ends. Acknowledgements are saved up where that is possible, because
// a packet each would cost more than handling the messages. The broker keeps what is not acknowledged, so nothing is lost
// by waiting: what is delivered again after a disconnect is recognised, and when the client closes, the queue goes too.
func (c *Client) serve(r *reader) {
	timer := time.NewTimer(ackDelay)
	defer timer.Stop()
	unacked := 0
	for {
		select {
		case d, ok := <-r.deliveries:
			if !ok {
				return // the channel is gone, and our debts with it
			}
			if !c.take(r, d) {
				continue
			}
			if unacked++; unacked == 1 {
				timer.Reset(ackDelay)
			}
			if unacked < r.owe {
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

// take decodes a delivery and has it handled, unless it is a repetition. From the moment its id is remembered the message
// goes to a handler whatever happens to the connection, because the broker's repetition will be suppressed. It is true for
// a message that was handled and is yet to be acknowledged.
func (c *Client) take(r *reader, d amqp.Delivery) (owed bool) {
	handed := false
	defer func() {
		if !handed {
			r.intake.release(r.tag, len(d.Body))
		}
	}()
	if !r.serves(c, d) {
		r.ack(d) // the key of the binding matches what is for other programs of this host, too
		return false
	}
	w, err := c.received(r, d, c.cfg.MaxBacklog)
	if r.feed.kind == feedStream && !c.takeOffset(r.feed, d) {
		r.ack(d)
		return false
	}
	if err != nil || w.method == "" {
		if err == nil {
			err = errors.New("the message names no method")
		}
		_ = d.Reject(false)
		r.debts.settle(d.DeliveryTag)
		c.emit(Dropped{d.Exchange, d.RoutingKey, err})
		return false
	}
	if c.handling.Err() != nil {
		return false // not acknowledged; the queue is about to be deleted
	}
	if !c.seen.first(w.uniqueID) {
		r.ack(d)
		return false
	}
	select {
	case c.handlers <- struct{}{}:
	case <-c.handling.Done():
		return false
	}
	m, together := c.message(w, d), r.owe > 1 && w.replyQ == ""
	handed = true
	if cap(c.handlers) == 1 {
		c.handle(r, m, d, together)
	} else {
		go c.handle(r, m, d, together)
	}
	return together
}

// handle runs the handler in the slot that was taken for it.
func (c *Client) handle(r *reader, m *Message, d amqp.Delivery, together bool) {
	defer func() { <-c.handlers }()
	defer r.intake.release(r.tag, len(d.Body))
	c.mu.Lock()
	handler := c.service.Handler
	c.mu.Unlock()
	result, err := handler(c.handling, m)
	if together {
		r.debts.owe(d.DeliveryTag)
	} else {
		r.ack(d)
	}
	if m.Call {
		c.reply(m, result, err)
	}
}

// ack acknowledges one delivery at once. It fails when the connection has changed; the repetition is suppressed.
func (r *reader) ack(d amqp.Delivery) {
	_ = d.Ack(false)
	r.debts.settle(d.DeliveryTag)
}

// takeOffset follows the position in a stream. Offsets have no holes: a jump means that the broker has dropped messages
// we had not read. It is false for messages from before the last one taken.
func (c *Client) takeOffset(f *feed, d amqp.Delivery) bool {
	offset, ok := d.Headers["x-stream-offset"].(int64)
	if !ok {
		return true
	}
	last := f.offset.Load()
	if last >= 0 && offset <= last {
		return false
	}
	if last >= 0 && offset > last+1 {
		c.emit(Gap{f.queue.name, fmt.Sprintf("the stream no longer had the messages from %d to %d", last+1, offset-1)})
	}
	f.offset.Store(offset)
	return true
}

func (c *Client) message(w *wire, d amqp.Delivery) *Message {
	m := &Message{
		Method: w.method, Namespace: w.namespace, Version: w.version, Args: w.args, Call: w.msgID != "" && w.replyQ != "", ID: w.uniqueID, wire: w,
	}
	m.Topic, m.Fanout, m.Directed = sentTo(&c.cfg, d)
	return m
}

// sentTo tells the topic of a delivery, and whether it was sent to all servers of it or to this one.
func sentTo(cfg *Config, d amqp.Delivery) (topic string, fanout, directed bool) {
	if topic, fanout = strings.CutSuffix(d.Exchange, "_fanout"); fanout && d.Exchange != cfg.Exchange {
		return topic, true, false
	}
	topic, directed = strings.CutSuffix(d.RoutingKey, "."+cfg.Host)
	return topic, false, directed
}

// reply sends the answer to a call in the background.
func (c *Client) reply(m *Message, result any, failed error) {
	body, err := reply(m.wire.msgID, newID(), result, failed)
	if err != nil {
		// The result does not encode: tell the caller that instead.
		if body, err = reply(m.wire.msgID, newID(), nil, err); err != nil {
			return
		}
	}
	out := &outgoing{key: m.wire.replyQ, mandatory: c.cfg.Rabbit.DirectMandatory, id: newID(), body: body}
	// While the broker takes no messages, replies would pile up: at some point the handlers wait.
	c.replySlots <- struct{}{}
	c.replying.Go(func() {
		defer func() { <-c.replySlots }()
		c.sendReply(m, out)
	})
}

// replyRetry separates attempts to reach a reply queue that does not exist at the moment, because its owner is
// reconnecting.
const replyRetry = 250 * time.Millisecond

func (c *Client) sendReply(m *Message, out *outgoing) {
	if c.gone.has(out.key) {
		return
	}
	limit := c.cfg.Rabbit.MissingConsumerRetry
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		err := c.deliver(ctx, out)
		if errors.Is(err, errUnroutable) && !c.isClosing() {
			if pause(ctx, replyRetry) == nil {
				continue
			}
			c.gone.add(out.key)
		}
		if err != nil {
			c.emit(ReplyAbandoned{out.key, m.Method, err})
		}
		return
	}
}

// goneQueues remembers for a minute which reply queues no longer exist, so that each further reply to a dead caller does
// not wait again.
type goneQueues struct {
	mu sync.Mutex
	at map[string]time.Time
}

const (
	goneFor = time.Minute
	goneMax = 200
)

func (g *goneQueues) has(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, ok := g.at[name]
	return ok && time.Since(t) < goneFor
}

func (g *goneQueues) add(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at == nil || len(g.at) >= goneMax {
		g.at = map[string]time.Time{}
	}
	g.at[name] = time.Now()
}

// RemoveLeftovers deletes the queues "<topic>.<server>" that an oslo.messaging server of that name has left behind and that
// nobody consumes any more, and tells which it found. The Python library makes them without an expiry: after a takeover
// from a Python agent on the same host they collect a copy of every directed message for ever.
//
// The first topic must be one that every such server has served. The others are looked for only if its queue is there, and
// it is deleted last: each question about a queue that is not there costs the broker a channel.
func (c *Client) RemoveLeftovers(ctx context.Context, topics []string, server string) ([]string, error) {
	s, err := c.session(ctx, false)
	if err != nil {
		return nil, c.explain(err)
	}
	if len(topics) == 0 {
		return nil, nil
	}
	if there, err := s.leftover(topics[0] + "." + server); !there || err != nil {
		return nil, err
	}
	var removed []string
	for _, topic := range append(slices.Clone(topics[1:]), topics[0]) {
		name := topic + "." + server
		there, err := s.leftover(name)
		if there {
			there, err = s.removeQueue(name)
		}
		if err != nil {
			return removed, err
		}
		if there {
			removed = append(removed, name)
		}
	}
	return removed, nil
}

// leftover says whether there is a queue that nobody consumes.
func (c *channels) leftover(name string) (there bool, err error) {
	err = c.asking(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, false, false, false, false, nil)
		there = err == nil && q.Consumers == 0
		return err
	})
	if err != nil && !refused(err, amqp.NotFound) {
		return false, fmt.Errorf("looking for queue %s: %w", name, err)
	}
	return there, nil
}

// removeQueue deletes a queue unless somebody consumes it again.
func (s *session) removeQueue(name string) (removed bool, err error) {
	err = s.declaring(func(ch *amqp.Channel) error {
		// Quorum queues cannot be deleted "if unused"; asking would cost the connection.
		_, err := ch.QueueDelete(name, !s.c.cfg.Rabbit.QuorumQueue, false, false)
		return err
	})
	if err != nil && !refused(err, amqp.PreconditionFailed) {
		return false, fmt.Errorf("removing %s: %w", name, err)
	}
	return err == nil, nil
}
