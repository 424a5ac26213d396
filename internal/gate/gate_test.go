// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strings"
	"testing"
)

// good are the facts of an agent that nothing keeps from anything.
func good() Facts {
	return Facts{SwitchUp: true, Registered: true, Known: true, Bridges: []Bridge{{Name: "br-int", Exists: true, Connected: true, Read: true}}}
}

// Every fact alone blocks exactly the scopes that it should, with a sentence.
func TestBlockers(t *testing.T) {
	if bs := Blockers(good()); len(bs) > 0 || !Open(bs, All) {
		t.Fatalf("%+v", bs)
	}
	const answered = Complete | Prune | InSync
	for _, tt := range []struct {
		change func(*Facts)
		blocks Scope
		passes bool
		detail string
	}{
		{func(f *Facts) { f.SwitchUp, f.SwitchError = false, "refused" }, All, false, "the switch's database cannot be reached: refused"},
		{func(f *Facts) { f.Bridges[0] = Bridge{Name: "br-ex"} }, InSync | Ready, false, "bridge br-ex does not exist"},
		{func(f *Facts) { f.Bridges[0].Connected, f.Bridges[0].Error = false, "gone" }, InSync | Ready | Idle, false, "bridge br-int cannot be programmed: gone"},
		{func(f *Facts) { f.Bridges[0].Read = false }, InSync | Idle, false, "the flows of bridge br-int have not been read yet"},
		{func(f *Facts) { f.Bridges[0].Reading = true }, Idle, true, "the flows of bridge br-int are read or changed"},
		{func(f *Facts) { f.Bridges[0].Flows = 2 }, InSync | Ready | Idle, true, "2 flows not as wanted yet"},
		{func(f *Facts) { f.Bridges[0].Meters = 1 }, Idle, true, "1 meter not as wanted yet"},
		{func(f *Facts) { f.BrokerError = "refused" }, InSync, false, "the broker cannot be reached: refused"},
		{func(f *Facts) { f.Registered = false }, answered, false, "no neutron-server has answered yet"},
		{func(f *Facts) { f.StateReportFailed = true }, InSync, false, "the server does not take our state reports"},
		{func(f *Facts) { f.Ports = 1 }, answered, true, "bulk_pull of 1 port is not answered yet"},
		{func(f *Facts) { f.Groups = 3 }, answered, true, "bulk_pull of 3 groups is not answered yet"},
		{func(f *Facts) { f.TunnelTypes = []string{"gre"} }, answered, true, "tunnel_sync of gre is not answered yet"},
		{func(f *Facts) { f.Unrequested = 2 }, InSync, true, "the server has not answered the request for the forwarding entries of 2 networks yet"},
		{func(f *Facts) { f.Refresh = 1 }, answered, true, "the server has not answered the request for the forwarding entries of 1 network yet"},
		{func(f *Facts) { f.Entries = 1 }, Complete | Prune, true, "the server may still send the forwarding entries of 1 network"},
		{func(f *Facts) { f.ResyncDue = true }, answered, true, "messages may have been lost: everything is pulled again in a moment"},
		{func(f *Facts) { f.Rows = 1 }, InSync | Ready, true, "rows of 1 object are not written yet"},
		{func(f *Facts) { f.RowsUnchecked = 2 }, Idle, true, "rows of 2 objects have not been compared since they changed"},
		{func(f *Facts) { f.ZonesFailed = []uint16{7} }, InSync, false, "connection tracking zone 7 was not flushed; new ports of its network wait"},
		{func(f *Facts) { f.ZonesDue = 1 }, Idle, true, "1 zone of connection tracking not flushed yet"},
		{func(f *Facts) { f.RulesBusy = true }, InSync | Idle, true, "iptables rules are compared or written"},
		{func(f *Facts) { f.RulesFirst = 1 }, Prune, true, "the flows that filter 1 port stay until it has iptables rules"},
		{func(f *Facts) { f.RuleFaults = []string{"off"} }, InSync | Ready, false, "off"},
		{func(f *Facts) { f.Rejected = []Rejected{{"port p1", 2}} }, InSync, false, "port p1 was refused 2 times by the switch and is tried again; see the last errors"},
		{func(f *Facts) { f.Held = []Held{{"port p1", "nothing passes"}} }, InSync, false, "port p1 failed and is in quarantine: nothing passes"},
		{func(f *Facts) { f.HeldBlind = true }, Prune, false, "nothing is known of what an object in quarantine wants: nothing is pruned"},
		{func(f *Facts) { f.Reports = 1 }, answered, true, "the status of 1 port is not reported to the server yet"},
		{func(f *Facts) { f.Extensions = []Extension{{Name: "qos", Waits: 1}} }, answered, true, "extension qos waits for 1 answer"},
		{func(f *Facts) { f.Extensions = []Extension{{Name: "qos", Failed: true}} }, answered, false, "extension qos has failed and works everything out again"},
		{func(f *Facts) { f.Calls = 1 }, answered, true, "changes are on their way"},
		{func(f *Facts) { f.RoundRunning = true }, answered | Idle, true, "changes are on their way"},
		{func(f *Facts) { f.Unresolved = true }, Idle, true, "changes are on their way"},
		{func(f *Facts) { f.ViewBehind = true }, Idle, true, "changes are on their way"},
		{func(f *Facts) { f.Known = false }, Ready, false, "the agent was never in sync and has no snapshot"},
	} {
		f := good()
		tt.change(&f)
		bs := Blockers(f)
		var blocks Scope
		for s := Complete; s <= Idle; s <<= 1 {
			if !Open(bs, s) {
				blocks |= s
			}
		}
		got, passes := Details(bs, All)
		if blocks != tt.blocks || passes != tt.passes || !slices.Contains(got, tt.detail) {
			t.Errorf("%+v\nblocks %05b, want %05b; passes %v; %q, want %q", f, blocks, tt.blocks, passes, got, tt.detail)
		}
	}
}

func TestDetails(t *testing.T) {
	f := good()
	f.Calls, f.RoundRunning, f.Ports = 2, true, 1
	if got, passes := Details(Blockers(f), InSync); len(got) != 1 || !strings.Contains(got[0], "1 port") || !passes {
		t.Errorf("what is in flight is named beside what it is for: %q, %v", got, passes)
	}
	f.BrokerError = "refused"
	if _, passes := Details(Blockers(f), InSync); passes {
		t.Error("a broker that is away passes by itself")
	}
	if got, passes := Details(Blockers(good()), All); len(got) > 0 || passes {
		t.Errorf("nothing blocks: %q, %v", got, passes)
	}
	f = good()
	for range maxHeld + 2 {
		f.Held = append(f.Held, Held{Object: "port"})
	}
	if got, _ := Details(Blockers(f), InSync); len(got) != maxHeld+1 || got[maxHeld] != "2 more are in quarantine" {
		t.Errorf("%q", got)
	}
}
