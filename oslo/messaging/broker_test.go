// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// memBroker is a broker in memory that speaks AMQP 0-9-1 over pipes, so that tests can run in virtual time and can have it
// refuse, forget, hold back and hang up where a real one does that once in a year. What a real one does is shown
// by the integration tests.
type memBroker struct {
	mu        sync.Mutex
	exchanges map[string]exchange
	behind    map[string]map[string]bool // exchanges bound to an exchange
	queues    map[string]*memQueue
	conns     []*memConn
	said      []string            // what clients asked for, such as "queue.declare q"
	refuse    map[string][]refuse // by the same text: what the next ones are answered with
	nack      int                 // so many publications are not taken
	version   string              // RabbitMQ's, "" says nothing about it
	deny      bool                // takes no queue that is neither durable nor exclusive
	durable   bool                // the virtual host has only durable queues: its default type is quorum
	old       bool                // has no streams, and no quorum queues that expire
	silent    bool                // confirms nothing and answers nothing
	slow      time.Duration       // before it answers about a queue
	late      bool                // takes messages, and confirms none
	away      bool                // nobody listens
}

// refuse is an answer that closes the channel, or the connection when code is 0.
type refuse struct {
	code uint16
	text string
}

type memQueue struct {
	queue
	bound     map[string]bool // "exchange key"
	waiting   []memMessage
	consumers []*memConsumer
}

type memMessage struct {
	exchange, key string
	header, body  []byte
	redelivered   bool
}

type memConsumer struct {
	conn    *memConn
	channel uint16
	tag     string
	queue   string
	args    amqp.Table
	unacked map[uint64]memMessage
}

type memConn struct {
	b         *memBroker
	conn      net.Conn
	out       chan []byte       // written by a goroutine: a pipe has no buffer
	open      map[uint16]bool   // channels
	tags      map[uint16]uint64 // delivery tags
	confirms  map[uint16]uint64 // publications so far on a channel in confirm mode
	publish   map[uint16]*memPublish
	consumers []*memConsumer
	login     string
}

type memPublish struct {
	memMessage
	mandatory bool
	size      uint64
}

func newMemBroker() *memBroker {
	return &memBroker{exchanges: map[string]exchange{}, behind: map[string]map[string]bool{}, queues: map[string]*memQueue{}, refuse: map[string][]refuse{}}
}

// dialing is how long the broker takes to accept a connection.
const dialing = time.Microsecond

// settle waits until a connection that is being made is up and nothing is left to do.
func settle() {
	time.Sleep(2 * dialing)
	synctest.Wait()
}

// since leaves out what dialing took.
func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

// dial is Config.Dial. It takes time, so that what a test asks of a client right after Open always comes before the connection.
func (b *memBroker) dial(context.Context, string, string) (net.Conn, error) {
	time.Sleep(dialing)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
	here, there := net.Pipe()
	c := &memConn{b: b, conn: here, out: make(chan []byte, 4096), open: map[uint16]bool{}, tags: map[uint16]uint64{}, confirms: map[uint16]uint64{}, publish: map[uint16]*memPublish{}}
	b.conns = append(b.conns, c)
	go c.serve()
	return there, nil
}

// cut hangs up on everybody.
func (b *memBroker) cut() {
	b.mu.Lock()
	conns := slices.Clone(b.conns)
	b.mu.Unlock()
	for _, c := range conns {
		_ = c.conn.Close()
	}
}

func (b *memBroker) do(f func()) { b.mu.Lock(); defer b.mu.Unlock(); f() }

// count is how often clients asked for something.
func (b *memBroker) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.said {
		if s == what || strings.HasPrefix(s, what+" ") {
			n++
		}
	}
	return n
}

func (b *memBroker) queueNames() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.queues))
}

func (c *memConn) send(frames ...[]byte) {
	c.out <- slices.Concat(frames...)
}

func (c *memConn) method(channel, class, method uint16, args ...any) {
	c.send(memMethod(channel, class, method, args...))
}

func (c *memConn) serve() {
	defer c.gone()
	in := bufio.NewReader(c.conn)
	if _, err := in.Discard(8); err != nil { // the protocol's name
		return
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		beat := time.NewTicker(20 * time.Second)
		defer beat.Stop()
		for {
			select {
			case frames := <-c.out:
				_, _ = c.conn.Write(frames)
			case <-beat.C:
				if !c.b.quiet() {
					_, _ = c.conn.Write(memFrame(8, 0, nil))
				}
			case <-stop:
				return
			}
		}
	}()
	about := memJoin("product", byte('S'), uint32(8), []byte("RabbitMQ"), "version", byte('S'), uint32(len(c.b.version)), []byte(c.b.version))
	c.method(0, 10, 10, byte(0), byte(9), uint32(len(about)), about, uint32(23), []byte("PLAIN AMQPLAIN EXTERNAL"), uint32(5), []byte("en_US"))
	for {
		head := make([]byte, 7)
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(in, payload); err != nil {
			return
		}
		if c.b.quiet() {
			continue
		}
		channel := binary.BigEndian.Uint16(head[1:])
		payload = payload[:len(payload)-1]
		switch head[0] {
		case 1:
			if p := c.publish[channel]; p != nil {
				c.b.do(func() { c.b.said = append(c.b.said, "UNEXPECTED_FRAME") })
				return
			}
			a := &memArgs{payload}
			class := a.short()
			if class == 50 {
				time.Sleep(c.b.slowness())
			}
			if !c.handle(channel, class, a.short(), a) {
				return
			}
		case 2:
			p := c.publish[channel]
			p.header, p.size = payload, binary.BigEndian.Uint64(payload[4:])
			if p.size == 0 {
				delete(c.publish, channel)
				c.published(channel, p)
			}
		case 3:
			p := c.publish[channel]
			if p.body = append(p.body, payload...); uint64(len(p.body)) == p.size {
				delete(c.publish, channel)
				c.published(channel, p)
			}
		}
	}
}

func (b *memBroker) quiet() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.silent }

func (b *memBroker) slowness() time.Duration { b.mu.Lock(); defer b.mu.Unlock(); return b.slow }

// gone puts back what the connection's consumers had in hand.
func (c *memConn) gone() {
	_ = c.conn.Close()
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = slices.DeleteFunc(b.conns, func(o *memConn) bool { return o == c })
	for _, k := range c.consumers {
		b.drop(k)
	}
}

func (b *memBroker) drop(k *memConsumer) {
	q := b.queues[k.queue]
	if q == nil {
		return
	}
	q.consumers = slices.DeleteFunc(q.consumers, func(o *memConsumer) bool { return o == k })
	var back []memMessage
	for _, t := range slices.Sorted(maps.Keys(k.unacked)) {
		m := k.unacked[t]
		m.redelivered = true
		back = append(back, m)
	}
	k.unacked = map[uint64]memMessage{}
	q.waiting = append(back, q.waiting...)
}

// asked notes a request and answers it with the refusal that was prepared for it.
func (c *memConn) asked(channel, class, method uint16, what string) (refused bool) {
	c.b.said = append(c.b.said, what)
	list := c.b.refuse[what]
	if len(list) == 0 {
		return false
	}
	r := list[0]
	// A client that is refused a declaration on its main channel, the one with confirmations, asks again on another one.
	if _, main := c.confirms[channel]; !main || class == 60 || r.code == 0 {
		c.b.refuse[what] = list[1:]
	}
	if r.code == 0 {
		_ = c.conn.Close()
		return true
	}
	c.fail(channel, class, method, r)
	return true
}

func (c *memConn) fail(channel, class, method uint16, r refuse) {
	if r.code == amqp.InternalError { // the connection ends
		c.method(0, 10, 50, r.code, r.text, class, method)
		return
	}
	delete(c.confirms, channel)
	c.endConsumers(channel)
	delete(c.open, channel)
	c.method(channel, 20, 40, r.code, r.text, class, method)
}

// handle answers one method; it is false when the connection ends with it.
func (c *memConn) handle(channel, class, method uint16, a *memArgs) bool {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch [2]uint16{class, method} {
	case [2]uint16{10, 11}:
		a.table()
		c.login = a.text()
		if b.refuse["login"] != nil {
			return false
		}
		c.method(0, 10, 30, uint16(2047), uint32(131072), uint16(60))
	case [2]uint16{10, 51}:
		return false
	case [2]uint16{10, 31}, [2]uint16{20, 41}:
	case [2]uint16{10, 40}:
		b.said = append(b.said, "connection.open "+a.text())
		c.method(0, 10, 41, "")
	case [2]uint16{10, 50}:
		b.said = append(b.said, "connection.close")
		c.method(0, 10, 51)
	case [2]uint16{20, 10}:
		b.said = append(b.said, "channel.open")
		c.open[channel] = true
		delete(c.tags, channel)
		delete(c.confirms, channel)
		c.method(channel, 20, 11, uint32(0))
	case [2]uint16{20, 40}:
		c.endConsumers(channel)
		delete(c.open, channel)
		c.method(channel, 20, 41)
	case [2]uint16{40, 10}:
		c.declareExchange(channel, a)
	case [2]uint16{40, 30}:
		c.bindExchange(channel, a)
	case [2]uint16{50, 10}:
		c.declareQueue(channel, a)
	case [2]uint16{50, 20}, [2]uint16{50, 50}:
		c.bind(channel, method, a)
	case [2]uint16{50, 40}:
		c.deleteQueue(channel, a)
	case [2]uint16{60, 10}:
		b.said = append(b.said, fmt.Sprintf("basic.qos %d", qosCount(a)))
		c.method(channel, 60, 11)
	case [2]uint16{60, 20}:
		c.consume(channel, a)
	case [2]uint16{60, 30}:
		tag := a.text()
		for _, k := range c.consumers {
			if k.channel == channel && k.tag == tag && b.queues[k.queue] != nil {
				b.said = append(b.said, "basic.cancel "+k.queue)
				q := b.queues[k.queue]
				q.consumers = slices.DeleteFunc(q.consumers, func(o *memConsumer) bool { return o == k })
			}
		}
		c.method(channel, 60, 31, tag)
	case [2]uint16{60, 40}:
		a.short()
		p := &memPublish{memMessage: memMessage{exchange: a.text(), key: a.text()}}
		bits := a.bits()
		unset("basic.publish", bits, 2)
		p.mandatory = bits&1 != 0
		c.publish[channel] = p
	case [2]uint16{60, 80}, [2]uint16{60, 90}:
		c.settle(channel, method, a.longlong(), a.bits() != 0)
	case [2]uint16{85, 10}:
		unset("confirm.select", a.bits(), 0xff)
		c.confirms[channel] = 0
		c.method(channel, 85, 11)
	default:
		panic(fmt.Sprintf("method %d.%d", class, method))
	}
	return true
}

// unset panics on flags that no client of ours may set: they make a queue vanish, or an answer fail to come.
func unset(what string, bits, not byte) {
	if bits&not != 0 {
		panic(fmt.Sprintf("%s with flags %b", what, bits))
	}
}

func qosCount(a *memArgs) uint32 {
	size, count := a.long(), a.short()
	unset("basic.qos", a.bits()|byte(size), 0xff)
	return uint32(count)
}

func (c *memConn) declareExchange(channel uint16, a *memArgs) {
	a.short()
	e := exchange{name: a.text(), kind: a.text()}
	bits := a.bits()
	unset("exchange.declare", bits, 8|16)
	e.durable, e.autoDelete = bits&2 != 0, bits&4 != 0
	passive := bits&1 != 0
	what := "exchange.declare " + e.name
	if passive {
		what = "exchange.passive " + e.name
	}
	if c.asked(channel, 40, 10, what) {
		return
	}
	have, ok := c.b.exchanges[e.name]
	switch {
	case passive && !ok:
		c.fail(channel, 40, 10, refuse{amqp.NotFound, "NOT_FOUND - no exchange"})
		return
	case !passive && ok && have.durable != e.durable:
		c.fail(channel, 40, 10, refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg 'durable'"})
		return
	case !ok:
		c.b.exchanges[e.name] = e
	}
	c.method(channel, 40, 11)
}

func (c *memConn) bindExchange(channel uint16, a *memArgs) {
	a.short()
	to, from, key := a.text(), a.text(), a.text()
	if c.asked(channel, 40, 30, "exchange.bind "+to+" "+from+" "+key) {
		return
	}
	for _, name := range []string{to, from} {
		if _, ok := c.b.exchanges[name]; !ok {
			c.fail(channel, 40, 30, refuse{amqp.NotFound, "NOT_FOUND - no exchange " + name})
			return
		}
	}
	if c.b.behind[from] == nil {
		c.b.behind[from] = map[string]bool{}
	}
	c.b.behind[from][to] = true
	c.method(channel, 40, 31)
}

// deleteExchange takes its bindings with it.
func (b *memBroker) deleteExchange(name string) {
	delete(b.exchanges, name)
	delete(b.behind, name)
	for _, to := range b.behind {
		delete(to, name)
	}
	for _, q := range b.queues {
		maps.DeleteFunc(q.bound, func(bound string, _ bool) bool { return strings.HasPrefix(bound, name+" ") })
	}
}

func (c *memConn) declareQueue(channel uint16, a *memArgs) {
	a.short()
	q := queue{name: a.text()}
	bits := a.bits()
	unset("queue.declare", bits, 4|16)
	q.durable, q.autoDelete, q.args = bits&2 != 0, bits&8 != 0, a.table()
	passive := bits&1 != 0
	what := "queue.declare " + q.name
	if passive {
		what = "queue.passive " + q.name
	}
	if c.asked(channel, 50, 10, what) {
		return
	}
	have := c.b.queues[q.name]
	switch {
	case passive && have == nil:
		c.fail(channel, 50, 10, refuse{amqp.NotFound, "NOT_FOUND - no queue"})
		return
	case !passive && have != nil && have.durable != q.durable:
		c.fail(channel, 50, 10, refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg 'durable'"})
		return
	case !passive && have != nil && fmt.Sprint(have.args) != fmt.Sprint(q.args):
		c.fail(channel, 50, 10, refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg 'x-expires'"})
		return
	case have == nil && !c.mayDeclare(channel, q):
		return
	case have == nil:
		have = &memQueue{queue: q, bound: map[string]bool{}}
		c.b.queues[q.name] = have
	}
	c.method(channel, 50, 11, q.name, uint32(len(have.waiting)), uint32(len(have.consumers)))
}

// mayDeclare refuses a new queue as releases and settings of RabbitMQ do.
func (c *memConn) mayDeclare(channel uint16, q queue) bool {
	kind := q.args["x-queue-type"]
	_, expires := q.args["x-expires"]
	switch {
	case c.b.deny && !q.durable:
		delete(c.confirms, channel)
		c.method(0, 10, 50, uint16(amqp.InternalError), "INTERNAL_ERROR - Feature `transient_nonexcl_queues` is deprecated.\nIts use is not permitted per the configuration (overriding the default, which is permitted)", uint16(50), uint16(10))
	case c.b.durable && !q.durable && kind == nil:
		c.fail(channel, 50, 10, refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid property 'non-durable' for queue '" + q.name + "'"})
	case c.b.old && kind == "quorum" && expires:
		c.fail(channel, 50, 10, refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid arg 'x-expires' for queue '" + q.name + "'"})
	case c.b.old && kind == "stream":
		c.fail(channel, 50, 10, refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue '" + q.name + "'"})
	default:
		return true
	}
	return false
}

func (c *memConn) bind(channel, method uint16, a *memArgs) {
	a.short()
	name, ex, key := a.text(), a.text(), a.text()
	what := "queue.bind "
	if method == 50 {
		what = "queue.unbind "
	} else {
		unset("queue.bind", a.bits(), 0xff)
	}
	if c.asked(channel, 50, method, what+name+" "+ex+" "+key) {
		return
	}
	q := c.b.queues[name]
	if _, ok := c.b.exchanges[ex]; !ok || q == nil {
		c.fail(channel, 50, method, refuse{amqp.NotFound, "NOT_FOUND - no queue or exchange"})
		return
	}
	if method == 20 {
		q.bound[ex+" "+key] = true
	} else {
		delete(q.bound, ex+" "+key)
	}
	c.method(channel, 50, method+1)
}

func (c *memConn) deleteQueue(channel uint16, a *memArgs) {
	a.short()
	name := a.text()
	bits := a.bits()
	unset("queue.delete", bits, 2|4)
	unused := bits&1 != 0
	if c.asked(channel, 50, 40, fmt.Sprintf("queue.delete %s", name)) {
		return
	}
	if q := c.b.queues[name]; q != nil && unused && len(q.consumers) > 0 {
		c.fail(channel, 50, 40, refuse{amqp.PreconditionFailed, "PRECONDITION_FAILED - in use"})
		return
	}
	c.b.deleteQueue(name)
	c.method(channel, 50, 41, uint32(0))
}

// deleteQueue tells its consumers, as a broker does whose node with the queue is gone.
func (b *memBroker) deleteQueue(name string) {
	q := b.queues[name]
	if q == nil {
		return
	}
	delete(b.queues, name)
	for _, k := range q.consumers {
		k.conn.method(k.channel, 60, 30, k.tag, byte(1))
	}
}

func (c *memConn) consume(channel uint16, a *memArgs) {
	a.short()
	k := &memConsumer{conn: c, channel: channel, queue: a.text(), tag: a.text(), unacked: map[uint64]memMessage{}}
	unset("basic.consume", a.bits(), 0xff)
	k.args = a.table()
	if c.asked(channel, 60, 20, "basic.consume "+k.queue) {
		return
	}
	q := c.b.queues[k.queue]
	if q == nil {
		c.fail(channel, 60, 20, refuse{amqp.NotFound, "NOT_FOUND - no queue"})
		return
	}
	q.consumers = append(q.consumers, k)
	c.consumers = append(c.consumers, k)
	c.method(channel, 60, 21, k.tag)
	c.b.deliver(q)
}

func (c *memConn) endConsumers(channel uint16) {
	c.consumers = slices.DeleteFunc(c.consumers, func(k *memConsumer) bool {
		if k.channel == channel {
			c.b.drop(k)
		}
		return k.channel == channel
	})
}

// deliver hands out what waits, in turn.
func (b *memBroker) deliver(q *memQueue) {
	for len(q.waiting) > 0 && len(q.consumers) > 0 {
		m := q.waiting[0]
		q.waiting = q.waiting[1:]
		k := q.consumers[0]
		q.consumers = append(q.consumers[1:], k)
		k.conn.tags[k.channel]++
		tag := k.conn.tags[k.channel]
		k.unacked[tag] = m
		again := byte(0)
		if m.redelivered {
			again = 1
		}
		k.conn.send(memMethod(k.channel, 60, 60, k.tag, tag, again, m.exchange, m.key), memContent(k.channel, m))
	}
}

// settle takes an acknowledgement or a rejection.
func (c *memConn) settle(channel, method uint16, tag uint64, multiple bool) {
	n := 0
	for _, k := range c.consumers {
		for t := range k.unacked {
			if k.channel == channel && (t == tag || method == 80 && multiple && t < tag) {
				delete(k.unacked, t)
				n++
			}
		}
	}
	c.b.said = append(c.b.said, fmt.Sprintf("basic.%s %d", map[uint16]string{80: "ack", 90: "reject"}[method], n))
}

// published routes a message and confirms it.
func (c *memConn) published(channel uint16, p *memPublish) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.asked(channel, 60, 40, "basic.publish "+p.exchange+" "+p.key) {
		return
	}
	if _, ok := b.exchanges[p.exchange]; !ok && p.exchange != "" {
		c.fail(channel, 60, 40, refuse{amqp.NotFound, "NOT_FOUND - no exchange"})
		return
	}
	seq := uint64(0)
	if n, ok := c.confirms[channel]; ok {
		seq = n + 1
		c.confirms[channel] = seq
	}
	if b.nack > 0 {
		b.nack--
		c.method(channel, 60, 120, seq, byte(0))
		return
	}
	if to := b.route(p.exchange, p.key); len(to) > 0 {
		for _, q := range to {
			q.waiting = append(q.waiting, p.memMessage)
			b.deliver(q)
		}
	} else if p.mandatory {
		c.send(memMethod(channel, 60, 50, uint16(312), "NO_ROUTE", p.exchange, p.key), memContent(channel, p.memMessage))
	}
	if seq > 0 && !b.late {
		c.method(channel, 60, 80, seq, byte(0))
	}
}

func (b *memBroker) route(ex, key string) []*memQueue {
	var to []*memQueue
	for _, name := range slices.Sorted(maps.Keys(b.queues)) {
		q := b.queues[name]
		for bound := range q.bound {
			e, k, _ := strings.Cut(bound, " ")
			tail, wild := strings.CutPrefix(k, "#")
			if (e == ex || b.behind[ex][e]) && (k == key || b.exchanges[e].kind == "fanout" || wild && strings.HasSuffix(key, tail)) {
				to = append(to, q)
				break
			}
		}
		if ex == "" && name == key {
			to = append(to, q)
		}
	}
	return to
}

// put delivers a message as a peer would send it, with headers.
func (b *memBroker) put(queueName, ex, key string, headers amqp.Table, body string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var table []byte
	for name, v := range headers {
		switch v := v.(type) {
		case int64:
			table = append(table, memJoin(name, byte('l'), uint64(v))...)
		case string:
			table = append(table, memJoin(name, byte('S'), uint32(len(v)), []byte(v))...)
		}
	}
	header := memJoin(uint16(60), uint16(0), uint64(len(body)), uint16(1<<13), uint32(len(table)), table)
	q := b.queues[queueName]
	q.waiting = append(q.waiting, memMessage{exchange: ex, key: key, header: header, body: []byte(body)})
	b.deliver(q)
}
