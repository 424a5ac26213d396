// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// Conntrack is what the agent uses of connection tracking. A zone is a local VLAN.
type Conntrack interface {
	dataplane.Flusher
	Marked(ctx context.Context, zone uint16) ([]conntrack.Connection, error)
	Release(ctx context.Context, zone uint16, connections []conntrack.Connection) (int, error)
}

// Limits is what the agent uses of limits of tracked connections. A zone is a local VLAN.
type Limits = dataplane.Limiter

// connectionsListed: the marked connections of zones. connectionsReleased: those of them that are allowed again were released.
type (
	connectionsListed struct {
		found []zones.Connections
		took  time.Duration
		err   error
	}
	connectionsReleased struct {
		n   int
		err error
	}
)

// noteZone tells connection tracking of an object that was compiled.
func (a *Agent) noteZone(o world.Object) {
	switch {
	case o.Kind == world.KindSegment:
		a.limits.Changed()
	case a.cfg.Conntrack == nil:
	case o.Kind == world.KindPort:
		if p := a.world.Port(o.ID); p != nil && a.world.Filtered(p) {
			a.zones.FiltersChanged(p.Wiring.VLAN)
		}
	case o.Kind == world.KindPeer:
		if key, _, ok := world.ParsePeer(o.ID); ok {
			if s := a.world.Segments.Get(key); s != nil {
				a.zones.FiltersChanged(s.VLAN)
			}
		}
	}
}

// listConnections starts a listing of marked connections if one is due.
func (a *Agent) listConnections(ctx context.Context) {
	now := time.Now()
	due := a.zones.Next(now)
	a.wakeUp(a.zones.Deadline(now))
	a.wakeUp(a.limits.Deadline(now))
	if len(due) == 0 {
		return
	}
	a.work.Go(func() {
		var e connectionsListed
		e.err = a.aside("listing connections", func() (errs error) {
			for _, zone := range due {
				list, err := a.cfg.Conntrack.Marked(ctx, zone)
				if len(list) > 0 {
					e.found = append(e.found, zones.Connections{Zone: zone, List: list})
				}
				errs = errors.Join(errs, err)
			}
			return errs
		})
		e.took = time.Since(now)
		a.inbox.put(e)
	})
}

// releaseConnections starts the release of marked connections that are allowed again.
func (a *Agent) releaseConnections(ctx context.Context, e connectionsListed) {
	again := a.zones.Listed(e.found, e.took, func(zone uint16, c conntrack.Connection) bool {
		return a.world.Allows(zone, world.Connection{
			Src: c.Src, Dst: c.Dst, Protocol: c.Protocol, DstPort: c.DstPort, ICMPType: c.ICMPType, ICMPCode: c.ICMPCode,
		})
	}, time.Now())
	if len(again) == 0 {
		a.released(connectionsReleased{err: e.err})
		return
	}
	a.work.Go(func() {
		var done connectionsReleased
		err := a.aside("releasing connections", func() (errs error) {
			for _, c := range again {
				n, err := a.cfg.Conntrack.Release(ctx, c.Zone, c.List)
				done.n += n
				errs = errors.Join(errs, err)
			}
			return errs
		})
		done.err = errors.Join(e.err, err)
		a.inbox.put(done)
	})
}

func (a *Agent) released(e connectionsReleased) {
	a.zones.Released()
	if e.err != nil {
		a.repeats.log(a.log, slog.LevelWarn, "conntrack marks not cleared, allowed connections may be dropped", "err", e.err)
	}
	if e.n > 0 {
		a.log.Info("conntrack marks of allowed connections cleared", "connections", e.n)
	}
}

// zonesToFlush returns the zones that have a new network, and are flushed before it has flows.
func (a *Agent) zonesToFlush(now time.Time) []uint16 {
	for _, zone := range a.world.Segments.TakeFreshVLANs() {
		if a.cfg.Conntrack != nil {
			a.zones.Allocated(zone)
		}
	}
	return a.zones.ToFlush(now)
}

// unflushedZone returns the zone of connection tracking in which a port may have no flows yet: it still has the connections of
// its last network, and the port would let those through.
func (a *Agent) unflushedZone(o world.Object) (zone uint16, ok bool) {
	if a.zones.Pending() == 0 || o.Kind != world.KindPort {
		return 0, false
	}
	port := a.world.Port(o.ID)
	if port == nil || !a.world.Filtered(port) {
		return 0, false
	}
	return port.Wiring.VLAN, a.zones.Unflushed(port.Wiring.VLAN)
}

// zonesFlushed takes the outcome of flushes.
func (a *Agent) zonesFlushed(flushed []uint16, errs []error, now time.Time) {
	const failed = "connection tracking zone not flushed, new ports of the network wait, retrying"
	for i, zone := range flushed {
		switch recovered := a.zones.Flushed(zone, errs[i], now); {
		case errs[i] != nil:
			a.repeats.log(a.log, slog.LevelWarn, failed, "zone", zone, "err", errs[i])
		case recovered:
			a.repeats.forget(failed)
		}
	}
}

// limitsToSet returns the limits of tracked connections to set now, or nil.
func (a *Agent) limitsToSet(now time.Time) *zones.LimitJob {
	if a.cfg.Limits == nil || !a.limits.Due(a.dataplane.Pruned(), now) {
		return nil
	}
	var vlans []uint16
	for _, s := range a.world.Segments.All() {
		vlans = append(vlans, s.VLAN)
	}
	return a.limits.Next(vlans, a.dataplane.Pruned())
}

// limitsSet takes the outcome.
func (a *Agent) limitsSet(job *zones.LimitJob, changed int, err error, now time.Time) {
	if job == nil {
		return
	}
	const failed = "tracked connections not limited, retrying"
	wait := a.limits.Done(job, err, now)
	switch {
	case errors.Is(err, conntrack.ErrNoLimits):
		if len(job.Want) > 0 {
			a.log.Warn("conntrack_limit_per_network has no effect: this Open vSwitch cannot limit tracked connections")
		}
	case err != nil:
		a.repeats.log(a.log, slog.LevelWarn, failed, "err", err, "after", wait)
	default:
		a.repeats.forget(failed)
		if changed > 0 {
			a.log.Info("limits of tracked connections set", "networks", len(job.Want), "changed", changed, "limit", a.cfg.ConntrackLimit)
		}
	}
}
