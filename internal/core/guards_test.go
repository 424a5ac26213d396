// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// obedient is a bridge that takes everything.
type obedient struct{ effect.Conn }

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
func obeying(t *testing.T, ct *tracker) *host {
	t.Helper()
	a, batch := filtering(t, &cloud{}, ct, 2)
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.bridges.started, a.bridges.up = true, true
	a.world.Close()
	a.world.Switch(batch)
	settle(t, a)
	a.dataplane.Linked("br-int", obedient{}, nil, time.Now())
	return a
}

// sent makes one round and tells how many flows of each port were changed.
func sent(t *testing.T, a *host, db dataplane.Committer) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, b := range makeRound(t, a, db).Bundles {
		for _, c := range b.Changes {
			if id, ok := world.PortID(c.Owner); ok {
				count[id]++
			}
		}
	}
	return count
}

// makeRound makes one round.
func makeRound(t *testing.T, a *host, db dataplane.Committer) *dataplane.Round {
	t.Helper()
	a.turn.begin(time.Now())
	r := a.nextRound(time.Now())
	io := dataplane.Switch{Rows: db}
	if a.ct != nil {
		io.Zones = a.ct
	}
	r.Run(t.Context(), io)
	a.dataplane.Landed()
	a.event(effect.Applied{Round: r})
	return r
}

// rowsRefused tells an agent that the rows of an object were.
func rowsRefused(a *host, o world.Object) {
	a.dataplane.Done(&dataplane.Round{Owners: []world.Object{o}, RowErrs: []error{errors.New("refused")}}, time.Now())
}

func pushDeleted(t *testing.T, a *host, id string) {
	t.Helper()
	p := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Deleted, Objects: []neutron.Primitive{told(t, neutron.KindPort, map[string]any{"id": id})}}
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
		a.bridges.up = false
		time.Sleep(time.Minute)
		if got := sent(t, a, rowsOf{}); got["p0"] != 0 {
			t.Errorf("%d flows of p0 changed though the database is away", got["p0"])
		}
		// Another port's flows go on.
		a.dataplane.Set(port("p1"), pipeline.Want{Flows: []pipeline.Flow{{Bridge: "br-int", Entry: someFlow(t), Reason: "another"}}})
		if got := sent(t, a, rowsOf{}); got["p1"] == 0 || got["p0"] != 0 {
			t.Errorf("changed %v", got)
		}
		a.bridges.up = true
		// Its rows cannot be worked out.
		contain := a.dataplane.Contain
		a.dataplane.Contain = func(o world.Object, work func()) bool {
			return contain(o, func() {
				if work(); o == port("p0") {
					panic("injected")
				}
			})
		}
		if got := sent(t, a, rowsOf{}); got["p0"] != 0 {
			t.Errorf("%d flows of p0 changed though its rows are not known", got["p0"])
		}
		a.dataplane.Contain = contain
		a.contained.retryRows(a.dataplane.RetryRows)
		time.Sleep(time.Minute)
		if got := sent(t, a, rowsOf{}); got["p0"] < 20 {
			t.Errorf("only %d flows of p0 changed though its row was written", got["p0"])
		}
	})
}

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
		o := world.PortObject("p0")
		for range 10 {
			rowsRefused(a, o)
		}
		a.dataplane.Set(o, pipeline.Want{})
		if len(a.nextRound(time.Now()).Bundles) == 0 {
			t.Error("the flows of a port that is gone wait")
		}
	})
}

// TestAPortWaitsForItsZone: while connections of the zone's last network cannot be forgotten a port has no filters there; the
// ports of other networks do not notice.
func TestAPortWaitsForItsZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ct := &tracker{began: time.Now(), broken: true}
		a := obeying(t, ct)
		hasFlows(a, "br-int", nil)
		vlan := a.world.Port("p0").Wiring.VLAN
		a.zones.Allocated(vlan)
		for range 100 {
			if got := sent(t, a, rowsOf{}); len(got) > 0 {
				t.Fatalf("flows were sent to a zone with another network's connections: %v", got)
			}
			time.Sleep(time.Second)
		}
		due := a.zones.TakeChanged()
		if a.zones.Withheld(due); !due[vlan] {
			t.Error("the filters that wait are not followed by a look at their zone")
		}
		if n := len(ct.calls); n < 5 || n > 30 {
			t.Errorf("tried %d times in 100 s", n)
		}
		if s := a.Look(time.Now()).AgentStatus(); !slices.ContainsFunc(s.Reasons, func(r string) bool { return strings.Contains(r, "zone 1 was not flushed") }) {
			t.Errorf("status does not say what the ports wait for: %q", s.Reasons)
		}
		ct.broken = false
		time.Sleep(time.Minute)
		if got := sent(t, a, rowsOf{}); got["p0"] < 20 || got["p1"] < 20 || a.zones.Pending() != 0 {
			t.Errorf("sent %v, zones %+v", got, a.zones)
		}
	})
}
