// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
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
// read; it is closed, and the firehose turned off, when ctx ends.
func (b *Broker) Trace(ctx context.Context) (<-chan Published, error) {
	if _, err := b.Ctl(ctx, "trace_on", "-p", b.s.VHost); err != nil {
		return nil, err
	}
	conn, err := amqp.DialConfig("amqp://"+b.Addr(), amqp.Config{
		SASL:  []amqp.Authentication{&amqp.PlainAuth{Username: b.s.User, Password: b.s.Password}},
		Vhost: b.s.VHost,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting for the firehose: %w", err)
	}
	copies, err := firehose(conn)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("reading the firehose: %w", err)
	}
	out := make(chan Published, 1024)
	go func() {
		defer close(out)
		for {
			select {
			case d, ok := <-copies:
				if !ok {
					return
				}
				out <- published(&d)
			case <-ctx.Done():
				_ = conn.Close()
				for range copies { // let the library's goroutine end
				}
				off, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
				defer cancel()
				_, _ = b.Ctl(off, "trace_off", "-p", b.s.VHost) // the node may be gone already
				return
			}
		}
	}()
	return out, nil
}

func firehose(conn *amqp.Connection) (<-chan amqp.Delivery, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return nil, err
	}
	if err := ch.QueueBind(q.Name, "publish.#", "amq.rabbitmq.trace", false, nil); err != nil {
		return nil, err
	}
	return ch.Consume(q.Name, "", true, true, false, false, nil)
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
