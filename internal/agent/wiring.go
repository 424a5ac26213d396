// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// wiring is where the switch stands between what is wanted and what is there. It is owned by the loop.
type wiring struct {
	bridges map[string]*bridge
	wants   map[world.Object]pipeline.Want // rows only; the flows are with the trackers
	// unsettled objects have rows that may not be as wanted yet.
	unsettled map[world.Object]bool
	retries   retries[world.Object]
	applying  bool
	// seq is the batch that will show what was committed last; until then the view is old, and planning on it would
	// write the same rows again.
	seq uint64
}

// bridge is one bridge that the agent programs.
type bridge struct {
	tracker *delta.Tracker
	meters  *delta.Meters
	// maxMeters is how many it can have; 0 also while nobody asked.
	maxMeters uint32
	found     foundMeters
	conn      Conn      // nil while it cannot be reached
	lost      time.Time // since when
	err       error     // why
	watch     watch
	// For people: flows that others changed and we put right, and flows that we changed.
	repaired, changed uint64
}

// lostGrace is how long a bridge may be out of reach before it is worth a line: it is for a moment whenever it is made or
// its protocols change.
const lostGrace = 2 * time.Second

func newWiring() wiring {
	return wiring{
		bridges: map[string]*bridge{}, wants: map[world.Object]pipeline.Want{}, unsettled: map[world.Object]bool{},
		retries: retries[world.Object]{},
	}
}

// linked: the connection to a bridge came up or broke. dumped: its flows were read.
type (
	linked struct {
		bridge string
		link   Link
	}
	dumped struct {
		bridge    string
		conn      Conn
		entries   []openflow.Entry
		meters    []openflow.MeterDesc
		maxMeters uint32
		err       error
		unwatched error // why the switch does not report changes; nil when it does
	}
)

// converge takes the consequences of what has happened, as far as they can be taken now: it compiles what changed, asks
// for what is missing, brings the switch in line, and reports what is done. It is called after every event.
func (a *Agent) converge(ctx context.Context) {
	if !a.started {
		return // the switch has not been seen yet; there is nothing to decide on
	}
	a.contained.turn++
	for _, s := range []struct {
		name string
		take func()
	}{
		{"checking what is known", a.beginResync},
		{"working out what changed", a.settle},
		{"connecting to bridges", func() { a.linkBridges(ctx) }},
		{"asking for the server's database", func() { a.askDatabase(ctx) }},
		{"synchronising tunnels", func() { a.syncTunnels(ctx) }},
		{"asking about ports", func() { a.askMissing(ctx) }},
		{"asking for what filters need", func() { a.askItems(ctx) }},
		{"tending extensions", func() { a.tend(ctx) }},
		{"comparing flows", func() { a.compareUnwatched(ctx) }},
		{"changing the switch", func() { a.apply(ctx) }},
		{"rows that could not be worked out", a.stillUnsettled},
		{"listing connections", func() { a.listMarked(ctx) }},
		{"reporting ports", func() { a.reportPorts(ctx) }},
		{"removing what is left over", func() {
			if !a.blind() {
				a.sweep()
			}
		}},
		{"removing meters", a.sweepMeters},
		{"closing the bridge", a.shut},
		{"remembering", a.remember},
		{"progress", a.progress},
	} {
		if !a.contain(culprit{name: s.name}, s.take) {
			a.world.Reask() // it is not known what of it was asked
		}
	}
}

// settle compiles what changed.
func (a *Agent) settle() {
	a.retryHeld()
	a.extensions.repair()
	todo := a.world.Settle()
	defer func() { // with nothing left, unless something failed
		for _, o := range todo {
			a.world.Again(o)
		}
	}()
	for todo = a.extensions.Settle(todo); len(todo) > 0; todo = todo[1:] {
		a.memory.stale = true
		o := todo[0]
		a.contain(culprit{o, "taking what it wants"}, func() { a.compile(o) })
	}
}

// compile works out what an object wants now. If that fails it keeps what it wanted last, as long as that is about what it is now; a
// port that has become something else is shut.
func (a *Agent) compile(o world.Object) {
	var want pipeline.Want
	c := culprit{object: o}
	err := a.try(c, func() (err error) {
		want, err = a.extensions.Compile(o, func() pipeline.Want { return pipeline.Compile(a.world, &a.cfg.Settings, o) })
		tx := ovsdb.NewTx(a.world.View)
		for _, r := range slices.Concat(want.Rows, want.Until, want.After) {
			r.Add(tx, a.world.View) // if that fails, it does so before the flows have changed
		}
		return errors.Join(want.Err, err)
	})
	at := a.placeOf(o)
	if err == nil {
		a.letGo(c)
	} else {
		a.repeats.log(a.log, slog.LevelError, "cannot be expressed in flows", "object", o.String(), "err", err)
		if want = a.fallback(c, err, at); want.Err != nil {
			a.compiled(o) // what it has stays
			return
		}
	}
	if o.Kind == world.KindPort {
		if a.contained.places[o.ID] = at; at == (place{}) {
			delete(a.contained.places, o.ID)
		}
	}
	byBridge := map[string][]delta.Flow{}
	for _, f := range want.Flows {
		byBridge[f.Bridge] = append(byBridge[f.Bridge], delta.Flow{Entry: f.Entry, Reason: f.Reason})
	}
	metersOf := map[string][]delta.Meter{}
	for _, m := range want.Meters {
		metersOf[m.Bridge] = append(metersOf[m.Bridge], delta.Meter{MeterDesc: m.MeterDesc, Reason: m.Reason})
	}
	for _, name := range a.world.Bridges() {
		b := a.bridge(name)
		b.tracker.Want(o, byBridge[name])
		b.meters.Want(o, metersOf[name])
	}
	want.Flows, want.Meters = nil, nil
	if len(want.Rows)+len(want.Until)+len(want.After) == 0 && want.Waiting == "" {
		delete(a.wiring.wants, o)
		delete(a.wiring.unsettled, o)
	} else {
		a.wiring.wants[o] = want
		a.wiring.unsettled[o] = true
	}
	a.compiled(o)
}

// compiled takes the consequences of a compile for the reports of ports and for connection tracking.
func (a *Agent) compiled(o world.Object) {
	if o.Kind == world.KindPort {
		a.ports.changed[o.ID] = true
		a.noticed(o.ID)
	}
	a.contain(culprit{name: "noting zones"}, func() { a.noteZone(o) })
	a.contain(culprit{name: "noting limits of connections"}, func() { a.noteLimits(o) })
}

func (a *Agent) bridge(name string) *bridge {
	b := a.wiring.bridges[name]
	if b == nil {
		b = &bridge{tracker: delta.New(), meters: delta.NewMeters()}
		a.wiring.bridges[name] = b
	}
	return b
}

// linkBridges connects to the bridges that exist.
func (a *Agent) linkBridges(ctx context.Context) {
	for _, name := range a.world.Bridges() {
		row, b := a.world.View.BridgeByName(name), a.bridge(name)
		if row != nil && b.conn == nil && !b.lost.IsZero() && time.Since(b.lost) >= lostGrace {
			a.repeats.log(a.log, slog.LevelWarn, "bridge cannot be programmed", "bridge", name, "err", b.err)
		}
		if a.links[name] || row == nil || row.DatapathID == "" {
			continue // the switch has not made it yet
		}
		a.links[name] = true
		links := a.cfg.Link(ctx, name)
		a.work.Go(func() {
			for l := range links {
				a.inbox.put(linked{name, l})
			}
		})
	}
}

// switchPause is how long at most nobody tries to reach a bridge that is away. Its socket is on this host, so that an attempt
// costs next to nothing, and until it is made the switch forwards nothing, though it may be back.
const switchPause = 200 * time.Millisecond

// Supervised keeps connections that dial makes, and is for [Config].Link.
func Supervised(dial func(ctx context.Context, bridge string) (*openflow.Conn, error)) func(context.Context, string) <-chan Link {
	return func(ctx context.Context, bridge string) <-chan Link {
		s := &openflow.Supervisor{
			Dial:     func(ctx context.Context) (*openflow.Conn, error) { return dial(ctx, bridge) },
			MaxPause: switchPause,
		}
		from, to := s.Start(ctx), make(chan Link)
		go func() {
			defer close(to)
			for l := range from {
				next := Link{Err: l.Err}
				if l.Conn != nil { // else the interface would not be nil
					next.Conn = l.Conn
				}
				select {
				case to <- next:
				case <-ctx.Done():
				}
			}
		}()
		return to
	}
}

func (a *Agent) bridgeLinked(ctx context.Context, e linked) {
	b := a.bridge(e.bridge)
	b.conn = e.link.Conn
	b.tracker.Lost()
	b.meters.Lost()
	if b.conn == nil {
		b.lost, b.err = time.Now(), e.link.Err
		a.wakeUp(b.lost.Add(lostGrace))
		return
	}
	b.watch = watch{fights: retries[openflow.Key]{}}
	a.limiting.due = true // of a switch that was restarted
	a.dump(ctx, e.bridge, true)
}

func (a *Agent) bridgeDumped(e dumped) {
	b := a.bridge(e.bridge)
	if b.conn != e.conn {
		return // of a connection that is gone
	}
	if e.err != nil {
		a.repeats.log(a.log, slog.LevelWarn, "flows cannot be read", "bridge", e.bridge, "err", e.err)
		_ = b.conn.Close() // the supervisor makes a new one
		return
	}
	first := !b.tracker.Known()
	b.tracker.Have(e.entries)
	b.meters.Have(e.meters)
	a.observe(e.bridge, b, b.watch.early)
	b.watch.dumping, b.watch.early = false, nil
	if e.unwatched != nil {
		a.repeats.log(a.log, slog.LevelInfo, "the switch does not report changes of flows, they are compared instead",
			"every", compareEvery, "err", e.unwatched)
	}
	if e.unwatched != nil || !b.watch.next.IsZero() {
		b.watch.next = time.Now().Add(compareEvery)
		a.wakeUp(b.watch.next)
	}
	if !first {
		a.compared(e.bridge, b)
		return
	}
	b.maxMeters, a.world.MaxMeters[e.bridge] = e.maxMeters, e.maxMeters
	b.found = foundMeters{b.meters.Stale(), time.Now().Add(meterGrace)}
	if e.bridge == a.cfg.World.IntegrationBridge {
		a.adopt(e.entries)
		a.disinherit(e.bridge, b)
		a.keepApart(e.entries)
	}
	a.swept = false
	a.repeats.forget("bridge cannot be programmed")
	a.log.Info("bridge connected", "bridge", e.bridge, "flows", len(e.entries))
}

// applied takes the outcome of a round.
func (a *Agent) applied(p *plan) {
	a.wiring.seq = max(a.wiring.seq, p.seq)
	now := time.Now()
	for i, err := range p.rowErrs {
		if err == nil {
			a.wiring.retries.forget(p.owners[i])
			continue
		}
		wait := a.wiring.retries.fail(p.owners[i], now)
		// Conflicts are in the nature of things: somebody else was faster, and the news of it is on its way.
		if !errors.Is(err, ovsdb.ErrConflict) && !errors.Is(err, ovsdb.ErrDisconnected) {
			a.repeats.log(a.log, slog.LevelWarn, "rows not written, trying again", "object", p.owners[i].String(), "err", err, "after", wait)
		}
	}
	a.zonesFlushed(p.flush, p.flushErrs, now)
	a.limitsSet(p.limits, now)
	for _, b := range p.bundles {
		a.bridge(b.name).meters.Done(b.done)
		if b.meterErr != nil {
			a.metersFailed(b, now)
		}
		if b.err == nil {
			a.bridge(b.name).tracker.Done(b.changes)
			a.committed(b.zones, now)
			if b.withheld {
				maps.Copy(a.tracking.due, b.zones)
			}
			continue
		}
		maps.Copy(a.tracking.due, b.zones)
		a.bundleFailed(b, now)
	}
	a.wakeUp(a.wiring.retries.next())
}

// metersFailed has those wait whose meters were refused, and looks what meters there are.
func (a *Agent) metersFailed(b bundle, now time.Time) {
	var refused *openflow.SendError
	if !errors.As(b.meterErr, &refused) {
		return // the connection broke; the dump over the next one tells what is there
	}
	a.bridge(b.name).watch.missed = true
	for _, c := range b.in {
		if !slices.ContainsFunc(b.done, func(d delta.MeterChange) bool { return d.Meter.ID == c.Meter.ID }) {
			wait := a.wiring.retries.fail(c.Owner, now)
			a.repeats.log(a.log, slog.LevelError, "meter refused, trying again", "bridge", b.name, "object", c.Owner.String(), "err", b.meterErr, "after", wait)
		}
	}
}

func (a *Agent) bundleFailed(b bundle, now time.Time) {
	var refused *openflow.BundleError
	if !errors.As(b.err, &refused) {
		// The connection broke, or the switch took too long to answer; the dump over the next one tells what is there. It may
		// be in already.
		if now := a.bridge(b.name); now.conn == b.conn {
			now.tracker.Lost()
			_ = b.conn.Close() // the supervisor makes a new one
		}
		return
	}
	if len(refused.Failures) == 0 {
		for _, c := range b.changes {
			a.wiring.retries.fail(c.Owner, now)
		}
		a.repeats.log(a.log, slog.LevelError, "flows refused, trying again", "bridge", b.name, "err", b.err)
		return
	}
	if len(a.bridge(b.name).meters.All()) > 0 {
		a.bridge(b.name).watch.missed = true // whoever takes a meter away takes the flows with it that use it
	}
	// The owner of the bad flow waits; the others are sent again at once, without it.
	for _, f := range refused.Failures {
		owner := b.changes[f.Index].Owner
		wait := a.wiring.retries.fail(owner, now)
		a.repeats.log(a.log, slog.LevelError, "flow refused, trying again", "bridge", b.name, "object", owner.String(), "err", b.err, "after", wait)
	}
}

// sweep removes what earlier runs and other agents left on our bridges, once everything that could still want it has
// spoken: every port is told about and reported, every tunnel type synchronised, and with l2population every tunnelled
// network has its entries, or has had long enough to get them.
func (a *Agent) sweep() {
	if a.swept || !a.inSync() {
		return
	}
	a.world.Confirmed()
	total := 0
	for name, b := range a.wiring.bridges {
		if b.conn == nil || !b.tracker.Known() {
			return
		}
		b.meters.Sweep(abandoned(b))
		n := b.tracker.Sweep(leftover)
		if total += n; n > 0 {
			a.log.Info("removing flows that nothing wants any more", "bridge", name, "flows", n)
		}
	}
	a.swept = true
	if total > 0 {
		a.wakeUp(time.Now())
	}
}

// leftover says whether a flow that nothing wants is an agent's. Agents mark their flows; a flow without a cookie was
// made by a person or another program and is left alone. Learned flows expire by themselves.
func leftover(e openflow.Entry) bool {
	f, err := e.Flow()
	return err == nil && f.Cookie != 0 && f.HardTimeout == 0 && f.IdleTimeout == 0
}
