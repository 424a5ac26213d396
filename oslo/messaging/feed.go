// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// feedKind says what a consumed queue is for.
type feedKind int

const (
	feedReplies feedKind = iota // replies to our calls
	feedPrivate                 // our copy of fanout messages, and directed messages
	feedShared                  // a topic's queue, shared with other servers
	feedStream                  // a topic's fanout stream
)

// feed is a queue to consume, and what is known about it across connections.
type feed struct {
	kind  feedKind
	queue queue

	made   bool   // it has existed with all its bindings: losing it loses messages
	gap    string // why messages were missed, until that is reported
	offset atomic.Int64
	since  time.Time // when a stream was first consumed of which nothing has come
	// failing is when a stream could first not be set up, since it last could.
	failing time.Time
}

// own tells whether nobody but us consumes the queue.
func (f *feed) own() bool { return f.kind == feedReplies || f.kind == feedPrivate }

// clocks is how far the broker's clock may be from ours.
const clocks = time.Minute

// position returns where a stream is read from: after the last message that was read. If there was none, from now on: what was sent before may be undone since,
// and whoever serves asks for everything that there is. On a later connection it is the time of the first one, and the broker's clock may be behind.
func (f *feed) position(now time.Time) any {
	switch seen := f.offset.Load(); {
	case seen >= 0:
		return seen + 1
	case f.made && !f.since.IsZero():
		return f.since.Add(-clocks)
	}
	f.since = now
	return "next"
}

// rewind has a stream read from now on, like one of which nothing was read.
func (f *feed) rewind() {
	f.offset.Store(-1)
	f.since = time.Time{}
}

type setupError struct {
	queue string
	err   error
}

func (e *setupError) Error() string { return fmt.Sprintf("setting up queue %s: %v", e.queue, e.err) }
func (e *setupError) Unwrap() error { return e.err }

// wanted lists the feeds that should be consumed now, each with its bindings, replies first. A connection carries calls
// as soon as the reply queue is there, whatever becomes of the rest.
func (c *Client) wanted() (feeds []*feed, binds map[*feed][]binding, gen int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	binds = map[*feed][]binding{}
	add := func(kind feedKind, q queue, b []binding) {
		f := c.feeds[q.name]
		if f == nil {
			f = &feed{kind: kind, queue: q}
			f.offset.Store(-1)
			c.feeds[q.name] = f
		} else if f.own() {
			f.queue.durable, f.queue.args = q.durable, q.args // what the broker denies may have changed
		}
		feeds = append(feeds, f)
		binds[f] = b
	}
	l := &c.layout
	if c.wantReplies {
		add(feedReplies, l.own(l.replyQ), nil)
	}
	if c.service == nil {
		return feeds, binds, c.serviceGen
	}
	// Streams come before the private queue: a gap of that queue is told when it is bound, and whoever asks for everything then must not miss what a stream gets later.
	topics := slices.Concat(c.service.Topics, c.service.Directed)
	switch hub, ok := l.streamed(c.service); {
	case ok:
		add(feedStream, hub.stream(), []binding{{hub, ""}})
	case l.rabbit.StreamFanout:
		for _, topic := range topics {
			add(feedStream, l.stream(topic), []binding{{l.fanoutExchange(topic), topic}})
		}
	}
	own := l.own(l.privateQ)
	add(feedPrivate, own, l.witness(own, l.private(c.service, c.cfg.Host)))
	if c.service.Shared {
		for _, topic := range topics {
			add(feedShared, l.shared(topic), []binding{{l.controlExchange(), topic}})
		}
	}
	return feeds, binds, c.serviceGen
}

func (c *Client) ownQueues() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name, f := range c.feeds {
		if f.own() {
			names = append(names, name)
		}
	}
	return names
}

// apply makes what is consumed equal to what is wanted. It is run by the session's own goroutine only.
func (s *session) apply(first bool) error {
	c := s.c
	feeds, binds, gen := c.wanted()
	others := feeds
	if len(feeds) > 0 && feeds[0].kind == feedReplies {
		if err := s.bring(feeds[0], nil); err != nil {
			return err
		}
		s.usable(true)
		others = feeds[1:]
	} else if first {
		s.usable(false)
	}
	lost, err := s.findLosses(others, binds)
	if err != nil {
		return err
	}
	var failed error
	for _, f := range others {
		err := s.bring(f, binds[f])
		if err == nil {
			continue
		}
		if f.kind != feedStream {
			return err
		}
		failed = err // what is sent to this host alone comes all the same
		if lost {
			f.gap = "the stream was away"
		}
		without := binds[f][0].exchange.behind != "" && s.streamFailed(f, err)
		if s.isDead() {
			return err
		}
		if without {
			return s.apply(first)
		}
	}
	if failed != nil {
		return failed
	}
	for name, r := range s.readers {
		if slices.Contains(feeds, r.feed) {
			continue
		}
		delete(s.readers, name)
		c.mu.Lock()
		delete(c.feeds, name)
		c.mu.Unlock()
		if err := s.giveUpReader(r); err != nil {
			return &setupError{name, err}
		}
	}
	c.mu.Lock()
	newer := c.appliedGen < gen
	c.mu.Unlock()
	if newer {
		c.update(func() { c.appliedGen, c.lastErr = max(c.appliedGen, gen), nil })
	}
	return nil
}

// bring makes sure that a feed is consumed and bound.
func (s *session) bring(f *feed, binds []binding) error {
	var err error
	if r := s.readers[f.queue.name]; r == nil {
		err = s.attach(f, binds)
	} else {
		err = s.rebind(r, binds)
	}
	if err != nil {
		return &setupError{f.queue.name, err}
	}
	return nil
}

// giveUpReader ends the consumer of a shared queue or stream whose topic is no longer served; the queue stays for others. A channel of its own stays
// until the connection ends: messages being handled are yet to be acknowledged on it. On the main channel they would be missing among the acknowledgements, so that is opened anew.
func (s *session) giveUpReader(r *reader) error {
	if s.isMain(r.ch) {
		s.end(r.ch)
		return nil
	}
	return r.ch.Cancel(r.tag, false)
}

// usable lets messages out on this connection. Whoever waits is woken only if that is a change: the session's own goroutine
// waits for changes as well.
func (s *session) usable(replies bool) {
	c := s.c
	c.mu.Lock()
	known := c.sess == s && c.repliesReady == replies
	c.mu.Unlock()
	if !known {
		c.update(func() { c.sess, c.repliesReady = s, replies })
	}
}

// attach makes the queue, begins to consume it and binds it. A queue that is consumed does not expire, however long the
// broker takes for the bindings. The exchanges come first: what may be refused should not meet a consumer.
func (s *session) attach(f *feed, binds []binding) error {
	for _, e := range exchanges(binds) {
		if err := s.ensureExchange(e); err != nil {
			return err
		}
	}
	declare := s.declareQueue
	if f.kind == feedStream && binds[0].exchange.behind != "" {
		declare = s.ensureStream
	}
	if err := declare(f); err != nil {
		return err
	}
	s.tags++
	r := &reader{feed: f, tag: strconv.Itoa(s.tags), intake: s.intake, bound: map[binding]bool{}}
	if err := s.consume(r); err != nil {
		s.intake.leave(r.tag)
		if refused(err, amqp.NotFound) && f.own() {
			// Declared and yet not found: its home node has gone and left the name behind. Make it anew next time.
			_ = s.declaring(func(ch *amqp.Channel) error {
				_, err := ch.QueueDelete(f.queue.name, false, false, false)
				return err
			})
		}
		return err
	}
	if err := s.rebind(r, binds); err != nil {
		s.intake.leave(r.tag)
		s.end(r.ch) // what it was given goes back
		return err
	}
	f.made, f.failing = true, time.Time{}
	if f.gap != "" {
		// Not before: of a stream only what comes after this point is delivered, and nothing may be missed after a gap.
		reason := f.gap
		f.gap = ""
		s.c.emit(Gap{f.queue.name, reason})
	}
	s.readers[f.queue.name] = r
	s.c.reading.Go(func() { s.read(r) })
	return nil
}

// findLosses finds out which feeds may have missed messages since they were last consumed. A broker that has lost the private queue may have lost streams, too, and
// another client may have made them anew: what was read of them before says nothing then. They are read from now on, and the private queue's gap is told after that.
func (s *session) findLosses(feeds []*feed, binds map[*feed][]binding) (lost bool, err error) {
	for _, f := range feeds {
		if f.made && f.gap == "" && s.readers[f.queue.name] == nil {
			if err := s.checkLoss(f, binds[f]); err != nil {
				if f.kind == feedStream && binds[f][0].exchange.behind != "" {
					s.streamFailed(f, err)
				}
				return false, &setupError{f.queue.name, err}
			}
		}
		lost = lost || f.kind == feedPrivate && f.gap != ""
	}
	for _, f := range feeds {
		if lost && f.kind == feedStream && s.readers[f.queue.name] == nil {
			f.gap = "" // one is enough
			f.rewind()
		}
	}
	return lost, nil
}

// checkLoss finds out whether messages may have been missed since the feed was last consumed: because the queue is gone,
// or because an exchange is gone and took the queue's binding with it.
func (s *session) checkLoss(f *feed, binds []binding) error {
	if f.kind != feedPrivate && f.kind != feedStream {
		return nil
	}
	err := s.asking(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(f.queue.name, f.queue.durable, f.queue.autoDelete, false, false, nil)
		return err
	})
	if refused(err, amqp.NotFound) {
		f.gap = "the queue was lost"
		f.rewind()
		return nil
	}
	if err != nil || !f.queue.durable {
		// A queue that is not durable lives and dies with its exchanges.
		return err
	}
	for _, e := range exchanges(binds) {
		err := s.asking(func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(e.name, e.kind, e.durable, e.autoDelete, false, false, nil)
		})
		switch {
		case err == nil:
			continue
		case !refused(err, amqp.NotFound):
			return err
		case e.name == f.queue.name:
			f.gap = "the queue's bindings were lost"
		default:
			f.gap = "the exchange " + e.name + " was lost"
		}
		return nil
	}
	return nil
}

func (s *session) declareQueue(f *feed) error {
	declare := func(durable bool) error {
		return s.declaring(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(f.queue.name, durable, f.queue.autoDelete, false, false, f.queue.args)
			return err
		})
	}
	err := declare(f.queue.durable)
	if refused(err, amqp.NotFound) {
		// Seen while a cluster elects the queue's home; once more is usually enough.
		err = declare(f.queue.durable)
	}
	switch {
	case refused(err, amqp.NotFound) && f.own() && f.queue.durable:
		// The node that has the queue is down. A queue that is not durable would have gone with it.
		s.move(f)
	case refused(err, amqp.PreconditionFailed) && s.denied(err):
		// The next attempt makes it durable, and binds it as such a queue.
		err = fmt.Errorf("the broker takes durable queues only: %v", err) //nolint:errorlint // it is dealt with
	case refused(err, amqp.PreconditionFailed) && f.own():
		if err = s.removeLeftover(f, err); err == nil {
			err = declare(f.queue.durable)
		}
	case durabilityDiffers(err):
		reason := err.Error()
		if err = declare(!f.queue.durable); err == nil {
			f.queue.durable = !f.queue.durable
			s.c.emit(Fallback{f.queue.name, reason})
		}
	}
	return err
}

// removeLeftover deletes a queue under our name that another program left, or an earlier run with other options, unless somebody
// consumes it. Why is the broker's refusal of our declaration; it is returned when there is no such queue.
func (s *session) removeLeftover(f *feed, why error) error {
	return s.asking(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(f.queue.name, false, false, false, false, nil)
		switch {
		case refused(err, amqp.NotFound):
			return why
		case err != nil:
			return err
		case q.Consumers > 0:
			return fmt.Errorf("another consumer uses queue %s", f.queue.name)
		}
		if f.made && f.kind == feedPrivate {
			f.gap = "the queue had other arguments"
		}
		_, err = ch.QueueDelete(f.queue.name, false, false, false)
		return err
	})
}

// move gives a queue of ours another name. What the old one has, and what is still routed to it, is lost.
func (s *session) move(f *feed) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.feeds, f.queue.name)
	moved := &feed{kind: f.kind, queue: f.queue}
	moved.queue.name = c.layout.rename(f.queue.name, newID())
	if f.made && f.kind == feedPrivate {
		moved.gap = "the queue's node is down"
	}
	moved.offset.Store(-1)
	c.feeds[moved.queue.name] = moved
}
