// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// ports is what has been asked and told about ports. It is owned by the loop.
type ports struct {
	asking   int // questions on their way
	checking int // questions of a check on their way, see resyncing
	perCall  int // ports in the next question; the first is small, so that the first ports need not wait for the last
	retries  retries[string]
	// groups bounds how many ports are asked about together with one whose question was refused.
	groups map[string]int

	changed map[string]bool // ports whose status may have to be told
	told    map[string]told // what the server has confirmed
	// telling: a report of what the server does not know is on its way. refreshing: one that has it send forwarding entries is,
	// which may take it long, and nothing new has to wait for. A port is in one report at a time, so that none overtakes another.
	telling, refreshing bool
	onWay               map[string]bool // ports in these reports

	report    int // the number of those that count; those before it were given up
	lines     map[string]*timeline
	refreshed bool // the first reports are through; the server has sent everything it knows
}

func newPorts() ports {
	return ports{perCall: firstPerCall, retries: retries[string]{}, groups: map[string]int{}, changed: map[string]bool{}, told: map[string]told{}, onWay: map[string]bool{}, lines: map[string]*timeline{}}
}

// told is a status that the server knows, of one incarnation of a port.
type told struct {
	vif    ovsdb.UUID
	status status
	// revision of the port when it was told: if a later one says otherwise the server has changed its mind.
	revision int64
	// segment on which it was up: the server has sent the forwarding entries of no other because of it.
	segment world.SegmentKey
}

// elsewhere stands for an interface that is not on the integration bridge: the server is told that the port is down, once.
const elsewhere ovsdb.UUID = "elsewhere"

type status uint8

const (
	unknown status = iota
	up
	down // not here
	off  // here, but switched off by its administrator
)

// timeline is when a port reached which stage.
type timeline struct {
	plugged, answered, settled time.Time
	reported                   time.Time // up; for people
	state                      string    // as taken down last
}

// noticed begins the story of a port when it is plugged in, and ends it when it is gone. placed takes down when it was in
// place. Both come as things happen: reports are looked at only when none is on its way.
func (a *Agent) noticed(id string) {
	if a.world.Port(id) == nil {
		delete(a.ports.lines, id)
	} else if a.ports.lines[id] == nil {
		a.lastPlug = time.Now()
		a.ports.lines[id] = &timeline{plugged: a.lastPlug}
	}
	a.noteDecision(id)
}

func (a *Agent) placed(o world.Object, now time.Time) {
	if l := a.ports.lines[o.ID]; o.Kind == world.KindPort && l != nil && !l.answered.IsZero() && l.settled.IsZero() {
		l.settled = now
	}
}

// askedAbout: the server's answer about ports. toldAbout: a report of statuses came to its end.
type (
	askedAbout struct {
		ids   []string
		check bool // of what was known
		found []neutron.Port
		// err without unread: there is no answer. With it: of these the answer cannot be read.
		unread []string
		err    error
	}
	toldAbout struct {
		update neutron.DeviceUpdate
		off    string          // of a single report, of a port that is off
		check  bool            // of what was told before
		at     map[string]told // what is told, but for the status
		count  int             // of checks
		report int             // its number
		result neutron.DeviceResult
		err    error
	}
)

const (
	maxAsking    = 2   // questions at a time
	firstPerCall = 5   // ports in the first question of many
	maxPerCall   = 100 // ports in one question
)

// askMissing asks the server about the ports that it has not told us about, many at a time: few at first, then twice
// as many with every answer, while those that were answered are being wired.
func (a *Agent) askMissing(ctx context.Context) {
	if a.versions == nil || a.database.away || a.ports.asking >= maxAsking && a.ports.checking > 0 {
		return
	}
	now := time.Now()
	var ready, known, early []string
	for _, id := range a.world.Missing() {
		switch {
		case a.ports.retries.waiting(id, now):
			early = append(early, id)
			a.wakeUp(a.ports.retries[id].at)
		case a.world.Port(id).Details != nil:
			known = append(known, id)
		default:
			ready = append(ready, id)
		}
	}
	a.world.Unanswered(early)
	if len(ready)+len(early) == 0 && a.ports.asking == 0 {
		a.ports.perCall = firstPerCall
	}
	for _, ids := range a.questions(ready, a.ports.perCall) {
		if a.ports.asking >= maxAsking {
			a.world.Unanswered(ids) // their turn comes with the next answer
			continue
		}
		a.ports.asking++
		a.askAbout(ctx, askedAbout{ids: ids})
	}
	for _, ids := range a.questions(known, maxPerCall) {
		if a.ports.checking > 0 || !a.mayCheck(now) {
			a.world.Unanswered(ids)
			continue
		}
		a.ports.checking++
		a.askAbout(ctx, askedAbout{ids: ids, check: true})
	}
}

func (a *Agent) askAbout(ctx context.Context, e askedAbout) {
	versions := a.versions // the loop's
	a.work.Go(func() {
		e.err = a.aside("asking about ports", func() error {
			objects, err := a.server.BulkPull(ctx, versions, neutron.KindPort, map[string]any{"id": e.ids})
			if err != nil {
				return err
			}
			r := neutron.ReadAll(neutron.KindPort, objects, func(p *neutron.Port) string { return p.ID })
			e.found, e.unread = r.Found, slices.DeleteFunc(slices.Clone(e.ids), func(id string) bool { return !r.Maybe(id) })
			return r.Err
		})
		a.inbox.put(e)
	})
}

// questions puts ports together into questions: as many as one may name, and fewer where a question was refused.
func (a *Agent) questions(ids []string, most int) [][]string {
	return together(ids, func(id string) int { return min(cmp.Or(a.ports.groups[id], maxPerCall), most) })
}

// together puts things into questions: each with no more than it may be asked with, which those of one question have alike.
func together[T any](all []T, most func(T) int) [][]T {
	bySize := map[int][]T{}
	for _, x := range all {
		bySize[most(x)] = append(bySize[most(x)], x)
	}
	var out [][]T
	for size, list := range bySize {
		out = slices.AppendSeq(out, slices.Chunk(list, size))
	}
	return out
}

func (a *Agent) answered(e askedAbout) {
	a.heard(e.err)
	now := time.Now()
	if refused(e.err) && len(e.ids) > 1 {
		// One of them may be what the server stumbles over, and the others must not wait for it: ask by halves, at once.
		for _, id := range e.ids {
			a.ports.groups[id] = (len(e.ids) + 1) / 2
		}
		a.world.Unanswered(e.ids)
		return
	}
	if e.err != nil {
		if !refused(e.err) {
			a.ports.perCall = maxPerCall // one question is enough to find out when the server is back
		}
		a.unreadable("ports", e.err)
		// What could be read counts nevertheless, and what is not there is not.
		left := e.ids
		if len(e.unread) > 0 {
			read := slices.DeleteFunc(slices.Clone(e.ids), func(id string) bool {
				return slices.Contains(e.unread, id) && !slices.ContainsFunc(e.found, func(p neutron.Port) bool { return p.ID == id })
			})
			left = slices.DeleteFunc(slices.Clone(e.ids), func(id string) bool { return slices.Contains(read, id) })
			for _, id := range read {
				a.ports.retries.forget(id)
			}
			a.world.Ports(read, e.found)
		}
		for _, id := range left {
			a.ports.retries.unanswered(id, now, e.err)
		}
		a.world.Unanswered(left)
		a.repeats.log(a.log, slog.LevelWarn, "the server does not tell about ports, asking again", "ports", len(left), "err", e.err)
		a.wakeUp(a.ports.retries.next())
		return
	}
	a.repeats.forget("the server does not tell about ports, asking again")
	a.ports.perCall = min(2*a.ports.perCall, maxPerCall)
	for _, id := range e.ids {
		a.ports.retries.forget(id)
		delete(a.ports.groups, id)
		if l := a.ports.lines[id]; l != nil && l.answered.IsZero() {
			l.answered = now
		}
	}
	a.world.Ports(e.ids, e.found)
}

// reportPorts tells the server about ports whose status it does not know yet, and about those whose networks' forwarding entries
// it is to send again.
func (a *Agent) reportPorts(ctx context.Context) {
	if a.versions == nil || a.database.away {
		return
	}
	now := time.Now()
	if !a.ports.telling {
		a.tell(ctx, a.news(now), now)
	}
	if !a.ports.refreshing {
		a.tell(ctx, a.again(now), now)
	}
}

// news is a report of what the server does not know yet. A port is up when everything it wants is in place, and not before.
func (a *Agent) news(now time.Time) toldAbout {
	e := toldAbout{at: map[string]told{}}
	for _, id := range slices.Sorted(maps.Keys(a.ports.changed)) {
		want, vif, ready := a.portStatus(id, now)
		before := a.ports.told[id]
		again := want == up && before.status == up && vif == before.vif && (a.takenDown(id, before) || a.onNewTunnels(id, before))
		switch {
		case !ready || a.ports.onWay[id] || a.ports.retries.waiting(id, now):
			continue
		case again:
			if l := a.ports.lines[id]; l.answered != l.plugged {
				*l = timeline{plugged: now, answered: now, settled: now, state: l.state} // a story of its own
			}
		case want == unknown, want == before.status && (want == down || vif == before.vif), before.status == unknown && want == down && vif == "":
			delete(a.ports.changed, id)
			if want == down && vif == "" {
				delete(a.ports.told, id) // gone, and the server knows
			}
			continue
		case want == up && before.status == up:
			want = down // plugged in anew: the server has to see it go before it sees it come
		}
		e.at[id] = a.toldNow(id, vif)
		switch {
		case want == off:
			if e.off == "" {
				e.off = id
			}
		case want == up && len(e.update.Up) < a.cfg.PortsPerReport:
			e.update.Up = append(e.update.Up, id)
		case want == down && len(e.update.Down) < a.cfg.PortsPerReport:
			e.update.Down = append(e.update.Down, id)
		}
	}
	if len(e.update.Up)+len(e.update.Down) > 0 {
		e.off = ""
	}
	e.update.RefreshTunnels = a.wantsRefresh(e.update.Up)
	return e
}

// again is a report of what the server knows, for what it does then.
func (a *Agent) again(now time.Time) toldAbout {
	e := toldAbout{at: map[string]told{}, check: true}
	if ids := a.refreshers(now); len(ids) > 0 && a.mayCheck(now) {
		e.update.Up, e.update.RefreshTunnels = ids, true
		for _, id := range ids {
			e.at[id] = a.toldNow(id, a.world.Port(id).VIF.Interface)
		}
	}
	return e
}

// ports are those that a report is about.
func (e *toldAbout) ports() []string {
	ids := slices.Concat(e.update.Up, e.update.Down)
	if e.off != "" {
		ids = append(ids, e.off)
	}
	return ids
}

// tell makes a report, if there is something to say.
func (a *Agent) tell(ctx context.Context, e toldAbout, now time.Time) {
	ids := e.ports()
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		a.ports.onWay[id] = true
	}
	if !a.ports.telling && !a.ports.refreshing {
		a.reportBegins(now)
	}
	if e.check {
		a.ports.refreshing = true
	} else {
		a.ports.telling = true
	}
	e.count, e.report = a.resyncing.count, a.ports.report
	a.work.Go(func() {
		e.err = a.aside("reporting ports", func() (err error) {
			if e.off != "" {
				_, err = a.server.DeviceDown(ctx, e.off)
			} else {
				e.result, err = a.server.UpdateDevices(ctx, e.update)
			}
			return err
		})
		a.inbox.put(e)
	})
}

// noReport says that no report is on its way any more that counts.
func (p *ports) noReport() {
	p.telling, p.refreshing = false, false
	clear(p.onWay)
}

// portStatus is what the server should know about a port, and whether it is true already.
func (a *Agent) portStatus(id string, now time.Time) (s status, vif ovsdb.UUID, ready bool) {
	p := a.world.Port(id)
	if p == nil {
		delete(a.ports.lines, id)
		delete(a.ports.groups, id)
		return down, "", true
	}
	l := a.ports.lines[id]
	if l == nil {
		l = &timeline{plugged: now}
		a.ports.lines[id] = l
	}
	object := world.Object{Kind: world.KindPort, ID: id}
	if a.holds(object) {
		return unknown, "", true // it is not as the server wants it, whatever the server knows
	}
	switch p.Wiring.State {
	case world.Wired:
		segment := world.Object{Kind: world.KindSegment, ID: p.Wiring.Segment.String()}
		ready = a.settled(object) && !a.pending(segment)
		if l.answered.IsZero() {
			l.answered = now // told by a push
		}
		if ready && l.settled.IsZero() {
			l.settled = now
		}
		return up, p.VIF.Interface, ready
	case world.Down:
		return off, p.VIF.Interface, a.settled(object)
	case world.Ancillary:
		return up, p.Ancillary, true
	case world.Elsewhere:
		return down, elsewhere, true
	}
	return unknown, "", true
}

// takenDown says whether the server has put down a port after it was told that it is up, as it does when the port is bound
// anew to the same host. Nobody else will tell it that the port is still wired.
func (a *Agent) takenDown(id string, before told) bool {
	p := a.world.Port(id)
	return p != nil && p.Details != nil && p.Details.Revision > before.revision &&
		(p.Details.Status == "DOWN" || p.Details.Status == "BUILD")
}

// onNewTunnels says whether a port that was told to be up is on another tunnelled segment since. It has to be told once more:
// the server does not send the segment's forwarding entries otherwise.
func (a *Agent) onNewTunnels(id string, before told) bool {
	p := a.world.Port(id)
	if p == nil || !a.cfg.World.L2Population || p.Wiring.Segment == before.segment {
		return false
	}
	s := a.world.Segment(p.Wiring.Segment)
	return s != nil && s.Tunnelled()
}

// toldNow is what a report about a port says.
func (a *Agent) toldNow(id string, vif ovsdb.UUID) told {
	t := told{vif: vif}
	if p := a.world.Port(id); p != nil && p.Details != nil {
		t.revision, t.segment = p.Details.Revision, p.Wiring.Segment
	}
	return t
}

// wantsRefresh asks the server for all forwarding entries of the ports' networks: at first, because what it told an
// earlier run is not known, and later for a network that it has not told about.
func (a *Agent) wantsRefresh(ids []string) bool {
	if len(ids) == 0 {
		return false
	}
	if !a.ports.refreshed {
		return true
	}
	return slices.ContainsFunc(ids, func(id string) bool {
		p := a.world.Port(id)
		if p == nil {
			return false
		}
		s := a.world.Segment(p.Wiring.Segment)
		return s != nil && s.Tunnelled() && !a.world.HasTunnels(s)
	})
}

func (a *Agent) reportedPorts(e toldAbout) {
	if e.report != a.ports.report {
		if e.err != nil {
			return
		}
		a.cameLate(e)
	}
	now := time.Now()
	failed := map[string]bool{}
	for _, id := range slices.Concat(e.result.FailedUp, e.result.FailedDown) {
		failed[id] = true
	}
	confirm := func(ids []string, s status) {
		for _, id := range ids {
			if e.err != nil || failed[id] {
				a.ports.retries.unanswered(id, now, e.err)
				continue
			}
			a.ports.retries.forget(id)
			if t := e.at[id]; s == down && t.vif == "" {
				delete(a.ports.told, id)
			} else {
				t.status = s
				a.ports.told[id] = t
			}
			a.tellStory(id, s, now)
		}
	}
	if e.off != "" {
		confirm([]string{e.off}, off)
	}
	confirm(e.update.Up, up)
	if e.err == nil && e.update.RefreshTunnels {
		a.refreshed(e, failed)
	}
	confirm(e.update.Down, down)
	if e.err != nil || len(failed) > 0 {
		a.repeats.log(a.log, slog.LevelWarn, "the server did not take the status of ports, trying again",
			"up", len(e.update.Up), "down", len(e.update.Down), "refused", len(failed), "err", e.err)
		a.wakeUp(a.ports.retries.next())
		return
	}
	a.repeats.forget("the server did not take the status of ports, trying again")
}

// tellStory leaves one line about a port that reached its status, with how long each stage took.
func (a *Agent) tellStory(id string, s status, now time.Time) {
	p, l := a.world.Port(id), a.ports.lines[id]
	if p == nil || l == nil {
		if s == down {
			a.log.Info("port is gone", "port", id)
		}
		return
	}
	switch s {
	case down:
		*l = timeline{plugged: now, state: l.state}
		a.log.Info("port was plugged in anew", "port", id)
		return
	case off:
		a.log.Info("port is down", "port", id, "reason", p.Wiring.Reason)
		return
	}
	a.seen.wired(l, now)
	if p.VIF == nil {
		a.log.Info("port is up", "port", id, "reason", p.Wiring.Reason, "total", now.Sub(l.plugged))
		return
	}
	a.log.Info("port is up", "port", id, "network", p.Wiring.Segment.Network, "vlan", p.Wiring.VLAN, "interface", p.VIF.Name,
		"details", l.answered.Sub(l.plugged), "switch", l.settled.Sub(l.answered), "report", now.Sub(l.settled), "total", now.Sub(l.plugged))
}
