// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// tracking has connection tracking forget and limit connections, as package zones decides.
type tracking struct {
	room
	*zones.Zones
	limits  *zones.Limits
	listErr error // of the listing whose connections are being released
}

// noteZone tells connection tracking of an object that was compiled.
func (t *tracking) noteZone(o world.Object) {
	switch o := o.(type) {
	case world.SegmentObject:
		t.limits.Changed()
	case world.PortObject:
		if p := t.world.Port(string(o)); t.cfg.Conntrack && p != nil && t.world.Filtered(p) {
			t.FiltersChanged(p.Wiring.VLAN)
		}
	case world.PeerObject:
		if s := t.world.Segments.Get(o.Segment); t.cfg.Conntrack && s != nil {
			t.FiltersChanged(s.VLAN)
		}
	}
}

// listConnections starts a listing of marked connections if one is due.
func (t *tracking) listConnections() {
	now := t.now()
	due := t.Next(now)
	t.wakeUp(t.Deadline(now))
	t.wakeUp(t.limits.Deadline(now))
	if len(due) == 0 {
		return
	}
	t.start(effect.ListConnections{Zones: due})
}

// releaseConnections starts the release of marked connections that are allowed again.
func (t *tracking) releaseConnections(e effect.ConnectionsListed) {
	again := t.Listed(e.Found, e.Took, func(zone uint16, c conntrack.Connection) bool {
		return t.world.Allows(zone, world.Connection{
			Src: c.Src, Dst: c.Dst, Protocol: c.Protocol, DstPort: c.DstPort, ICMPType: c.ICMPType, ICMPCode: c.ICMPCode,
		})
	}, t.now())
	if len(again) == 0 {
		t.released(effect.ConnectionsReleased{Err: e.Err})
		return
	}
	t.listErr = e.Err
	t.start(effect.ReleaseConnections{Connections: again})
}

func (t *tracking) released(e effect.ConnectionsReleased) {
	t.Released()
	err := errors.Join(t.listErr, e.Err)
	t.listErr = nil
	if err != nil {
		t.log.repeat(slog.LevelWarn, "conntrack marks not cleared, allowed connections may be dropped", "err", err)
	}
	if e.N > 0 {
		t.log.Info("conntrack marks of allowed connections cleared", "connections", e.N)
	}
}

// zonesToFlush returns the zones that have a new network, and are flushed before it has flows.
func (t *tracking) zonesToFlush(now time.Time) []uint16 {
	for _, zone := range t.world.Segments.TakeFreshVLANs() {
		if t.cfg.Conntrack {
			t.Allocated(zone)
		}
	}
	return t.ToFlush(now)
}

// unflushedZone returns the zone of connection tracking in which a port may have no flows yet: it still has the connections of
// its last network, and the port would let those through.
func (t *tracking) unflushedZone(o world.Object) (zone uint16, ok bool) {
	id, isPort := world.PortID(o)
	if t.Pending() == 0 || !isPort {
		return 0, false
	}
	port := t.world.Port(id)
	if port == nil || !t.world.Filtered(port) {
		return 0, false
	}
	return port.Wiring.VLAN, t.Unflushed(port.Wiring.VLAN)
}

// zonesFlushed takes the outcome of flushes.
func (t *tracking) zonesFlushed(flushed []uint16, errs []error, now time.Time) {
	const failed = "connection tracking zone not flushed, new ports of the network wait, retrying"
	for i, zone := range flushed {
		switch recovered := t.Flushed(zone, errs[i], now); {
		case errs[i] != nil:
			t.log.repeat(slog.LevelWarn, failed, "zone", zone, "err", errs[i])
		case recovered:
			t.log.forget(failed)
		}
	}
}

// applied takes the outcome of a round of changes.
func (t *tracking) applied(r *dataplane.Round, now time.Time) {
	t.zonesFlushed(r.Flush, r.FlushErrs, now)
	t.limitsSet((*zones.LimitJob)(r.Limits), r.Limited, r.LimitsErr, now)
	for _, b := range r.Bundles {
		if b.Err == nil {
			t.Committed(b.Zones, now)
		}
		if b.Err != nil || b.Withheld {
			t.Withheld(b.Zones)
		}
	}
}

// linked takes a connection to a bridge: the switch may have started again.
func (t *tracking) linked(e effect.BridgeLinked) {
	if e.Conn != nil && e.Bridge == t.cfg.World.IntegrationBridge {
		t.limits.Restarted()
	}
}

// limitsToSet returns the limits of tracked connections to set now, or nil.
func (t *tracking) limitsToSet(pruned bool, now time.Time) *zones.LimitJob {
	if !t.cfg.Limits || !t.limits.Due(pruned, now) {
		return nil
	}
	var vlans []uint16
	for _, s := range t.world.Segments.All() {
		vlans = append(vlans, s.VLAN)
	}
	return t.limits.Next(vlans, pruned)
}

// limitsSet takes the outcome.
func (t *tracking) limitsSet(job *zones.LimitJob, changed int, err error, now time.Time) {
	if job == nil {
		return
	}
	const failed = "tracked connections not limited or fragments not dropped by ovs-vswitchd, retrying"
	dropped := t.limits.Dropped()
	wait := t.limits.Done(job, err, now)
	if t.limits.Dropped() && !dropped {
		t.log.Info("ovs-vswitchd told to drop fragments of tracked packets, unless it is 4.0 or later")
	}
	switch {
	case errors.Is(err, conntrack.ErrNoLimits):
		if len(job.Want) > 0 {
			t.log.Warn("conntrack_limit_per_network has no effect: this Open vSwitch cannot limit tracked connections")
		}
	case err != nil:
		t.log.repeat(slog.LevelWarn, failed, "err", err, "after", wait)
	default:
		t.log.forget(failed)
		if changed > 0 {
			t.log.Info("limits of tracked connections set", "networks", len(job.Want), "changed", changed, "limit", t.cfg.ConntrackLimit)
		}
	}
}
