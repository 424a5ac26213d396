// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// converge takes the consequences of what has happened, as far as they can be taken now: it compiles what changed, asks
// for what is missing, brings the switch in line, and reports what is done. It is called after every event.
func (a *Core) converge() {
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
		{"connecting to bridges", a.linkBridges},
		{"asking for the server's database", a.askDatabase},
		{"asking the server", a.pullMissing},
		{"tending extensions", a.tend},
		{"comparing flows", a.readAgain},
		{"changing the switch", a.apply},
		{"rows that could not be worked out", a.stillUnsettled},
		{"listing connections", a.listConnections},
		{"reporting ports", a.reportPorts},
		{"noting that everything is known", a.noteSynced},
		{"removing what is left over", a.prune},
		{"closing the bridge", a.shut},
		{"remembering", a.remember},
		{"progress", a.progress},
	} {
		if !a.contain(culprit{name: s.name}, s.take) {
			a.pulls.Abandon() // it is not known what of it was asked
		}
	}
}

// settle compiles what changed.
func (a *Core) settle() {
	a.retryHeld()
	a.extensions.repair()
	a.onTime(a.turn.now())
	todo := a.world.Settle()
	for _, key := range a.world.Segments.TakeBegun() {
		// The report of a port that comes up has the server send its entries. A port that was up before, and is in its
		// network again because its filters are known now, is not reported by itself.
		a.reports.Refresh(key)
	}
	defer func() { // with nothing left, unless something failed
		for _, o := range todo {
			a.world.Again(o)
		}
	}()
	for todo = a.extensions.Resolve(todo); len(todo) > 0; todo = todo[1:] {
		a.memory.stale = true
		o := todo[0]
		a.contain(culprit{o, "taking what it wants"}, func() { a.compile(o) })
	}
}

// compile works out what an object wants now. If that fails it keeps what it wanted last, as long as that is about what it is now; a
// port that has become something else is shut.
func (a *Core) compile(o world.Object) {
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
		a.log.repeat(slog.LevelError, "object cannot be compiled", "object", o.String(), "err", err)
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
	a.dataplane.Set(o, want)
	a.compiled(o)
}

// compiled takes the consequences of a compile for the reports of ports and for connection tracking.
func (a *Core) compiled(o world.Object) {
	if o.Kind == world.KindPort {
		a.reports.Changed(o.ID)
		a.markPlugged(o.ID)
	}
	a.contain(culprit{name: "noting zones"}, func() { a.noteZone(o) })
}
