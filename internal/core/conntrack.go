// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// noteZone tells connection tracking of an object that was compiled.
func (a *Core) noteZone(o world.Object) {
	switch {
	case o.Kind == world.KindSegment:
		a.limits.Changed()
	case !a.cfg.Conntrack:
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
func (a *Core) listConnections() {
	now := a.turn.now()
	due := a.zones.Next(now)
	a.turn.wakeUp(a.zones.Deadline(now))
	a.turn.wakeUp(a.limits.Deadline(now))
	if len(due) == 0 {
		return
	}
	a.turn.start(effect.ListConnections{Zones: due})
}

// releaseConnections starts the release of marked connections that are allowed again.
func (a *Core) releaseConnections(e effect.ConnectionsListed) {
	again := a.zones.Listed(e.Found, e.Took, func(zone uint16, c conntrack.Connection) bool {
		return a.world.Allows(zone, world.Connection{
			Src: c.Src, Dst: c.Dst, Protocol: c.Protocol, DstPort: c.DstPort, ICMPType: c.ICMPType, ICMPCode: c.ICMPCode,
		})
	}, a.turn.now())
	if len(again) == 0 {
		a.released(effect.ConnectionsReleased{Err: e.Err})
		return
	}
	a.listErr = e.Err
	a.turn.start(effect.ReleaseConnections{Connections: again})
}

func (a *Core) released(e effect.ConnectionsReleased) {
	a.zones.Released()
	err := errors.Join(a.listErr, e.Err)
	a.listErr = nil
	if err != nil {
		a.log.repeat(slog.LevelWarn, "conntrack marks not cleared, allowed connections may be dropped", "err", err)
	}
	if e.N > 0 {
		a.log.Info("conntrack marks of allowed connections cleared", "connections", e.N)
	}
}

// zonesToFlush returns the zones that have a new network, and are flushed before it has flows.
func (a *Core) zonesToFlush(now time.Time) []uint16 {
	for _, zone := range a.world.Segments.TakeFreshVLANs() {
		if a.cfg.Conntrack {
			a.zones.Allocated(zone)
		}
	}
	return a.zones.ToFlush(now)
}

// unflushedZone returns the zone of connection tracking in which a port may have no flows yet: it still has the connections of
// its last network, and the port would let those through.
func (a *Core) unflushedZone(o world.Object) (zone uint16, ok bool) {
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
func (a *Core) zonesFlushed(flushed []uint16, errs []error, now time.Time) {
	const failed = "connection tracking zone not flushed, new ports of the network wait, retrying"
	for i, zone := range flushed {
		switch recovered := a.zones.Flushed(zone, errs[i], now); {
		case errs[i] != nil:
			a.log.repeat(slog.LevelWarn, failed, "zone", zone, "err", errs[i])
		case recovered:
			a.log.forget(failed)
		}
	}
}

// limitsToSet returns the limits of tracked connections to set now, or nil.
func (a *Core) limitsToSet(now time.Time) *zones.LimitJob {
	if !a.cfg.Limits || !a.limits.Due(a.dataplane.Pruned(), now) {
		return nil
	}
	var vlans []uint16
	for _, s := range a.world.Segments.All() {
		vlans = append(vlans, s.VLAN)
	}
	return a.limits.Next(vlans, a.dataplane.Pruned())
}

// limitsSet takes the outcome.
func (a *Core) limitsSet(job *zones.LimitJob, changed int, err error, now time.Time) {
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
		a.log.repeat(slog.LevelWarn, failed, "err", err, "after", wait)
	default:
		a.log.forget(failed)
		if changed > 0 {
			a.log.Info("limits of tracked connections set", "networks", len(job.Want), "changed", changed, "limit", a.cfg.ConntrackLimit)
		}
	}
}
