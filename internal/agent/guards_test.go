// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// obedient is a bridge that takes everything.
type obedient struct{ Conn }

func (obedient) Commit(context.Context, []openflow.Message) error { return nil }
func (obedient) Send(context.Context, []openflow.Message) error   { return nil }

// rowsOf is a database that takes rows, or refuses them.
type rowsOf struct{ err error }

func (r rowsOf) CommitAll(_ context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error) {
	errs := make([]error, len(txs))
	for i := range errs {
		errs[i] = r.err
	}
	return ovsdb.Result{}, errs
}

// obeying is an agent whose bridge has everything that two wired ports want.
func obeying(t *testing.T, ct Conntrack) *Agent {
	t.Helper()
	a, _, batch := filtering(t, &cloud{}, ct, 2)
	a.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.started, a.switchUp = true, true
	a.world.Close()
	a.world.Switch(batch)
	settle(t, a)
	a.bridge("br-int").conn = obedient{}
	return a
}

// sent makes one round and tells how many flows of each port were changed.
func sent(t *testing.T, a *Agent, db Committer) map[string]int {
	t.Helper()
	p := a.plan()
	p.run(t.Context(), db)
	count := map[string]int{}
	for _, b := range p.bundles {
		for _, c := range b.changes {
			if c.Owner.Kind == world.KindPort {
				count[c.Owner.ID]++
			}
		}
	}
	a.applied(p)
	return count
}

func pushDeleted(t *testing.T, a *Agent, id string) {
	t.Helper()
	p := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Deleted, Objects: make([]neutron.Primitive, 1)}
	if err := answer(primitive(neutron.KindPort, map[string]any{"id": id}), nil, &p.Objects[0]); err != nil {
		t.Fatal(err)
	}
	if err := a.world.Push(p, time.Now()); err != nil {
		t.Fatal(err)
	}
	settle(t, a)
}

// TestGuardsWaitForTheRow: the filters of a port go after its row has left the network, not before (the row has failed, or
// cannot be written at all), and nobody else waits for it.
func TestGuardsWaitForTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := obeying(t, nil)
		obeyed(a)
		pushDeleted(t, a, "p0")
		if got := sent(t, a, rowsOf{errors.New("refused")}); got["p0"] != 0 {
			t.Errorf("%d flows of p0 changed though its row was refused", got["p0"])
		}
		a.switchUp = false
		time.Sleep(time.Minute)
		if got := sent(t, a, rowsOf{}); got["p0"] != 0 {
			t.Errorf("%d flows of p0 changed though the database is away", got["p0"])
		}
		// Another port's flows go on.
		b := a.bridge("br-int")
		owned := delta.Flow{Entry: someFlow(t), Reason: "another"}
		b.tracker.Want(world.Object{Kind: world.KindPort, ID: "p1"}, []delta.Flow{owned})
		if got := sent(t, a, rowsOf{}); got["p1"] == 0 || got["p0"] != 0 {
			t.Errorf("changed %v", got)
		}
		a.switchUp = true
		// Its rows cannot be worked out.
		o := world.Object{Kind: world.KindPort, ID: "p0"}
		want := a.wiring.wants[o]
		a.wiring.wants[o] = pipeline.Want{Rows: []pipeline.Row{badRow{}}}
		if got := sent(t, a, rowsOf{}); got["p0"] != 0 {
			t.Errorf("%d flows of p0 changed though its rows are not known", got["p0"])
		}
		a.wiring.wants[o], a.wiring.unsettled[o] = want, true
		time.Sleep(time.Minute)
		if got := sent(t, a, rowsOf{}); got["p0"] < 20 {
			t.Errorf("only %d flows of p0 changed though its row was written", got["p0"])
		}
	})
}

// badRow is a row that cannot be worked out.
type badRow struct{}

func (badRow) Add(*ovsdb.Tx, *ovsdb.View) { panic("injected") }

func someFlow(t *testing.T) openflow.Entry {
	t.Helper()
	f := openflow.Flow{Table: 9, Priority: 9, Cookie: 9}
	e, err := f.Entry()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestWhatAPortLeavesGoesAtOnce: the number of a port that is gone may be given to another.
func TestWhatAPortLeavesGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := obeying(t, nil)
		obeyed(a)
		o := world.Object{Kind: world.KindPort, ID: "p0"}
		for range 10 {
			a.wiring.retries.fail(o, time.Now())
		}
		for name, b := range a.wiring.bridges {
			b.tracker.Want(o, nil)
			if name == "br-int" && len(a.plan().bundles) == 0 {
				t.Error("the flows of a port that is gone wait")
			}
		}
	})
}

// TestAPortWaitsForItsZone: while connections of the zone's last network cannot be forgotten a port has no filters there; the
// ports of other networks do not notice.
func TestAPortWaitsForItsZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ct := &tracker{began: time.Now(), broken: true}
		a := obeying(t, ct)
		a.bridge("br-int").tracker.Have(nil)
		vlan := a.world.Port("p0").Wiring.VLAN
		a.tracking.fresh[vlan] = true
		for range 100 {
			if got := sent(t, a, rowsOf{}); len(got) > 0 {
				t.Fatalf("flows were sent to a zone with another network's connections: %v", got)
			}
			time.Sleep(time.Second)
		}
		if !a.tracking.due[vlan] {
			t.Error("the filters that wait are not followed by a look at their zone")
		}
		if n := len(ct.calls); n < 5 || n > 30 {
			t.Errorf("tried %d times in 100 s", n)
		}
		if s := a.status(); !slices.ContainsFunc(s.Reasons, func(r string) bool { return strings.Contains(r, "zone 1 was not flushed") }) {
			t.Errorf("status does not say what the ports wait for: %q", s.Reasons)
		}
		ct.broken = false
		time.Sleep(time.Minute)
		if got := sent(t, a, rowsOf{}); got["p0"] < 20 || got["p1"] < 20 || len(a.tracking.fresh) != 0 {
			t.Errorf("sent %v, zones %v", got, a.tracking.fresh)
		}
	})
}
