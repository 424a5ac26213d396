// SPDX-License-Identifier: Apache-2.0

// Package messaging speaks oslo.messaging RPC over AMQP 0-9-1 with RabbitMQ: it calls, casts to and serves the same topics
// as programs that use Python's oslo.messaging, in both directions.
//
// A [Client] is one TCP connection, kept up in the background, and at most two queues of its own: one for replies, made
// with the first call, and one that is bound to everything it serves. [Open] it, then
//
//   - [Client.Call] a method and wait for its result; remote exceptions come back as [*RemoteError];
//   - [Client.Cast] to one server, any server or all servers of a topic;
//   - [Client.Serve] topics with a [Handler].
//
// What happens to the connection is told through [Event]s. The one that matters most is [Gap]: messages may have been
// missed, so whatever is derived from them has to be read anew.
//
// # Delivery
//
// Calls end in a result or a typed error. A request goes out again only if the broker had not confirmed it when the
// connection broke; repetitions are recognised by their id, so handlers of this package see each message once. The reply
// queue keeps its name through reconnects, and so do calls in flight: a reply may arrive on a later connection.
//
// A received message is acknowledged when its handler returns. Python's servers acknowledge before they begin; a message
// whose server dies in between is lost there. Here it is redelivered if the queue outlives the trouble, and recognised if
// it had been handled after all.
//
// The package logs nothing. Passwords appear in no error and no event.
//
// # Stability
//
// The package follows semantic versioning. Before v1 a minor version may change or remove exported names, and CHANGELOG.md
// says how to follow; a patch version changes none. What goes over the wire is what oslo.messaging understands, in every
// version. The two latest releases of Go are supported. Texts of errors may change at any time; their types do not.
// docs/reference/api.md of the repository has the whole promise.
package messaging
