// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

const bridge = "br0"

// newSwitch starts a private switch with a bridge and two ports.
func newSwitch(t testing.TB) *vswitch.Switch {
	t.Helper()
	sw := vswitch.New(t, func(c *vswitch.Config) { c.DummyDatapath = true })
	addBridge(t, sw)
	return sw
}

func addBridge(t testing.TB, sw *vswitch.Switch) {
	t.Helper()
	vsctl(t, sw, "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=dummy", "fail-mode=secure",
		"protocols=OpenFlow10,OpenFlow13,OpenFlow14",
		"--", "add-port", bridge, "p1", "--", "set", "Interface", "p1", "type=dummy", "ofport_request=1",
		"--", "add-port", bridge, "p2", "--", "set", "Interface", "p2", "type=dummy", "ofport_request=2")
}

func vsctl(t testing.TB, sw *vswitch.Switch, args ...string) string {
	t.Helper()
	out, err := sw.Vsctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// dial connects to the bridge; the connection is closed with the test.
func dial(t testing.TB, sw *vswitch.Switch, cfg Config) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), "unix:"+sw.MgmtSocket(bridge), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var bothVersions = []Version{OpenFlow13, OpenFlow14}

func only(v Version) Config { return Config{Versions: []Version{v}} }

func mustEntry(t testing.TB, text string) Entry {
	t.Helper()
	f, err := ParseFlow(text)
	if err != nil {
		t.Fatal(err)
	}
	e, err := f.Entry()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func deleteAll(t testing.TB) Message {
	t.Helper()
	m, err := DeleteFlows(Filter{Table: AllTables})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func countFlows(t testing.TB, c *Conn) int {
	t.Helper()
	a, err := c.Aggregate(t.Context(), Filter{Table: AllTables})
	if err != nil {
		t.Fatal(err)
	}
	return int(a.Flows)
}

func TestLiveBasics(t *testing.T) {
	sw := newSwitch(t)
	for _, v := range bothVersions {
		t.Run(v.String(), func(t *testing.T) {
			c := dial(t, sw, only(v))
			ctx := t.Context()
			if c.Version() != v || c.Features().DatapathID == 0 {
				t.Fatalf("version %v, features %+v", c.Version(), c.Features())
			}
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			check(c.Echo(ctx))
			check(c.Barrier(ctx))
			d, err := c.Desc(ctx)
			check(err)
			if !strings.Contains(d.Hardware, "Open vSwitch") {
				t.Errorf("desc %+v", d)
			}
			ports, err := c.Ports(ctx)
			check(err)
			if len(ports) != 3 || !slices.ContainsFunc(ports, func(p PortDesc) bool { return p.Name == "p2" && p.Port == 2 }) {
				t.Errorf("ports %+v", ports)
			}
			check(c.Send(ctx, []Message{
				MeterMod{Add, MeterDesc{ID: 7, Flags: MeterPktps | MeterBurst, Bands: []Band{{Rate: 1000, Burst: 100}}}},
				MeterMod{Add, MeterDesc{ID: 8, Flags: MeterKbps, Bands: []Band{{Rate: 2000}}}},
				GroupMod{Add, GroupDesc{ID: 9, Type: GroupAll, Buckets: []Bucket{
					{Actions: []Action{Output(1)}}, {Actions: []Action{Set(Reg0, Uint(1)), Output(2)}},
				}}},
			}))
			meters, err := c.Meters(ctx)
			check(err)
			if len(meters) != 2 || meters[0].ID == meters[1].ID {
				t.Errorf("meters %+v", meters)
			}
			for _, m := range meters {
				if m.ID == 7 && (m.Bands[0].Rate != 1000 || m.Bands[0].Burst != 100 || m.Flags&MeterPktps == 0) {
					t.Errorf("meter %+v", m)
				}
			}
			ms, err := c.MeterStats(ctx)
			check(err)
			if len(ms) != 2 {
				t.Errorf("meter stats %+v", ms)
			}
			mf, err := c.MeterFeatures(ctx)
			check(err)
			if mf.Max == 0 {
				t.Errorf("meter features %+v", mf)
			}
			groups, err := c.Groups(ctx)
			check(err)
			if len(groups) != 1 || groups[0].ID != 9 || len(groups[0].Buckets) != 2 || len(groups[0].Buckets[1].Actions) != 2 {
				t.Errorf("groups %+v", groups)
			}
			gs, err := c.GroupStats(ctx)
			check(err)
			if len(gs) != 1 {
				t.Errorf("group stats %+v", gs)
			}
			check(c.Commit(ctx, adds([]Entry{
				mustEntry(t, "table=1,priority=5,cookie=0xab01,ip,actions=meter:7,group:9"),
				mustEntry(t, "table=2,priority=5,cookie=0xab02,in_port=1,actions=output:2"),
				mustEntry(t, "table=2,priority=6,cookie=0xcd03,in_port=2,actions=output:1"),
			})))
			agg, err := c.Aggregate(ctx, Filter{Table: AllTables, Cookie: 0xab00, CookieMask: 0xff00})
			check(err)
			if agg.Flows != 2 {
				t.Errorf("aggregate %+v", agg)
			}
			agg, err = c.Aggregate(ctx, Filter{Table: 2, Match: Match{FromPort(2)}})
			check(err)
			if agg.Flows != 1 {
				t.Errorf("aggregate %+v", agg)
			}
			tables, err := c.Tables(ctx)
			check(err)
			if len(tables) < 200 || tables[2].Active != 2 {
				t.Errorf("tables %d %+v", len(tables), tables[2])
			}
			role, err := c.SetRole(ctx, RoleEqual, 0)
			check(err)
			if role != RoleEqual {
				t.Errorf("role %v", role)
			}
			a, err := c.Async(ctx)
			check(err)
			a.FlowRemoved[0] = 0x0f
			check(c.SetAsync(ctx, a))
			b, err := c.Async(ctx)
			check(err)
			if b != a {
				t.Errorf("async %+v, want %+v", b, a)
			}
			check(c.SetSwitchConfig(ctx, SwitchConfig{MissSendLen: 77}))
			sc, err := c.SwitchConfig(ctx)
			check(err)
			if sc.MissSendLen != 77 {
				t.Errorf("config %+v", sc)
			}
			del, err := DeleteFlows(Filter{Table: AllTables, Cookie: 0xab00, CookieMask: 0xff00})
			check(err)
			check(c.Send(ctx, []Message{del}))
			if n := countFlows(t, c); n != 1 {
				t.Errorf("%d flows after delete by cookie", n)
			}
			check(c.Commit(ctx, []Message{DeleteFlow(mustEntry(t, "table=2,priority=6,in_port=2").Key())}))
			if n := countFlows(t, c); n != 0 {
				t.Errorf("%d flows after strict delete", n)
			}
			check(c.Send(ctx, []Message{
				MeterMod{Delete, MeterDesc{ID: AllMeters}}, GroupMod{Delete, GroupDesc{ID: AllGroups}},
			}))
		})
	}
}

// A bundle with one bad flow at the first, middle or last place is not applied
// and names the flow, whether the switch finds out at once or at commit.
func TestLiveBundleErrors(t *testing.T) {
	sw := newSwitch(t)
	good := make([]Entry, 200)
	for i := range good {
		good[i] = mustEntry(t, fmt.Sprintf("table=3,priority=%d,ip,nw_dst=10.0.0.%d,actions=output:1", i+1, i))
	}
	// The parser would refuse it, the switch has to.
	noProto := Flow{Table: 4, Priority: 9, Match: Match{Num(TCPDst, 80)}}
	bad, err := noProto.Entry()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range bothVersions {
		for _, tc := range []struct {
			what string
			bad  Entry
			name string
		}{
			{"at once", bad, "OFPBMC_BAD_PREREQ"},
			{"at commit, meter", mustEntry(t, "table=4,priority=9,actions=meter:99"), "OFPMMFC_INVALID_METER"},
			{"at commit, group", mustEntry(t, "table=4,priority=9,actions=group:99"), "OFPBAC_BAD_OUT_GROUP"},
		} {
			for _, at := range []int{0, len(good) / 2, len(good)} {
				t.Run(fmt.Sprintf("%v/%s/%d", v, tc.what, at), func(t *testing.T) {
					c := dial(t, sw, only(v))
					msgs := adds(slices.Insert(slices.Clone(good), at, tc.bad))
					err := c.Commit(t.Context(), msgs)
					var be *BundleError
					if !errors.As(err, &be) || !IsError(err, tc.name) || len(be.Failures) != 1 || be.Failures[0].Index != at {
						t.Fatalf("%v (%+v)", err, be)
					}
					if !strings.Contains(err.Error(), "table=4,priority=9") || !strings.Contains(err.Error(), tc.name) {
						t.Errorf("error %q does not tell all", err)
					}
					if n := countFlows(t, c); n != 0 {
						t.Errorf("%d flows were applied", n)
					}
					// The connection is as good as before.
					if err := c.Commit(t.Context(), adds(good)); err != nil {
						t.Fatal(err)
					}
					if n := countFlows(t, c); n != len(good) {
						t.Errorf("%d flows", n)
					}
					if err := c.Commit(t.Context(), []Message{deleteAll(t)}); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
	t.Run("meter", func(t *testing.T) {
		c := dial(t, sw, Config{})
		err := c.Commit(t.Context(), []Message{MeterMod{}})
		if !errors.Is(err, ErrMeterInBundle) {
			t.Error(err)
		}
	})
	t.Run("split", func(t *testing.T) {
		c := dial(t, sw, Config{MaxBundle: 50})
		err := c.Commit(t.Context(), adds(slices.Insert(slices.Clone(good), 120, bad)))
		var be *BundleError
		if !errors.As(err, &be) || be.Applied != 100 || be.Failures[0].Index != 120 {
			t.Fatalf("%v %+v", err, be)
		}
		if n := countFlows(t, c); n != 100 {
			t.Errorf("%d flows", n)
		}
	})
}

// 20,000 flow_mods that fail, outside and inside a bundle: every error is
// reported and the switch is never stuck with replies that nobody reads.
func TestLiveManyFailures(t *testing.T) {
	sw := newSwitch(t)
	c := dial(t, sw, Config{})
	const n = 20000
	msgs := make([]Message, n)
	for i := range msgs {
		f := Flow{Table: 4, Priority: uint16(i), Match: Match{Num(TCPDst, 80)}}
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		msgs[i] = AddFlow(e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	err := c.Send(ctx, msgs)
	var se *SendError
	if !errors.As(err, &se) || len(se.Failures) != n || !IsError(err, "OFPBMC_BAD_PREREQ") {
		t.Fatal(err)
	}
	t.Logf("%d errors outside a bundle in %v", n, time.Since(began))
	for i, f := range se.Failures {
		if f.Index != i || f.Err.Name() != "OFPBMC_BAD_PREREQ" {
			t.Fatalf("failure %d: %+v", i, f)
		}
	}
	began = time.Now()
	err = c.Commit(ctx, msgs)
	var be *BundleError
	if !errors.As(err, &be) || len(be.Failures) != n {
		t.Fatal(err)
	}
	t.Logf("%d errors inside a bundle in %v", n, time.Since(began))
	if err := c.Commit(ctx, adds([]Entry{mustEntry(t, "table=0,actions=drop")})); err != nil {
		t.Fatal(err)
	}
	if n := countFlows(t, c); n != 1 {
		t.Errorf("%d flows", n)
	}
}

// stopSwitch runs f while vswitchd is stopped by a signal.
func stopSwitch(t *testing.T, sw *vswitch.Switch, f func()) {
	t.Helper()
	pid := sw.Pids()["ovs-vswitchd"]
	if pid == 0 {
		t.Fatal("no ovs-vswitchd")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	f()
}
