// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// limits is a switch that notes which limits it is given.
type limits struct {
	calls []string
	err   error
}

func (l *limits) SetLimits(_ context.Context, want map[uint16]uint32, prune bool) (int, error) {
	l.calls = append(l.calls, fmt.Sprintf("%v %v", want, prune))
	return len(want), l.err
}

// limited makes an agent with one port in one network. Step does what a turn of the loop does for limits, and gives the round.
func limited(t *testing.T, limit uint32, l *limits) (a *host, log *logBuffer, step func() string) {
	t.Helper()
	a, batch := filtering(t, &cloud{}, nil, 1)
	log = &logBuffer{}
	a.log.Logger = slog.New(observe.NewLogger(log, slog.LevelInfo).Handler())
	a.cfg.Limits, a.cfg.ConntrackLimit, a.zones.limits = l != nil, limit, zones.NewLimits(limit, false)
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	settle(t, a)
	return a, log, func() string {
		settle(t, a)
		job := a.zones.limitsToSet(a.dataplane.Pruned(), time.Now())
		if job == nil {
			return ""
		}
		changed, err := l.SetLimits(t.Context(), job.Want, job.Prune)
		a.zones.limitsSet(job, changed, err, time.Now())
		return l.calls[len(l.calls)-1]
	}
}

func TestLimitsFollowTheNetworks(t *testing.T) {
	l := &limits{}
	a, _, step := limited(t, 500, l)
	for _, s := range []struct{ when, want string }{{"a network came", "map[1:500] false"}, {"nothing happened", ""}} {
		if got := step(); got != s.want {
			t.Errorf("%s: %q, want %q", s.when, got, s.want)
		}
	}
	hasFlows(a, "br-int", nil)
	a.dataplane.Prune(a.now())
	if got := step(); got != "map[1:500] true" {
		t.Errorf("everything is known: %q", got)
	}
	if got := step(); got != "" {
		t.Errorf("again: %q", got)
	}
	a.event(effect.BridgeLinked{Bridge: "br-int", Err: errors.New("gone")})
	if got := step(); got != "" {
		t.Errorf("the switch is away: %q", got)
	}
	conn := struct{ effect.Conn }{}
	a.zones.linked(effect.BridgeLinked{Bridge: "br-tun", Conn: conn})
	if got := step(); got != "" {
		t.Errorf("another bridge of it is back: %q", got)
	}
	a.zones.linked(effect.BridgeLinked{Bridge: "br-int", Conn: conn})
	if got := step(); got != "map[1:500] true" {
		t.Errorf("the switch is back: %q", got)
	}
	// The only port goes, and its network with it; meanwhile everything is checked, so nothing may be taken away.
	a.dataplane.PruneAgain()
	row := a.world.View.Interfaces()
	batch := &ovsdb.Batch{Seq: 2, Kind: ovsdb.Update}
	for i := range row {
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{Old: i})
	}
	a.world.Switch(batch)
	if got := step(); got != "map[] false" {
		t.Errorf("the network went during a check: %q", got)
	}
	hasFlows(a, "br-int", nil)
	a.dataplane.Prune(a.now())
	if got := step(); got != "map[] true" {
		t.Errorf("after the check: %q", got)
	}
}

func TestLimitsAreOffUnlessAskedFor(t *testing.T) {
	l := &limits{}
	a, _, step := limited(t, 0, l)
	if got := step(); got != "" {
		t.Errorf("%q", got)
	}
	hasFlows(a, "br-int", nil)
	a.dataplane.Prune(a.now()) // limits of an earlier run go
	if got := step(); got != "map[] true" {
		t.Errorf("%q", got)
	}
	a.zones.limits.Changed()
	if got := step(); got != "" {
		t.Errorf("again: %q", got)
	}
}

func TestLimitsThatTheSwitchLacks(t *testing.T) {
	l := &limits{err: fmt.Errorf("limiting: %w", conntrack.ErrNoLimits)}
	a, log, step := limited(t, 500, l)
	for range 3 {
		step()
		a.zones.limits.Changed()
	}
	if len(l.calls) != 1 || countLines(log, "has no effect") != 1 {
		t.Errorf("%v\n%s", l.calls, log)
	}
	l = &limits{err: errors.New("busy")}
	_, log, step = limited(t, 500, l)
	step()
	if step(); len(l.calls) != 1 || countLines(log, "not limited or fragments not dropped by ovs-vswitchd, retrying") != 1 {
		t.Errorf("no pause between attempts: %v\n%s", l.calls, log)
	}
}

func countLines(log *logBuffer, part string) int { return strings.Count(log.String(), part) }

// TestFragmentsAreDroppedAgain whenever the switch has started, with or without limits, and status stops naming the hole then.
func TestFragmentsAreDroppedAgain(t *testing.T) {
	for _, limit := range []uint32{0, 500} {
		l := &limits{err: errors.New("busy")}
		a, log, step := limited(t, limit, l)
		a.cfg.DropFragments, a.cfg.Conntrack, a.cfg.Configurations.DatapathType = true, true, "netdev"
		a.zones.limits = zones.NewLimits(limit, true)
		named := func() bool { return hasPart(a.Look(time.Now()).AgentStatus().Advisories, fragmentsEscape) }
		a.zones.limits.Restarted()
		if step(); len(l.calls) != 1 || !named() || countLines(log, "told to drop fragments") != 0 {
			t.Errorf("limit %d, the switch is busy: %v, named %v\n%s", limit, l.calls, named(), log)
		}
		for i, err := range []error{nil, fmt.Errorf("limiting: %w", conntrack.ErrNoLimits), nil} {
			l.calls, l.err, a.zones.limits = nil, err, zones.NewLimits(limit, true)
			for range 2 { // the switch starts again
				if a.zones.limits.Restarted(); !named() {
					t.Errorf("limit %d, %d: not named before", limit, i)
				}
				if step(); named() {
					t.Errorf("limit %d, %d: named after", limit, i)
				}
				if step(); limit == 0 && len(l.calls) == 0 {
					t.Errorf("limit %d, %d: not told", limit, i)
				}
			}
			if len(l.calls) != 2 || countLines(log, "told to drop fragments") != 2*(i+1) {
				t.Errorf("limit %d, %d: %v\n%s", limit, i, l.calls, log)
			}
		}
	}
}
