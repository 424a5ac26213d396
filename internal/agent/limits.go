// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Limits is what the agent uses of limits of tracked connections. A zone is a local VLAN.
type Limits interface {
	// SetLimits gives each zone its limit, and with prune takes those of other local VLANs away.
	SetLimits(ctx context.Context, want map[uint16]uint32, prune bool) (changed int, err error)
}

// limiting is where the limits stand. It is owned by the loop.
type limiting struct {
	due     bool // networks have come or gone, or the switch is another one
	pruned  bool // limits of VLANs that nobody has are gone
	none    bool // the switch cannot limit
	retries retries[string]
}

// limitRound is the part of a plan that sets limits. It comes before the flows.
type limitRound struct {
	limits  Limits
	want    map[uint16]uint32
	prune   bool
	changed int
	err     error
}

func (r *limitRound) run(ctx context.Context) {
	if r != nil {
		r.changed, r.err = r.limits.SetLimits(ctx, r.want, r.prune)
	}
}

// noteLimits remembers that the networks may be others.
func (a *Agent) noteLimits(o world.Object) {
	if o.Kind == world.KindSegment {
		a.limiting.due = true
	}
}

// limitsToSet is the round that is due, or nil. Limits are taken away only when everything is known: a VLAN that ports have
// from an earlier run may have no network yet.
func (a *Agent) limitsToSet(now time.Time) *limitRound {
	l := &a.limiting
	due := l.due && a.cfg.ConntrackLimit > 0 || a.swept && !l.pruned
	if a.cfg.Limits == nil || l.none || !due {
		return nil
	}
	if l.retries.waiting("", now) {
		a.wakeUp(l.retries[""].at)
		return nil
	}
	r := &limitRound{limits: a.cfg.Limits, want: map[uint16]uint32{}, prune: a.swept}
	if a.cfg.ConntrackLimit > 0 {
		for _, s := range a.world.Segments() {
			r.want[s.VLAN] = a.cfg.ConntrackLimit
		}
	}
	l.due = false
	return r
}

// limitsSet takes the outcome.
func (a *Agent) limitsSet(r *limitRound, now time.Time) {
	if r == nil {
		return
	}
	l := &a.limiting
	switch {
	case errors.Is(r.err, conntrack.ErrNoLimits):
		l.none = true
		if len(r.want) > 0 {
			a.log.Warn("conntrack_limit_per_network has no effect: this Open vSwitch cannot limit tracked connections")
		}
		return
	case r.err != nil:
		l.due = true
		wait := l.retries.fail("", now)
		a.wakeUp(l.retries[""].at)
		a.repeats.log(a.log, slog.LevelWarn, "tracked connections not limited, retrying", "err", r.err, "after", wait)
		return
	}
	l.retries.forget("")
	l.pruned = r.prune
	a.repeats.forget("tracked connections not limited, retrying")
	if r.changed > 0 {
		a.log.Info("limits of tracked connections set", "networks", len(r.want), "changed", r.changed, "limit", a.cfg.ConntrackLimit)
	}
}
