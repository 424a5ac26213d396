// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/report"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// logged is a core whose log a test reads.
func logged(t *testing.T, ports int) (*host, *ovsdb.Batch, *logBuffer) {
	t.Helper()
	a, batch := filtering(t, &cloud{}, nil, ports)
	log := &logBuffer{}
	a.log.Logger = slog.New(slog.NewTextHandler(log, nil))
	return a, batch, log
}

// TestLinesOfTheLog: which are kept, at which level, and which reach the log.
func TestLinesOfTheLog(t *testing.T) {
	var log logBuffer
	r := &Recorder{}
	logger := slog.New(r.Handler(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	logger.Debug("debug")
	logger.Info("info", "port", "p1", "n", 3)
	logger.Warn("warning")
	logger.Error("error")
	var got []string
	for _, e := range r.Events() {
		got = append(got, e.Level+" "+e.Text+" "+e.Subject)
	}
	if want := []string{"info info port=p1 n=3 p1", "warning warning ", "error error "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "msg=warning") || !strings.Contains(text, "msg=error") {
		t.Errorf("the log:\n%s", text)
	}
	if h := r.Handler(slog.DiscardHandler); !h.Enabled(context.Background(), slog.LevelInfo) || h.Enabled(context.Background(), slog.LevelDebug) {
		t.Error("which levels are recorded")
	}
	for i := range maxWarnings + 5 {
		logger.Warn("warning", "number", i)
		if n := len(r.LastWarnings()); n != min(2+i+1, maxWarnings) {
			t.Fatalf("%d warnings are kept after %d", n, 2+i+1)
		}
	}
	last := r.LastWarnings()
	if first, end := last[0].Text, last[maxWarnings-1].Text; first != "warning number=5" || end != fmt.Sprint("warning number=", maxWarnings+4) {
		t.Errorf("kept from %q to %q", first, end)
	}
	if warnings, errs := r.Lines(); warnings != maxWarnings+6 || errs != 1 {
		t.Errorf("%d warnings, %d errors", warnings, errs)
	}
	a, _, _ := logged(t, 0)
	a.turn.at = time.Unix(77, 0)
	a.log.note(note{kind: kindPort, what: "x"})
	if e := a.log.recorder.Events(); len(e) != 1 || !e[0].Time.Equal(a.turn.at) {
		t.Errorf("%+v", e)
	}
}

// TestEventsOfTheBroker: what the log says, each condition once while it lasts, and after which everything has to be checked.
func TestEventsOfTheBroker(t *testing.T) {
	a, _, log := logged(t, 0)
	no := errors.New("no")
	refusal := &messaging.RefusedError{Err: no}
	for i, c := range []struct {
		event messaging.Event
		line  string
		gap   bool
	}{
		{messaging.ConnectFailed{Addr: "a", Err: no}, "connection to the broker failed, retrying", false},
		{messaging.ConnectFailed{Addr: "a", Err: no}, "", false},
		{messaging.Refused{Addr: "a", Err: refusal}, brokerRefuses, false},
		{messaging.Refused{Addr: "a", Err: refusal}, "", false},
		{messaging.Connected{Addr: "a"}, `msg="connected to the broker" addr=a tls=none`, false},
		{messaging.ConnectFailed{Addr: "a", Err: no}, "connection to the broker failed, retrying", false},
		{messaging.Refused{Addr: "a", Err: refusal}, brokerRefuses, false},
		{messaging.Disconnected{Addr: "a", Err: no}, "connection to the broker lost, reconnecting", false},
		{messaging.Gap{Queue: "q"}, "RPC messages may have been lost, resyncing", true},
		{messaging.Blocked{Reason: "memory"}, "the broker blocks publishing", false},
		{messaging.Unblocked{}, "the broker no longer blocks publishing", false},
		{messaging.SetupFailed{Queue: "q", Err: no}, "queue setup failed, retrying", false},
		{messaging.SetupFailed{Queue: "q", Err: no}, "", false},
		{messaging.Fallback{Name: "q"}, "using it as it is", false},
		{messaging.NoHub{Name: "q"}, "binding the queue to every exchange", false},
		{messaging.NoStream{Name: "q"}, "taking messages to all from the agent's queue", false},
	} {
		before := len(log.String())
		gap := a.seen.brokerEvent(c.event)
		if text := log.String()[before:]; gap != c.gap || !strings.Contains(text, c.line) || (text == "") != (c.line == "") {
			t.Errorf("event %d, %T: gap %v, %q, want %q", i, c.event, gap, text, c.line)
		}
	}
	advises := func() bool { return hasPart(a.seen.advisories(false), brokerUnverified) }
	if a.seen.brokerEvent(messaging.Connected{TLS: "verified"}); advises() || strings.Contains(log.String(), brokerUnverified) {
		t.Error("a broker that is verified is advised against")
	}
	if a.seen.brokerEvent(messaging.Connected{TLS: "unverified"}); !advises() || !strings.Contains(log.String(), brokerUnverified) {
		t.Error("a broker that is not verified is not advised against")
	}
	if a.seen.brokerEvent(messaging.Connected{}); advises() {
		t.Error("advised against for ever")
	}
	for range 2 { // told once
		a.event(effect.PacketsUnheard{Bridge: "br-int", Err: no})
	}
	if n := strings.Count(log.String(), "no connection to the bridge for packets of VMs"); n != 1 {
		t.Errorf("a connection for packets that cannot be had is told %d times", n)
	}
	a.event(effect.Broker{Event: messaging.Gap{}})
	if a.resyncing.at.IsZero() || !a.Look(a.now()).Facts(gate.All).ResyncDue {
		t.Error("a gap is no reason to check everything")
	}
}

// TestMessagesThatWereDropped are counted; one that was too large may have said anything.
func TestMessagesThatWereDropped(t *testing.T) {
	for name, c := range map[string]struct {
		dropped effect.Dropped
		line    string
		resyncs bool
	}{
		"none":       {effect.Dropped{}, "", false},
		"one":        {effect.Dropped{Count: 1}, "AMQP message cannot be decoded, dropped", false},
		"large ones": {effect.Dropped{Count: 3, Large: 1}, "message too large, dropped; resyncing", true},
		"all large":  {effect.Dropped{Count: 2, Large: 2}, "message too large, dropped; resyncing", true},
	} {
		a, _, log := logged(t, 0)
		a.event(c.dropped)
		if text := log.String(); !strings.Contains(text, c.line) || (text == "") != (c.line == "") || a.resyncing.at.IsZero() == c.resyncs || a.seen.totals.Dropped != uint64(c.dropped.Count) {
			t.Errorf("%s: %q, checks %v, %d dropped", name, text, !a.resyncing.at.IsZero(), a.seen.totals.Dropped)
		}
	}
}

// TestHolesOfTheSwitch are in the log once for each version, and in the status for as long as it has them.
func TestHolesOfTheSwitch(t *testing.T) {
	a, batch, log := logged(t, 0)
	lines := func() int { return strings.Count(log.String(), "published vulnerabilities") }
	if a.seen.warnOfSwitch(); lines() != 0 || len(a.seen.advisories(false)) != 0 {
		t.Errorf("of a switch that nobody has seen: %q", a.seen.advisories(false))
	}
	a.world.Switch(batch)
	for range 2 {
		if a.seen.warnOfSwitch(); lines() != 1 || !strings.Contains(log.String(), "CVE-2023-1668 CVE-2023-5366]") || !hasPart(a.seen.advisories(false), "CVE-2023-5366") {
			t.Errorf("%q:\n%s", a.seen.advisories(false), log.String())
		}
	}
	a.seen.warned = "another"
	if a.seen.warnOfSwitch(); lines() != 2 {
		t.Errorf("after another version:\n%s", log.String())
	}
}

// TestFragmentsEscape is said of a userspace datapath that tracks connections, before 4.0, unless the agent has it drop fragments.
func TestFragmentsEscape(t *testing.T) {
	for _, c := range []struct {
		datapath, version     string
		conntrack, drop, want bool
	}{
		{"netdev", "3.5.0", true, false, true},
		{"netdev", "3.5.0", true, true, false},
		{"netdev", "3.5.0", false, false, false},
		{"netdev", "4.0.0", true, false, false},
		{"system", "3.5.0", true, false, false},
	} {
		a, batch, log := logged(t, 0)
		a.cfg.Configurations.DatapathType, a.cfg.Conntrack, a.cfg.DropFragments = c.datapath, c.conntrack, c.drop
		batch.OpenVSwitch[0].New.OVSVersion = c.version
		a.world.Switch(batch)
		a.seen.warnOfSwitch()
		if said := strings.Contains(log.String(), fragmentsEscape); said != c.want || hasPart(a.seen.advisories(c.drop), fragmentsEscape) != c.want {
			t.Errorf("%+v: %q\n%s", c, a.seen.advisories(c.drop), log.String())
		}
		if strings.Contains(log.String(), switchAdvisories) {
			t.Errorf("%+v: no vulnerability of it was published:\n%s", c, log.String())
		}
	}
}

// TestPushesAreTakenDown under each port that they are about.
func TestPushesAreTakenDown(t *testing.T) {
	a := obeying(t, nil)
	a.log.recorder = &Recorder{}
	p := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated}
	for _, id := range []string{"p0", "p1"} {
		p.Objects = append(p.Objects, told(t, neutron.KindPort, fake.PluggedPort(id, 9, "ACTIVE")))
	}
	if err := a.world.Push(p, time.Now()); err != nil {
		t.Fatal(err)
	}
	a.seen.noteMessage(p)
	var got []string
	for _, e := range a.log.recorder.Events() {
		got = append(got, e.Text+": "+e.Subject)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"Port updated p0: p0", "Port updated p1: p1"}) || a.seen.totals.Foreign != 0 {
		t.Errorf("%q", got)
	}
	a.seen.noteSwitch(&ovsdb.Batch{Ports: make([]ovsdb.Diff[ovsdb.Port], 3)})
	if e := a.log.recorder.Events(); e[len(e)-1].Text != "rows changed in OVSDB, 3" {
		t.Errorf("%+v", e[len(e)-1])
	}
}

// TestWhatIsHeld: what failed is tried again when it is time, what is over is named for a while, and what succeeded is let go with its pauses remembered.
func TestWhatIsHeld(t *testing.T) {
	a := obeying(t, nil)
	k, now := &a.contained, time.Unix(1000, 0)
	object, event := culprit{object: port("p0")}, culprit{name: "taking x"}
	at := func(when time.Time) {
		k.round++
		a.wakeAt = time.Time{}
		a.turn.begin(when)
		a.world.Resolve()
		k.retryHeld()
	}
	a.turn.begin(now)
	k.hold(object, errors.New("no"), asItWas)
	k.hold(event, errors.New("no"), "").passing = true
	if h := k.held[object]; h.failed != 1 || h.reason != "no" || !h.since.Equal(now) || !slices.Equal(k.names(), []string{"port p0"}) {
		t.Errorf("%+v, %q", h, k.names())
	}
	first := k.retries[object].At
	if at(now); a.world.HasChanges() || !a.wakeAt.Equal(k.retries.Next()) {
		t.Errorf("worked out again too early, or nobody wakes up: %v", a.wakeAt)
	}
	later := first
	if other := k.retries[event].At; other.After(later) {
		later = other
	}
	if at(later); !a.world.HasChanges() || !k.retries[object].At.Equal(later.Add(pace.Longest)) || k.retries[object].Failed != 1 {
		t.Errorf("not worked out again: %+v", k.retries[object])
	}
	if want := k.retries[event].At.Add(pace.Calm); !a.wakeAt.Equal(want) || k.held[event] == nil {
		t.Errorf("what is over is forgotten at once, or nobody wakes up: %v", a.wakeAt)
	}
	a.turn.begin(later)
	k.hold(object, errors.New("worse"), asItWas)
	if h := k.held[object]; h.failed != 2 || h.reason != "worse" || !h.since.Equal(now) {
		t.Errorf("%+v", h)
	}
	calm := k.retries[event].At.Add(pace.Calm)
	if at(calm); k.held[event] != nil || k.held[object] == nil {
		t.Errorf("held %v", k.quarantined())
	}
	if _, kept := k.retries[event]; !kept {
		t.Error("the pauses of what may fail again are forgotten at once")
	}
	if at(k.retries[event].At.Add(pace.Calm)); len(k.retries) == 0 {
		t.Error("forgotten too early")
	}
	if at(k.retries[event].At.Add(pace.Calm + 1)); k.retries[event] != (pace.Attempt{}) {
		t.Error("the pauses are remembered for ever")
	}
	k.round++
	if k.letGo(object); len(k.held) != 0 {
		t.Errorf("held %v", k.quarantined())
	}
	if k.hold(object, errors.New("no"), shutOut); k.held[object].effect != shutOut {
		t.Error("what became of it")
	}
	if k.hold(object, errors.New("no"), asItWas); k.held[object].effect != shutOut {
		t.Error("a port that is shut stays so")
	}
	if k.letGo(object); k.held[object] == nil {
		t.Error("let go in the round in which it failed")
	}
	for _, name := range []string{"c", "a", "b"} {
		k.hold(culprit{name: name}, errors.New("no"), "")
	}
	k.hold(culprit{object: port("p1"), name: "its rows"}, errors.New("no"), "")
	if names := k.names(); !slices.Equal(names, []string{"a", "b", "c", "port p0", "port p1, its rows"}) {
		t.Errorf("%q", names)
	}
	var shown []string
	for _, h := range k.quarantined() {
		shown = append(shown, h.Object)
	}
	if !slices.Equal(shown, k.names()) {
		t.Errorf("%q", shown)
	}
}

// TestObjectsThatCannotBeCompiled: one that is gone has no flows, one that is no port stays as it was, and whether anything is known of what it wants is told.
func TestObjectsThatCannotBeCompiled(t *testing.T) {
	a := tunnelHost(t, true)
	key, no := world.SegmentKey{Network: "n1", ID: 7}, errors.New("no")
	for name, c := range map[string]struct {
		object world.Object
		wanted bool // before
		effect string
		stays  bool
		blind  bool
	}{
		"a port that is gone":          {port("gone"), true, nothingOfIt, false, false},
		"a network that is gone":       {world.SegmentObject{Network: "gone"}, true, nothingOfIt, false, false},
		"a station of one":             {world.StationObject{Segment: world.SegmentKey{Network: "gone"}}, true, nothingOfIt, false, false},
		"a peer of one":                {world.PeerObject{Segment: world.SegmentKey{Network: "gone"}}, true, nothingOfIt, false, false},
		"a network":                    {world.SegmentObject(key), true, asItWas, true, false},
		"a network that never had any": {world.SegmentObject(key), false, asItWas, true, true},
		"a station":                    {world.StationObject{Segment: key}, true, asItWas, true, false},
		"a peer":                       {world.PeerObject{Segment: key}, true, asItWas, true, false},
		"a bridge":                     {world.BridgeObject("br-int"), false, asItWas, true, true},
	} {
		clear(a.contained.held)
		want := a.contained.fallback(c.object, no, place{}, c.wanted)
		h := a.contained.held[culprit{object: c.object}]
		if h == nil || h.effect != c.effect || (want.Err != nil) != c.stays || h.blind != c.blind || a.contained.blind() != c.blind {
			t.Errorf("%s: %+v, %+v", name, h, want)
		}
	}
	k := &a.contained
	for what, work := range map[string]func(){"done": func() {}, "failed": func() { panic("injected") }} {
		for _, o := range []world.Object{nil, world.GroupObject("g"), port("p1")} {
			clear(k.held)
			k.round++
			if ok := k.inWorld(o, work); ok != (what == "done") || len(k.held) != map[bool]int{true: 0, false: 1}[ok] {
				t.Errorf("%v: %s, and %v; %+v", o, what, ok, k.quarantined())
			}
		}
	}
	clear(k.held)
	if done, mended := k.inRows(port("p1"), func() { panic("injected") }); done || mended || !k.rows[port("p1")] || len(k.held) != 1 || !k.holds(port("p1")) {
		t.Errorf("%v, %v, %v", done, mended, k.quarantined())
	}
	k.round++
	if done, mended := k.inRows(port("p1"), func() {}); !done || !mended || k.rows[port("p1")] || len(k.held) != 0 || k.holds(port("p1")) {
		t.Errorf("%v, %v, %v", done, mended, k.quarantined())
	}
	if done, mended := k.inRows(port("p1"), func() {}); !done || mended {
		t.Errorf("%v, %v", done, mended)
	}
	panics := k.panics
	if k.mend("x", func() { panic("injected") }); k.panics != panics+1 || k.held[culprit{name: "x"}] == nil || len(k.names()) != 0 {
		t.Errorf("%d panics, %v", k.panics-panics, k.quarantined())
	}
	k.contain(culprit{object: port("p1")}, func() { panic("injected") })
	if !slices.Equal(k.names(), []string{"port p1"}) {
		t.Errorf("%q", k.names())
	}
	k.compiled(port("p1"), place{filtered: true})
	if k.compiled(port("p2"), place{}); len(k.places) != 1 {
		t.Errorf("%v", k.places)
	}
	if k.compiled(port("p1"), place{}); len(k.places) != 0 {
		t.Errorf("%v", k.places)
	}
}

// TestConfirmedPorts: what the log says of a port whose status the server has confirmed, and how long it took.
func TestConfirmedPorts(t *testing.T) {
	a, batch, log := logged(t, 2)
	a.bridges.started, a.bridges.up = true, true
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.world.Switch(batch)
	settle(t, a)
	now := time.Unix(2000, 0)
	line := func(c report.Claim) string {
		before := len(log.String())
		a.reports.logConfirmed(&c, now)
		_, text, _ := strings.Cut(log.String()[before:], "msg=")
		return strings.TrimSpace(text)
	}
	expect := func(c report.Claim, want string) {
		t.Helper()
		if got := line(c); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
	l := a.reports.of["p0"]
	*l = timeline{plugged: now.Add(-10 * time.Second), answered: now.Add(-7 * time.Second), applied: now.Add(-3 * time.Second), state: "x"}
	count := a.reports.took.Count
	expect(report.Claim{Port: "p0", Status: report.Up}, `"port is up" port=p0 network=n vlan=1 interface=p0 details=3s switch=4s report=3s total=10s`)
	if !l.reported.Equal(now) || a.reports.took.Count != count+1 {
		t.Errorf("%+v, %d", l, a.reports.took.Count)
	}
	expect(report.Claim{Port: "p0", Status: report.AdminDown}, `"port is down" port=p0`)
	expect(report.Claim{Port: "p0", Status: report.Down}, `"port is plugged in again" port=p0`)
	if *l != (timeline{plugged: now, state: "x"}) {
		t.Errorf("%+v", l)
	}
	vif := a.world.Port("p0").VIF
	a.world.Port("p0").VIF = nil
	expect(report.Claim{Port: "p0", Status: report.Up}, `"port is up" port=p0 reason=`)
	a.world.Port("p0").VIF = vif
	delete(a.reports.of, "p1")
	for _, id := range []string{"p1", "gone"} {
		expect(report.Claim{Port: id, Status: report.Down}, `"port is gone" port=`+id)
		expect(report.Claim{Port: id, Status: report.Up}, "")
	}
	a.reports.of["gone"] = &timeline{}
	expect(report.Claim{Port: "gone", Status: report.Down}, `"port is gone" port=gone`)
	expect(report.Claim{Port: "gone", Status: report.Up}, "")
	delete(a.reports.of, "gone")
	// What is decided about a port is taken down when it is new.
	decided := func(id string) []string {
		a.log.recorder = &Recorder{}
		a.reports.decided(id)
		var out []string
		for _, e := range a.log.recorder.Events() {
			out = append(out, e.Text)
		}
		return out
	}
	l.state = "another"
	if got := decided("p0"); len(got) != 1 || !strings.HasPrefix(got[0], "port p0 is wired, ") || len(decided("p0")) != 0 {
		t.Errorf("%q", got)
	}
	a.reports.of["gone"] = &timeline{}
	if got := decided("gone"); !slices.Equal(got, []string{"port gone is unplugged"}) || a.reports.of["gone"] != nil {
		t.Errorf("%q, %v", got, a.reports.of["gone"])
	}
	// A report that failed, or of which parts did, is told once while it lasts.
	const failed = "update_device_list failed, retrying"
	for i, c := range []struct {
		result neutron.DeviceResult
		err    error
		lines  int
	}{
		{neutron.DeviceResult{}, errors.New("no"), 1}, {neutron.DeviceResult{}, errors.New("no"), 1}, {neutron.DeviceResult{}, nil, 1}, {neutron.DeviceResult{}, errors.New("no"), 2},
		{neutron.DeviceResult{FailedUp: []string{"p0"}}, nil, 3}, {neutron.DeviceResult{FailedDown: []string{"p0"}}, nil, 3}, {neutron.DeviceResult{}, nil, 3},
		{neutron.DeviceResult{FailedDown: []string{"p0"}}, nil, 4}, {neutron.DeviceResult{FailedUp: []string{"p0"}, FailedDown: []string{"p1"}}, nil, 5},
	} {
		a.reports.Reporter = report.New(5, &a.resyncing.bucket)
		b := a.reports.Next([]report.Claim{{Port: "p0", Status: report.Up, Interface: "i", Applied: true}}, nil, now)
		if a.reports.ended(effect.PortsReported{Batch: b[0], Result: c.result, Err: c.err}); strings.Count(log.String(), failed) != c.lines {
			t.Errorf("report %d: %d lines, want %d", i, strings.Count(log.String(), failed), c.lines)
		}
	}
}

// TestNetworksInTunnels: with l2population a claim says that its port's network is in tunnels, and whether it has entries; which networks may still get some is shown.
func TestNetworksInTunnels(t *testing.T) {
	for _, l2population := range []bool{true, false} {
		a := tunnelHost(t, l2population)
		a.reports.Reporter = report.New(5, &a.resyncing.bucket)
		c1, c2 := a.reports.claim("p1"), a.reports.claim("p2")
		if c1.Tunnelled != l2population || c2.Tunnelled || c1.NoEntries != (l2population && !a.world.Tunnels.HasTunnels(a.world.Segments.Get(c1.Segment))) {
			t.Errorf("l2population %v: %+v, %+v", l2population, c1, c2)
		}
		now := time.Unix(3000, 0)
		a.world.Resync()
		if got := a.reports.awaited(now); len(got) != 0 {
			t.Errorf("before anything is requested: %+v", got)
		}
		for _, c := range []report.Claim{c1, c2} {
			c.Applied = true
			for _, b := range a.reports.Next([]report.Claim{c}, nil, now) {
				a.reports.Done(b, report.Result{}, now)
			}
		}
		want := []inspect.Awaited(nil)
		if since := a.reports.Requested(c1.Segment); l2population && !since.IsZero() {
			want = []inspect.Awaited{{Network: "n1", Since: since, Until: since.Add(a.cfg.FDBGrace)}}
		} else if l2population {
			t.Error("nothing is requested")
		}
		if got := a.reports.awaited(now); !slices.Equal(got, want) {
			t.Errorf("l2population %v: %+v, want %+v", l2population, got, want)
		}
		if got := a.reports.awaited(now.Add(a.cfg.FDBGrace)); len(got) != 0 {
			t.Errorf("after the time for it: %+v", got)
		}
	}
}

// TestWhenTheWorldIsWritten: at most so often, and when it is in sync.
func TestWhenTheWorldIsWritten(t *testing.T) {
	a, _, log := logged(t, 0)
	a.cfg.Snapshot = true
	m, now := &a.memory, time.Unix(1000, 0)
	due := func(at time.Time) bool {
		a.wakeAt = time.Time{}
		a.turn.begin(at)
		return m.due()
	}
	if due(now) {
		t.Error("without a change")
	}
	m.changed()
	if !due(now) || due(now.Add(savePause-1)) || !a.wakeAt.Equal(now.Add(savePause)) {
		t.Errorf("written twice in a row, or nobody wakes up: %v", a.wakeAt)
	}
	if now = now.Add(savePause); !due(now) {
		t.Error("not written after a pause")
	}
	a.wakeAt = time.Time{}
	if m.keep(false) || !m.stale || m.saving || !a.wakeAt.Equal(now.Add(savePause)) {
		t.Errorf("%+v, wakes at %v", m, a.wakeAt)
	}
	if !m.keep(true) || m.stale || !m.saving {
		t.Errorf("%+v", m)
	}
	for i, err := range []error{errors.New("full"), errors.New("full"), nil, errors.New("full")} {
		m.saved(effect.Saved{Err: err})
		if n := strings.Count(log.String(), "snapshot not written"); n != []int{1, 1, 1, 2}[i] {
			t.Errorf("%d lines after %d", n, i+1)
		}
	}
}

// TestPacketsAreCounted: by extension and what became of them, with those that were dropped before; what is to be written down is.
func TestPacketsAreCounted(t *testing.T) {
	a, _, _ := guardedWhole(t)
	c := &hung{}
	came := func(limited uint64) []effect.Effect {
		a.turn.begin(time.Now())
		a.event(effect.PacketIn{Bridge: "br-int", Conn: c, Packet: &openflow.PacketIn{Userdata: []byte("whole x")}, Limited: limited})
		return a.turn.take().Do
	}
	all := came(0)
	var kinds []string
	for _, e := range all {
		kinds = append(kinds, fmt.Sprintf("%T", e))
	}
	if slices.Sort(kinds); !slices.Equal(kinds, []string{"effect.AskResolver", "effect.AskResolver", "effect.SendPackets", "effect.WriteRecords"}) {
		t.Errorf("%q", kinds)
	}
	for _, e := range all {
		if w, ok := e.(effect.WriteRecords); ok && (w.Extension != "whole" || !slices.Equal(w.Lines, []string{"line"}) || !w.At.Equal(a.now())) {
			t.Errorf("%+v", w)
		}
	}
	if got := a.extensions.packetTotals()["whole"]; len(got) != 1 || got["answered"] != 1 {
		t.Errorf("%v", got)
	}
	came(1)
	came(5)
	if got := a.extensions.packetTotals()["whole"]; len(got) != 2 || got["answered"] != 3 || got[string(extension.Limited)] != 6 {
		t.Errorf("%v", got)
	}
}

// TestWakingUp: the earliest time counts, and one that has come is over.
func TestWakingUp(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	s := &turn{}
	for _, c := range []struct{ wake, want time.Time }{{time.Time{}, time.Time{}}, {at(5), at(5)}, {at(7), at(5)}, {time.Time{}, at(5)}, {at(3), at(3)}} {
		if s.wakeUp(c.wake); !s.wakeAt.Equal(c.want) {
			t.Errorf("after %v: %v, want %v", c.wake, s.wakeAt, c.want)
		}
	}
	if s.begin(at(2)); !s.wakeAt.Equal(at(3)) {
		t.Error("forgotten before its time")
	}
	if s.begin(at(3)); !s.wakeAt.IsZero() {
		t.Error("not over")
	}
}

// TestWhatACoreBeginsWith: what an earlier run wrote down, and that it has just begun.
func TestWhatACoreBeginsWith(t *testing.T) {
	var log logBuffer
	x := &whole{}
	a := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Recorder: &Recorder{}, World: world.Config{Host: "hv1", IntegrationBridge: "br-int", Filter: true},
		Extensions: []extension.New{func(*world.World) extension.Extension { return x }},
	}, &Saved{Memory: &world.Memory{Ports: []neutron.Port{{ID: "p0"}}, Extensions: map[string]json.RawMessage{"whole": []byte("1")}}, Written: time.Unix(5, 0)}, time.Unix(10, 0))
	a.world.Switch(fake.Plugged(1))
	a.world.Resolve()
	if a.world.Remembered() != 1 || !strings.Contains(log.String(), `msg="snapshot loaded" ports=1`) || !a.server.report.start || a.cfg.FDBGrace != fdbGrace || !slices.Contains(x.said, "Load") {
		t.Errorf("%d remembered, called %q, %s", a.world.Remembered(), x.said, log.String())
	}
}
