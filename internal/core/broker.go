// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// brokerRefuses is said once while it lasts.
const brokerRefuses = "the broker refuses what the agent needs, retrying"

// brokerEvent writes down what happens to the broker's connection. Only a gap matters to the world: everything is
// checked.
func (a *Core) brokerEvent(e messaging.Event) {
	switch e := e.(type) {
	case messaging.Connected:
		a.log.forget("connection to the broker failed, retrying")
		a.log.forget(brokerRefuses)
		a.log.Info("connected to the broker", "addr", e.Addr, "tls", orNone(e.TLS), "took", e.Setup)
		if a.seen.unverified = e.TLS == "unverified"; a.seen.unverified {
			a.log.repeat(slog.LevelWarn, brokerUnverified, "addr", e.Addr)
		}
	case messaging.Disconnected:
		a.log.Warn("connection to the broker lost, reconnecting", "addr", e.Addr, "err", e.Err)
	case messaging.ConnectFailed:
		a.log.repeat(slog.LevelWarn, "connection to the broker failed, retrying", "addr", e.Addr, "err", e.Err)
	case messaging.Refused:
		a.log.repeat(slog.LevelError, brokerRefuses, "addr", e.Addr, "queue", e.Err.Queue, "do", e.Err.Do, "err", e.Err.Err)
	case messaging.Gap:
		a.log.Warn("RPC messages may have been lost, resyncing", "queue", e.Queue, "reason", e.Reason)
		a.resync()
	case messaging.Blocked:
		a.log.Warn("the broker blocks publishing", "reason", e.Reason)
	case messaging.Unblocked:
		a.log.Info("the broker no longer blocks publishing")
	case messaging.SetupFailed:
		a.log.repeat(slog.LevelWarn, "queue setup failed, retrying", "queue", e.Queue, "err", e.Err)
	case messaging.Fallback:
		a.log.repeat(slog.LevelWarn, "queue or exchange differs from the configuration, using it as it is", "name", e.Name, "reason", e.Reason)
	case messaging.ReplyAbandoned:
		a.log.Debug("RPC reply not delivered", "queue", e.Queue, "method", e.Method, "err", e.Err)
	}
}

// messagesDropped writes down that messages were dropped. One that was too large may have said anything, so everything is
// pulled again.
func (a *Core) messagesDropped(d effect.Dropped) {
	a.seen.totals.Dropped += uint64(d.Count) //nolint:gosec // a count
	if d.Count == 0 {
		return
	}
	const large, unreadable = "message too large, dropped; resyncing", "AMQP message cannot be decoded, dropped"
	msg := unreadable
	if d.Large > 0 {
		msg = large
		a.resync()
	}
	a.log.repeat(slog.LevelWarn, msg, "exchange", d.Last.Exchange, "key", d.Last.RoutingKey, "err", d.Last.Err)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
