// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// reportingAgent makes a core with so many ports plugged in whose flows are in place, and so many in a report.
func reportingAgent(t *testing.T, ports, perReport int) (*host, *cloud, *ovsdb.Batch) {
	t.Helper()
	b := &cloud{}
	a, batch := filtering(t, b, nil, ports)
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.bridges.started, a.bridges.up = true, true
	a.reports.Reporter = report.New(perReport, &a.resyncing.bucket)
	a.world.Switch(batch)
	settle(t, a)
	obeyed(a)
	settle(t, a)
	return a, b, batch
}

// moved is the batch in which the interfaces of all ports leave the integration bridge, and come to another one if it has a name.
func moved(batch *ovsdb.Batch, to string) *ovsdb.Batch {
	old := batch.Bridges[0].New
	left := *old
	left.Ports = nil
	out := &ovsdb.Batch{Seq: batch.Seq + 1, Kind: ovsdb.Update, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{Old: old, New: &left}}}
	if to != "" {
		out.Bridges = append(out.Bridges, ovsdb.Diff[ovsdb.Bridge]{New: &ovsdb.Bridge{UUID: "other", Name: to, Ports: old.Ports}})
		return out
	}
	for _, d := range batch.Ports {
		out.Ports = append(out.Ports, ovsdb.Diff[ovsdb.Port]{Old: d.New})
	}
	for _, d := range batch.Interfaces {
		out.Interfaces = append(out.Interfaces, ovsdb.Diff[ovsdb.Interface]{Old: d.New})
	}
	return out
}

// bounded demands that reports name all ports once, and none more than it may.
func bounded(t *testing.T, what string, reports [][]string, ports, most int) {
	t.Helper()
	var all []string
	for _, ids := range reports {
		if len(ids) > most {
			t.Errorf("%s: one report names %d ports, want %d at most", what, len(ids), most)
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	if got := len(slices.Compact(slices.Clone(all))); got != ports || len(all) != ports {
		t.Errorf("%s: %d reports name %d ports, %d of them different; want %d once", what, len(reports), len(all), got, ports)
	}
}

// The server works on a report while the agent waits for its answer, and both give up when it takes too long: rpc_resources_processing_step
// says how many ports one may name.
func TestAReportNamesSoManyPorts(t *testing.T) {
	const ports, most = 50, 7
	a, b, batch := reportingAgent(t, ports, most)
	bounded(t, "plugged in", b.up, ports, most)
	if len(b.down) > 0 {
		t.Errorf("reported down: %v", b.down)
	}
	a.world.Switch(moved(batch, ""))
	settle(t, a)
	bounded(t, "gone", b.down, ports, most)
}

// A port whose interface is on a bridge that is not the agent's has no traffic that the agent answers for. The server is told
// once that it is down, whether the port was wired before or not.
func TestAPortOfAnotherBridgeIsReportedDown(t *testing.T) {
	for _, wired := range []bool{true, false} {
		a, b, batch := reportingAgent(t, 3, 20)
		if !wired {
			a, b, batch = reportingAgent(t, 0, 20)
			_, more := filtering(t, &cloud{}, nil, 3)
			batch.Ports, batch.Interfaces = more.Ports, more.Interfaces
			batch.Bridges[0].New.Ports = more.Bridges[0].New.Ports
			to := moved(batch, "br-foreign")
			to.Bridges = to.Bridges[1:]
			to.Ports, to.Interfaces = more.Ports, more.Interfaces
			a.world.Switch(to)
		} else {
			bounded(t, "plugged in", b.up, 3, 20)
			a.world.Switch(moved(batch, "br-foreign"))
		}
		b.up = nil
		for range 3 {
			settle(t, a)
		}
		bounded(t, fmt.Sprintf("on another bridge, wired before: %v", wired), b.down, 3, 20)
		if len(b.up) > 0 {
			t.Errorf("wired before: %v: reported up: %v", wired, b.up)
		}
		for _, id := range a.world.PortIDs() {
			if got := a.world.Port(id).Wiring; got.State != world.Elsewhere {
				t.Errorf("%s is %s (%s)", id, got.State, got.Reason)
			}
		}
	}
}
