// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// mailbox takes events from anywhere without ever making the sender wait, and gives them to the loop in the order in
// which they came. Senders are bounded elsewhere: work beside the loop by being one piece at a time. What the server sends by
// itself has a box with a bound of its own, see pushbox.
type mailbox[T any] struct {
	ready chan struct{} // has a token while something may be in the box

	mu    sync.Mutex
	items []T
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(v T) {
	m.mu.Lock()
	m.items = append(m.items, v)
	m.mu.Unlock()
	signal(m.ready)
}

func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}

// repeatEvery is how often a condition that lasts is logged again.
const repeatEvery = 10 * time.Minute

// repeats keeps a condition that lasts, such as a broker that is away, from filling the log: a message is written when
// it comes up, when it has a reason that it did not have before, and every so often while it lasts.
type repeats struct {
	every time.Duration
	last  map[string]map[string]time.Time // by message and reason
}

// maxReasons bounds the memory, and the lines: a peer can make up a new reason with every message. Reasons beyond so many
// count as one.
const maxReasons = 50

func (r *repeats) log(l *slog.Logger, level slog.Level, msg string, args ...any) {
	reasons := r.last[msg]
	if reasons == nil {
		reasons = map[string]time.Time{}
	}
	reason, now := slog.GroupValue(argsToAttrs(args)...).String(), time.Now()
	if _, known := reasons[reason]; !known && len(reasons) >= maxReasons {
		maps.DeleteFunc(reasons, func(_ string, at time.Time) bool { return now.Sub(at) >= r.every })
		if len(reasons) >= maxReasons {
			reason = "other"
		}
	}
	if at, ok := reasons[reason]; ok && now.Sub(at) < r.every {
		return
	}
	reasons[reason] = now
	if r.last == nil {
		r.last = map[string]map[string]time.Time{}
	}
	r.last[msg] = reasons
	l.Log(context.Background(), level, msg, args...) //nolint:sloglint // the messages of our callers are constants
}

func argsToAttrs(args []any) []slog.Attr { return slog.Group("", args...).Value.Group() }

// forget ends a condition: should it come up again, it is news.
func (r *repeats) forget(msg string) { delete(r.last, msg) }
