// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/gate"
)

// fdbGrace is the usual [Config].FDBGrace.
const fdbGrace = 30 * time.Second

// open returns whether nothing blocks a scope now.
func (a *Core) open(s gate.Scope) bool { return gate.Open(gate.Blockers(a.facts(a.turn.now(), s)), s) }

// noteSynced notes the first moment at which everything has been pulled and reported since the agent started or lost messages. From
// then on it waits for forwarding entries for a limited time.
func (a *Core) noteSynced() {
	if a.dataplane.Pruned() && !a.syncedAt.IsZero() && !a.mustShut() {
		return // nothing waits for it
	}
	now := a.turn.now()
	fdb := false
	for _, b := range gate.Blockers(a.facts(now, gate.Complete)) {
		if b.Blocks&gate.Complete != 0 && b.Code != gate.FDB {
			return
		}
		fdb = fdb || b.Code == gate.FDB
	}
	if a.syncedAt.IsZero() {
		a.syncedAt = now
		a.reports.Synced()
		a.seen.synced = cmp.Or(a.seen.synced, now)
	}
	if fdb {
		a.turn.wakeUp(a.syncedAt.Add(a.cfg.FDBGrace + time.Millisecond))
	}
}

// facts collects what can block the scopes. It writes nothing. The loop asks for Complete and Prune after every event: once it is clear
// that they are blocked, nothing more is collected for them.
func (a *Core) facts(now time.Time, s gate.Scope) gate.Facts {
	reports := a.reports.Stats()
	f := gate.Facts{
		SwitchUp: a.started && a.switchUp, Registered: a.versions != nil, RoundRunning: a.dataplane.InFlight(), Reports: reports.Due,
		Calls:     a.pulls.InFlight() + reports.InFlight + len(a.extensions.calls.running),
		ResyncDue: !a.resyncing.at.IsZero(), Refresh: reports.Networks, Known: !a.seen.synced.IsZero(),
	}
	for _, t := range a.cfg.World.TunnelTypes {
		if !a.world.Tunnels.Listed(t) {
			f.TunnelTypes = append(f.TunnelTypes, t)
		}
	}
	onlyLoop := s&^(gate.Complete|gate.Prune) == 0
	if onlyLoop && !gate.Open(gate.Blockers(f), s) {
		return f
	}
	f.Ports, f.Groups = a.world.Unspoken()
	f.Unrequested, f.Entries = a.missingEntries(now)
	for _, e := range a.extensions.Set {
		g, ok := e.Extension.(*guarded)
		f.Extensions = append(f.Extensions, gate.Extension{Name: e.Name(), Waits: waiting(e), Failed: ok && g.owes})
	}
	for _, h := range a.contained.held {
		f.HeldBlind = f.HeldBlind || h.blind
	}
	if !onlyLoop {
		a.switchFacts(&f)
	}
	return f
}

// waiting counts what an extension wants pulled or called now.
func waiting(e extension.Member) int { return len(e.Missing()) + len(e.Calls()) }

// missingEntries counts the tunnelled networks without forwarding entries: those for which nothing has been requested since the
// agent started or lost messages, and those for which entries may still come.
func (a *Core) missingEntries(now time.Time) (unrequested, entries int) {
	noted := !a.syncedAt.IsZero()
	if !a.cfg.World.L2Population || noted && now.Sub(a.syncedAt) > a.cfg.FDBGrace {
		return 0, 0
	}
	for _, s := range a.world.Segments.All() {
		if !s.Tunnelled() || s.Told() {
			continue
		}
		entries++
		if a.reports.Requested(s.Key).IsZero() && !noted {
			unrequested++
		}
	}
	return unrequested, entries
}

// switchFacts adds what the loop does not need to decide: connections, and what the switch has to be changed by.
func (a *Core) switchFacts(f *gate.Facts) {
	f.Known = f.Known || a.world.Remembered() > 0
	f.SwitchError, f.ServerError = a.seen.sw.Error, a.seen.server.Error
	if !a.seen.broker.Up {
		f.BrokerError = a.seen.broker.Error
	}
	f.StateReportFailed = a.report.failed > 0
	f.Unresolved, f.ViewBehind = a.world.Unsettled(), a.dataplane.Behind(a.world.View)
	f.RowsUnchecked, f.Rows = len(a.dataplane.RowsPending()), a.dataplane.RowsToWrite(a.world.View, a.contained.rows)
	f.ZonesDue, f.ZonesFailed = a.zones.Pending(), a.zones.Failed()
	for i, o := range a.dataplane.Failures() {
		if i < maxRejected {
			f.Rejected = append(f.Rejected, gate.Rejected{Object: o.Object.String(), Times: o.Failed})
		}
	}
	for _, h := range a.quarantined() {
		f.Held = append(f.Held, gate.Held{Object: h.Object, Effect: h.Effect})
	}
	for _, name := range a.world.Bridges() {
		b := a.dataplane.Bridge(name)
		f.Bridges = append(f.Bridges, gate.Bridge{
			Name: name, Exists: a.world.View.BridgeByName(name) != nil, Connected: b.Connected, Error: errorText(b.Err),
			Read: b.Known, Reading: b.Reading, Flows: b.Counts.Pending, Meters: b.Meters,
		})
	}
}

// maxRejected bounds how many objects are named that the switch rejects again and again.
const maxRejected = 5
