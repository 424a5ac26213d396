// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A hub is an exchange of ours behind the fanout exchanges of all topics. With it a queue has one binding for what is sent to all, instead of one
// for each topic: after a restart of a broker with thousands of clients the bindings are what takes the time.
//
// Only the first client of a broker binds the hub. The others find the hub's second exchange, which is declared when all bindings are there,
// and is bound to the hub, so that the broker deletes it together with the hub: as long as it is there, so is everything. The broker deletes the hub
// when no queue is bound to it any more, and with its bindings the fanout exchanges, if nobody else uses them.

// The fanout exchange of a topic of which nobody wants to hear is bound, too, to an exchange that passes nothing on: an exchange to which nothing was bound any
// more would be gone, and a server that has declared it once publishes to it without declaring it again.

// private are the bindings of a client's private queue.
func (l *layout) private(svc *Service, host string) []binding {
	topics := slices.Concat(svc.Topics, svc.Directed)
	if l.hubName != "" && len(topics) > 0 {
		var binds []binding
		if _, streamed := l.streamed(svc); !streamed && !l.rabbit.StreamFanout {
			binds = append(binds, binding{l.hub(svc.Topics, svc.Directed), ""})
		}
		// Topics contain dots, so * would not match. What matches besides is dropped when it comes.
		return append(binds, binding{l.controlExchange(), "#." + host})
	}
	var binds []binding
	for _, topic := range topics {
		binds = append(binds, binding{l.controlExchange(), topic + "." + host})
		if !l.rabbit.StreamFanout {
			binds = append(binds, binding{l.fanoutExchange(topic), topic})
		}
	}
	return binds
}

// streamed is the hub whose stream has what is sent to all; false if queues have it.
func (l *layout) streamed(svc *Service) (exchange, bool) {
	if !l.hubStream || l.streamDown || l.hubName == "" || l.rabbit.StreamFanout || len(svc.Topics) == 0 {
		return exchange{}, false
	}
	return l.hub(svc.Topics, svc.Directed), true
}

// stream is the stream behind a hub. It outlives its readers: the broker has no expiry for streams, and no count of readers to trust.
// Whoever was away for longer than a private queue lives asks for everything anyway, so what is older than that is of no use. The broker deletes whole segments only.
func (e exchange) stream() queue {
	return queue{name: e.name + "_stream", durable: true, args: amqp.Table{
		"x-queue-type": "stream", "x-max-age": "600s", "x-max-length-bytes": int64(256 << 20), "x-stream-max-segment-size-bytes": int64(16 << 20),
	}}
}

// ensureStream makes the stream behind a hub, unless it is there.
func (s *session) ensureStream(f *feed) error {
	var err error
	for range 2 {
		err = s.asking(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(f.queue.name, true, false, false, false, nil)
			return err
		})
		if !refused(err, amqp.NotFound) {
			break
		}
		// RabbitMQ ends connections (541) that declare a new stream at the same moment, and many clients may come at once.
		s.c.sleep(time.Duration(s.c.cfg.Rand() * float64(time.Second)))
	}
	if refused(err, amqp.NotFound) {
		err = s.declareQueue(f)
	}
	return err
}

// streamFailed decides whether to do without the stream behind a hub, which could not be set up.
func (s *session) streamFailed(f *feed, err error) (without bool) {
	if s.isDead() {
		if <-s.dead; !isInternalError(s.err) {
			return false // it is not about the stream
		}
		err = s.err
	}
	switch lasting := refusal(err) != nil; {
	case lasting || !f.failing.IsZero() && time.Since(f.failing) > streamPatience:
		s.withoutStream(f, lasting, err)
		return true
	case f.failing.IsZero():
		f.failing = time.Now()
	}
	return false
}

// streamPatience is how long a client waits for a stream that is there and cannot be read. A broker that was killed needs some seconds for its streams.
// RabbitMQ 3.10 and 4.3 have been seen not to bring one back at all that was made a moment before: 3.10 says that its home node is down, 4.3 ends the connection (541).
const streamPatience = 15 * time.Second

// withoutStream has the private queue take copies of what is sent to all: the stream is refused, or cannot be read on this connection.
func (s *session) withoutStream(f *feed, lasting bool, why error) {
	c := s.c
	c.mu.Lock()
	c.layout.hubStream, c.layout.streamDown = !lasting, true
	private := c.feeds[c.layout.privateQ]
	c.mu.Unlock()
	if f.made && private != nil {
		private.gap = "the stream was lost"
		if r := s.readers[private.queue.name]; r != nil {
			s.end(r.ch) // the gap is told when the queue is bound again
			delete(s.readers, private.queue.name)
		}
	}
	c.emit(NoStream{f.queue.name, why.Error()})
}

// hub is the exchange behind those of topics, with some aside. Clients with other topics have another one.
func (l *layout) hub(topics, aside []string) exchange {
	lines := slices.Clone(topics)
	for _, topic := range aside {
		lines = append(lines, " "+topic)
	}
	slices.Sort(lines)
	e := l.fanoutExchange("")
	e.behind = strings.Join(lines, "\n")
	sum := sha256.Sum256(fmt.Appendf(nil, "%v\n%s", e.durable, e.behind))
	e.name = l.hubName + "_" + hex.EncodeToString(sum[:6])
	return e
}

// keeper is the exchange that keeps the fanout exchanges of topics that are aside. It is bound to the hub by a key that no message has, so that the
// broker deletes it together with the hub.
func (e exchange) keeper() exchange {
	return exchange{name: e.name + "_aside", kind: "direct", durable: e.durable, autoDelete: true}
}

// noMessage is the key of the keeper's binding.
const noMessage = "kept"

// topics are those of a hub, and those that are aside.
func (e exchange) topics() (topics, aside []string) {
	for line := range strings.SplitSeq(e.behind, "\n") {
		if topic, ok := strings.CutPrefix(line, " "); ok {
			aside = append(aside, topic)
		} else {
			topics = append(topics, line)
		}
	}
	return topics, aside
}

// bound is the exchange that is there when all bindings of a hub are.
func (e exchange) bound() exchange {
	return exchange{name: e.name + "_bound", kind: e.kind, durable: e.durable, autoDelete: true}
}

// ensureHub makes a hub with its bindings, unless they are there.
func (s *session) ensureHub(e exchange) error {
	// Of many clients that come at once most find nothing.
	err := findHub(e, s.asking)
	if refused(err, amqp.NotFound) {
		err = s.makeHub(e)
	}
	if refused(err, amqp.AccessRefused) {
		s.withoutHub(e, err)
	}
	if err != nil {
		return err
	}
	s.learnExchange(e)
	return nil
}

// findHub looks for a hub with all its bindings.
func findHub(e exchange, ask func(func(*amqp.Channel) error) error) error {
	b := e.bound()
	return ask(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(b.name, b.kind, b.durable, b.autoDelete, false, false, nil)
	})
}

// makeHub makes a hub, its bindings, and at last the exchange that says that they are there.
func (s *session) makeHub(e exchange) error {
	bind := func(to, from exchange, key string) error {
		if err := s.declareExchange(from); err != nil {
			return err
		}
		err := s.declaring(func(ch *amqp.Channel) error { return ch.ExchangeBind(to.name, key, from.name, false, nil) })
		if err != nil {
			return fmt.Errorf("binding exchange %s to %s: %w", to.name, from.name, err)
		}
		return nil
	}
	if err := s.declareExchange(e); err != nil {
		return err
	}
	topics, aside := e.topics()
	for _, topic := range topics {
		if err := bind(e, s.c.layout.fanoutExchange(topic), topic); err != nil {
			return err
		}
	}
	if len(aside) > 0 {
		if err := bind(e, e.keeper(), noMessage); err != nil {
			return err
		}
	}
	for _, topic := range aside {
		if err := bind(e.keeper(), s.c.layout.fanoutExchange(topic), topic); err != nil {
			return err
		}
	}
	return bind(e, e.bound(), "")
}

// withoutHub has queues bound to each exchange by themselves: the user may not make the hub.
func (s *session) withoutHub(e exchange, why error) {
	c := s.c
	c.mu.Lock()
	had := c.layout.hubName != ""
	c.layout.hubName = ""
	c.mu.Unlock()
	if had {
		c.emit(NoHub{e.name, why.Error()})
	}
}

const (
	// firstCheck is when the hub is looked for again after a queue was bound to it: the last other client may have left at that moment, and
	// a broker that deletes the hub of that client beside our binding has been seen.
	firstCheck = 10 * time.Second
	// checkEvery separates two looks at whether the hub has all its bindings. Nothing loses them later but somebody who deletes exchanges.
	checkEvery = 30 * time.Minute
)

// spreadCheck spreads the looks of many clients, by a random number of [0, 1).
func spreadCheck(pause time.Duration, random float64) time.Duration {
	return time.Duration((0.5 + random) * float64(pause))
}

// checkHub makes the hub's bindings, and the queue's to it, anew where they are missing. Messages were missed then. The exchanges of topics
// are looked at unless it is the first time.
func (s *session) checkHub(first bool) {
	feeds, binds, _ := s.c.wanted()
	for _, f := range feeds {
		r := s.readers[f.queue.name]
		i := slices.IndexFunc(binds[f], func(b binding) bool { return b.exchange.behind != "" })
		if r == nil || i < 0 {
			continue
		}
		lost := s.missing(binds[f][i].exchange, first)
		if lost == "" {
			continue
		}
		s.forgetExchanges()
		clear(r.bound)
		err := s.makeHub(binds[f][i].exchange)
		if err == nil {
			err = s.rebind(r, binds[f])
		}
		if err != nil {
			s.kill(fmt.Errorf("binding queue %s again: %w", f.queue.name, err))
			return
		}
		s.c.emit(Gap{f.queue.name, "the exchange " + lost + " was lost"})
	}
}

// missing names an exchange that a hub needs and that is gone; nothing if all are there.
func (s *session) missing(e exchange, first bool) string {
	if refused(findHub(e, s.declaring), amqp.NotFound) {
		return e.name
	}
	if first {
		return ""
	}
	topics, aside := e.topics()
	for _, topic := range append(topics, aside...) {
		from := s.c.layout.fanoutExchange(topic)
		err := s.declaring(func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(from.name, from.kind, from.durable, from.autoDelete, false, false, nil)
		})
		if refused(err, amqp.NotFound) {
			return from.name
		}
	}
	return ""
}

// serves says whether a delivery to the private queue is for what is served. With a hub there may be others.
func (r *reader) serves(c *Client, d amqp.Delivery) bool {
	if r.feed.kind != feedPrivate {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.layout.hubName == "" || c.service == nil {
		return true
	}
	topic, fanout, _ := sentTo(&c.cfg, d)
	return slices.Contains(c.service.Topics, topic) || !fanout && slices.Contains(c.service.Directed, topic)
}
