// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// debts are the deliveries of a channel that were handled and are acknowledged later, together. All consumers of a channel
// share its delivery tags, which have no holes, and an acknowledgement of several covers all tags up to one: so it goes up to
// the last tag before which all are handled, and what was handled beyond that is acknowledged one by one.
type debts struct {
	ack func(tag uint64, multiple bool) error

	mu      sync.Mutex
	settled uint64          // everything up to this tag is handled
	last    uint64          // the highest tag up to there that is owed; 0 if none is
	beyond  map[uint64]bool // handled after settled; whether it is owed
}

func newDebts(ch *amqp.Channel) *debts { return &debts{ack: ch.Ack, beyond: map[uint64]bool{}} }

// owe notes a delivery that was handled, and is acknowledged by the next pay.
func (d *debts) owe(tag uint64) { d.note(tag, true) }

// settle notes a delivery that was acknowledged or rejected by itself.
func (d *debts) settle(tag uint64) { d.note(tag, false) }

func (d *debts) note(tag uint64, owed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beyond[tag] = owed
	for {
		owed, handled := d.beyond[d.settled+1]
		if !handled {
			return
		}
		d.settled++
		delete(d.beyond, d.settled)
		if owed {
			d.last = d.settled
		}
	}
}

// pay acknowledges what is owed. It fails only with the channel, and the debts are gone with that.
func (d *debts) pay() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last > 0 {
		_ = d.ack(d.last, true)
		d.last = 0
	}
	for tag, owed := range d.beyond {
		if owed {
			_ = d.ack(tag, false)
			d.beyond[tag] = false
		}
	}
}
