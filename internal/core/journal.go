// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// room is what every part of the core is given: the options, the step that is being taken, the log, and the world. A part has its own state
// beside it, and knows no part that is not handed to it.
type room struct {
	cfg *Config
	*turn
	log   *journal
	world *world.World
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
	if j.last == nil {
		j.last = map[string]map[string]time.Time{}
	}
	j.last[msg] = reasons
	j.Log(context.Background(), level, msg, args...) //nolint:sloglint // the messages of our callers are constants
}

func argsToAttrs(args []any) []slog.Attr { return slog.Group("", args...).Value.Group() }

// forget ends a condition: should it come up again, it is news.
func (j *journal) forget(msg string) { delete(j.last, msg) }

// note puts an entry into the recorder.
func (j *journal) note(n note) {
	n.at = j.turn.now().UnixNano()
	j.recorder.put(n)
}
