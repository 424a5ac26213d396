// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// filters is what has been asked about security groups, their members and address groups. It is owned by the loop.
type filters struct {
	asking   int // questions on their way
	checking int // questions of a check on their way, see resyncing
	retries  retries[string]
	// sizes bounds how many items are asked about together with one whose question was refused.
	sizes map[string]int
}

func newFilters() filters { return filters{retries: retries[string]{}, sizes: map[string]int{}} }

// itemsAnswered: the server's answer about what filters need.
type itemsAnswered struct {
	items     []world.Item
	check     bool // of what was known
	groups    []neutron.SecurityGroup
	members   []neutron.Member
	addresses []neutron.AddressGroup
	took      time.Duration
	err       error    // there is no answer
	bad       error    // parts of it cannot be read
	unread    []string // their ids, empty where not even that can be read
}

// unreadable says whether something that was asked for may be what came and cannot be read.
func (e *itemsAnswered) unreadable(id string) bool {
	return slices.Contains(e.unread, id) || slices.Contains(e.unread, "")
}

// manyMembers make an answer of some megabytes.
const manyMembers = 1000

// maxGroupsPerCall is in how many groups members are looked for with one question: the answer has all of them.
const maxGroupsPerCall = 10

// askItems asks the server for what filters need and it has not told yet, many items at a time.
func (a *Agent) askItems(ctx context.Context) {
	if a.versions == nil || a.database.away || a.filters.asking >= maxAsking && a.filters.checking > 0 {
		return
	}
	now, versions := time.Now(), a.versions // the loop's
	var early []world.Item
	ready, known := map[neutron.Kind][]world.Item{}, map[neutron.Kind][]world.Item{}
	for _, item := range a.world.MissingItems() {
		switch {
		case a.filters.retries.waiting(item.String(), now):
			early = append(early, item)
			a.wakeUp(a.filters.retries[item.String()].at)
		case a.world.Known(item):
			known[item.Kind] = append(known[item.Kind], item)
		default:
			ready[item.Kind] = append(ready[item.Kind], item)
		}
	}
	full := a.filters.asking >= maxAsking
	for kind, items := range ready {
		if full {
			early = append(early, items...) // their turn comes with the next answer
			continue
		}
		for _, question := range a.itemQuestions(kind, items) {
			a.filters.asking++
			a.pullBeside(ctx, versions, kind, question, false)
		}
	}
	for kind, items := range known {
		for _, question := range a.itemQuestions(kind, items) {
			if a.filters.checking > 0 || !a.mayCheck(now) {
				early = append(early, question...)
				continue
			}
			a.filters.checking++
			a.pullBeside(ctx, versions, kind, question, true)
		}
	}
	a.world.NoAnswer(early)
}

// itemQuestions puts items together into questions: as many as one may name, and fewer where a question was refused.
func (a *Agent) itemQuestions(kind neutron.Kind, items []world.Item) [][]world.Item {
	most := maxPerCall
	if kind == neutron.KindPort {
		most = maxGroupsPerCall
	}
	return together(items, func(item world.Item) int { return cmp.Or(a.filters.sizes[item.String()], most) })
}

func (a *Agent) pullBeside(ctx context.Context, versions neutron.Versions, kind neutron.Kind, items []world.Item, check bool) {
	a.work.Go(func() {
		e := itemsAnswered{items: items, check: check}
		e.err = a.aside("asking for what filters need", func() error { return a.pullItems(ctx, versions, kind, &e) })
		a.inbox.put(e)
	})
}

// pullItems runs beside the loop.
func (a *Agent) pullItems(ctx context.Context, versions neutron.Versions, kind neutron.Kind, e *itemsAnswered) error {
	began := time.Now()
	ids := make([]string, len(e.items))
	for i, item := range e.items {
		ids[i] = item.ID
	}
	filter := map[string]any{"id": ids}
	if kind == neutron.KindPort {
		filter = map[string]any{"security_group_ids": ids}
	}
	objects, err := a.server.BulkPull(ctx, versions, kind, filter)
	if err != nil {
		return err
	}
	switch kind {
	case neutron.KindSecurityGroup:
		id := func(g *neutron.SecurityGroup) string { return g.ID }
		var complete, without []neutron.Primitive
		for _, o := range objects {
			if hasRules(o) {
				complete = append(complete, o)
			} else {
				without = append(without, o)
			}
		}
		r, bare := neutron.ReadAll(kind, complete, id), neutron.ReadAll(kind, without, id)
		e.groups, e.unread, e.bad = r.Found, append(r.Unread, bare.Unread...), r.Err
		if len(without) > 0 {
			e.bad = errors.Join(e.bad, errors.New("the server tells about a security group, but not its rules"))
		}
		for _, g := range bare.Found {
			e.unread = append(e.unread, g.ID)
		}
	case neutron.KindPort:
		r := neutron.ReadAll(kind, objects, func(m *neutron.Member) string { return m.ID })
		e.members, e.unread, e.bad = r.Found, r.Unread, r.Err
		if len(objects) > manyMembers {
			// The answer is many times larger than what is kept of it, and does not come again soon.
			debug.FreeOSMemory()
		}
	case neutron.KindAddressGroup:
		r := neutron.ReadAll(kind, objects, func(g *neutron.AddressGroup) string { return g.ID })
		e.addresses, e.unread, e.bad = r.Found, r.Unread, r.Err
	}
	e.took = time.Since(began)
	return nil
}

// hasRules says whether a security group comes with its rules. Without them it would be one that allows nothing.
func hasRules(o neutron.Primitive) bool {
	_, rest, found := bytes.Cut(o.Data, []byte(`"rules"`))
	return found && !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n:"), []byte("null"))
}

// itemsCame takes the server's answer, or that there is none.
func (a *Agent) itemsCame(e itemsAnswered) {
	a.heard(e.err)
	now := time.Now()
	if refused(e.err) && len(e.items) > 1 {
		// One of them may be what the server stumbles over: ask by halves, at once.
		for _, item := range e.items {
			a.filters.sizes[item.String()] = (len(e.items) + 1) / 2
		}
		a.world.NoAnswer(e.items)
		return
	}
	const failed, bad = "the server does not tell what filters need, asking again", "the server tells what cannot be read"
	if e.err != nil {
		for _, item := range e.items {
			a.filters.retries.unanswered(item.String(), now, e.err)
		}
		a.world.NoAnswer(e.items)
		a.repeats.log(a.log, slog.LevelWarn, failed, "first", e.items[0].String(), "of", len(e.items), "err", e.err)
		return
	}
	a.repeats.forget(failed)
	a.log.Debug("what filters need", "first", e.items[0].String(), "of", len(e.items),
		"groups", len(e.groups), "members", len(e.members), "addresses", len(e.addresses), "took", e.took)
	if e.bad != nil {
		a.unreadable("what filters need", e.bad)
		a.repeats.log(a.log, slog.LevelWarn, bad, "first", e.items[0].String(), "of", len(e.items), "err", e.bad)
	}
	found := map[string]bool{}
	for i := range e.groups {
		found[e.groups[i].ID] = true
	}
	for i := range e.addresses {
		found[e.addresses[i].ID] = true
	}
	var told, unread []world.Item
	for _, item := range e.items {
		switch {
		case item.Kind == neutron.KindPort && len(e.unread) == 0, found[item.ID]:
			a.filters.retries.forget(item.String())
			delete(a.filters.sizes, item.String())
		default:
			a.filters.retries.fail(item.String(), now) // asked for again, more and more rarely
		}
		if item.Kind != neutron.KindPort && !found[item.ID] && e.unreadable(item.ID) {
			unread = append(unread, item)
		} else {
			told = append(told, item)
		}
	}
	a.world.Unread(unread)
	switch e.items[0].Kind {
	case neutron.KindSecurityGroup:
		a.world.Groups(told, e.groups)
	case neutron.KindPort:
		a.world.Members(told, e.members, e.unread...)
	case neutron.KindAddressGroup:
		a.world.AddressGroups(told, e.addresses)
	}
}

// adopt looks at what filters find on the integration bridge: conjunction ids that another agent's flows bear, and
// whether the bridge is closed to interfaces that nobody knows. An open one, which is another agent's, is closed when
// everything that has to pass has been let in.
func (a *Agent) adopt(entries []openflow.Entry) {
	if !a.cfg.World.Filter {
		return
	}
	open := false
	var ids []uint32
	for _, e := range entries {
		if e.Table() == 0 && e.Priority() == 0 && e.Cookie() != 0 { // without a cookie it is that of a new bridge
			f, err := e.Flow()
			open = open || err == nil && len(f.Match) == 0 && len(f.Actions) > 0
		}
		if e.Cookie() != pipeline.Cookie {
			ids = append(ids, conjunctionIDs(e)...)
		}
	}
	a.world.Avoid(ids)
	if !open {
		a.world.Close()
	}
}

// disinherit removes at once what a port that was never wired would inherit: a number may have been another port's, whose
// flows are still there and would let the new one pass under the other's filters. Wiring leaves its mark on a port's row.
func (a *Agent) disinherit(name string, b *bridge) {
	if !a.cfg.World.Filter {
		return
	}
	heirs := map[uint64]bool{}
	for _, id := range a.world.PortIDs() {
		if vif := a.world.Port(id).VIF; vif != nil && vif.OFPort != 0 {
			if row := a.world.View.Port(vif.Port); row != nil && row.OtherConfig["net_uuid"] == "" {
				heirs[uint64(vif.OFPort)] = true
			}
		}
	}
	if len(heirs) == 0 {
		return
	}
	n := b.tracker.Release(func(e openflow.Entry) bool {
		f, err := e.Flow()
		return err == nil && len(f.Actions) > 0 && leftover(e) && slices.ContainsFunc(f.Match, func(t openflow.Term) bool {
			return t.Field == openflow.InPort && heirs[t.Value.Lo]
		})
	})
	if n > 0 {
		a.log.Info("removing flows of ports whose numbers new ports have", "bridge", name, "flows", n)
	}
}

// keepApart shuts the ports that wait for the server, and for which the switch has no filters: it was started anew, and there is no
// memory of them. Their rows still have them in their networks. A port that is known and only waits for its interface gets its
// filters with it.
func (a *Agent) keepApart(entries []openflow.Entry) {
	if !a.world.Closed() {
		return
	}
	led := map[uint64]bool{}
	for _, e := range entries {
		if e.Table() != pipeline.TableTransient {
			continue
		}
		if f, err := e.Flow(); err == nil {
			if from, ok := f.Match.Lookup(openflow.InPort); ok {
				led[from.Value.Lo] = true
			}
		}
	}
	n := 0
	for _, id := range a.world.PortIDs() {
		p := a.world.Port(id)
		if p.VIF == nil || p.Wiring.State != world.Waiting || led[uint64(p.VIF.OFPort)] || p.VIF.OFPort == 0 && p.Details != nil {
			continue
		}
		a.world.Shut(id)
		n++
	}
	if n > 0 {
		a.log.Info("ports are kept apart until their filters are known: the switch has none for them", "ports", n)
	}
}

// conjunctionIDs are those in the match and the actions of a flow.
func conjunctionIDs(e openflow.Entry) []uint32 {
	f, err := e.Flow()
	if err != nil {
		return nil
	}
	var ids []uint32
	for _, t := range f.Match {
		if t.Field == openflow.ConjID {
			ids = append(ids, uint32(t.Value.Lo))
		}
	}
	for _, action := range f.Actions {
		if c, ok := action.(openflow.Conjunction); ok {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// shut closes the integration bridge to interfaces that nobody knows, once everything that has to pass has its flows.
func (a *Agent) shut() {
	if !a.cfg.World.Filter || !a.cfg.World.FailClosed || a.world.Closed() || !a.inSync() {
		return
	}
	b := a.bridge(a.cfg.World.IntegrationBridge)
	if b.conn == nil || !b.tracker.Known() || len(b.tracker.Changes()) > 0 {
		return
	}
	a.log.Info("all ports have their filters: interfaces that are not known are shut out from now on")
	a.world.Close()
	a.wakeUp(time.Now())
}

// Conntrack is what the agent uses of connection tracking. A zone is a local VLAN.
type Conntrack interface {
	FlushZone(ctx context.Context, zone uint16) error
	Marked(ctx context.Context, zone uint16) ([]conntrack.Connection, error)
	Release(ctx context.Context, zone uint16, connections []conntrack.Connection) (int, error)
}

// tracking is what connection tracking is still to be told. It is owned by the loop.
type tracking struct {
	fresh   map[uint16]bool // zones to be emptied: they have a new owner
	retries retries[uint16]
	// due are zones in which filters may have changed; marked are those in which they have.
	due     map[uint16]bool
	marked  map[uint16]marked
	running bool
	// rest is until when there is no further look, see restAfterLook.
	rest time.Time
}

// restAfterLook is how many times longer than a look the pause after it is. A look lists all connections of a zone, and a
// userspace switch without threads for packets forwards none meanwhile: with many connections and many changes there would
// be one look after the other.
const restAfterLook = 20

// marked is when a zone is looked at next for connections that are marked as not allowed, but are allowed again. The
// switch goes by what it has cached for up to a second, and may mark one after its rule is back; so it takes more than
// one look.
//
// Those that are still not allowed stay in the table: the mark is what stops them, and both ends try for minutes. Were
// one forgotten, a packet of the end that may begin connections would look like the first of a new one, and all packets
// of the other end would pass as answers to it.
type marked struct {
	at   time.Time
	done int
}

func newTracking() tracking {
	return tracking{fresh: map[uint16]bool{}, retries: retries[uint16]{}, due: map[uint16]bool{}, marked: map[uint16]marked{}}
}

// looks are the pauses before each look for marked connections.
func looks() []time.Duration { return []time.Duration{0, time.Second, 4 * time.Second} }

// listed: the marked connections of zones.
type listed struct {
	zones map[uint16][]conntrack.Connection
	took  time.Duration
	err   error
}

// unmarked: connections of zones that are allowed again were released.
type unmarked struct {
	released int
	err      error
}

// noteZone remembers the zone of an object whose filters may change.
func (a *Agent) noteZone(o world.Object) {
	if a.cfg.Conntrack == nil {
		return
	}
	switch o.Kind {
	case world.KindPort:
		if p := a.world.Port(o.ID); p != nil && a.world.Filtered(p) {
			a.tracking.due[p.Wiring.VLAN] = true
		}
	case world.KindPeer:
		if key, _, ok := world.ParsePeer(o.ID); ok {
			if s := a.world.Segment(key); s != nil {
				a.tracking.due[s.VLAN] = true
			}
		}
	}
}

// committed schedules looks for connections that are allowed again.
func (a *Agent) committed(zones map[uint16]bool, now time.Time) {
	for zone := range zones {
		a.tracking.marked[zone] = marked{at: now}
	}
}

// listMarked asks which connections are marked, where it is time to.
func (a *Agent) listMarked(ctx context.Context) {
	if a.tracking.running || len(a.tracking.marked) == 0 {
		return
	}
	now := time.Now()
	if a.tracking.rest.After(now) {
		a.wakeUp(a.tracking.rest)
		return
	}
	var zones []uint16
	for zone, m := range a.tracking.marked {
		if m.at.After(now) {
			a.wakeUp(m.at)
			continue
		}
		zones = append(zones, zone)
		if m.done++; m.done == len(looks()) {
			delete(a.tracking.marked, zone)
			continue
		}
		m.at = now.Add(looks()[m.done])
		a.tracking.marked[zone] = m
		a.wakeUp(m.at)
	}
	if len(zones) == 0 {
		return
	}
	slices.Sort(zones)
	a.tracking.running = true
	a.work.Go(func() {
		e := listed{zones: map[uint16][]conntrack.Connection{}}
		e.err = a.aside("listing connections", func() (errs error) {
			for _, zone := range zones {
				found, err := a.cfg.Conntrack.Marked(ctx, zone)
				if len(found) > 0 {
					e.zones[zone] = found
				}
				errs = errors.Join(errs, err)
			}
			return errs
		})
		e.took = time.Since(now)
		a.inbox.put(e)
	})
}

// markedListed releases the marked connections that are allowed again.
func (a *Agent) markedListed(ctx context.Context, e listed) {
	a.tracking.rest = time.Now().Add(restAfterLook * e.took)
	again := map[uint16][]conntrack.Connection{}
	for zone, connections := range e.zones {
		for _, c := range connections {
			if a.world.Allows(zone, world.Connection{
				Src: c.Src, Dst: c.Dst, Protocol: c.Protocol, DstPort: c.DstPort, ICMPType: c.ICMPType, ICMPCode: c.ICMPCode,
			}) {
				again[zone] = append(again[zone], c)
			}
		}
	}
	if len(again) == 0 {
		a.markedReleased(unmarked{err: e.err})
		return
	}
	a.work.Go(func() {
		var done unmarked
		err := a.aside("releasing connections", func() (errs error) {
			for zone, connections := range again {
				n, err := a.cfg.Conntrack.Release(ctx, zone, connections)
				done.released += n
				errs = errors.Join(errs, err)
			}
			return errs
		})
		done.err = errors.Join(e.err, err)
		a.inbox.put(done)
	})
}

func (a *Agent) markedReleased(e unmarked) {
	a.tracking.running = false
	if e.err != nil {
		a.repeats.log(a.log, slog.LevelWarn, "connections that are allowed again may still be refused", "err", e.err)
	}
	if e.released > 0 {
		a.log.Info("connections that are allowed again may go on", "connections", e.released)
	}
}

// zonesToFlush lists the zones that have a new owner, and are to be emptied before it has flows.
func (a *Agent) zonesToFlush(now time.Time) []uint16 {
	for _, zone := range a.world.FreshVLANs() {
		if a.cfg.Conntrack != nil {
			a.tracking.fresh[zone] = true
		}
	}
	var out []uint16
	for zone := range a.tracking.fresh {
		if a.tracking.retries.waiting(zone, now) {
			a.wakeUp(a.tracking.retries[zone].at)
		} else {
			out = append(out, zone)
		}
	}
	slices.Sort(out)
	return out
}

// unflushedZone returns the zone of connection tracking in which a port may have no flows yet: it still has the connections of
// its last network, and the port would let those through.
func (a *Agent) unflushedZone(o world.Object) (zone uint16, ok bool) {
	if len(a.tracking.fresh) == 0 || o.Kind != world.KindPort {
		return 0, false
	}
	port := a.world.Port(o.ID)
	if port == nil || !a.world.Filtered(port) {
		return 0, false
	}
	return port.Wiring.VLAN, a.tracking.fresh[port.Wiring.VLAN]
}

// zonesFlushed takes the outcome.
func (a *Agent) zonesFlushed(zones []uint16, errs []error, now time.Time) {
	for i, zone := range zones {
		if errs[i] != nil {
			wait := a.tracking.retries.fail(zone, now)
			a.repeats.log(a.log, slog.LevelWarn, "connection tracking zone not flushed, new ports of the network wait, retrying",
				"zone", zone, "err", errs[i])
			a.wakeUp(now.Add(wait))
			continue
		}
		if a.tracking.retries[zone].failed > 0 {
			a.repeats.forget("connection tracking zone not flushed, new ports of the network wait, retrying")
		}
		delete(a.tracking.fresh, zone)
		a.tracking.retries.forget(zone)
	}
}
