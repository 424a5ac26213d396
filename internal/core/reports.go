// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// reportPorts sends the reports of port statuses that are due.
func (a *Core) reportPorts() {
	if a.versions == nil || a.database.Open() {
		return
	}
	now := a.turn.now()
	var due, candidates []report.Claim
	for _, id := range a.reports.Due() {
		c := a.claim(id)
		a.checkApplied(&c, now)
		due = append(due, c)
	}
	for _, id := range a.reports.Candidates() {
		candidates = append(candidates, a.claim(id))
	}
	quiet := a.reports.Stats().InFlight == 0
	batches := a.reports.Next(due, candidates, now)
	a.turn.wakeUp(a.reports.Deadline())
	if quiet && len(batches) > 0 {
		a.reportBegins(now)
	}
	for _, b := range batches {
		for _, id := range b.Repeated {
			a.timelines.restart(id, now)
		}
		a.turn.start(effect.ReportPorts{Batch: b})
	}
}

// elsewhere stands for an interface that is not on the integration bridge: the port is reported down, once.
const elsewhere ovsdb.UUID = "elsewhere"

// claim returns what the server should know about a port, whether it is true already or not.
func (a *Core) claim(id string) report.Claim {
	p := a.world.Port(id)
	if p == nil {
		return report.Claim{Port: id, Status: report.Down}
	}
	c := report.Claim{Port: id, Segment: p.Wiring.Segment}
	if p.Details != nil {
		c.Revision, c.ServerStatus = p.Details.Revision, p.Details.Status
	}
	if s := a.world.Segments.Get(c.Segment); s != nil && s.Tunnelled() && a.cfg.World.L2Population {
		c.Tunnelled, c.NoEntries = true, !a.world.Tunnels.HasTunnels(s)
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
func (a *Core) checkApplied(c *report.Claim, now time.Time) {
	p, o := a.world.Port(c.Port), world.Object{Kind: world.KindPort, ID: c.Port}
	switch {
	case p == nil:
		c.Applied = true
	case a.holds(o):
		// The port is not as the server wants it, whatever the server knows.
		c.Status, c.Interface, c.Applied = report.Unknown, "", true
	case p.Wiring.State == world.Wired:
		c.Applied = a.settled(o) && !a.pending(world.Object{Kind: world.KindSegment, ID: c.Segment.String()})
		a.timelines.markAnswered(c.Port, now) // by a push, if by no reply
		if c.Applied {
			a.timelines.markApplied(c.Port, now)
		}
	default:
		c.Applied = p.Wiring.State != world.Down || a.settled(o)
	}
}

// takePortsReported takes the outcome of a report of port statuses.
func (a *Core) takePortsReported(e effect.PortsReported) {
	const failed = "update_device_list failed, retrying"
	now := a.turn.now()
	confirmed, counts := a.reports.Done(e.Batch, report.Result{DeviceResult: e.Result, Failed: e.Err != nil, Refused: refused(e.Err)}, now)
	if !counts {
		return
	}
	a.reports.ForgetNetworks(func(key world.SegmentKey) bool { return a.world.Segments.Get(key) == nil })
	for i := range confirmed {
		a.logConfirmed(&confirmed[i], now)
	}
	if n := len(e.Result.FailedUp) + len(e.Result.FailedDown); e.Err != nil || n > 0 {
		a.log.repeat(slog.LevelWarn, failed,
			"up", len(e.Batch.Update.Up), "down", len(e.Batch.Update.Down), "refused", n, "err", e.Err)
	} else {
		a.log.forget(failed)
	}
}

// logConfirmed leaves one line about a port whose status the server has confirmed.
func (a *Core) logConfirmed(c *report.Claim, now time.Time) {
	p, l := a.world.Port(c.Port), a.timelines.of[c.Port]
	switch {
	case (p == nil || l == nil) && c.Status == report.Down:
		a.log.Info("port is gone", "port", c.Port)
	case p == nil || l == nil:
	case c.Status == report.Down:
		*l = timeline{plugged: now, state: l.state}
		a.log.Info("port is plugged in again", "port", c.Port)
	case c.Status == report.AdminDown:
		a.log.Info("port is down", "port", c.Port, "reason", p.Wiring.Reason)
	default:
		a.seen.wired(l, now)
		a.logPortUp(p, l, now)
	}
}

// logPortUp says how long each stage of a port took.
func (a *Core) logPortUp(p *world.Port, l *timeline, now time.Time) {
	if p.VIF == nil {
		a.log.Info("port is up", "port", p.ID, "reason", p.Wiring.Reason, "total", now.Sub(l.plugged))
		return
	}
	a.log.Info("port is up", "port", p.ID, "network", p.Wiring.Segment.Network, "vlan", p.Wiring.VLAN, "interface", p.VIF.Name,
		"details", l.answered.Sub(l.plugged), "switch", l.applied.Sub(l.answered), "report", now.Sub(l.applied), "total", now.Sub(l.plugged))
}
