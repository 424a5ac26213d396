// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

func exchanges(binds []binding) (all []exchange) {
	for _, b := range binds {
		if !slices.Contains(all, b.exchange) {
			all = append(all, b.exchange)
		}
	}
	return all
}

// ensureExchange declares an exchange once per connection.
func (s *session) ensureExchange(e exchange) error {
	if s.knows(e) {
		return nil
	}
	if e.behind != "" {
		return s.ensureHub(e)
	}
	if err := s.declareExchange(e); err != nil {
		return err
	}
	s.learnExchange(e)
	return nil
}

// declareExchange declares an exchange, as another program may have declared it before.
func (s *session) declareExchange(e exchange) error {
	declare := func(durable bool) error {
		return s.declaring(func(ch *amqp.Channel) error {
			if s.knows(e) {
				return nil // of many that wait here only the first one asks the broker
			}
			return ch.ExchangeDeclare(e.name, e.kind, durable, e.autoDelete, false, false, nil)
		})
	}
	err := declare(e.durable)
	if durabilityDiffers(err) {
		reason := err.Error()
		if err = declare(!e.durable); err == nil {
			s.c.emit(Fallback{e.name, reason})
		}
	}
	if err != nil {
		return fmt.Errorf("declaring exchange %s: %w", e.name, err)
	}
	return nil
}

func (c *channels) learnExchange(e exchange) {
	c.mainMu.Lock()
	c.declared[e.name] = true
	c.mainMu.Unlock()
}

func (c *channels) knows(e exchange) bool {
	c.mainMu.Lock()
	defer c.mainMu.Unlock()
	return c.declared[e.name]
}

// rebind makes the queue's bindings equal to binds.
func (s *session) rebind(r *reader, binds []binding) error {
	for _, b := range binds {
		if r.bound[b] {
			continue
		}
		bind := func() error {
			if err := s.ensureExchange(b.exchange); err != nil {
				return err
			}
			return s.declaring(func(ch *amqp.Channel) error {
				return ch.QueueBind(r.feed.queue.name, b.key, b.exchange.name, false, nil)
			})
		}
		err := bind()
		if refused(err, amqp.NotFound) {
			// An exchange that deletes itself was last used between our declaration and the binding.
			s.forgetExchanges()
			err = bind()
		}
		if err != nil {
			return err
		}
		r.bound[b] = true
	}
	for b := range r.bound {
		if slices.Contains(binds, b) {
			continue
		}
		err := s.declaring(func(ch *amqp.Channel) error {
			return ch.QueueUnbind(r.feed.queue.name, b.key, b.exchange.name, nil)
		})
		if err != nil && !refused(err, amqp.NotFound) {
			return err
		}
		delete(r.bound, b)
		s.forgetExchanges() // it may have deleted itself
	}
	return nil
}

func (c *channels) forgetExchanges() {
	c.mainMu.Lock()
	clear(c.declared)
	c.mainMu.Unlock()
}
