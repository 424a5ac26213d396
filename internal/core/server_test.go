// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// TestTheSearchForAServer: one question at a time, with pauses that grow, until a server has answered.
func TestTheSearchForAServer(t *testing.T) {
	a, _, log := logged(t, 0)
	x := &whole{}
	a.extensions.Set = extension.Set{guard(extension.NewMember(x), &a.contained, &a.resyncing)}
	a.cfg.Configurations.L2Population = true
	now := time.Unix(1000, 0)
	searches := func() (all []effect.Register) {
		a.wakeAt = time.Time{}
		a.turn.begin(now)
		a.server.register(a.extensions.Set)
		for _, e := range a.turn.take().Do {
			all = append(all, e.(effect.Register))
		}
		return all
	}
	first := searches()
	if len(first) != 1 || !first[0].L2Population || !slices.Equal(first[0].Topics, []string{"topic"}) || !slices.IsSorted(first[0].Kinds) || len(first[0].Kinds) != len(kinds())+1 {
		t.Fatalf("%+v", first)
	}
	if got := searches(); len(got) != 0 {
		t.Errorf("two at a time: %+v", got)
	}
	no, last := errors.New("no"), time.Duration(0)
	for i := range 8 {
		a.receive(effect.Registered{Err: no})
		if got := searches(); len(got) != 0 || !a.wakeAt.Equal(a.server.registration.at) {
			t.Errorf("at once: %+v, wakes at %v", got, a.wakeAt)
		}
		longest := min(alivePause<<i, aliveMax)
		if wait := a.wakeAt.Sub(now); wait < longest/2 || wait > longest*3/2 {
			t.Errorf("pause %d is %v, want about %v", i, wait, longest)
		} else {
			last = wait
		}
		now = a.wakeAt
		if got := searches(); len(got) != 1 {
			t.Errorf("not after a pause: %+v", got)
		}
	}
	if n := log.counts("neutron-server does not answer, retrying"); n != 1 || last < aliveMax/2 || a.server.known() {
		t.Errorf("%d lines, a last pause of %v", n, last)
	}
	a.abandon(effect.Registered{})
	a.server.registration.inFlight = false
	if got := searches(); len(got) != 0 || !a.wakeAt.Equal(now.Add(alivePause)) {
		t.Errorf("an answer that was lost: %+v, wakes at %v", got, a.wakeAt)
	}
	now = now.Add(alivePause)
	searches()
	began := a.server.registration.began
	now = now.Add(3 * time.Second)
	a.turn.begin(now)
	a.bridges.started, a.bridges.up = true, true
	a.receive(effect.Registered{Releases: "21", Versions: neutron.Versions{neutron.KindPort: "1.7"}, Removed: []string{"q"}})
	if !a.server.known() || !a.server.canReport() || !began.Equal(now.Add(-3*time.Second)) || log.counts(`msg="neutron-server answered" release=21 waited=3s`) != 1 || log.counts("queues=1") != 1 {
		t.Errorf("%v:\n%s", began, log)
	}
	all := a.turn.take().Do
	if len(all) != 1 {
		t.Fatalf("%v", all)
	}
	sent := all[0].(effect.ReportState)
	if !sent.State.StartFlag || !sent.State.Configurations.InDistributedMode || sent.State.ResourceVersions[neutron.KindPort] != "1.7" || sent.State.Configurations.OVSCapabilities.DatapathTypes == nil || sent.Timeout != a.cfg.ReportInterval {
		t.Errorf("%+v", sent)
	}
	if got := searches(); len(got) != 0 {
		t.Errorf("searched for one that is known: %+v", got)
	}
	if a.abandon(effect.Registered{}); !a.server.known() || len(searches()) != 0 {
		t.Error("one that is known is searched for again")
	}
	a.heard(&messaging.RemoteError{Class: "DBConnectionError"})
	if a.server.canReport() {
		t.Error("reports without a database")
	}
	// Without state reports the service manager hears that the agent listens.
	a, _, _ = logged(t, 0)
	a.cfg.ReportInterval = 0
	a.receive(effect.Registered{Versions: neutron.Versions{}})
	if all := a.turn.take().Do; len(all) != 1 || !strings.Contains(all[0].(effect.Notify).Ready, "without state reports") {
		t.Errorf("%v", all)
	}
}

// TestStateReports: what became of one, what follows from it, and when there is none.
func TestStateReports(t *testing.T) {
	a, _, log := logged(t, 0)
	a.turn.begin(time.Unix(1000, 0))
	sends := func(up, dead bool) (sent *effect.ReportState) {
		a.server.sendReport(up, dead, a.extensions.Set)
		for _, e := range a.turn.take().Do {
			s := e.(effect.ReportState)
			sent = &s
		}
		return sent
	}
	if sends(true, false) != nil {
		t.Error("sent to a server that nobody knows")
	}
	a.server.versions = neutron.Versions{neutron.KindPort: "1.7"}
	if sends(false, false) != nil {
		t.Error("sent without the switch")
	}
	first := sends(true, true) // it does not wait for ovs-vswitchd
	if first == nil || !first.State.StartFlag || first.State.ResourceVersions == nil || sends(true, false) != nil {
		t.Errorf("%+v, or two at a time", first)
	}
	ends := func(e effect.StateReported) (missed, revived bool) {
		a.server.landed(e)
		return a.server.reportEnded(e)
	}
	expect := func(what string, e effect.StateReported, wantMissed, wantRevived bool, line string, lines int) {
		t.Helper()
		if missed, revived := ends(e); missed != wantMissed || revived != wantRevived || log.counts(line) != lines {
			t.Errorf("%s: missed %v, revived %v, %d lines %q", what, missed, revived, log.counts(line), line)
		}
	}
	no := errors.New("no")
	a.server.report.unheard = true
	expect("failed", effect.StateReported{Err: no}, false, false, "report_state failed, retrying", 1)
	expect("failed again", effect.StateReported{Err: no}, false, false, "report_state failed, retrying", 1)
	if again := sends(true, true); again == nil || !again.State.StartFlag {
		t.Errorf("%+v", again)
	}
	expect("ignored", effect.StateReported{}, false, false, "this host's clock is behind", 1)
	a.turn.begin(time.Unix(1060, 0))
	expect("the first", effect.StateReported{Status: "new"}, true, false, `msg="registered with neutron-server" status=new`, 1)
	if log.counts(`msg="report_state succeeds again" failed=2 after=1m0s`) != 1 {
		t.Error(log.String())
	}
	if all := a.turn.take().Do; len(all) != 1 || !strings.Contains(all[0].(effect.Notify).Ready, "reporting") {
		t.Errorf("%v", all)
	}
	if next := sends(true, false); next == nil || next.State.StartFlag || next.State.ResourceVersions != nil {
		t.Errorf("%+v", next)
	}
	expect("another", effect.StateReported{Status: "alive"}, false, false, "registered with neutron-server", 1)
	expect("revived", effect.StateReported{Status: neutron.StatusRevived}, false, true, "revived it", 1)
	const silent = "ovs-vswitchd does not answer, sending no state reports"
	for i, dead := range []bool{true, true, false, true} {
		a.server.report.inFlight = false
		if sent := sends(true, dead) != nil; sent == dead || log.counts(silent) != []int{1, 1, 1, 2}[i] {
			t.Errorf("dead %v: sent %v, %d lines", dead, sent, log.counts(silent))
		}
	}
	// One that was taken for dead has everything checked, and all entries sent again.
	b := tunnelHost(t, true)
	b.server.report = reporting{accepted: true, unheard: true}
	b.reports.syncedAt = time.Now()
	if b.event(effect.StateReported{Status: neutron.StatusRevived}); b.resyncing.at.IsZero() || !b.reports.syncedAt.IsZero() {
		t.Errorf("%v, %v", b.resyncing.at, b.reports.syncedAt)
	}
}

// TestQuestionsWaitForTheFirstReport of an agent to a server that may have newer objects than ours, however that report ends. What was
// asked before the server knew our versions is asked again; what was asked after is not.
func TestQuestionsWaitForTheFirstReport(t *testing.T) {
	for name, c := range map[string]struct {
		releases string
		interval time.Duration
		failed   int
		waits    bool
		again    bool
	}{
		"older":                {"21", time.Minute, 0, false, false},
		"newer":                {"29 or later", time.Minute, 0, true, false},
		"newer, report failed": {"29 or later", time.Minute, 1, true, true},
		"newer, no reports":    {"29 or later", 0, 0, false, false},
	} {
		a := tunnelHost(t, true)
		a.cfg.ReportInterval = c.interval
		asks := func(e effect.Event) (n int) {
			for _, do := range a.Step(time.Now(), e).Do {
				if _, ok := do.(effect.Pull); ok {
					n++
				}
			}
			return n
		}
		if n := asks(effect.Registered{Releases: c.releases, Versions: neutron.Versions{}}); n == 0 != c.waits {
			t.Errorf("%s: %d questions at once", name, n)
		}
		for range c.failed {
			if n := asks(effect.StateReported{Err: errors.New("no")}); n == 0 {
				t.Errorf("%s: no questions after a report that failed", name)
			}
		}
		if c.interval == 0 {
			continue
		}
		if n := asks(effect.StateReported{Status: "new"}); n == 0 == (c.waits && c.failed == 0) {
			t.Errorf("%s: %d questions after the report", name, n)
		}
		if again := !a.resyncing.at.IsZero(); again != c.again {
			t.Errorf("%s: asks again %v", name, again)
		}
	}
}

// TestAskingForTheDatabase: while it is away, or a report takes long, one question at a time.
func TestAskingForTheDatabase(t *testing.T) {
	a, _, log := logged(t, 0)
	now := time.Unix(1000, 0)
	asked := func(reporting bool) int {
		a.wakeAt = time.Time{}
		a.turn.begin(now)
		a.server.askDatabase(reporting)
		return len(a.turn.take().Do)
	}
	if asked(true) != 0 {
		t.Error("asked nobody")
	}
	a.server.versions = neutron.Versions{}
	if asked(false) != 0 {
		t.Error("asked without a reason")
	}
	a.turn.begin(now)
	if a.server.reportBegins(); asked(true) != 0 || !a.wakeAt.Equal(now.Add(longReport)) {
		t.Errorf("asked at once, or wakes at %v", a.wakeAt)
	}
	now = now.Add(longReport)
	if asked(true) != 1 || asked(true) != 0 {
		t.Error("not asked after a while, or twice")
	}
	a.server.landed(effect.DatabaseAsked{})
	away := &messaging.RemoteError{Class: "DBConnectionError"}
	a.turn.begin(now)
	a.heard(away)
	a.heard(away)
	if !a.server.database.Open() || log.counts(noDatabase) != 1 {
		t.Errorf("%d lines", log.counts(noDatabase))
	}
	n := 0
	for range 100 {
		now = now.Add(time.Second)
		if asked(false) == 1 {
			n++
			a.server.landed(effect.DatabaseAsked{Err: away})
		}
	}
	if n < 3 || n > 60 {
		t.Errorf("asked %d times in 100 s", n)
	}
	a.turn.begin(now)
	if a.heard(nil); a.server.database.Open() || log.counts(hasDatabase) != 1 || asked(false) != 0 {
		t.Errorf("%d lines", log.counts(hasDatabase))
	}
	now = now.Add(time.Hour)
	a.turn.begin(now)
	a.heard(nil) // in peace: should it come up again, it is told again
	if a.heard(away); log.counts(noDatabase) != 2 {
		t.Errorf("%d lines", log.counts(noDatabase))
	}
}

// TestHowThingsAreAsked: how many with one call, and how many calls at a time.
func TestHowThingsAreAsked(t *testing.T) {
	rules := pullRules()
	for owner, want := range map[pull.Owner]pull.Rule{
		pull.Ports:      {Most: 100, First: 5, Calls: 2},
		pull.Tunnels:    {Most: 1, Unpaused: true},
		pull.Extensions: {Most: 100, Calls: 2},
	} {
		if got := rules[owner]; got.Most != want.Most || got.First != want.First || got.Calls != want.Calls || got.Unpaused != want.Unpaused || got.Burst {
			t.Errorf("%d: %+v, want %+v", owner, got, want)
		}
	}
	if got := rules[pull.Filters]; got.Most != 100 || got.Calls != 2 || !got.Burst || got.Kinds[neutron.KindPort] != 10 || len(got.Kinds) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestPortsThatAreLedToFilters are found by the flows of the table before them.
func TestPortsThatAreLedToFilters(t *testing.T) {
	var entries []openflow.Entry
	for _, text := range []string{
		"table=60,priority=100,in_port=1,actions=resubmit(,71)", "table=60,priority=99,in_port=2,actions=resubmit(,71)", "table=60,priority=101,in_port=3,actions=resubmit(,71)",
		"table=61,priority=100,in_port=4,actions=resubmit(,71)", "table=60,priority=100,dl_vlan=5,actions=resubmit(,81)", "table=60,priority=100,in_port=6,actions=resubmit(,71)",
	} {
		f, err := openflow.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if got := ledToFilters(entries); len(got) != 2 || !got[1] || !got[6] {
		t.Errorf("%v", got)
	}
	if got := ledToFilters(nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
	a, _ := filtering(t, &cloud{}, nil, 0)
	if a.rules.inherits() != 0 || a.rules.lines("p") != nil {
		t.Error("rules without iptables")
	}
	if busy, faults := a.rules.blocking(); busy || faults != nil {
		t.Error("rules without iptables")
	}
}

// TestWhatAnAnswerHas: what filters need and the answer does not have, or what in it cannot be read, is asked for again.
func TestWhatAnAnswerHas(t *testing.T) {
	groups := func(ids ...string) (out []neutron.SecurityGroup) {
		for _, id := range ids {
			out = append(out, neutron.SecurityGroup{ID: id})
		}
		return out
	}
	for name, c := range map[string]struct {
		kind     neutron.Kind
		reply    effect.Reply
		answered []string
	}{
		"all":                 {neutron.KindSecurityGroup, effect.Reply{Groups: groups("a", "b")}, []string{"a", "b"}},
		"one":                 {neutron.KindSecurityGroup, effect.Reply{Groups: groups("b")}, []string{"b"}},
		"one, and one unread": {neutron.KindSecurityGroup, effect.Reply{Groups: groups("b"), Unread: []string{"a"}}, []string{"b"}},
		"none":                {neutron.KindSecurityGroup, effect.Reply{}, nil},
		"addresses":           {neutron.KindAddressGroup, effect.Reply{Addresses: []neutron.AddressGroup{{ID: "a"}}}, []string{"a"}},
		"members":             {neutron.KindPort, effect.Reply{}, []string{"a", "b"}},
		"members, one unread": {neutron.KindPort, effect.Reply{Unread: []string{"m"}}, nil},
	} {
		a := obeying(t, nil)
		if got := a.pulls.itemsPulled(effect.Pulled{Batch: pull.Batch{Owner: pull.Filters, Kind: c.kind, IDs: []string{"a", "b"}}, Reply: c.reply}); !slices.Equal(got, c.answered) {
			t.Errorf("%s: %q, want %q", name, got, c.answered)
		}
	}
	a := tunnelHost(t, false)
	a.world.Resync()
	if got := a.pulls.tunnelsPulled(effect.Pulled{Batch: pull.Batch{IDs: []string{"vxlan"}}, Err: errors.New("no")}); got != nil || a.world.Tunnels.Listed("vxlan") {
		t.Errorf("%q", got)
	}
	far := neutron.Tunnel{}
	if err := far.IP.UnmarshalText([]byte("10.0.0.77")); err != nil {
		t.Fatal(err)
	}
	got := a.pulls.tunnelsPulled(effect.Pulled{Batch: pull.Batch{IDs: []string{"vxlan"}, Asked: a.world.Now()}, Reply: effect.Reply{Tunnels: []neutron.Tunnel{far}}})
	if !slices.Equal(got, []string{"vxlan"}) || !a.world.Tunnels.Listed("vxlan") || !a.world.Tunnels.Wanted(world.Endpoint{Type: "vxlan", IP: far.IP}) {
		t.Errorf("%q", got)
	}
}
