// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// reports sends the server the port statuses that package report decides on. With l2population a report has the server send the forwarding
// entries of the port's network.
type reports struct {
	room
	*report.Reporter
	timelines
	syncedAt  time.Time // when everything had been pulled and reported since the agent started or lost messages; zero before
	firstSync time.Time // when everything was as wanted for the first time, and the server knew
}

func newReports(r room, checks *pace.Bucket) reports {
	lines := timelines{room: r, of: map[string]*timeline{}, took: inspect.NewHistogram(.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120)}
	return reports{room: r, Reporter: report.New(r.cfg.PortsPerReport, checks), timelines: lines}
}

// send sends the reports that are due, and returns whether there are any after none was on its way.
func (r *reports) send(d *dataplane.Dataplane, held func(world.Object) bool) (began bool) {
	now := r.now()
	var due, candidates []report.Claim
	for _, id := range r.Due() {
		c := r.claim(id)
		r.checkApplied(&c, d, held(world.PortObject(id)), now)
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
			r.restart(id, now)
		}
		r.start(effect.ReportPorts{Batch: b})
	}
	return quiet && len(batches) > 0
}

// synced notes that everything has been pulled and reported. Entries: forwarding entries may still come.
func (r *reports) synced(entries bool) {
	if now := r.now(); r.syncedAt.IsZero() {
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
	c := report.Claim{Port: id, Segment: p.Wiring.Segment, Absent: p.Absent() || p.Wiring.State == world.Dead && !r.world.Deleted(id)}
	if p.Details != nil {
		c.Revision, c.ServerStatus = p.Details.Revision, p.Details.Status
	}
	if p.VIF != nil {
		row := r.world.View.Port(p.VIF.Port)
		c.Marked = row != nil && row.OtherConfig["net_uuid"] != ""
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
		return d.Status(r.world.View, world.PortObject(c.Port)) == dataplane.Applied
	}
	switch {
	case p == nil:
		c.Applied = true
	case held:
		// The port is not as the server wants it, whatever the server knows.
		c.Status, c.Interface, c.Applied = report.Unknown, "", true
	case p.Wiring.State == world.Wired:
		c.Applied = applied() && !d.Pending(world.SegmentObject(c.Segment))
		r.markAnswered(c.Port, now) // by a push, if by no reply
		if c.Applied {
			r.markApplied(c.Port, now)
		}
	case p.Wiring.State == world.Down, p.Wiring.State == world.Elsewhere: // an extension may be about to fetch it from elsewhere
		c.Applied = applied()
	default:
		c.Applied = true
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
	p, l := r.world.Port(c.Port), r.of[c.Port]
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
		l.reported = now
		r.took.Observe(now.Sub(l.plugged))
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

// fdbGrace is the usual [Config].FDBGrace.
const fdbGrace = 30 * time.Second

// With l2population neutron-server sends the forwarding entries of a network in a message of its own, right before it answers the
// report of a port. The message may arrive after the answer. For a network that no other host has ports of it sends none. So an
// agent without entries cannot tell at once which of the two it is. Its ports are wired and reported either way: it is in sync.

// awaited lists the networks whose forwarding entries may still come, in the order of their VLANs.
func (r *reports) awaited(now time.Time) []inspect.Awaited {
	if !r.cfg.World.L2Population {
		return nil
	}
	var out []inspect.Awaited
	for _, s := range r.world.Segments.All() {
		since := r.Requested(s.Key)
		until := since.Add(r.cfg.FDBGrace)
		if !since.IsZero() && s.Tunnelled() && !s.FDBReceived() && now.Before(until) {
			out = append(out, inspect.Awaited{Network: s.Key.Network, Since: since, Until: until})
		}
	}
	return out
}

// missingEntries counts the tunnelled networks without forwarding entries: those for which nothing has been requested since the
// agent started or lost messages, and those for which entries may still come.
func (r *reports) missingEntries(now time.Time) (unrequested, entries int) {
	noted := !r.syncedAt.IsZero()
	if !r.cfg.World.L2Population || noted && now.Sub(r.syncedAt) > r.cfg.FDBGrace {
		return 0, 0
	}
	for _, s := range r.world.Segments.All() {
		if !s.Tunnelled() || s.FDBReceived() {
			continue
		}
		entries++
		if r.Requested(s.Key).IsZero() && !noted {
			unrequested++
		}
	}
	return unrequested, entries
}

// refreshNetworks has the server send all forwarding entries again.
func (r *reports) refreshNetworks() {
	if !r.cfg.World.L2Population {
		return
	}
	r.syncedAt = time.Time{}
	var networks []world.SegmentKey
	for _, s := range r.world.Segments.All() {
		if s.Tunnelled() {
			networks = append(networks, s.Key)
		}
	}
	r.Resync(networks...)
}

// timelines holds when each port reached which stage, for the log and for people.
type timelines struct {
	room
	of       map[string]*timeline
	lastPlug time.Time         // when a port was plugged in last
	took     inspect.Histogram // from plug to the server's answer
}

// timeline is when a port reached which stage. A mark records the time of the event, not of the next report.
type timeline struct {
	plugged, answered, applied time.Time
	reported                   time.Time // up
	state                      string    // as recorded last
}

// markPlugged begins the timeline of a port.
func (t *timelines) markPlugged(port string, now time.Time) {
	if t.of[port] == nil {
		t.of[port], t.lastPlug = &timeline{plugged: now}, now
	}
}

// markAnswered records when the server first told about a port.
func (t *timelines) markAnswered(port string, now time.Time) {
	if l := t.of[port]; l != nil && l.answered.IsZero() {
		l.answered = now
	}
}

// markApplied records when everything that a port wants was first in place, after the server told about it.
func (t *timelines) markApplied(port string, now time.Time) {
	if l := t.of[port]; l != nil && !l.answered.IsZero() && l.applied.IsZero() {
		l.applied = now
	}
}

// restart begins the timeline of a port that is reported up once more, unless that has begun already.
func (t *timelines) restart(port string, now time.Time) {
	if l := t.of[port]; l != nil && l.answered != l.plugged {
		*l = timeline{plugged: now, answered: now, applied: now, state: l.state}
	}
}

// placed records that an object is in place.
func (t *timelines) placed(o world.Object, now time.Time) {
	if id, ok := world.PortID(o); ok {
		t.markApplied(id, now)
	}
}

// decided begins the timeline of a port when it is plugged in, and ends it when the port is gone. It takes down what was decided about the port,
// if that is new.
func (t *timelines) decided(port string) {
	p := t.world.Port(port)
	if p == nil {
		delete(t.of, port)
		t.log.note(note{kind: kindPort, what: "unplugged", subject: port})
		return
	}
	t.markPlugged(port, t.now())
	if state := fmt.Sprintf("%s, %s", p.Wiring.State, p.Wiring.Reason); t.of[port].state != state {
		t.of[port].state = state
		t.log.note(note{kind: kindPort, what: state, subject: port})
	}
}
