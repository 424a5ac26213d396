// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// numbered is the view of a database whose bridge has a port with a number, and another bridge one with number 1.
func numbered(number int) *ovsdb.View {
	w, one := world.New(world.Config{IntegrationBridge: "br-int"}), 1
	w.Switch(&ovsdb.Batch{
		Kind: ovsdb.Initial, Seq: 1,
		Bridges: []ovsdb.Diff[ovsdb.Bridge]{
			{New: &ovsdb.Bridge{UUID: "br", Name: "br-int", Ports: []ovsdb.UUID{"p", "q"}}}, {New: &ovsdb.Bridge{UUID: "tun", Name: "br-tun", Ports: []ovsdb.UUID{"t"}}},
		},
		Ports: []ovsdb.Diff[ovsdb.Port]{
			{New: &ovsdb.Port{UUID: "p", Name: "p", Interfaces: []ovsdb.UUID{"pi"}}}, {New: &ovsdb.Port{UUID: "q", Name: "q", Interfaces: []ovsdb.UUID{"qi"}}},
			{New: &ovsdb.Port{UUID: "t", Name: "t", Interfaces: []ovsdb.UUID{"ti"}}},
		},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{
			{New: &ovsdb.Interface{UUID: "pi", Name: "p", OFPort: &number}}, {New: &ovsdb.Interface{UUID: "qi", Name: "q"}},
			{New: &ovsdb.Interface{UUID: "ti", Name: "t", OFPort: &one}},
		},
	})
	return w.View
}

// TestFlowsThatOutliveAPort: the flows that check what a port says stay until ovs-vswitchd knows that the port is gone.
func TestFlowsThatOutliveAPort(t *testing.T) {
	anybodys := openflowtest.Entry(t, "table=60,priority=1,actions=drop")
	for name, c := range map[string]struct {
		view    *ovsdb.View
		want    pipeline.Want // of the port, after it went
		at      time.Duration // after it went
		changes int
		wakes   bool
	}{
		"at once":                         {numbered(2), pipeline.Want{}, 0, 1, true},
		"a moment later":                  {numbered(2), pipeline.Want{}, linger - 1, 1, true},
		"in time":                         {numbered(2), pipeline.Want{}, linger, 2, false},
		"another has its number":          {numbered(1), pipeline.Want{}, 0, 2, false},
		"it is plugged in, and unchecked": {numbered(2), rows("OpenFlow14"), 0, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := connected(&conn{}, nil)
			d.Set(port("a"), flows(flow(t, 1), anybodys))
			in := input(c.view)
			r := d.Next(in, start)
			r.Run(t.Context(), Switch{})
			d.Landed()
			d.Done(r, start)
			d.Set(port("a"), c.want)
			planned(d, in, start)
			r = planned(d, in, start.Add(c.at))
			if len(r.Bundles) != 1 || len(r.Bundles[0].Changes) != c.changes || r.Bundles[0].Withheld {
				t.Errorf("the round is %+v, want %d changes", r.Bundles, c.changes)
			}
			if wakes := d.Deadline(start.Add(c.at)).Equal(start.Add(linger)); wakes != c.wakes {
				t.Errorf("the next deadline is %v", d.Deadline(start))
			}
		})
	}
}

// TestFlowsOfAPortThatIsBack: a port that is plugged in again has flows under its new number, and those under the old one go at once.
func TestFlowsOfAPortThatIsBack(t *testing.T) {
	d, in := connected(&conn{}, nil), input(numbered(2))
	for step, c := range []struct {
		want    pipeline.Want
		present int
	}{{flows(flow(t, 1)), 1}, {pipeline.Want{}, 1}, {flows(flow(t, 2)), 1}} {
		d.Set(port("a"), c.want)
		r := d.Next(in, start)
		r.Run(t.Context(), Switch{})
		d.Landed()
		d.Done(r, start)
		if n := d.Bridge("br-int").Counts.Present; n != c.present {
			t.Errorf("step %d: the bridge has %d flows, want %d", step, n, c.present)
		}
	}
	if n := d.Bridge("br-int").Counts.Pending; n != 0 {
		t.Errorf("%d flows are to change", n)
	}
}
