// SPDX-License-Identifier: Apache-2.0

package messaging

import (
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// RefusedError is the broker's refusal of a login, a virtual host, a queue or an exchange, for a reason that lasts until
// somebody changes an option, a permission or the broker.
type RefusedError struct {
	Queue string // that was being set up; "" when it is not about one
	Do    string // what helps, such as "set amqp_durable_queues = true"
	Err   error  // what the broker said
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused by the broker: %v: %s", e.Err, e.Do)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// refusal is the error that says what to do about err, nil when trying again may be enough.
func refusal(err error) *RefusedError {
	var e *amqp.Error
	if !errors.As(err, &e) {
		return nil
	}
	do := ""
	switch e.Code {
	case amqp.AccessRefused:
		do = "give the user of transport_url the permissions configure, write and read on this virtual host (rabbitmqctl set_permissions)"
		switch {
		case errors.Is(err, amqp.ErrCredentials):
			do = "check user and password in transport_url"
		case errors.Is(err, amqp.ErrSASL):
			do = "set rabbit_login_method to a mechanism that the broker offers"
		}
	case amqp.NotAllowed:
		do = "check the virtual host in transport_url, the user's permissions on it and its limits"
	case amqp.NotImplemented:
		do = "switch off the [oslo_messaging_rabbit] options that this release of the broker does not have"
	case amqp.InternalError:
		do = denied(e.Reason)
	case amqp.PreconditionFailed:
		do = mismatch(e.Reason)
	}
	if do == "" {
		return nil
	}
	r := &RefusedError{Do: do, Err: err}
	var setup *setupError
	if errors.As(err, &setup) {
		r.Queue = setup.queue
	}
	return r
}

// denied says what to do about a feature that the broker has and does not permit.
func denied(reason string) string {
	switch {
	case deniesTransient(reason):
		return "set amqp_durable_queues or rabbit_quorum_queue, and rabbit_transient_quorum_queue, in every service of this virtual host, " +
			"or deprecated_features.permit.transient_nonexcl_queues = true in rabbitmq.conf"
	case strings.Contains(reason, "is deprecated"):
		return "permit the feature in rabbitmq.conf (deprecated_features.permit.*)"
	}
	return ""
}

// deniesTransient tells whether the broker denies queues that are neither durable nor exclusive: by a setting that is the default
// from 4.3 on, or because the default type of the virtual host has durable queues only.
func deniesTransient(reason string) bool {
	return strings.Contains(reason, "transient_nonexcl_queues") || strings.Contains(reason, "invalid property 'non-durable'")
}

// transientDenied is the broker's default, by what it says about itself.
func transientDenied(properties amqp.Table) bool {
	var major, minor int
	version, _ := properties["version"].(string)
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || properties["product"] != "RabbitMQ" {
		return false
	}
	return major > 4 || major == 4 && minor >= 3
}

// mismatch says what to do about a declaration that the broker does not take as it is. Other failed preconditions pass.
func mismatch(reason string) string {
	if deniesTransient(reason) {
		return denied(reason)
	}
	_, what, found := strings.Cut(reason, "invalid arg '")
	if found {
		switch name, _, _ := strings.Cut(what, "'"); name {
		case "x-expires":
			return "set rabbit_transient_quorum_queue = false: quorum queues expire from RabbitMQ 3.10 on"
		case "x-queue-type", "x-max-age":
			return "switch off the options of queue types that this release of the broker does not have " +
				"(rabbit_stream_fanout: RabbitMQ 3.9; rabbit_quorum_queue: 3.8)"
		}
		return "switch off the [oslo_messaging_rabbit] option of this argument: this release of the broker does not have it"
	}
	_, what, found = strings.Cut(reason, "inequivalent arg '")
	if !found {
		return ""
	}
	option := map[string]string{
		"auto_delete": "amqp_auto_delete", "durable": "amqp_durable_queues", "x-queue-type": "rabbit_quorum_queue",
		"x-max-age": "rabbit_transient_queues_ttl", "x-delivery-limit": "rabbit_quorum_delivery_limit",
		"x-max-in-memory-length": "rabbit_quorum_max_memory_length", "x-max-in-memory-bytes": "rabbit_quorum_max_memory_bytes",
		"x-ha-policy": "rabbit_ha_queues",
	}
	name, _, _ := strings.Cut(what, "'")
	if o := option[name]; o != "" {
		return "set " + o + " as in the other services of this virtual host, or delete the old queue or exchange"
	}
	return "delete the queue or exchange that another program made under this name"
}

// refusalMax bounds the pause after a refusal: whoever has changed what was refused should not have to restart anything.
const refusalMax = time.Minute

// refusalDelay is the pause after the given number of refusals in a row. It doubles after each round over the hosts, and is
// drawn from the upper half.
func refusalDelay(r Rabbit, refusals, hosts int, rnd func() float64) time.Duration {
	if refusals%hosts != 0 {
		return retryDelay(r, refusals, hosts, rnd)
	}
	d := min(r.RetryInterval<<min(refusals/hosts-1, 10), refusalMax)
	return time.Duration(float64(d) * (0.5 + 0.5*rnd()))
}

// refused tells whether err is the broker's refusal with that code, which costs a channel but not the connection.
func refused(err error, code int) bool {
	var e *amqp.Error
	return errors.As(err, &e) && e.Server && e.Code == code
}

func isInternalError(err error) bool {
	var e *amqp.Error
	return errors.As(err, &e) && e.Code == amqp.InternalError
}

// durabilityDiffers tells whether something exists, but with another durability than declared.
func durabilityDiffers(err error) bool {
	return refused(err, amqp.PreconditionFailed) && strings.Contains(err.Error(), "'durable'")
}
