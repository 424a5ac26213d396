// SPDX-License-Identifier: Apache-2.0

package messaging

import "time"

// Event is something that happened to a Client's connection or queues; see the types that implement it. Events come one
// at a time, in order, from a goroutine that carries on only when the callback returns: the callback must not block and
// must not call the Client.
type Event interface{ event() }

// Connected says that the connection is up and everything that is served is consumed again.
type Connected struct {
	Addr  string
	TLS   string        // "" for none, else "unverified", "chain" (but not the host name) or "verified"
	Setup time.Duration // from the first attempt of this round
	// Broker is the product and its version, such as "RabbitMQ 3.10.8", as the broker says; empty if it does not.
	Broker string
}

// ConnectFailed says that an attempt to connect failed; the next one follows after Next.
type ConnectFailed struct {
	Addr string
	Err  error
	Next time.Duration
}

// Disconnected says that an established connection is gone. Reconnecting has begun.
type Disconnected struct {
	Addr string
	Err  error
}

// Gap says that the private queue was lost and has been made anew, so messages may have been missed. It is reported once
// per loss, after the new queue is bound and before its first message reaches the handler: whoever re-reads everything from
// then on misses nothing.
type Gap struct{ Queue, Reason string }

// Blocked says that the broker is short of resources and takes no messages from this connection. Calls and casts wait,
// within their deadlines, until Unblocked.
type Blocked struct{ Reason string }

// Unblocked ends Blocked.
type Unblocked struct{}

// Refused says that the broker refuses something that is needed until somebody changes an option, a permission or the broker;
// Err says what helps. It is tried again after Next, at most a minute, and ends with Connected.
type Refused struct {
	Addr string
	Err  *RefusedError
	Next time.Duration
}

// SetupFailed says that a queue or exchange could not be made or consumed, for a reason that may pass. It is tried again after
// Next.
type SetupFailed struct {
	Queue string
	Err   error
	Next  time.Duration
}

// Fallback says that an exchange or queue exists with another durability than configured, and was used as it is.
type Fallback struct{ Name, Reason string }

// NoHub says that the broker does not let the user declare the exchange that [Config].Hub asks for. The queue is bound to each exchange instead.
type NoHub struct{ Name, Reason string }

// NoStream says that the stream that [Config].HubStream asks for cannot be made, or not be read. The queue has a copy of what is sent to all instead.
type NoStream struct{ Name, Reason string }

// Dropped says that an incoming message did not go to the handler because it could not be decoded, or was too large (Err is
// a *[TooLargeError]). Whoever follows what a peer sends must take the latter for a [Gap]: it may have been any message.
// A reply, which has no exchange, is dropped when it does not say which call it answers.
type Dropped struct {
	Exchange, RoutingKey string
	Err                  error
}

// ReplyAbandoned says that a reply could not be delivered because the caller's queue no longer exists.
type ReplyAbandoned struct {
	Queue, Method string
	Err           error
}

func (Connected) event()      {}
func (ConnectFailed) event()  {}
func (Disconnected) event()   {}
func (Gap) event()            {}
func (Blocked) event()        {}
func (Unblocked) event()      {}
func (Refused) event()        {}
func (SetupFailed) event()    {}
func (Fallback) event()       {}
func (NoHub) event()          {}
func (NoStream) event()       {}
func (Dropped) event()        {}
func (ReplyAbandoned) event() {}
