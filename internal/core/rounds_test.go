// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

func port(id string) world.Object { return world.PortObject(id) }

// TestZonesOfARound: zones are looked at when their filters have changed, and flushed zones count.
func TestZonesOfARound(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	a.zones.Allocated(1)
	a.zones.Allocated(2)
	a.zones.Flushed(1, errors.New("no"), time.Now())
	a.event(effect.Applied{Round: &dataplane.Round{
		Flush: []uint16{1, 2}, FlushErrs: []error{nil, errors.New("no")},
		Bundles: []dataplane.Bundle{
			{Bridge: "br-int", Zones: map[uint16]bool{5: true}}, {Bridge: "br-int", Zones: map[uint16]bool{6: true}, Withheld: true},
			{Bridge: "br-int", Zones: map[uint16]bool{7: true}, Err: &openflow.BundleError{}},
		},
	}})
	if !slices.Equal(a.zones.Failed(), []uint16{2}) || a.zones.Unflushed(1) || !a.zones.Unflushed(2) {
		t.Errorf("%+v", a.zones)
	}
	if due, next := a.zones.TakeChanged(), a.zones.Next(time.Now()); due[5] || !due[6] || !due[7] || !slices.Equal(next, []uint16{5, 6}) {
		t.Errorf("%v, %v", due, next)
	}
}

// TestConditionsThatLast: a message with the same reason comes once in a while, and again at once after it was over.
func TestConditionsThatLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf logBuffer
		lines := func() int { return strings.Count(buf.String(), "\n") }
		step := &turn{}
		r := journal{Logger: slog.New(slog.NewTextHandler(&buf, nil)), turn: step, every: time.Minute, last: map[string]map[string]time.Time{}}
		say := func(msg, reason string, want int) {
			t.Helper()
			before := lines()
			step.at = time.Now()
			r.repeat(slog.LevelWarn, msg, "err", reason)
			if got := lines() - before; got != want {
				t.Errorf("%s because of %s: %d lines, want %d", msg, reason, got, want)
			}
		}
		say("m", "a", 1)
		say("m", "a", 0)
		say("m", "b", 1)
		say("n", "a", 1)
		time.Sleep(time.Minute - 1)
		say("m", "a", 0)
		time.Sleep(time.Nanosecond)
		say("m", "a", 1)
		r.forget("m")
		say("m", "a", 1)
		say("n", "a", 1)
		for i := range maxReasons - 1 {
			say("m", fmt.Sprint(i), 1)
		}
		say("m", "one too many", 1)
		say("m", "two too many", 0) // both count as one
		time.Sleep(time.Minute)
		say("m", "one too many", 1)
		say("m", "two too many", 1) // the old ones are forgotten by now
	})
}

// TestAnswersAboutPorts: an answer ends the question, whatever it is; what was asked about is told, or due again.
func TestAnswersAboutPorts(t *testing.T) {
	a, batch := filtering(t, &cloud{}, nil, 3)
	a.bridges.started, a.bridges.up = true, true
	a.world.Switch(batch)
	a.world.Resolve()
	ask := func() pull.Batch {
		t.Helper()
		a.pulls.RetryNow(time.Now())
		a.pulls.Set(a.pulls.needs(a.extensions.Set))
		for _, b := range a.pulls.Next(a.world.Now(), time.Now(), false) {
			if b.Owner == pull.Ports {
				return b
			}
		}
		t.Fatal("no question about ports")
		return pull.Batch{}
	}
	failing := func(want int) {
		t.Helper()
		if s := a.pulls.Stats(pull.Ports); s.Failing != want || s.Asking != 0 || len(a.world.Missing()) != 3 {
			t.Errorf("%+v, %d wanted that fail", s, want)
		}
	}
	a.event(effect.Pulled{Batch: ask(), Err: &messaging.RemoteError{Class: "KeyError"}})
	failing(0)
	b := ask()
	if len(b.IDs) != 2 {
		t.Errorf("asked by halves: %v", b.IDs)
	}
	a.event(effect.Pulled{Batch: b, Err: errors.New("nobody answers")})
	a.pulls.Abandon()
	failing(2)
	// What can be read counts, also beside what cannot.
	b = ask()
	p0 := neutron.Port{ID: b.IDs[0]}
	a.reports.of[b.IDs[0]] = &timeline{}
	a.event(effect.Pulled{Batch: b, Reply: effect.Reply{Ports: []neutron.Port{p0}, Unread: b.IDs}, Err: errors.New("cannot be read")})
	if a.reports.of[b.IDs[0]].answered.IsZero() || !a.world.Port(b.IDs[0]).Answered || a.world.Port(b.IDs[1]).Answered || a.pulls.Stats(pull.Ports).Failing != 1 {
		t.Errorf("%+v, %+v", a.world.Port(b.IDs[0]), a.pulls.Stats(pull.Ports))
	}
}

// TestMessagesAreCounted, with what they are about.
func TestMessagesAreCounted(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	ip := netip.MustParseAddr("10.0.0.9")
	for _, c := range []struct {
		message any
		text    string
	}{
		{&neutron.TunnelUpdate{Type: "vxlan", IP: ip}, "tunnel endpoint announced: vxlan 10.0.0.9"},
		{&neutron.TunnelDelete{Type: "vxlan", IP: ip}, "tunnel endpoint deleted: vxlan 10.0.0.9"},
		{&neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"a": {}, "b": {}}}, "forwarding entries added for networks, 2"},
		{&neutron.FDBRemove{Networks: map[string]neutron.FDBNetwork{"a": {}, "b": {}}}, "forwarding entries removed for networks, 2"},
		{&neutron.FDBChange{Networks: map[string]map[netip.Addr]neutron.IPChange{"a": nil, "b": nil}}, "forwarding entries changed for networks, 2"},
		{&neutron.DVRUpdate{MACs: make([]neutron.DVRMAC, 3)}, "router addresses of hosts, 3"},
		{&neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: make([]neutron.Primitive, 1)}, "Port updated, not of this host"},
		{nil, "message without effect"},
	} {
		a.seen.noteMessage(c.message)
		events := a.log.recorder.Events()
		if got := events[len(events)-1].Text; got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
	}
	if got := a.seen.totals; got.Messages != 8 || got.Foreign != 1 {
		t.Errorf("%+v", got)
	}
	for err, want := range map[error]bool{nil: true, errors.New("no"): false} {
		a.seen.note(effect.StateReported{Err: err}, a.extensions.Set)
		if a.seen.server.Up != want {
			t.Errorf("after a report with %v the server is up: %v", err, a.seen.server.Up)
		}
	}
	a.seen.note(effect.Registered{Releases: "21"}, a.extensions.Set)
	a.seen.note(effect.Registered{Err: errors.New("nobody")}, a.extensions.Set)
	if s := a.seen.server; s.Up || s.Error != "nobody" {
		t.Errorf("%+v", s)
	}
}

// TestRoundsAreCounted, with what they changed and what was refused.
func TestRoundsAreCounted(t *testing.T) {
	no := errors.New("no")
	for name, c := range map[string]struct {
		round                            dataplane.Round
		text                             []string
		failed, flowsRefused, rowsFailed uint64
	}{
		"nothing": {},
		"one row": {dataplane.Round{Rows: make([]*ovsdb.Tx, 1), Owners: []world.Object{port("p1")}, RowErrs: []error{nil}, Took: time.Millisecond}, []string{"rows written p1 in 1ms"}, 0, 0, 0},
		"rows, of which one fails": {
			dataplane.Round{Rows: make([]*ovsdb.Tx, 2), Owners: []world.Object{port("p1"), port("p2")}, RowErrs: []error{no, nil}}, []string{"rows written, 2: no"}, 1, 0, 1,
		},
		"flows": {dataplane.Round{Bundles: []dataplane.Bundle{{Bridge: "br-int", Changes: make([]delta.Change, 3)}}}, []string{"flows written to bridge br-int, 3"}, 0, 0, 0},
		"flows that are refused": {
			dataplane.Round{Bundles: []dataplane.Bundle{{Bridge: "br-int", Err: no}, {Bridge: "br-tun"}}}, []string{"flows rejected by bridge br-int: no", "flows written to bridge br-tun"}, 1, 1, 0,
		},
		"both": {
			dataplane.Round{Rows: make([]*ovsdb.Tx, 1), Owners: []world.Object{port("p1")}, RowErrs: []error{no}, Bundles: []dataplane.Bundle{{Bridge: "br-int", Err: no}}},
			[]string{"rows written p1: no", "flows rejected by bridge br-int: no"}, 1, 1, 1,
		},
	} {
		a, _ := filtering(t, &cloud{}, nil, 0)
		a.seen.note(effect.Applied{Round: &c.round}, a.extensions.Set)
		var text []string
		for _, e := range a.log.recorder.Events() {
			text = append(text, e.Text)
		}
		if got := a.seen.totals; !slices.Equal(text, c.text) || got.ApplyFailed != c.failed || got.FlowsRefused != c.flowsRefused || got.RowsFailed != c.rowsFailed || got.Apply.Count != 1 {
			t.Errorf("%s: %q, %+v", name, text, got)
		}
	}
}

// TestEventsAreTakenDown, each in its words; calls are counted, and so are those that failed.
func TestEventsAreTakenDown(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		event         effect.Event
		text          string
		calls, failed uint64
	}{
		{effect.StateReported{}, "", 1, 0},
		{effect.StateReported{Err: no}, "report_state failed: no", 1, 1},
		{effect.BridgeLinked{Bridge: "br-int", Conn: obedient{}}, "connected to bridge br-int", 0, 0},
		{effect.BridgeLinked{Bridge: "br-int", Err: no}, "connection lost to bridge br-int: no", 0, 0},
		{effect.FlowsRead{Reading: dataplane.Reading{Bridge: "br-int", Flows: make([]openflow.Entry, 3), Err: no}}, "flows read from bridge br-int, 3: no", 0, 0},
		{effect.FlowsChanged{Bridge: "br-int", Updates: make([]openflow.FlowUpdate, 2)}, "flows changed by another program on bridge br-int, 2", 0, 0},
		{effect.Pulled{Batch: pull.Batch{Owner: pull.Ports, IDs: []string{"p1"}}, Err: no}, "bulk_pull of ports p1: no", 1, 1},
		{effect.Pulled{Batch: pull.Batch{Owner: pull.Ports, IDs: []string{"p1", "p2", "p3"}}, Reply: effect.Reply{Ports: make([]neutron.Port, 2)}}, "bulk_pull of ports, 2", 1, 0},
		{effect.Pulled{Batch: pull.Batch{Owner: pull.Filters, Kind: neutron.KindSecurityGroup, IDs: []string{"g1", "g2"}}, Took: time.Second}, "bulk_pull of SecurityGroup g1, 2 in 1s", 1, 0},
		{effect.Pulled{Batch: pull.Batch{Owner: pull.Tunnels, IDs: []string{"vxlan"}}, Reply: effect.Reply{Tunnels: make([]neutron.Tunnel, 4)}}, "tunnel_sync of type vxlan, 4", 1, 0},
		{effect.PortsReported{Batch: report.Batch{Update: neutron.DeviceUpdate{Up: []string{"p1"}}}}, "reported up: port p1", 1, 0},
		{effect.PortsReported{Batch: report.Batch{Update: neutron.DeviceUpdate{Down: []string{"p1"}}}, Err: no}, "reported down: port p1: no", 1, 1},
		{effect.PortsReported{Batch: report.Batch{AdminDown: "p1"}}, "reported admin down: port p1", 1, 0},
		{effect.DatabaseAsked{Err: no}, "bulk_pull to check the database of neutron-server: no", 1, 1},
		{effect.ConnectionsReleased{N: 2}, "conntrack marks cleared, 2", 0, 0},
		{effect.ConnectionsReleased{N: 1}, "conntrack marks cleared", 0, 0},
		{effect.ConnectionsReleased{}, "", 0, 0},
		{effect.Broker{Event: messaging.ConnectFailed{Addr: "rabbit1", Err: no}}, "connection failed to rabbit1: no", 0, 0},
		{effect.Broker{Event: messaging.Refused{Addr: "rabbit1", Err: &messaging.RefusedError{Err: no}}}, "refused by rabbit1: ", 0, 0},
	} {
		a, _ := filtering(t, &cloud{}, nil, 0)
		a.seen.note(c.event, a.extensions.Set)
		text := ""
		for _, e := range a.log.recorder.Events() {
			text += e.Text
		}
		if got := a.seen.totals; !strings.HasPrefix(text, c.text) || (text == "") != (c.text == "") || got.Calls != c.calls || got.CallsFailed != c.failed {
			t.Errorf("%T: %q, want %q; %d calls, %d failed", c.event, text, c.text, got.Calls, got.CallsFailed)
		}
	}
}

// TestPeers: since when each is there, or away, and why.
func TestPeers(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	begin := time.Unix(1000, 0)
	step := 0
	told := func(e effect.Event, p *inspect.Peer, want inspect.Peer) {
		t.Helper()
		step++
		a.turn.at = begin.Add(time.Duration(step) * time.Second)
		if b, ok := e.(effect.SwitchChanged); ok {
			a.seen.noteSwitch(b.Batch)
		} else {
			a.seen.note(e, a.extensions.Set)
		}
		if want.Since = begin.Add(want.Since.Sub(time.Time{})); *p != want {
			t.Errorf("step %d: %+v, want %+v", step, *p, want)
		}
	}
	at := func(n int) time.Time { return time.Time{}.Add(time.Duration(n) * time.Second) }
	no, why := errors.New("no"), errors.New("why")
	broker := &a.seen.broker
	told(effect.Broker{Event: messaging.ConnectFailed{Err: no}}, broker, inspect.Peer{Since: at(1), Error: "no"})
	told(effect.Broker{Event: messaging.ConnectFailed{Err: why}}, broker, inspect.Peer{Since: at(1), Error: "why"})
	told(effect.Broker{Event: messaging.Connected{Addr: "rabbit1", Broker: "RabbitMQ 3"}}, broker, inspect.Peer{Up: true, Since: at(3), Detail: "rabbit1, RabbitMQ 3"})
	told(effect.Broker{Event: messaging.Connected{Addr: "rabbit2"}}, broker, inspect.Peer{Up: true, Since: at(3), Detail: "rabbit2"})
	told(effect.Broker{Event: messaging.Disconnected{Err: no}}, broker, inspect.Peer{Since: at(5), Detail: "rabbit2", Error: "no"})
	refusal := &messaging.RefusedError{Err: why}
	told(effect.Broker{Event: messaging.Refused{Err: refusal}}, broker, inspect.Peer{Since: at(5), Detail: "rabbit2", Error: refusal.Error()})
	srv := &a.seen.server
	told(effect.Registered{Releases: "24"}, srv, inspect.Peer{Up: true, Since: at(7), Detail: "24"})
	told(effect.StateReported{Err: no}, srv, inspect.Peer{Since: at(8), Detail: "24", Error: "no"})
	told(effect.StateReported{}, srv, inspect.Peer{Up: true, Since: at(9), Detail: "24"})
	told(effect.Registered{Err: why}, srv, inspect.Peer{Since: at(10), Detail: "24", Error: "why"})
	sw := &a.seen.sw
	told(effect.SwitchChanged{Batch: &ovsdb.Batch{}}, sw, inspect.Peer{Up: true, Since: at(11)})
	told(effect.SwitchChanged{Batch: &ovsdb.Batch{Kind: ovsdb.Disconnected, Err: no}}, sw, inspect.Peer{Since: at(12), Error: "no"})
	if f := a.Look(a.now()).Facts(gate.All); f.SwitchError != "no" || f.ServerError != "why" || f.BrokerError != broker.Error || f.BrokerError == "" {
		t.Errorf("%+v", f)
	}
}

// TestPortsWithoutIsolation are counted when they are plugged in while the agent runs.
func TestPortsWithoutIsolation(t *testing.T) {
	a, batch := filtering(t, &cloud{}, nil, 3)
	a.world.Switch(batch)
	plain := func(p *ovsdb.Port) *ovsdb.Port { c := *p; c.Tag = nil; return &c }
	first, second, third := plain(batch.Ports[0].New), plain(batch.Ports[1].New), plain(batch.Ports[2].New)
	third.VLANMode = "trunk"
	stranger := &ovsdb.Port{UUID: "x", Interfaces: []ovsdb.UUID{"none"}}
	both := &ovsdb.Port{UUID: second.UUID, Interfaces: []ovsdb.UUID{"none", second.Interfaces[0]}}
	for _, c := range []struct {
		name string
		b    ovsdb.Batch
		want uint64
	}{
		{"at start", ovsdb.Batch{Kind: ovsdb.Initial, Ports: []ovsdb.Diff[ovsdb.Port]{{New: first}}}, 0},
		{"with a tag", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: batch.Ports[0].New}}}, 0},
		{"with a mode", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: third}}}, 0},
		{"changed", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{Old: first, New: first}}}, 0},
		{"gone", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{Old: first}}}, 0},
		{"nobody's", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: stranger}}}, 0},
		{"two", ovsdb.Batch{Kind: ovsdb.Update, Ports: []ovsdb.Diff[ovsdb.Port]{{New: batch.Ports[2].New}, {New: first}, {New: both}}}, 2},
	} {
		before := a.seen.totals.PluggedOpen
		a.seen.notePlugged(&c.b)
		if got := a.seen.totals.PluggedOpen - before; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestAResyncAsksForEverything again, and sweeps again at its end.
func TestAResyncAsksForEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := tunnelHost(t, true)
		for _, name := range a.world.Bridges() {
			hasFlows(a, name, nil)
		}
		a.dataplane.Prune(a.now())
		a.world.Tunnels.Sync("vxlan", nil, a.world.Now())
		a.reports.Reporter = report.New(5, &a.resyncing.bucket)
		a.beginResync()
		if !a.dataplane.Pruned() || a.resyncing.count != 0 {
			t.Error("begun without a reason")
		}
		a.resyncing.soon(true)
		at := a.resyncing.at
		if time.Until(at) > spread || !a.wakeAt.Equal(at) {
			t.Errorf("begins in %v, wakes in %v", time.Until(at), time.Until(a.wakeAt))
		}
		if a.resyncing.soon(true); !a.resyncing.at.Equal(at) {
			t.Error("put off")
		}
		time.Sleep(time.Until(at))
		a.turn.at = time.Now()
		a.beginResync()
		if a.dataplane.Pruned() || a.world.Tunnels.Listed("vxlan") || a.resyncing.count != 1 || !a.resyncing.at.IsZero() || len(a.world.Missing()) != 2 {
			t.Errorf("pruned %v, tunnels %v", a.dataplane.Pruned(), a.world.Tunnels.Listed("vxlan"))
		}
		key := world.SegmentKey{Network: "n1", ID: 7}
		if got := a.reports.Stats().Networks; got != 1 {
			t.Errorf("%d networks to refresh", got)
		}
		// One port of the network is reported once more, as soon as the server knows one as up.
		claim := a.reports.claim("p1")
		claim.Applied = true
		b := a.reports.Next([]report.Claim{claim}, nil, time.Now())
		a.reports.Refresh(key)
		a.reports.Done(b[0], report.Result{}, time.Now())
		a.reports.Refresh(key)
		if got := a.reports.Next(nil, []report.Claim{claim}, time.Now()); len(got) != 1 || !got[0].Refresh || !slices.Equal(got[0].Update.Up, []string{"p1"}) {
			t.Errorf("%+v", got)
		}
	})
}

// TestHeldRows: an object whose rows cannot be worked out is tried again for as long as it is wanted.
func TestHeldRows(t *testing.T) {
	a, _ := filtering(t, &cloud{}, nil, 0)
	a.contained.rows = map[world.Object]bool{port("a"): true, port("b"): true}
	a.dataplane.Set(port("a"), pipeline.Want{Waiting: "x"})
	a.contained.retryRows(a.dataplane.RetryRows)
	if pending := a.dataplane.RowsPending(); !slices.Equal(pending, []world.Object{port("a")}) || !a.contained.rows[port("a")] || a.contained.rows[port("b")] {
		t.Errorf("%v, %v", pending, a.contained.rows)
	}
	a.nextRound(time.Now())
	if a.contained.rows[port("a")] || !slices.Equal(a.reports.Due(), []string{"a"}) {
		t.Errorf("%v, %v", a.contained.rows, a.reports.Due())
	}
	if !a.contained.mend("x", func() {}) || a.contained.mend("x", func() { panic("injected") }) {
		t.Error("what mend says")
	}
	a.wakeAt = time.Time{}
	if who := (culprit{name: "x"}); !a.contained.contain(who, func() {}) || !a.wakeAt.IsZero() || a.contained.contain(who, func() { panic("injected") }) || !a.wakeAt.Equal(a.contained.retries[who].At) || a.wakeAt.IsZero() {
		t.Errorf("what contain says; wakes at %v", a.wakeAt)
	}
}

// TestRepeatedEvents say how often and until when.
func TestRepeatedEvents(t *testing.T) {
	got := (&note{kind: kindPort, what: "x", subject: "p", repeated: 2, until: 5}).event()
	if got.Count != 3 || !got.Until.Equal(time.Unix(0, 5)) {
		t.Errorf("%+v", got)
	}
	if got = (&note{kind: kindPort, what: "x"}).event(); got.Count != 0 {
		t.Errorf("%+v", got)
	}
}

// fly puts a round in flight.
func fly(a *host) {
	a.dataplane.Next(dataplane.Input{View: a.world.View, Flush: []uint16{9}, Unflushed: a.zones.unflushedZone}, time.Now())
}
