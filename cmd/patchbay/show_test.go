// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// fakeAgent is a source with fixed documents.
type fakeAgent struct {
	status inspect.Status
	ports  []inspect.Port
	groups []inspect.Group
	flows  []inspect.Flow
	events []inspect.Event
}

func (f *fakeAgent) Status(context.Context) (inspect.Status, error) { return f.status, nil }
func (f *fakeAgent) Ports(context.Context) ([]inspect.Port, error)  { return f.ports, nil }
func (f *fakeAgent) Networks(context.Context) ([]inspect.Network, error) {
	return []inspect.Network{{ID: "net", Type: "vxlan", Number: 77, VLAN: 1, Ports: []string{"p1"}, Endpoints: []string{"10.0.0.2"}, Stations: 3}}, nil
}

func (f *fakeAgent) Tunnels(context.Context) ([]inspect.Tunnel, error) {
	return []inspect.Tunnel{{Name: "vxlan-0a000002", Type: "vxlan", Remote: "10.0.0.2", State: "failed", Error: "no route"}}, nil
}
func (f *fakeAgent) Groups(context.Context) ([]inspect.Group, error)       { return f.groups, nil }
func (f *fakeAgent) Bridges(context.Context) ([]inspect.Bridge, error)     { return f.status.Bridges, nil }
func (f *fakeAgent) Events(context.Context) ([]inspect.Event, error)       { return f.events, nil }
func (f *fakeAgent) Flows(context.Context, string) ([]inspect.Flow, error) { return f.flows, nil }

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.Local)

func exampleAgent() *fakeAgent {
	return &fakeAgent{
		status: inspect.Status{
			Host: "hv1", Version: "1.2.3", PID: 4711, Started: noon.Add(-75 * time.Minute), Firewall: "openvswitch",
			Reasons: []string{"the broker cannot be reached: connection refused"}, SyncedAt: noon.Add(-time.Hour), Ready: true,
			Switch: inspect.Peer{Up: true, Since: noon.Add(-75 * time.Minute), Detail: "Open vSwitch 3.1.0"},
			Broker: inspect.Peer{Since: noon.Add(-90 * time.Second), Error: "connection refused"},
			Server: inspect.Peer{Up: true, Since: noon.Add(-74 * time.Minute), Detail: "zed"},
			Bridges: []inspect.Bridge{
				{Name: "br-int", Role: "integration", Connected: true, Wanted: 120, Present: 121, Foreign: 1, Repaired: 2},
				{Name: "br-ex", Role: "physical", Physical: "physnet1", Connected: true, Wanted: 4, Present: 4},
			},
			Ports:  map[string]int{"wired": 12, "dead": 1},
			Errors: []inspect.Event{{Time: noon.Add(-90 * time.Second), Level: "warning", Kind: "log", Text: "connection to the broker lost, reconnecting addr=a:5672"}},
		},
		ports: []inspect.Port{
			{
				ID: "4f1c-1", Name: "web", State: "wired", Reason: "bound to this host", Interface: "tap4f1c", OFPort: 7, MAC: "fa:16:3e:00:00:01",
				Addresses: []string{"10.1.0.5"}, Network: "net", Segment: "vxlan 77", VLAN: 3, Owner: "compute:nova", Device: "vm1", Secured: true,
				Filtered: true, Groups: []string{"g1"}, Status: "ACTIVE", Reported: "up", Applied: true, Flows: 60, Revision: 9,
				Timeline: inspect.Timeline{Plugged: noon, Answered: noon.Add(80 * time.Millisecond), Applied: noon.Add(130 * time.Millisecond), Reported: noon.Add(time.Second)},
				Counters: &inspect.Counters{RxPackets: 5, RxBytes: 400, TxDropped: 2},
			},
			{ID: "9abc-2", State: "dead", Reason: "the server does not know it", Interface: "tap9abc", OFPort: 8},
		},
		groups: []inspect.Group{{ID: "g1", Name: "default", Known: true, Ports: []string{"4f1c-1"}, Rules: []inspect.Rule{
			{ID: "r1", Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", Text: "allow tcp/22 from 10.0.0.0/8"},
			{ID: "r2", Direction: "egress", EtherType: "IPv4", Group: "g1", Members: 4, Text: "allow everything to members of group g1 (IPv4)"},
		}}},
		events: []inspect.Event{
			{Seq: 1, Time: noon, Kind: "push", Text: "Port updated, not of this host", Count: 40, Until: noon.Add(2 * time.Second)},
			{Seq: 2, Time: noon, Kind: "port", Text: "port 4f1c-1 is wired, bound to this host", Subject: "4f1c-1"},
			{Seq: 3, Time: noon, Kind: "log", Level: "error", Text: "flow rejected by the switch, retrying"},
		},
	}
}

// served answers for a source on a socket, whose path is returned.
func served(t *testing.T, src inspect.Source, opts admin.Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := admin.Listen(t.Context(), path, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- admin.New(src, opts).Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-done })
	return path
}

// run is the command line, with its output and its exit status.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	status := runCommand(root, args)
	return out.String(), status
}

func TestStatusText(t *testing.T) {
	var out bytes.Buffer
	s := exampleAgent().status
	s.Advisories = []string{"Open vSwitch 3.1.0 was published with CVE-2023-1668"}
	writeStatus(&out, &s, noon)
	want := `hv1  NOT IN SYNC, but what is known is wired; traffic goes on
  - the broker cannot be reached: connection refused
  ! Open vSwitch 3.1.0 was published with CVE-2023-1668

agent     patchbay 1.2.3, pid 4711  up 1 h 15 min
switch    Open vSwitch 3.1.0        for 1 h 15 min
broker    DOWN: connection refused  since 1 min 30 s
server    Neutron zed               for 1 h 14 min
firewall  openvswitch               
ports     12 wired, 1 dead          

BRIDGE  ROLE               STATE      FLOWS    PENDING  FOREIGN  REPAIRED
br-int  integration        connected  120/120  0        1        2
br-ex   physical physnet1  connected  4/4      0        0        0

last warnings and errors (patchbay events shows what led to them):
  11:58:30.000  WARNING connection to the broker lost, reconnecting addr=a:5672
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestPortText(t *testing.T) {
	var out bytes.Buffer
	writePort(&out, exampleAgent().ports[0], noon)
	want := `port 4f1c-1  WIRED: bound to this host

name         web
interface    tap4f1c ofport 7
network      net as vxlan 77
local VLAN   3
addresses    fa:16:3e:00:00:01 10.1.0.5
device       compute:nova vm1
security     filtered by groups g1
flows        60
server       says ACTIVE reported up revision 9
from the VM  5 packets, 400 bytes, 0 dropped
to the VM    0 packets, 0 bytes, 2 dropped

timeline
  12:00:00.000  plugged in, or seen first       +0 ms
  12:00:00.080  details pulled from the server  +80 ms
  12:00:00.130  flows and rows in place         +50 ms
  12:00:01.000  reported up                     +870 ms
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// What extensions do about a port is part of it.
func TestPortWithExtensions(t *testing.T) {
	var out bytes.Buffer
	p := inspect.Port{
		ID: "5a1b-3", State: "wired", Reason: "bound to this host", Interface: "spi-5a1b", OFPort: 9, Owner: "trunk:subport", Role: "sub-port", Applied: true,
		Notes: []string{
			"trunk: sub-port of trunk t1, whose VM sends it under VLAN 7 through tbr-t1",
			"distributed routing: routed packets reach it as from its gateway fa:16:3e:00:00:01",
			"qos: policy gold (q1), the port's: at most 1000 kbit/s from it; what it sends is marked with DSCP 26",
		},
	}
	writePort(&out, p, noon)
	want := `port 5a1b-3  WIRED: bound to this host

interface            spi-5a1b ofport 9
device               trunk:subport
role                 sub-port
security             port security is off: not filtered
trunk                sub-port of trunk t1, whose VM sends it under VLAN 7 through tbr-t1
distributed routing  routed packets reach it as from its gateway fa:16:3e:00:00:01
qos                  policy gold (q1), the port's: at most 1000 kbit/s from it; what it sends is marked with DSCP 26
flows                0
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	writePorts(&out, []inspect.Port{p}, noon)
	if !strings.Contains(out.String(), "5a1b-3  -     sub-port  wired") {
		t.Error(out.String())
	}
}

func TestCommandsOnASocket(t *testing.T) {
	src := exampleAgent()
	src.flows = []inspect.Flow{
		{Bridge: "br-int", Table: 0, Text: "table=0,priority=2,in_port=7,actions=drop", State: "missing", Owner: "port 4f1c-1", Reason: "no sender"},
		{Bridge: "br-int", Table: 60, Text: "table=60,priority=3,actions=drop", State: "foreign"},
	}
	socket := served(t, src, admin.Options{Settings: func() ([]byte, error) {
		return []byte(`{"files":["/etc/a.conf"],"options":[{"section":"ovs","option":"local_ip","value":"10.0.0.1","origin":{"kind":"file","file":"/etc/a.conf","line":7}}]}`), nil
	}})
	tests := []struct {
		args   []string
		status int
		want   []string
	}{
		{[]string{"status"}, exitFinding, []string{"NOT IN SYNC"}},
		{[]string{"ports"}, 0, []string{"4f1c-1  web", "9abc-2  -", "the server does not know it"}},
		{[]string{"ports", "--state", "dead"}, 0, []string{"9abc-2"}},
		{[]string{"port", "web"}, 0, []string{"port 4f1c-1  WIRED"}},
		{[]string{"port", "4f"}, 0, []string{"port 4f1c-1  WIRED"}},
		{[]string{"port", "nonsense"}, 1, []string{`no port here is called "nonsense"`}},
		{[]string{"networks"}, 0, []string{"net", "vxlan", "77"}},
		{[]string{"tunnels"}, 0, []string{"vxlan-0a000002", "failed", "no route"}},
		{[]string{"groups"}, 0, []string{"g1", "default", "known"}},
		{[]string{"group", "default"}, 0, []string{"allow tcp/22 from 10.0.0.0/8", "ports here: 4f1c-1"}},
		{[]string{"events"}, 0, []string{"(40 times in 2.0 s)", "ERROR flow rejected"}},
		{[]string{"events", "--about", "4f1c"}, 0, []string{"port 4f1c-1 is wired"}},
		{[]string{"flows", "br-int", "--owner"}, 0, []string{"missing           -  priority=2,in_port=7,actions=drop\n                     port 4f1c-1: no sender", "table 60 TRANSIENT", "2 flows: 1 missing, 1 foreign"}},
		{[]string{"flows", "br-int", "--owner", "--table", "TRANSIENT"}, 0, []string{"br-int: 1 flow: 1 foreign"}},
		{[]string{"config", "show"}, 0, []string{"[ovs]\nlocal_ip = 10.0.0.1  # /etc/a.conf:7"}},
		{[]string{"__complete", "port", "4"}, 0, []string{"4f1c-1\twired web 10.1.0.5"}},
		{[]string{"__complete", "group", "d"}, 0, []string{"default"}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Setenv(socketVariable, socket)
			t.Setenv("OVS_RUNDIR", t.TempDir()) // without a switch
			out, status := run(t, tt.args...)
			if status != tt.status {
				t.Errorf("status %d, want %d:\n%s", status, tt.status, out)
			}
			for _, part := range tt.want {
				if !strings.Contains(out, part) {
					t.Errorf("no %q in:\n%s", part, out)
				}
			}
		})
	}
	out, _ := run(t, "ports", "--socket", socket, "--state", "dead")
	if strings.Contains(out, "4f1c") {
		t.Errorf("a wired port among the dead:\n%s", out)
	}
	for _, name := range []string{"ports", "networks", "tunnels", "groups", "status"} {
		out, _ := run(t, name, "--socket", socket, "--json")
		if !json.Valid([]byte(out)) {
			t.Errorf("%s --json: %s", name, out)
		}
	}
	src.status.InSync, src.status.Reasons = true, nil
	if out, status := run(t, "status", "--socket", socket); status != 0 || !strings.Contains(out, "hv1  in sync") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

func TestNoAgentToAsk(t *testing.T) {
	out, status := run(t, "status", "--socket", filepath.Join(t.TempDir(), "none"))
	if status != exitNoAgent || !strings.Contains(out, "the agent is not running") {
		t.Errorf("status %d: %s", status, out)
	}
}

// Following ends with its context, and shows what comes.
func TestFollowEvents(t *testing.T) {
	src := exampleAgent()
	c := admin.NewClient(served(t, src, admin.Options{}))
	ctx, cancel := context.WithTimeout(t.Context(), 3*watchPause)
	defer cancel()
	var out bytes.Buffer
	err := printEvents(ctx, &out, c, eventsFlags{selects: func(inspect.Event) bool { return true }, watch: true, last: 1})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "flow rejected") {
		t.Errorf("printed %q", got)
	}
}

// A host whose switch has no database to ask is explained from what the agent knows; without both nothing is.
func TestExplainWithoutADatabase(t *testing.T) {
	socket := served(t, exampleAgent(), admin.Options{})
	db := "unix:" + filepath.Join(t.TempDir(), "none")
	out, status := run(t, "explain", "--socket", socket, "--db", db, "web")
	for _, part := range []string{"going on with what the agent knows", "Port web (4f1c-1) is wired: bound to this host.", "interface tap4f1c, port 7 of br-int"} {
		if status != 0 || !strings.Contains(out, part) {
			t.Errorf("status %d, want %q:\n%s", status, part, out)
		}
	}
	if out, status := run(t, "explain", "--offline", "--db", db, "web"); status != exitFailed {
		t.Errorf("status %d of knowing nothing:\n%s", status, out)
	}
}

func TestStatusNamesWhatIsInQuarantine(t *testing.T) {
	var out bytes.Buffer
	s := inspect.Status{Host: "hv1", Held: []inspect.Held{
		{Object: "port 4f1c", Reason: "panic: oops", Effect: "nothing passes", Since: noon.Add(-90 * time.Second), Failed: 7},
	}}
	writeStatus(&out, &s, noon)
	want := `in quarantine, tried again until it succeeds:
  port 4f1c: panic: oops
    nothing passes; failed 7 times in 1 min 30 s
`
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s\nhas no\n%s", &out, want)
	}
}

// A network whose forwarding entries may still come is named, with the time that is left, and the agent is in sync.
func TestStatusWaitsForForwardingEntries(t *testing.T) {
	s := exampleAgent().status
	s.InSync, s.Reasons = true, nil
	for _, id := range []string{"n1", "n2", "n3", "n4", "n5"} {
		s.Awaited = append(s.Awaited, inspect.Awaited{Network: id, Since: noon.Add(-3 * time.Second), Until: noon.Add(27 * time.Second)})
	}
	var out bytes.Buffer
	writeStatus(&out, &s, noon)
	want := `hv1  in sync
  . waiting for the server's forwarding entries of network n1 (3.0 s of at most 30.0 s; none come if no other host has ports of it)
  . waiting for the server's forwarding entries of network n2 (3.0 s of at most 30.0 s; none come if no other host has ports of it)
  . waiting for the server's forwarding entries of network n3 (3.0 s of at most 30.0 s; none come if no other host has ports of it)
  . and of 2 more

`
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	src := exampleAgent()
	src.status = s
	if out, status := run(t, "status", "--socket", served(t, src, admin.Options{})); status != 0 {
		t.Errorf("status %d:\n%s", status, out)
	}
}

// -o wide and -o name are for lists.
func TestListsForEyesAndLoops(t *testing.T) {
	socket := served(t, exampleAgent(), admin.Options{})
	if out, status := run(t, "ports", "--socket", socket, "-o", "name"); status != 0 || out != "4f1c-1\n9abc-2\n" {
		t.Errorf("status %d: %q", status, out)
	}
	out, _ := run(t, "ports", "--socket", socket, "-o", "wide")
	for _, part := range []string{"MAC", "fa:16:3e:00:00:01", "GROUPS", "g1", "the server does not know it"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in:\n%s", part, out)
		}
	}
	if out, status := run(t, "networks", "--socket", socket, "-o", "wide"); status != 0 || !strings.Contains(out, "p1") || !strings.Contains(out, "10.0.0.2") {
		t.Errorf("status %d:\n%s", status, out)
	}
	if out, status := run(t, "groups", "--socket", socket, "-o", "wide"); status != 0 || !strings.Contains(out, "default") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

// What is watched is printed at first and when it has changed, and not because time passes; an agent that is away is said once.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		began := time.Now()
		v := view[string]{
			ask: func(context.Context, *admin.Client, []string) (string, error) {
				switch asked++; {
				case asked == 3 || asked == 4:
					return "", errors.New("no agent answers")
				case asked > 4:
					return "two", nil
				}
				return "one", nil
			},
			print: func(out io.Writer, doc string, now time.Time) {
				fmt.Fprintln(out, doc, now.Sub(began) >= 0, ago(began, now))
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*watchPause)
		defer cancel()
		cmd := &cobra.Command{}
		var out, errs bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		if err := v.watch(ctx, cmd, nil, &askFlags{}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Count(got, "one") != 1 || strings.Count(got, "two true 2.0 s") != 1 || strings.Count(got, "---") != 2 {
			t.Errorf("printed:\n%s", got)
		}
		if got := errs.String(); got != "patchbay: no agent answers\n" {
			t.Errorf("errors: %q", got)
		}
	})
}

// changingAgent is not in sync for some questions.
type changingAgent struct {
	inspect.Source
	before []inspect.Status // one for each question
	after  inspect.Status
}

func (a *changingAgent) Status(context.Context) (inspect.Status, error) {
	if len(a.before) == 0 {
		return a.after, nil
	}
	s := a.before[0]
	a.before = a.before[1:]
	return s, nil
}

// An agent that is making changes is given the time to make them, and no other is.
func TestStatusWaitsForChanges(t *testing.T) {
	changing := inspect.Status{Changing: true, Reasons: []string{"2 flows not as wanted yet"}}
	stuck := inspect.Status{Reasons: []string{"the broker cannot be reached"}}
	fine := inspect.Status{InSync: true}
	for _, tt := range []struct {
		name   string
		before []inspect.Status
		after  inspect.Status
		wait   time.Duration
		sync   bool
		want   inspect.Status
		took   time.Duration
	}{
		{"in sync", nil, fine, time.Second, false, fine, 0},
		{"changes that end", []inspect.Status{changing, changing}, fine, time.Second, false, fine, 2 * statusPause},
		{"changes that go on", nil, changing, time.Second, false, changing, time.Second},
		{"no time to wait", []inspect.Status{changing}, fine, 0, false, changing, 0},
		{"something else", []inspect.Status{stuck}, fine, time.Second, false, stuck, 0},
		{"something else comes to light", []inspect.Status{changing, stuck}, fine, time.Second, false, stuck, statusPause},
		{"something else that is waited for", []inspect.Status{stuck, changing}, fine, time.Second, true, fine, 2 * statusPause},
		{"something else that stays", nil, stuck, time.Second, true, stuck, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, err := awaitedStatus(t.Context(), &changingAgent{before: tt.before, after: tt.after}, tt.wait, tt.sync)
				if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
					t.Errorf("%v\n%s", err, diff)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}
