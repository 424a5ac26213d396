// SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

func yes() bool          { return true }
func never(string) bool  { return false }
func always(string) bool { return true }

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func empty() iptables.State {
	s := iptables.State{Sets: map[string]iptables.Set{}}
	for i := range s.Rules {
		s.Rules[i] = iptables.Ruleset{"filter": {"INPUT": nil, "FORWARD": nil, "OUTPUT": nil}}
	}
	return s
}

// One job is under way at a time, failures are paced, and an idle host is compared every two minutes.
func TestPace(t *testing.T) {
	w := world.New(world.Config{IntegrationBridge: "br-int", Filter: true, Hybrid: true})
	r := New(iptables.Config{}, false)
	job, due := r.Next(w, noon, yes, never)
	if !due || !job.Read || !job.Other {
		t.Fatalf("%+v, %v", job, due)
	}
	if _, due := r.Next(w, noon, yes, never); due || !r.WakeAt(noon).IsZero() {
		t.Error("two jobs at a time")
	}
	out := r.Read(w, iptables.State{}, "", true, errors.New("no such program"), noon)
	if out.Job != nil || len(out.Logs) != 1 || !strings.Contains(r.Faults()[0], "no such program") || r.Seen() {
		t.Errorf("%+v, %v", out, r.Faults())
	}
	if _, due := r.Next(w, noon, yes, never); due {
		t.Error("tried again at once")
	}
	at := r.WakeAt(noon)
	if job, due := r.Next(w, at, yes, never); !due || !job.Read {
		t.Fatalf("%+v, %v at %v", job, due, at)
	}
	if out := r.Read(w, empty(), "", true, nil, at); out.Job != nil || len(out.Logs) != 0 || len(r.Faults()) != 0 || r.Busy(w) {
		t.Errorf("a host without ports: %+v, %v", out, r.Faults())
	}
	if _, due := r.Next(w, at, yes, never); due || !r.WakeAt(at).Equal(at.Add(checkPause)) {
		t.Errorf("next at %v", r.WakeAt(at))
	}
	at = at.Add(checkPause)
	if job, due := r.Next(w, at, yes, never); !due || !job.Other {
		t.Errorf("not compared after %v: %+v", checkPause, job)
	}
	r.Abandoned(at)
	if _, due := r.Next(w, at, yes, never); due || r.WakeAt(at).IsZero() {
		t.Error("what was lost is tried again at once, or never")
	}
	// While rules have no effect it is looked more often.
	at = at.Add(time.Hour)
	r.Next(w, at, yes, never)
	have := empty()
	have.Unbridged = []string{"off"}
	if out := r.Read(w, have, "iptables-legacy-save", true, nil, at); len(out.Logs) != 2 || !r.WakeAt(at).Equal(at.Add(faultPause)) {
		t.Errorf("%+v, next at %v", out, r.WakeAt(at))
	}
	r.Next(w, at.Add(faultPause), yes, never)
	if out := r.Read(w, have, "", false, nil, at); len(out.Logs) != 0 || len(r.Faults()) != 2 {
		t.Errorf("the same is told again, or forgotten: %+v, %v", out, r.Faults())
	}
}

// oneMember is a group of one member.
type oneMember byte

func (m oneMember) Changed(string) uint64 { return uint64(m) }

func (m oneMember) Addresses(string) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(m)}), 32)}
}

// Members are written without a look at the rules, which comes soon after, however many members come and go meanwhile; after a failure, or when
// anything else has changed, it comes first.
func TestMembersAreWrittenBlind(t *testing.T) {
	w := world.New(world.Config{IntegrationBridge: "br-int", Filter: true, Hybrid: true})
	r := New(iptables.Config{}, false)
	member := 0
	r.groups = func(*world.World) members { return oneMember(member) }
	next := func(at time.Time) Job {
		t.Helper()
		r.Peer()
		job, due := r.Next(w, at, yes, never)
		if !due || !r.Busy(w) {
			t.Fatalf("%+v, %v", job, due)
		}
		return job
	}
	r.filter.Set(iptables.Port{ID: "p0", Kind: iptables.Filtered, Rules: []world.Rule{{IPVersion: 4, Direction: world.Ingress, Protocol: world.AnyProtocol, Remote: "g"}}})
	if job := next(noon); !job.Read {
		t.Fatalf("%+v", job)
	}
	r.Applied(w, r.Read(w, empty(), "", true, nil, noon).Job.Apply, nil, noon)
	if at := r.WakeAt(noon); !at.Equal(noon.Add(checkPause)) {
		t.Errorf("compared again at %v", at)
	}
	at := noon
	for member = 1; member < 4; member++ {
		at = at.Add(time.Second)
		job := next(at)
		if job.Apply == nil || !strings.Contains(job.Apply.Sets, fmt.Sprintf("add NIPv4g 10.0.0.%d\n", member)) || job.Apply.Rules != [2]string{} {
			t.Fatalf("%+v", job)
		}
		if out := r.Applied(w, job.Apply, nil, at); out.Job != nil && out.Job.End != nil {
			r.Ended(0, nil, at)
		}
	}
	if _, due := r.Next(w, at, yes, never); due || r.Busy(w) {
		t.Error("something is left to do")
	}
	if at := r.WakeAt(at); !at.Equal(noon.Add(time.Second + faultPause)) {
		t.Errorf("compared at %v", at)
	}
	r.Applied(w, next(at).Apply, errors.New("no such set"), at)
	at = r.WakeAt(at)
	if job := next(at); !job.Read {
		t.Errorf("after a failure: %+v", job)
	}
	if out := r.Read(w, empty(), "", true, nil, at); out.Job == nil || len(out.Logs) > 0 {
		t.Errorf("another program is blamed: %+v", out)
	}
}

// Connections that could not be deleted are deleted before anything else.
func TestConnectionsAreOwed(t *testing.T) {
	w := world.New(world.Config{IntegrationBridge: "br-int", Filter: true, Hybrid: true})
	r := New(iptables.Config{}, false)
	r.owed, r.phase = []iptables.Connections{{Zone: 4097, Whole: true}}, ending
	if out := r.Ended(0, errors.New("no"), noon); len(out.Logs) != 1 || !r.Busy(w) {
		t.Errorf("%+v", out)
	}
	at := r.WakeAt(noon)
	if job, due := r.Next(w, at, yes, never); !due || len(job.End) != 1 {
		t.Errorf("%+v", job)
	}
	if r.Ended(1, nil, at); len(r.owed) != 0 || len(r.Faults()) != 0 {
		t.Errorf("%v, %v", r.owed, r.Faults())
	}
}

// plugged has a port p0 behind a Linux bridge, in a VLAN.
func plugged(w *world.World, tag int) {
	number := 1
	w.Switch(&ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "br", Name: "br-int", Ports: []ovsdb.UUID{"p"}}}},
		Ports: []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: "p", Name: "qvop0", Interfaces: []ovsdb.UUID{"i"}, Tag: &tag}}},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{
			UUID: "i", Name: "qvop0", OFPort: &number, ExternalIDs: map[string]string{"iface-id": "p0", "attached-mac": "fa:16:3e:00:00:01"},
		}}},
	})
}

// The rules of a port that leaves stay while it is in its VLAN, and with them what belongs to no known port.
func TestRulesOutliveTheVLAN(t *testing.T) {
	for _, c := range []struct {
		tag  int
		stay bool
	}{{1, true}, {world.DeadVLAN, false}} {
		w := world.New(world.Config{IntegrationBridge: "br-int", Filter: true, Hybrid: true})
		plugged(w, c.tag)
		w.Resolve()
		r := New(iptables.Config{}, false)
		r.filter.Set(iptables.Port{ID: "p0", Kind: iptables.Filtered})
		r.Port(w, "p0") // nothing is known of it any more
		r.Next(w, noon, yes, never)
		if r.filter.Has("p0") != c.stay || r.leaving["p0"] != c.stay {
			t.Errorf("in VLAN %d: has rules %v, leaves %v", c.tag, r.filter.Has("p0"), r.leaving["p0"])
		}
		// Of a port in its network of which nothing was ever known the rules of an earlier run stay.
		r = New(iptables.Config{}, false)
		if r.Next(w, noon, yes, never); r.prune == c.stay {
			t.Errorf("in VLAN %d: rules of no known port go: %v", c.tag, r.prune)
		}
	}
}

// Flows that filter a port stay until its rules are in place.
func TestPortsThatFlowsFilter(t *testing.T) {
	w := world.New(world.Config{IntegrationBridge: "br-int", Filter: true, Hybrid: true})
	plugged(w, 1)
	w.Resolve()
	r := New(iptables.Config{}, false)
	if r.Inherit(w, map[string]bool{"p0": true}); r.Inherited(w) != 1 {
		t.Errorf("%d ports", r.Inherited(w))
	}
	r.seen, r.admitted["p0"] = true, true
	if r.guard(w, "p0"); r.Inherited(w) != 0 {
		t.Errorf("%d ports, though the rules are in place", r.Inherited(w))
	}
}

// Clearing begins only where a port has a Linux bridge and the bridge bears no mark; failures keep nobody from being in sync.
func TestClearing(t *testing.T) {
	w := world.New(world.Config{IntegrationBridge: "br-int", Filter: true, FilterTables: true})
	r := New(iptables.Config{}, true)
	if _, due := r.Next(w, noon, yes, always); due || r.Busy(w) {
		t.Error("a host without ports is read")
	}
	plugged(w, 1)
	w.Resolve()
	if job, due := r.Next(w, noon, yes, never); !due || !job.Read {
		t.Fatalf("%+v", job)
	}
	if r.Read(w, iptables.State{}, "", true, errors.New("no such program"), noon); len(r.Faults()) != 0 || r.Busy(w) {
		t.Errorf("%v, busy %v", r.Faults(), r.Busy(w))
	}
	at := r.WakeAt(noon)
	r.Next(w, at, yes, never)
	if r.prune {
		t.Error("what ports share goes while a port is not filtered by flows")
	}
	r.Read(w, empty(), "", false, nil, at)
	if w.RulesGone() {
		t.Error("marked while a port is not filtered by flows")
	}
}

// The rules of a port stay until the switch has had the time to do what the flows say that filter in their place.
func TestRulesStayUntilFlowsAreInForce(t *testing.T) {
	w := world.New(world.Config{IntegrationBridge: "br-int", Filter: true, FilterTables: true})
	plugged(w, 1)
	w.Resolve()
	w.Port("p0").Wiring.State = world.Wired
	r := New(iptables.Config{}, true)
	r.stale, r.members = false, false
	for _, c := range []struct {
		after   time.Duration
		applied func(string) bool
		goes    bool
		wake    time.Duration // 0: none
	}{
		{0, never, false, 0},
		{0, always, false, revalidation},
		{time.Second, never, false, 0}, // the flows changed
		{2 * time.Second, always, false, 2*time.Second + revalidation},
		{2*time.Second + revalidation - 1, always, false, 2*time.Second + revalidation},
		{2*time.Second + revalidation, always, true, 0},
	} {
		now := noon.Add(c.after)
		if got := r.ready(w, now, c.applied); got != c.goes || r.filter.Has("p0") != c.goes || r.Busy(w) != (c.wake != 0 || c.goes) {
			t.Errorf("after %s: rules go: %v, %v; busy: %v", c.after, got, r.filter.Has("p0"), r.Busy(w))
		}
		if at := r.WakeAt(now); c.wake == 0 && !at.IsZero() || c.wake != 0 && !at.Equal(noon.Add(c.wake)) {
			t.Errorf("after %s: wakes at %s", c.after, at)
		}
	}
	r = New(iptables.Config{}, true)
	r.ready(w, noon, always)
	w.Port("p0").VIF = nil // it is in no network any more
	if r.ready(w, noon, always); len(r.settling) != 0 {
		t.Errorf("%v are waited for", r.settling)
	}
}
