// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

const (
	// maxPushes and maxPushBytes bound the messages that wait for the loop. When they are reached the handler waits, the
	// messages that the client has prefetched are not acknowledged, and the broker keeps the rest.
	maxPushes    = 256
	maxPushBytes = 8 << 20
	// pushSlice is for how long the loop handles messages before it looks at its other inputs: the switch, replies to its
	// calls, flows that were written. A port that is being wired comes by about ten times, so it waits 20 ms longer.
	pushSlice = 2 * time.Millisecond
	// pushRest is for how long messages gather after that. What many of them change is then one round of changes to the
	// switch, not one each: in a flood the switch and the broker have time for the ports that are being wired. A message
	// that comes alone does not wait.
	pushRest = 10 * time.Millisecond
	// In a flood, which is when so many wait after that, the rest is longer for a while after a port was plugged in: the
	// fewer messages broker, switch and agent handle then, the sooner they have wired the port.
	floodFrom    = 64
	pushRestPlug = 50 * time.Millisecond
	plugWindow   = 250 * time.Millisecond
)

// pushbox holds the server's messages until the loop handles them. It is apart from the inbox, so that no reply waits behind
// messages that nobody asked for.
type pushbox struct {
	ready chan struct{} // has a token while something may be in the box
	room  chan struct{} // has a token while there may be room in it

	mu    sync.Mutex
	items []*messaging.Message
	bytes int
	rests bool // ready gets no token yet

	drops drops // what never came into the box
}

func newPushbox() *pushbox {
	return &pushbox{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put waits until there is room. Messages come from one goroutine, so one waits at a time. A message that is larger than all
// of the box goes into an empty one.
func (p *pushbox) put(ctx context.Context, m *messaging.Message) error {
	for !p.offer(m) {
		select {
		case <-p.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *pushbox) offer(m *messaging.Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.items); n >= maxPushes || n > 0 && p.bytes+len(m.Args) > maxPushBytes {
		return false
	}
	p.items = append(p.items, m)
	p.bytes += len(m.Args)
	if !p.rests {
		signal(p.ready)
	}
	return true
}

// rest keeps the loop from the box for a while.
func (p *pushbox) rest(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rests = true
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.rests = false; len(p.items) > 0 {
			signal(p.ready)
		}
	})
}

// next takes the oldest message, or gives nil.
func (p *pushbox) next() *messaging.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.items) == 0 {
		return nil
	}
	m := p.items[0]
	p.items[0] = nil
	p.items = p.items[1:]
	p.bytes -= len(m.Args)
	signal(p.room)
	return m
}

func (p *pushbox) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.items)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drops counts messages that the client has dropped until the loop looks: there may be as many as a peer likes to send.
type drops struct {
	mu   sync.Mutex
	seen effect.Dropped
}

// put counts a message. It says whether the loop has to be told.
func (d *drops) put(e messaging.Dropped) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen.Count++
	var large *messaging.TooLargeError
	// A reply has no exchange. Its call fails, and is made again.
	if errors.As(e.Err, &large) && e.Exchange != "" {
		d.seen.Large++
	}
	if large != nil || d.seen.Large == 0 {
		d.seen.Latest = e
	}
	return d.seen.Count == 1
}

func (d *drops) take() effect.Dropped {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := d.seen
	d.seen = effect.Dropped{}
	return seen
}

// mailbox takes events from anywhere without ever making the sender wait, and gives them to the loop in the order in
// which they came. Senders are bounded elsewhere: work beside the loop by being one piece at a time. What the server sends by
// itself has a box with a bound of its own, see pushbox.
type mailbox[T any] struct {
	ready chan struct{} // has a token while something may be in the box

	mu    sync.Mutex
	items []T
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(v T) {
	m.mu.Lock()
	m.items = append(m.items, v)
	m.mu.Unlock()
	signal(m.ready)
}

func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}
