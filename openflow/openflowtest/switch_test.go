// SPDX-License-Identifier: Apache-2.0

package openflowtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSwitch(t *testing.T) *openflowtest.Switch {
	t.Helper()
	s := openflowtest.New()
	s.MaxMeters = 2
	t.Cleanup(func() { s.Drop(); s.Wait() })
	return s
}

func dial(t *testing.T, s *openflowtest.Switch) *openflow.Conn {
	t.Helper()
	c, err := s.Dial(t.Context(), openflow.Config{Versions: []openflow.Version{openflow.OpenFlow14}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func mod(t *testing.T, command openflow.Command, text string) openflow.FlowMod {
	t.Helper()
	return openflow.FlowMod{Command: command, Entry: openflowtest.Entry(t, text)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reports reads what a monitor has told by now: a barrier's answer comes after it. Lines about one bundle are sorted, since the
// switch tells them in any order.
func reports(t *testing.T, c *openflow.Conn) []string {
	t.Helper()
	must(t, c.Barrier(t.Context()))
	var out []string
	for {
		select {
		case e := <-c.Events():
			m, ok := e.(*openflow.MonitorUpdate)
			if !ok {
				t.Fatalf("event %T", e)
			}
			var lines []string
			for _, u := range m.Updates {
				line := u.Event.String()
				if !u.Entry.IsZero() {
					line += " " + u.Entry.String()
				}
				if u.Event == openflow.FlowDeleted {
					line += fmt.Sprintf(" reason %d", u.Reason)
				}
				lines = append(lines, line)
			}
			slices.Sort(lines)
			out = append(out, lines...)
		default:
			return out
		}
	}
}

// monitored does everything that a monitor tells about, over two connections of which both watch, and returns what they were told.
// The switch in memory and a real one must tell the same.
func monitored(t *testing.T, first, second *openflow.Conn) []string {
	t.Helper()
	ctx := t.Context()
	var out []string
	step := func(name string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, "# "+name)
		for i, c := range []*openflow.Conn{first, second} {
			for _, line := range reports(t, c) {
				out = append(out, fmt.Sprintf("%d %s", i+1, line))
			}
		}
	}
	add := func(text string) openflow.Message { return mod(t, openflow.Add, text) }
	step("begin", first.Commit(ctx, []openflow.Message{add("table=1,priority=5,in_port=1,actions=output:2"), add("table=2,priority=0,actions=drop")}))
	step("first watches all, with what is there", first.Monitor(ctx, 1, openflow.Filter{Table: openflow.AllTables}, true))
	step("second watches table 1", second.Monitor(ctx, 9, openflow.Filter{Table: 1}, false))
	step("first adds two", first.Commit(ctx, []openflow.Message{
		add("table=1,priority=6,cookie=0x77,idle_timeout=60,importance=3,send_flow_rem,in_port=2,actions=output:1"), add("table=3,priority=1,actions=drop"),
	}))
	step("second adds one alone", second.Send(ctx, []openflow.Message{add("table=1,priority=7,tcp,tp_dst=80,actions=drop")}))
	step("second adds the same flow", second.Commit(ctx, []openflow.Message{add("table=1,priority=7,tcp,tp_dst=80,actions=drop")}))
	step("second adds other actions and another cookie", second.Commit(ctx, []openflow.Message{add("table=1,priority=7,cookie=0x1,tcp,tp_dst=80,actions=output:3")}))
	step("first modifies strictly", first.Commit(ctx, []openflow.Message{mod(t, openflow.ModifyStrict, "table=1,priority=7,tcp,tp_dst=80,actions=output:4")}))
	step("first modifies to what is there", first.Commit(ctx, []openflow.Message{mod(t, openflow.ModifyStrict, "table=1,priority=7,tcp,tp_dst=80,actions=output:4")}))
	step("second modifies whatever is from port 2", second.Commit(ctx, []openflow.Message{mod(t, openflow.Modify, "table=1,in_port=2,actions=drop")}))
	step("second modifies what is not there", second.Commit(ctx, []openflow.Message{mod(t, openflow.Modify, "table=1,in_port=99,actions=drop")}))
	step("first deletes strictly what is not there", first.Commit(ctx, []openflow.Message{mod(t, openflow.DeleteStrict, "table=1,priority=99,in_port=2,actions=drop")}))
	step("first deletes strictly", first.Commit(ctx, []openflow.Message{mod(t, openflow.DeleteStrict, "table=1,priority=7,tcp,tp_dst=80,actions=drop")}))
	byCookie := mod(t, openflow.Delete, "table=255,cookie=0x77,actions=drop")
	byCookie.CookieMask = ^uint64(0)
	step("second deletes by cookie", second.Commit(ctx, []openflow.Message{byCookie}))
	step("first adds and deletes in one bundle", first.Commit(ctx, []openflow.Message{
		add("table=1,priority=8,in_port=8,actions=drop"), mod(t, openflow.DeleteStrict, "table=1,priority=8,in_port=8,actions=drop"),
	}))
	out = append(out, "# a meter goes with its flow")
	must(t, second.Send(ctx, []openflow.Message{openflow.MeterMod{Meter: openflow.MeterDesc{ID: 1, Flags: openflow.MeterKbps, Bands: []openflow.Band{{Rate: 1000}}}}}))
	must(t, second.Commit(ctx, []openflow.Message{add("table=1,priority=9,in_port=9,actions=meter:1,output:1")}))
	step("the meter is deleted", second.Send(ctx, []openflow.Message{openflow.MeterMod{Command: openflow.Delete, Meter: openflow.MeterDesc{ID: 1}}}))
	toPort := mod(t, openflow.Delete, "table=255,actions=drop")
	toPort.OutPort = 2
	step("second deletes what goes to port 2", second.Commit(ctx, []openflow.Message{toPort}))
	err := first.Monitor(ctx, 1, openflow.Filter{}, false)
	out = append(out, fmt.Sprint("# the same monitor again is refused: ", err != nil))
	step("first stops", first.StopMonitor(ctx, 1))
	step("everything goes", second.Commit(ctx, []openflow.Message{mod(t, openflow.Delete, "table=255,actions=drop")}))
	flows, err := second.Flows(ctx, openflow.Filter{Table: openflow.AllTables})
	out = append(out, fmt.Sprintf("# %d flows are left", len(flows)))
	must(t, err)
	return out
}

// wantMonitored is what Open vSwitch 3.1 tells, see the integration test.
const wantMonitored = `# begin
# first watches all, with what is there
1 initial table=1,priority=5,in_port=1,actions=output:2
1 initial table=2,priority=0,actions=drop
# second watches table 1
# first adds two
1 own
2 added table=1,priority=6,cookie=0x77,idle_timeout=60,in_port=2,actions=output:1
# second adds one alone
1 added table=1,priority=7,tcp,tp_dst=80,actions=drop
2 own
# second adds the same flow
1 added table=1,priority=7,tcp,tp_dst=80,actions=drop
2 own
# second adds other actions and another cookie
1 added table=1,priority=7,cookie=0x1,tcp,tp_dst=80,actions=output:3
2 own
# first modifies strictly
1 own
2 modified table=1,priority=7,cookie=0x1,tcp,tp_dst=80,actions=output:4
# first modifies to what is there
# second modifies whatever is from port 2
1 modified table=1,priority=6,cookie=0x77,idle_timeout=60,in_port=2,actions=drop
2 own
# second modifies what is not there
# first deletes strictly what is not there
# first deletes strictly
1 own
2 deleted table=1,priority=7,cookie=0x1,tcp,tp_dst=80,actions=output:4 reason 2
# second deletes by cookie
1 deleted table=1,priority=6,cookie=0x77,idle_timeout=60,in_port=2,actions=drop reason 2
2 own
# first adds and deletes in one bundle
1 own
2 added table=1,priority=8,in_port=8,actions=drop
2 deleted table=1,priority=8,in_port=8,actions=drop reason 2
# a meter goes with its flow
# the meter is deleted
1 added table=1,priority=9,in_port=9,actions=meter:1,output:1
1 deleted table=1,priority=9,in_port=9,actions=meter:1,output:1 reason 4
2 own
2 deleted table=1,priority=9,in_port=9,actions=meter:1,output:1 reason 4
# second deletes what goes to port 2
1 deleted table=1,priority=5,in_port=1,actions=output:2 reason 2
2 own
# the same monitor again is refused: true
# first stops
# everything goes
# 0 flows are left
`

func TestMonitor(t *testing.T) {
	s := newSwitch(t)
	got := strings.Join(monitored(t, dial(t, s), dial(t, s)), "\n") + "\n"
	if got != wantMonitored {
		t.Errorf("told:\n%s", got)
	}
}

// What changes while reports are held back is told at the end, whoever changed it; what came and went is not told.
func TestPausedMonitor(t *testing.T) {
	s := newSwitch(t)
	c := dial(t, s)
	before := openflowtest.Entry(t, "table=1,priority=1,actions=drop")
	must(t, s.Apply(openflow.AddFlow(before), mod(t, openflow.Add, "table=1,priority=2,actions=drop")))
	must(t, c.Monitor(t.Context(), 1, openflow.Filter{Table: openflow.AllTables}, false))
	s.Pause()
	must(t, s.Apply(mod(t, openflow.Add, "table=2,actions=drop"), mod(t, openflow.ModifyStrict, "table=1,priority=2,actions=output:1"), openflow.DeleteFlow(before.Key())))
	must(t, s.Apply(mod(t, openflow.Add, "table=3,actions=drop"), mod(t, openflow.DeleteStrict, "table=3,actions=drop")))
	must(t, c.Commit(t.Context(), []openflow.Message{mod(t, openflow.Add, "table=4,actions=drop")}))
	s.Resume()
	must(t, s.Apply(mod(t, openflow.Add, "table=5,actions=drop")))
	want := []string{
		"paused", "deleted table=1,priority=1,actions=drop reason 2",
		"added table=2,priority=32768,actions=drop", "added table=4,priority=32768,actions=drop", "modified table=1,priority=2,actions=output:1", "resumed",
		"added table=5,priority=32768,actions=drop",
	}
	if got := reports(t, c); !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestFailures(t *testing.T) {
	s := newSwitch(t)
	var told []string
	s.OnCommit(func(mods []openflowtest.Mod, wiped bool, after map[openflow.Key]openflow.Entry) {
		told = append(told, fmt.Sprintf("%d changes, wiped %v, %d flows", len(mods), wiped, len(after)))
	})
	c := dial(t, s)
	meter := func(command openflow.Command, id uint32) error {
		return c.Send(t.Context(), []openflow.Message{openflow.MeterMod{Command: command, Meter: openflow.MeterDesc{ID: id, Flags: openflow.MeterKbps, Bands: []openflow.Band{{Rate: 1}}}}})
	}
	metered := mod(t, openflow.Add, "table=1,actions=meter:5,output:1")
	plain := mod(t, openflow.Add, "table=1,priority=3,actions=drop")
	for _, f := range []struct {
		name string
		err  error
	}{
		{"OFPMMFC_INVALID_METER", c.Commit(t.Context(), []openflow.Message{plain, metered})},
		{"OFPMMFC_UNKNOWN_METER", meter(openflow.Modify, 1)},
		{"", meter(openflow.Add, 5)},
		{"OFPMMFC_METER_EXISTS", meter(openflow.Add, 5)},
		{"", meter(openflow.Add, 6)},
		{"OFPMMFC_OUT_OF_METERS", meter(openflow.Add, 7)},
		{"OFPFMFC_BAD_TABLE_ID", c.Commit(t.Context(), []openflow.Message{plain, mod(t, openflow.Add, "table=254,actions=drop")})},
		{"OFPBRC_BAD_TYPE", c.Send(t.Context(), []openflow.Message{openflow.GroupMod{}})},
	} {
		if f.name == "" && f.err != nil || f.name != "" && !openflow.IsError(f.err, f.name) {
			t.Errorf("%s: %v", f.name, f.err)
		}
	}
	if n := len(s.Flows()); n != 0 {
		t.Errorf("%d flows of bundles that failed", n)
	}
	s.Refuse(func(m openflow.FlowMod) *openflow.Error {
		if m.Entry.Priority() == 3 {
			return &openflow.Error{Type: 5, Code: 1}
		}
		return nil
	})
	err := c.Commit(t.Context(), []openflow.Message{metered, plain})
	be := &openflow.BundleError{}
	if !openflow.IsError(err, "OFPFMFC_TABLE_FULL") || !errors.As(err, &be) || len(be.Failures) != 1 || be.Failures[0].Index != 1 {
		t.Errorf("refused: %v", err)
	}
	s.Refuse(nil)
	must(t, c.Commit(t.Context(), []openflow.Message{metered, plain}))
	must(t, meter(openflow.Delete, 5))
	s.Restart()
	<-c.Done()
	if len(s.Flows()) != 0 || len(s.Meters()) != 0 {
		t.Error("flows and meters outlive the switch")
	}
	want := []string{"2 changes, wiped false, 2 flows", "1 changes, wiped false, 1 flows", "0 changes, wiped true, 0 flows"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// Before 3.0 Open vSwitch has no monitor for this version of OpenFlow.
func TestWithoutMonitor(t *testing.T) {
	s := newSwitch(t)
	s.WithoutMonitor = true
	c := dial(t, s)
	if err := c.Monitor(t.Context(), 1, openflow.Filter{Table: openflow.AllTables}, false); !openflow.IsError(err, "OFPBRC_BAD_STAT") {
		t.Error(err)
	}
	must(t, s.Apply(mod(t, openflow.Add, "actions=drop")))
	if got := reports(t, c); len(got) != 0 {
		t.Errorf("told %q", got)
	}
}

// A gate breaks the connection before a bundle is committed, or after, when nobody hears that it was.
func TestGate(t *testing.T) {
	for _, after := range []bool{false, true} {
		s := newSwitch(t)
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Serve(theirs, func(m openflowtest.Message, done bool) bool { return !m.Commits() || done != after })
		}()
		c, err := openflow.NewConn(t.Context(), ours, openflow.Config{})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		lost := &openflow.ConnError{}
		if err := c.Commit(ctx, []openflow.Message{mod(t, openflow.Add, "actions=drop")}); !errors.As(err, &lost) {
			t.Errorf("broken after the commit %v: %v", after, err)
		}
		cancel()
		<-done
		if got := len(s.Flows()) == 1; got != after {
			t.Errorf("broken after the commit %v: committed %v", after, got)
		}
		_ = c.Close()
	}
}
