// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Published is one message that a client published, as RabbitMQ's firehose shows it.
type Published struct {
	At         time.Time // when the copy arrived here
	Exchange   string    // empty for the default exchange
	Keys       []string
	Queues     []string // where it was routed to
	Connection string   // "peer -> broker", as in Connection.Name
	Body       []byte
}

// Trace turns the firehose on and returns everything that is published on the virtual host from now on. The channel must be
// read; it is closed, and the firehose turned off, when ctx ends. Copies are kept while the node's application is stopped and
// started again (rabbitmqctl stop_app, start_app), so that nothing is missed that is published before we are back.
func (b *Broker) Trace(ctx context.Context) (<-chan Published, error) {
	if _, err := b.Ctl(ctx, "trace_on", "-p", b.s.VHost); err != nil {
		return nil, err
	}
	queue := "patchbay-trace-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	conn, copies, err := b.firehose(queue)
	if err != nil {
		return nil, err
	}
	out := make(chan Published, 1024)
	go func() {
		defer close(out)
		for follow(ctx, copies, out) {
			// The node is away. What it publishes first when it is back waits in the queue.
			_ = conn.Close()
			if conn, copies = b.again(ctx, queue); conn == nil {
				return
			}
		}
		if ch, err := conn.Channel(); err == nil {
			_, _ = ch.QueueDelete(queue, false, false, false)
		}
		_ = conn.Close()
		for range copies { // let the library's goroutine end
		}
		off, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		_, _ = b.Ctl(off, "trace_off", "-p", b.s.VHost) // the node may be gone already
	}()
	return out, nil
}

// follow passes copies on, and says whether there is more to come when it cannot go on.
func follow(ctx context.Context, copies <-chan amqp.Delivery, out chan<- Published) bool {
	for {
		select {
		case d, ok := <-copies:
			if !ok {
				return true
			}
			out <- published(&d)
		case <-ctx.Done():
			return false
		}
	}
}

// again connects until it succeeds or ctx ends.
func (b *Broker) again(ctx context.Context, queue string) (*amqp.Connection, <-chan amqp.Delivery) {
	for ctx.Err() == nil {
		if conn, copies, err := b.firehose(queue); err == nil {
			return conn, copies
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, nil
}

func (b *Broker) firehose(queue string) (*amqp.Connection, <-chan amqp.Delivery, error) {
	conn, err := b.dial()
	if err != nil {
		return nil, nil, fmt.Errorf("connecting for the firehose: %w", err)
	}
	copies, err := consume(conn, queue)
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("reading the firehose: %w", err)
	}
	return conn, copies, nil
}

func (b *Broker) dial() (*amqp.Connection, error) {
	return amqp.DialConfig("amqp://"+b.Addr(), amqp.Config{
		SASL:  []amqp.Authentication{&amqp.PlainAuth{Username: b.s.User, Password: b.s.Password}},
		Vhost: b.s.VHost,
	})
}

func consume(conn *amqp.Connection, queue string) (<-chan amqp.Delivery, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return nil, err
	}
	if err := ch.QueueBind(queue, "publish.#", "amq.rabbitmq.trace", false, nil); err != nil {
		return nil, err
	}
	return ch.Consume(queue, "", true, true, false, false, nil)
}

// Served says whether somebody reads a queue, in a fraction of what rabbitmqctl takes.
func (b *Broker) Served(queue string) bool {
	conn, err := b.dial()
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return false
	}
	q, err := ch.QueueDeclarePassive(queue, false, false, false, false, nil)
	return err == nil && q.Consumers > 0
}

func published(d *amqp.Delivery) Published {
	text := func(key string) string { s, _ := d.Headers[key].(string); return s }
	list := func(key string) (all []string) {
		values, _ := d.Headers[key].([]any)
		for _, v := range values {
			if s, ok := v.(string); ok {
				all = append(all, s)
			}
		}
		return all
	}
	return Published{
		At: time.Now(), Exchange: text("exchange_name"), Keys: list("routing_keys"), Queues: list("routed_queues"),
		Connection: text("connection"), Body: d.Body,
	}
}
