// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// Recorder keeps the last inputs and decisions, and apart from them the last warnings, which must not be washed away. It
// may be read while the loop is stuck, which is when it is needed most; so it has a lock, that nobody holds for long.
type Recorder struct {
	mu       sync.Mutex
	notes    notes
	last     note // the newest: equal ones become one with it
	seq      uint64
	warnings []note
	logged   [4]uint64 // entries by level
}

// maxWarnings is how many warnings and errors are kept.
const maxWarnings = 50

// put takes an entry down. Equal ones in a row are one with a count, so that a flood of pushes about other hosts does not
// wash away what matters.
func (r *Recorder) put(n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logged[n.level]++
	if r.seq > 0 {
		last := &r.last
		if last.kind == n.kind && last.what == n.what && last.subject == n.subject && last.detail == n.detail && last.level == n.level {
			last.until = n.at
			last.n += n.n
			last.repeated++
			return
		}
	}
	if r.seq > 0 {
		r.notes.add(&r.last)
	}
	r.seq++
	n.seq = r.seq
	r.last = n
	if n.level >= 2 {
		if len(r.warnings) == maxWarnings {
			r.warnings = slices.Delete(r.warnings, 0, 1)
		}
		r.warnings = append(r.warnings, n)
	}
}

// Events puts everything into words, oldest first.
func (r *Recorder) Events() []inspect.Event {
	r.mu.Lock()
	var notes []note
	if r.seq > 0 {
		notes = append(r.notes.all(r.seq-1), r.last)
	}
	r.mu.Unlock()
	return inWords(notes)
}

// LastWarnings puts the last warnings and errors of the log into words, oldest first.
func (r *Recorder) LastWarnings() []inspect.Event {
	r.mu.Lock()
	notes := slices.Clone(r.warnings)
	r.mu.Unlock()
	return inWords(notes)
}

// Lines counts the lines of the log: warnings, and errors.
func (r *Recorder) Lines() (warnings, errs uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logged[2], r.logged[3]
}

func inWords(notes []note) []inspect.Event {
	out := make([]inspect.Event, len(notes))
	for i := range notes {
		out[i] = notes[i].event()
	}
	return out
}

// Handler returns a log handler that also puts lines into the recorder.
func (r *Recorder) Handler(h slog.Handler) slog.Handler { return recording{h, r} }

// recording is a log handler that also puts lines into the recorder.
type recording struct {
	slog.Handler
	to *Recorder
}

// Handle implements slog.Handler.
func (h recording) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelInfo {
		n := note{kind: kindLog, level: 1, what: rec.Message, at: rec.Time.UnixNano()}
		switch {
		case rec.Level >= slog.LevelError:
			n.level = 3
		case rec.Level >= slog.LevelWarn:
			n.level = 2
		}
		var detail []byte
		rec.Attrs(func(a slog.Attr) bool {
			if a.Key == "port" {
				n.subject = a.Value.String()
			}
			if detail != nil {
				detail = append(detail, ' ')
			}
			detail = append(append(append(detail, a.Key...), '='), a.Value.String()...)
			return true
		})
		n.detail = string(detail)
		h.to.put(n)
	}
	if !h.Handler.Enabled(ctx, rec.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, rec)
}

// Enabled implements slog.Handler. What is not logged may be recorded all the same.
func (h recording) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.Handler.Enabled(ctx, l)
}

// WithAttrs and WithGroup implement slog.Handler. They keep the recorder; nothing in the agent uses them.
func (h recording) WithAttrs(attrs []slog.Attr) slog.Handler {
	return recording{h.Handler.WithAttrs(attrs), h.to}
}

func (h recording) WithGroup(name string) slog.Handler {
	return recording{h.Handler.WithGroup(name), h.to}
}

// repeatEvery is how often a condition that lasts is logged again.
const repeatEvery = 10 * time.Minute

// journal writes the log and the recorder. It keeps a condition that lasts, such as a broker that is away, from filling the log: a message is
// written when it comes up, when it has a reason that it did not have before, and every so often while it lasts.
type journal struct {
	*slog.Logger
	turn     *turn
	recorder *Recorder
	every    time.Duration
	last     map[string]map[string]time.Time // by message and reason
}

// maxReasons bounds the memory, and the lines: a peer can make up a new reason with every message. Reasons beyond so many
// count as one.
const maxReasons = 50

// repeat logs a condition that may last.
func (j *journal) repeat(level slog.Level, msg string, args ...any) {
	reasons := j.last[msg]
	if reasons == nil {
		reasons = map[string]time.Time{}
		j.last[msg] = reasons
	}
	reason, now := slog.GroupValue(argsToAttrs(args)...).String(), j.turn.now()
	if _, known := reasons[reason]; !known && len(reasons) >= maxReasons {
		maps.DeleteFunc(reasons, func(_ string, at time.Time) bool { return now.Sub(at) >= j.every })
		if len(reasons) >= maxReasons {
			reason = "other"
		}
	}
	if at, ok := reasons[reason]; ok && now.Sub(at) < j.every {
		return
	}
	reasons[reason] = now
	j.Log(context.Background(), level, msg, args...) //nolint:sloglint // the messages of our callers are constants
}

func argsToAttrs(args []any) []slog.Attr { return slog.Group("", args...).Value.Group() }

// forget ends a condition: should it come up again, it is logged again.
func (j *journal) forget(msg string) { delete(j.last, msg) }

// note puts an entry into the recorder.
func (j *journal) note(n note) {
	n.at = j.turn.now().UnixNano()
	j.recorder.put(n)
}
