// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// portsReported: a report of port statuses came to its end.
type portsReported struct {
	batch  report.Batch
	result neutron.DeviceResult
	err    error
}

// reportPorts sends the reports of port statuses that are due.
func (a *Agent) reportPorts(ctx context.Context) {
	if a.versions == nil || a.database.Open() {
		return
	}
	now := time.Now()
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
	a.wakeUp(a.reports.Deadline())
	if quiet && len(batches) > 0 {
		a.reportBegins(now)
	}
	for _, b := range batches {
		for _, id := range b.Repeated {
			a.timelines.restart(id, now)
		}
		a.work.Go(func() {
			e := portsReported{batch: b}
			e.err = a.aside("reporting ports", func() (err error) {
				if b.AdminDown != "" {
					_, err = a.server.DeviceDown(ctx, b.AdminDown)
				} else {
					e.result, err = a.server.UpdateDevices(ctx, b.Update)
				}
				return err
			})
			a.inbox.put(e)
		})
	}
}

// elsewhere stands for an interface that is not on the integration bridge: the port is reported down, once.
const elsewhere ovsdb.UUID = "elsewhere"

// claim returns what the server should know about a port, whether it is true already or not.
func (a *Agent) claim(id string) report.Claim {
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
func (a *Agent) checkApplied(c *report.Claim, now time.Time) {
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
func (a *Agent) takePortsReported(e portsReported) {
	const failed = "update_device_list failed, retrying"
	now := time.Now()
	confirmed, counts := a.reports.Done(e.batch, report.Result{DeviceResult: e.result, Failed: e.err != nil, Refused: refused(e.err)}, now)
	if !counts {
		return
	}
	a.reports.ForgetNetworks(func(key world.SegmentKey) bool { return a.world.Segments.Get(key) == nil })
	for i := range confirmed {
		a.logConfirmed(&confirmed[i], now)
	}
	if n := len(e.result.FailedUp) + len(e.result.FailedDown); e.err != nil || n > 0 {
		a.repeats.log(a.log, slog.LevelWarn, failed,
			"up", len(e.batch.Update.Up), "down", len(e.batch.Update.Down), "refused", n, "err", e.err)
	} else {
		a.repeats.forget(failed)
	}
}

// logConfirmed leaves one line about a port whose status the server has confirmed.
func (a *Agent) logConfirmed(c *report.Claim, now time.Time) {
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
func (a *Agent) logPortUp(p *world.Port, l *timeline, now time.Time) {
	if p.VIF == nil {
		a.log.Info("port is up", "port", p.ID, "reason", p.Wiring.Reason, "total", now.Sub(l.plugged))
		return
	}
	a.log.Info("port is up", "port", p.ID, "network", p.Wiring.Segment.Network, "vlan", p.Wiring.VLAN, "interface", p.VIF.Name,
		"details", l.answered.Sub(l.plugged), "switch", l.applied.Sub(l.answered), "report", now.Sub(l.applied), "total", now.Sub(l.plugged))
}
