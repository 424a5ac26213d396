// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"log/slog"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// brokerRefuses is said once while it lasts.
const brokerRefuses = "the broker refuses what the agent needs, retrying"

// brokerEvent writes down what happens to the broker's connection, and returns whether everything has to be checked: after a gap.
func (s *seen) brokerEvent(e messaging.Event) (gap bool) {
	switch e := e.(type) {
	case messaging.Connected:
		s.log.forget("connection to the broker failed, retrying")
		s.log.forget(brokerRefuses)
		s.log.Info("connected to the broker", "addr", e.Addr, "tls", cmp.Or(e.TLS, "none"), "took", e.Setup)
		if s.unverified = e.TLS == "unverified"; s.unverified {
			s.log.repeat(slog.LevelWarn, brokerUnverified, "addr", e.Addr)
		}
	case messaging.Disconnected:
		s.log.Warn("connection to the broker lost, reconnecting", "addr", e.Addr, "err", e.Err)
	case messaging.ConnectFailed:
		s.log.repeat(slog.LevelWarn, "connection to the broker failed, retrying", "addr", e.Addr, "err", e.Err)
	case messaging.Refused:
		s.log.repeat(slog.LevelError, brokerRefuses, "addr", e.Addr, "queue", e.Err.Queue, "do", e.Err.Do, "err", e.Err.Err)
	case messaging.Gap:
		s.log.Warn("RPC messages may have been lost, resyncing", "queue", e.Queue, "reason", e.Reason)
		return true
	case messaging.Blocked:
		s.log.Warn("the broker blocks publishing", "reason", e.Reason)
	case messaging.Unblocked:
		s.log.Info("the broker no longer blocks publishing")
	case messaging.SetupFailed:
		s.log.repeat(slog.LevelWarn, "queue setup failed, retrying", "queue", e.Queue, "err", e.Err)
	case messaging.Fallback:
		s.log.repeat(slog.LevelWarn, "queue or exchange differs from the configuration, using it as it is", "name", e.Name, "reason", e.Reason)
	case messaging.ReplyAbandoned:
		s.log.Debug("RPC reply not delivered", "queue", e.Queue, "method", e.Method, "err", e.Err)
	}
	return false
}

// messagesDropped writes down that messages were dropped, and returns whether one of them was too large: it may have said anything.
func (s *seen) messagesDropped(d effect.Dropped) (tooLarge bool) {
	s.totals.Dropped += uint64(d.Count) //nolint:gosec // a count
	if d.Count == 0 {
		return false
	}
	const large, unreadable = "message too large, dropped; resyncing", "AMQP message cannot be decoded, dropped"
	msg := unreadable
	if d.Large > 0 {
		msg = large
	}
	s.log.repeat(slog.LevelWarn, msg, "exchange", d.Last.Exchange, "key", d.Last.RoutingKey, "err", d.Last.Err)
	return d.Large > 0
}
