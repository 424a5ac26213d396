// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// brokerEvent writes down what happens to the broker's connection. Only a gap matters to the world: everything is
// checked.
func (a *Agent) brokerEvent(e messaging.Event) {
	switch e := e.(type) {
	case messaging.Connected:
		a.repeats.forget("the broker cannot be reached")
		a.log.Info("connected to the broker", "addr", e.Addr, "tls", orNone(e.TLS), "took", e.Setup)
		if a.seen.unverified = e.TLS == "unverified"; a.seen.unverified {
			a.repeats.log(a.log, slog.LevelWarn, brokerUnverified, "addr", e.Addr)
		}
	case messaging.Disconnected:
		a.log.Warn("connection to the broker lost", "addr", e.Addr, "err", e.Err)
	case messaging.ConnectFailed:
		a.repeats.log(a.log, slog.LevelWarn, "the broker cannot be reached", "addr", e.Addr, "err", e.Err)
	case messaging.Gap:
		a.log.Warn("messages may have been missed", "queue", e.Queue, "reason", e.Reason)
		a.resync()
	case messaging.Blocked:
		a.log.Warn("the broker takes no messages from us", "reason", e.Reason)
	case messaging.Unblocked:
		a.log.Info("the broker takes messages again")
	case messaging.SetupFailed:
		a.repeats.log(a.log, slog.LevelWarn, "the broker refuses a queue", "queue", e.Queue, "err", e.Err)
	case messaging.Fallback:
		a.repeats.log(a.log, slog.LevelWarn, "a queue or exchange is not as configured, used as it is", "name", e.Name, "reason", e.Reason)
	case messaging.ReplyAbandoned:
		a.log.Debug("nobody waits for our reply", "queue", e.Queue, "method", e.Method, "err", e.Err)
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
