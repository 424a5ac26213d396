// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// reports sends the server the port statuses that package report decides on. With l2population a report has the server send the forwarding
// entries of the port's network.
type reports struct {
	room
	*report.Reporter
	lines     timelines
	syncedAt  time.Time // when everything had been pulled and reported since the agent started or lost messages; zero before
	firstSync time.Time // when everything was as wanted for the first time, and the server knew
}

// send sends the reports that are due, and returns whether there are any after none was on its way.
func (r *reports) send(d *dataplane.Dataplane, held func(world.Object) bool) (began bool) {
	now := r.now()
	var due, candidates []report.Claim
	for _, id := range r.Due() {
		c := r.claim(id)
		r.checkApplied(&c, d, held(world.Object{Kind: world.KindPort, ID: id}), now)
		due = append(due, c)
	}
	for _, id := range r.Candidates() {
		candidates = append(candidates, r.claim(id))
	}
	quiet := r.Stats().InFlight == 0
	batches := r.Next(due, candidates, now)
	r.wakeUp(r.Deadline())
	for _, b := range batches {
		for _, id := range b.Repeated {
			r.lines.restart(id, now)
		}
		r.start(effect.ReportPorts{Batch: b})
	}
	return quiet && len(batches) > 0
}

// isSynced returns whether everything has been pulled and reported since the agent started or lost messages; synced notes that it has. Entries:
// forwarding entries may still come.
func (r *reports) isSynced() bool { return !r.syncedAt.IsZero() }

func (r *reports) synced(entries bool) {
	if now := r.now(); !r.isSynced() {
		r.syncedAt = now
		r.Synced()
		r.firstSync = cmp.Or(r.firstSync, now)
	}
	if entries {
		r.wakeUp(r.syncedAt.Add(r.cfg.FDBGrace + time.Millisecond))
	}
}

// elsewhere stands for an interface that is not on the integration bridge: the port is reported down, once.
const elsewhere ovsdb.UUID = "elsewhere"

// claim returns what the server should know about a port, whether it is true already or not.
func (r *reports) claim(id string) report.Claim {
	p := r.world.Port(id)
	if p == nil {
		return report.Claim{Port: id, Status: report.Down}
	}
	c := report.Claim{Port: id, Segment: p.Wiring.Segment}
	if p.Details != nil {
		c.Revision, c.ServerStatus = p.Details.Revision, p.Details.Status
	}
	if s := r.world.Segments.Get(c.Segment); s != nil && s.Tunnelled() && r.cfg.World.L2Population {
		c.Tunnelled, c.NoEntries = true, !r.world.Tunnels.HasTunnels(s)
	}
	switch p.Wiring.State {
	case world.Wired:
		c.Status, c.Interface = report.Up, p.VIF.Interface
	case world.Down:
		c.Status, c.Interface = report.AdminDown, p.VIF.Interface
	case world.Ancillary:
		c.Status, c.Interface = report.Up, p.Ancillary
	case world.Elsewhere:
		c.Status, c.Interface = report.Down, elsewhere
	}
	return c
}

// checkApplied records in a claim whether it is true already: a port is up when everything it wants is in place, and not before.
func (r *reports) checkApplied(c *report.Claim, d *dataplane.Dataplane, held bool, now time.Time) {
	p := r.world.Port(c.Port)
	applied := func() bool {
		return d.Status(r.world.View, world.Object{Kind: world.KindPort, ID: c.Port}) == dataplane.Applied
	}
	switch {
	case p == nil:
		c.Applied = true
	case held:
		// The port is not as the server wants it, whatever the server knows.
		c.Status, c.Interface, c.Applied = report.Unknown, "", true
	case p.Wiring.State == world.Wired:
		c.Applied = applied() && !d.Pending(world.Object{Kind: world.KindSegment, ID: c.Segment.String()})
		r.lines.markAnswered(c.Port, now) // by a push, if by no reply
		if c.Applied {
			r.lines.markApplied(c.Port, now)
		}
	default:
		c.Applied = p.Wiring.State != world.Down || applied()
	}
}

// ended takes the outcome of a report of port statuses.
func (r *reports) ended(e effect.PortsReported) {
	const failed = "update_device_list failed, retrying"
	now := r.now()
	confirmed, counts := r.Done(e.Batch, report.Result{DeviceResult: e.Result, Failed: e.Err != nil, Refused: refused(e.Err)}, now)
	if !counts {
		return
	}
	r.ForgetNetworks(func(key world.SegmentKey) bool { return r.world.Segments.Get(key) == nil })
	for i := range confirmed {
		r.logConfirmed(&confirmed[i], now)
	}
	if n := len(e.Result.FailedUp) + len(e.Result.FailedDown); e.Err != nil || n > 0 {
		r.log.repeat(slog.LevelWarn, failed,
			"up", len(e.Batch.Update.Up), "down", len(e.Batch.Update.Down), "refused", n, "err", e.Err)
	} else {
		r.log.forget(failed)
	}
}

// logConfirmed leaves one line about a port whose status the server has confirmed.
func (r *reports) logConfirmed(c *report.Claim, now time.Time) {
	p, l := r.world.Port(c.Port), r.lines.of[c.Port]
	switch {
	case (p == nil || l == nil) && c.Status == report.Down:
		r.log.Info("port is gone", "port", c.Port)
	case p == nil || l == nil:
	case c.Status == report.Down:
		*l = timeline{plugged: now, state: l.state}
		r.log.Info("port is plugged in again", "port", c.Port)
	case c.Status == report.AdminDown:
		r.log.Info("port is down", "port", c.Port, "reason", p.Wiring.Reason)
	default:
		r.lines.wired(l, now)
		r.logPortUp(p, l, now)
	}
}

// logPortUp says how long each stage of a port took.
func (r *reports) logPortUp(p *world.Port, l *timeline, now time.Time) {
	if p.VIF == nil {
		r.log.Info("port is up", "port", p.ID, "reason", p.Wiring.Reason, "total", now.Sub(l.plugged))
		return
	}
	r.log.Info("port is up", "port", p.ID, "network", p.Wiring.Segment.Network, "vlan", p.Wiring.VLAN, "interface", p.VIF.Name,
		"details", l.answered.Sub(l.plugged), "switch", l.applied.Sub(l.answered), "report", now.Sub(l.applied), "total", now.Sub(l.plugged))
}
