// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// reader is a feed being consumed on one connection.
type reader struct {
	feed       *feed
	ch         *amqp.Channel
	debts      *debts // of the channel
	tag        string
	intake     *intake
	deliveries <-chan amqp.Delivery
	bound      map[binding]bool
	owe        int // how many handled messages may wait to be acknowledged together
}

// Prefetch counts where the options leave the choice to us. They bound the memory that unhandled messages take.
const (
	replyPrefetch   = 256
	servicePrefetch = 256
)

func (s *session) consume(r *reader) error {
	m, err := s.channelFor(r.feed)
	if err != nil {
		return err
	}
	defer s.answering()()
	m.sending.Lock()
	defer m.sending.Unlock()
	s.c.mu.Lock()
	handlers := cap(s.c.handlers)
	s.c.mu.Unlock()
	prefetch, bytes := s.c.cfg.Rabbit.PrefetchCount, s.c.cfg.MaxBacklog
	switch {
	case r.feed.kind == feedReplies:
		prefetch, bytes = replyPrefetch, s.c.cfg.MaxMessage
	case prefetch == 0:
		// A message counts until it is acknowledged.
		prefetch = max(servicePrefetch, 2*handlers)
	}
	// With several handlers an earlier message may still be in hand. What is not acknowledged on a shared queue would be
	// handled once more by somebody else if this process died.
	if handlers == 1 && r.feed.kind != feedShared {
		r.owe = prefetch / 4
	}
	if m.prefetch != prefetch { // it holds for the consumers that come after it, each by itself
		if err := m.ch.Qos(prefetch, 0, false); err != nil {
			return fmt.Errorf("setting the prefetch count: %w", err)
		}
		m.prefetch = prefetch
	}
	args := s.c.layout.consumeArgs()
	if r.feed.kind == feedStream {
		args = amqp.Table{"x-stream-offset": r.feed.position(time.Now())}
	}
	s.intake.admit(r.tag, bytes)
	if r.deliveries, err = m.ch.Consume(r.feed.queue.name, r.tag, false, false, false, false, args); err != nil {
		return fmt.Errorf("consuming: %w", err)
	}
	r.ch, r.debts = m.ch, m.debts
	return nil
}

// read handles what a queue delivers until its channel or consumer ends.
func (s *session) read(r *reader) {
	if r.feed.kind == feedReplies {
		s.c.readReplies(r)
	} else {
		s.c.serve(r)
	}
	s.intake.leave(r.tag)
	select {
	case s.lost <- r:
	case <-s.dead:
	}
}

// forget is called when the broker has ended a consumer on a connection that lives on; the next apply sets it up again.
func (s *session) forget(r *reader) {
	name := r.feed.queue.name
	if s.readers[name] != r || s.c.isClosing() {
		return // we ended it ourselves
	}
	delete(s.readers, name)
	if r.feed.kind == feedReplies {
		s.c.update(func() { s.c.repliesReady = false })
	}
	if !r.ch.IsClosed() {
		if r.feed.kind == feedStream {
			// The broker ends a consumer when the stream is deleted. Another client may make it anew before we look, and count from 0.
			r.feed.gap = "the stream was lost"
			r.feed.rewind()
		}
		s.end(r.ch)
		// A deleted queue may have been the last one bound to its exchanges.
		s.forgetExchanges()
	}
}
