// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// exchange and queue carry the flags that oslo peers declare the same names with: a difference in one of them makes the
// broker refuse whoever comes second.
type exchange struct {
	name, kind          string
	durable, autoDelete bool
	// behind are topics, one a line. An exchange that has some is a hub: it is bound to their fanout exchanges, but for those of lines that begin with a blank.
	behind string
}

type queue struct {
	name                string
	durable, autoDelete bool
	args                amqp.Table
}

type binding struct {
	exchange exchange
	key      string
}

// maxQueueTTL bounds how long the private queues of a crashed process stay on the broker, unless Config.QueueTTL says
// otherwise. A reconnect, also with several brokers down, is over well before; oslo's 30 minutes mean a queue that fills
// for half an hour after each crash.
const maxQueueTTL = 240 * time.Second

// layout knows every name and flag. It is a function of the options, of what the broker denies, and of nodes that took a queue
// of ours with them.
type layout struct {
	control  string // name of the control exchange
	rabbit   Rabbit
	queueTTL time.Duration
	replyQ   string
	privateQ string
	// denied says that the broker does not let a queue be made that is neither durable nor exclusive.
	denied  bool
	learned bool // a broker has said what it is
	// hubName begins the name of the hub. It is empty where queues are bound to each exchange by themselves.
	hubName string
	// hubStream says that what is sent to all is read from a stream behind the hub, and streamDown that the broker has the stream and does not let it be read.
	hubStream, streamDown bool
}

func newLayout(cfg *Config, newID func() string) layout {
	r := cfg.Rabbit
	l := layout{control: cfg.Exchange, rabbit: r, queueTTL: cfg.QueueTTL, hubName: clip(cfg.Hub, 100), hubStream: cfg.HubStream}
	if l.queueTTL == 0 {
		l.queueTTL = maxQueueTTL
		if 0 < r.TransientQueuesTTL && r.TransientQueuesTTL < l.queueTTL {
			l.queueTTL = r.TransientQueuesTTL
		}
	}
	// AMQP names are limited to 255 bytes.
	program, host := clip(cfg.Program, 80), clip(cfg.Host, 100)
	if r.UseQueueManager {
		hostname, process := r.Hostname, r.ProcessName
		if hostname == "" {
			hostname = cfg.Host
		}
		if process == "" {
			process = cfg.Program
		}
		id := fmt.Sprintf("%s:%s:%d", clip(hostname, 100), clip(process, 60), cfg.Instance)
		l.replyQ, l.privateQ = "reply_"+id, clip(program, 60)+"_fanout_"+id
		return l
	}
	l.replyQ = "reply_" + newID()
	l.privateQ = program + "_fanout_" + host + "_" + newID()
	return l
}

func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}

func (l *layout) durable() bool { return l.rabbit.DurableQueues || l.rabbit.QuorumQueue }

func (l *layout) controlExchange() exchange {
	return exchange{name: l.control, kind: "topic", durable: l.durable(), autoDelete: l.rabbit.AutoDelete}
}

func (l *layout) fanoutExchange(topic string) exchange {
	return exchange{name: topic + "_fanout", kind: "fanout", durable: l.rabbit.TransientQuorumQueue, autoDelete: true}
}

// own is a queue nobody else consumes: it goes away by itself when unused. It is durable only where the broker insists: the
// broker writes what a durable queue holds to disk, and keeps the queue's name while the queue's node is down.
func (l *layout) own(name string) queue {
	quorum := l.rabbit.TransientQuorumQueue
	args := l.arguments(quorum)
	args["x-expires"] = l.queueTTL.Milliseconds()
	if l.denied && !quorum {
		args["x-queue-type"] = "classic" // whatever the virtual host's default is: quorum queues want names that stay
	}
	return queue{name: name, durable: quorum || l.denied, args: args}
}

// witness is bound to a durable queue of ours when some exchange that the queue is bound to is not durable. Such an exchange
// dies with the broker, with the binding, and somebody else may have made it anew before we look. The witness dies with it
// and is made by nobody else.
func (l *layout) witness(q queue, binds []binding) []binding {
	if !q.durable || !slices.ContainsFunc(binds, func(b binding) bool { return !b.exchange.durable }) {
		return binds
	}
	return append([]binding{{exchange{name: q.name, kind: "fanout", autoDelete: true}, ""}}, binds...)
}

// learn takes over what the first broker says about itself. Later ones are asked: a queue of ours may be there already, as it
// was made.
func (l *layout) learn(properties amqp.Table) {
	if !l.learned {
		l.learned, l.denied = true, transientDenied(properties)
	}
}

// deny has the queues of ours made durable from now on when err says that the broker does not take others. It tells whether
// that is a change.
func (l *layout) deny(err error) bool {
	var e *amqp.Error
	// Where ours are durable it is about a queue of others.
	if !errors.As(err, &e) || !deniesTransient(e.Reason) || l.own("").durable {
		return false
	}
	l.denied = true
	return true
}

// rename gives a queue of ours another name: the old one belongs to a node that is down.
func (l *layout) rename(name, id string) string {
	base, _, _ := strings.Cut(name, "~")
	now := base + "~" + id[:8]
	if name == l.replyQ {
		l.replyQ = now
	} else {
		l.privateQ = now
	}
	return now
}

// shared is the queue of a topic that any server of that topic takes from.
func (l *layout) shared(topic string) queue {
	return queue{topic, l.durable(), l.rabbit.AutoDelete, l.arguments(l.rabbit.QuorumQueue)}
}

// stream is the log of a topic's fanout messages that all servers read, each at its own offset.
func (l *layout) stream(topic string) queue {
	age := max(l.rabbit.TransientQueuesTTL, time.Second)
	return queue{name: topic + "_fanout", durable: true, args: amqp.Table{
		"x-queue-type": "stream", "x-max-age": fmt.Sprintf("%ds", int64(age.Seconds())),
	}}
}

func (l *layout) arguments(quorum bool) amqp.Table {
	args := amqp.Table{}
	if l.rabbit.HAQueues {
		args["x-ha-policy"] = "all"
	}
	if !quorum {
		return args
	}
	args["x-queue-type"] = "quorum"
	for name, v := range map[string]int{
		"x-delivery-limit":       l.rabbit.QuorumDeliveryLimit,
		"x-max-in-memory-length": l.rabbit.QuorumMaxMemoryLength,
		"x-max-in-memory-bytes":  l.rabbit.QuorumMaxMemoryBytes,
	} {
		if v != 0 {
			args[name] = int64(v)
		}
	}
	return args
}

func (l *layout) consumeArgs() amqp.Table {
	if l.rabbit.EnableCancelOnFailover {
		return amqp.Table{"x-cancel-on-ha-failover": true}
	}
	return nil
}

// route tells where a message to t goes.
func (l *layout) route(t Target) (exchange, string) {
	switch {
	case t.Fanout:
		return l.fanoutExchange(t.Topic), ""
	case t.Server != "":
		return l.controlExchange(), t.Topic + "." + t.Server
	}
	return l.controlExchange(), t.Topic
}
