// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// mainChannel is the one channel of a connection: messages go out on it, with the broker's confirmations and returns, the
// queues that are ours alone are consumed on it, and what they need is declared on it. Each further channel would cost the broker
// as much as a queue.
//
// A broker that refuses something closes the channel. So questions to which no is a usual answer have a channel of their own,
// which is closed when there are no more of them. After the broker has closed a main channel, the connection has
// channels for each purpose, and a refusal that comes again and again disturbs nothing else.
type mainChannel struct {
	ch       *amqp.Channel
	debts    *debts
	prefetch int                // that was asked for last
	sending  sync.Mutex         // a message is several frames, and the library keeps only other messages and acknowledgements out of them
	settled  chan chan struct{} // asks that all returns received so far be recorded
	done     chan struct{}

	mu       sync.Mutex
	returned map[string]bool // by message id
}

// channels are those of one connection.
type channels struct {
	conn     *amqp.Connection
	cut      func(why error) // ends the connection
	patience time.Duration   // for an answer
	reading  *sync.WaitGroup // has a goroutine for each main channel

	mainMu   sync.Mutex
	main     *mainChannel
	apart    bool            // the broker has closed a main channel
	declared map[string]bool // exchanges known to exist

	askMu sync.Mutex    // held while an answer is waited for: a channel has one question at a time
	topo  *amqp.Channel // for questions that may close their channel
}

// mainChannel gives the main channel, opening it if necessary.
func (c *channels) mainChannel() (*mainChannel, error) {
	c.mainMu.Lock()
	defer c.mainMu.Unlock()
	if c.main != nil && !c.main.ch.IsClosed() {
		return c.main, nil
	}
	if c.main != nil {
		c.main, c.apart = nil, true
		// A channel is closed when a message goes to an exchange that no longer exists.
		clear(c.declared)
	}
	ch, err := c.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("opening a channel: %w", err)
	}
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("asking for confirmations: %w", err)
	}
	m := &mainChannel{ch: ch, debts: newDebts(ch), settled: make(chan chan struct{}), done: make(chan struct{}), returned: map[string]bool{}}
	// Not buffered: the library's reader hands a return over before it looks at the confirmation that follows.
	returns := ch.NotifyReturn(make(chan amqp.Return))
	c.reading.Go(func() { m.drain(returns) })
	c.main = m
	return m, nil
}

func (m *mainChannel) drain(returns chan amqp.Return) {
	defer close(m.done)
	for {
		select {
		case r, ok := <-returns:
			if !ok {
				return
			}
			m.mu.Lock()
			m.returned[r.MessageId] = true
			m.mu.Unlock()
		case ask := <-m.settled:
			close(ask)
		}
	}
}

// wasReturned tells, for a message that has been confirmed, whether it had been returned before.
func (m *mainChannel) wasReturned(id string) bool {
	ask := make(chan struct{})
	select {
	case m.settled <- ask:
		<-ask
	case <-m.done:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	yes := m.returned[id]
	delete(m.returned, id)
	return yes
}

// together says whether the main channel is used for everything: the broker has not closed one.
func (c *channels) together() bool {
	c.mainMu.Lock()
	defer c.mainMu.Unlock()
	return !c.apart && (c.main == nil || !c.main.ch.IsClosed())
}

// isMain tells whether ch is the main channel.
func (c *channels) isMain(ch *amqp.Channel) bool {
	c.mainMu.Lock()
	defer c.mainMu.Unlock()
	return c.main != nil && c.main.ch == ch
}

// channelFor gives the channel to consume a queue on. A queue that others take from as well has one of its own: when it is given up while the
// connection lives, its messages that are in hand are acknowledged there.
func (c *channels) channelFor(f *feed) (*mainChannel, error) {
	if f.kind != feedShared && c.together() {
		return c.mainChannel()
	}
	ch, err := c.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("opening a channel: %w", err)
	}
	return &mainChannel{ch: ch, debts: newDebts(ch)}, nil
}

// end closes a channel that is consumed on. Whatever else used it sets itself up again.
func (c *channels) end(ch *amqp.Channel) {
	if ch.IsClosed() {
		return
	}
	defer c.answering()()
	c.mainMu.Lock()
	m := c.main
	if m != nil && m.ch == ch {
		c.main = nil // it is not the broker that closes it
		m.sending.Lock()
		defer m.sending.Unlock()
	}
	c.mainMu.Unlock()
	_ = ch.Close()
}

// answering begins to wait for an answer. A broker that does not answer in time loses the connection.
func (c *channels) answering() (done func()) {
	c.askMu.Lock()
	t := time.AfterFunc(c.patience, func() { c.cut(errUnanswered) })
	return func() {
		t.Stop()
		c.askMu.Unlock()
	}
}

// declaring runs f on the main channel. If the broker refuses it, f runs once more on a channel of its own, so that the error
// is that of f: a message that was sent at the same moment may have closed the main channel.
func (c *channels) declaring(f func(*amqp.Channel) error) error {
	defer c.answering()()
	if c.together() {
		m, err := c.mainChannel()
		if err != nil {
			return err
		}
		m.sending.Lock()
		err = f(m.ch)
		m.sending.Unlock()
		if refusal := (*amqp.Error)(nil); !errors.As(err, &refusal) {
			return err
		}
		c.giveUp(m)
	}
	return c.onItsOwn(f)
}

// giveUp has no main channel any more that everything is done on.
func (c *channels) giveUp(m *mainChannel) {
	c.mainMu.Lock()
	defer c.mainMu.Unlock()
	if c.main == m {
		c.main, c.apart = nil, true
	}
}

// asking runs f, which the broker often says no to, on a channel of its own.
func (c *channels) asking(f func(*amqp.Channel) error) error {
	defer c.answering()()
	return c.onItsOwn(f)
}

// onItsOwn runs f on the channel for questions, which is opened anew when a refusal has closed it.
func (c *channels) onItsOwn(f func(*amqp.Channel) error) error {
	if c.topo == nil || c.topo.IsClosed() {
		ch, err := c.conn.Channel()
		if err != nil {
			return fmt.Errorf("opening a channel: %w", err)
		}
		c.topo = ch
		time.AfterFunc(restAfter, c.rest)
	}
	return f(c.topo)
}

// restAfter is how long the channel for questions is kept: another one often follows, and each channel costs the broker CPU time.
const restAfter = 2 * time.Second

// rest closes the channel for questions until there is another one.
func (c *channels) rest() {
	defer c.answering()()
	if c.topo != nil {
		_ = c.topo.Close()
		c.topo = nil
	}
}
