// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// cloud is a broker whose server has ports p0…, each in a group of its own, g0…, whose rules refer to members of another,
// m0…. It stumbles over one group, does not know another, and notes what it is asked and told.
type cloud struct {
	*fakeBroker
	refuses, lacks string
	slow           time.Duration // how long it takes to answer about policies

	mu     sync.Mutex
	asked  map[string]int
	status []string
}

func wrapped(data map[string]any) map[string]any {
	return map[string]any{"versioned_object.data": data}
}

func primitive(kind neutron.Kind, data map[string]any) map[string]any {
	p := wrapped(data)
	p["versioned_object.name"] = string(kind)
	return p
}

func cloudPort(id string, revision int, status string) map[string]any {
	return map[string]any{
		"id": id, "network_id": "n", "admin_state_up": true, "device_owner": "compute:nova", "revision_number": revision, "status": status,
		"security_group_ids": []string{"g" + id[1:]},
		"fixed_ips":          []any{wrapped(map[string]any{"ip_address": "10.0.5." + id[1:]})},
		"bindings":           []any{wrapped(map[string]any{"host": "hv1", "status": "ACTIVE"})},
		"binding_levels":     []any{wrapped(map[string]any{"segment": wrapped(map[string]any{"network_type": "local"})})},
	}
}

func (c *cloud) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	all, _ := args.(map[string]any)
	if method == "update_device_list" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.status = append(c.status, fmt.Sprintf("up %v down %v", all["devices_up"], all["devices_down"]))
		return answer(map[string]any{}, nil, result)
	}
	filter, _ := all["filter_kwargs"].(map[string]any)
	ids, _ := filter["id"].([]string)
	kind, _ := all["resource_type"].(neutron.Kind)
	if method != "bulk_pull" || kind == neutron.KindNDPProxy {
		return c.fakeBroker.Call(ctx, t, method, args, result)
	}
	if kind == neutron.KindQosPolicy && c.slow > 0 && len(ids) > 0 && sleep(ctx, c.slow) != nil {
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.region == nil {
		c.region = sim.New(sim.Config{})
	}
	if groups, ok := filter["security_group_ids"].([]string); ok {
		c.asked["members"]++
		for _, g := range groups {
			c.region.Put("Port", map[string]any{
				"id": "of-" + g, "security_group_ids": groups, "fixed_ips": []any{wrapped(map[string]any{"ip_address": "10.0.0.1"})},
			})
		}
		return c.fakeBroker.Call(ctx, t, method, args, result)
	}
	c.asked[string(kind)]++
	for _, id := range ids {
		switch {
		case id == c.refuses:
			return &messaging.RemoteError{Class: "KeyError", Message: id}
		case id == c.lacks:
		case kind == neutron.KindPort:
			c.region.Put("Port", cloudPort(id, 5, "DOWN"))
		case kind == neutron.KindSecurityGroup:
			c.region.Put("SecurityGroupRule", map[string]any{
				"id": "r" + id, "security_group_id": id, "direction": "ingress", "ethertype": "IPv4", "remote_group_id": "m" + id[1:],
			})
		}
	}
	return c.fakeBroker.Call(ctx, t, method, args, result)
}

// tracker is connection tracking that notes what it is told.
type tracker struct {
	mu     sync.Mutex
	began  time.Time
	calls  []string
	broken bool
	slow   time.Duration // of a look

	marked, released []conntrack.Connection
}

func (c *tracker) note(what string, zone uint16) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("%s %d at %s", what, zone, time.Since(c.began)))
	if c.broken {
		return errors.New("broken")
	}
	return nil
}

func (c *tracker) FlushZone(_ context.Context, zone uint16) error { return c.note("flush", zone) }

func (c *tracker) Marked(_ context.Context, zone uint16) ([]conntrack.Connection, error) {
	err := c.note("list", zone)
	time.Sleep(c.slow)
	return c.marked, err
}

func (c *tracker) Release(_ context.Context, zone uint16, connections []conntrack.Connection) (int, error) {
	c.released = append(c.released, connections...)
	c.marked = nil
	return len(connections), c.note("release", zone)
}

// filtering makes an agent with filters before a cloud, and the switch's first rows: so many ports.
func filtering(t *testing.T, c *cloud, ct Conntrack, ports int) (*Agent, *fakeSwitch, *ovsdb.Batch) {
	t.Helper()
	c.fakeBroker = &fakeBroker{
		alive:  func() (bool, error) { return true, nil },
		report: func(neutron.AgentState) (any, error) { return "alive", nil },
	}
	c.asked = map[string]int{}
	sw := &fakeSwitch{changes: make(chan *ovsdb.Batch)}
	a, err := New(Config{
		Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler), Conntrack: ct,
		World:    world.Config{Host: "hv1", IntegrationBridge: "br-int", Filter: true, FilterTables: true, FailClosed: true},
		Notifier: observe.NewNotifier(func(string) string { return "" }, 1),
		Link:     Supervised(func(context.Context, string) (*openflow.Conn, error) { return nil, errors.New("no such bridge") }),
	}, sw, func(func(messaging.Event)) (Broker, error) { return c, nil })
	if err != nil {
		t.Fatal(err)
	}
	a.wake = time.NewTimer(time.Hour)
	batch := connected()
	br := &ovsdb.Bridge{UUID: "br", Name: "br-int"}
	for i := range ports {
		id, n, tag := fmt.Sprintf("p%d", i), i+1, 1
		iface := ovsdb.UUID("i" + id)
		row := &ovsdb.Port{UUID: ovsdb.UUID("r" + id), Name: id, Interfaces: []ovsdb.UUID{iface}, Tag: &tag, OtherConfig: map[string]string{
			"net_uuid": "n", "network_type": "local", "physical_network": "None", "tag": "1",
		}}
		br.Ports = append(br.Ports, row.UUID)
		batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: row})
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: iface, Name: id, OFPort: &n,
			ExternalIDs: map[string]string{"iface-id": id, "attached-mac": fmt.Sprintf("fa:16:3e:00:00:%02x", i)},
		}})
	}
	slices.Sort(br.Ports)
	batch.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
	return a, sw, batch
}

func TestAGroupThatTheServerRefusesWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 40
		c := &cloud{refuses: "g17", lacks: "g23"}
		a, sw, batch := filtering(t, c, nil, count)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		sw.changes <- batch
		wait(50 * time.Millisecond) // before the first pause between attempts is over
		c.mu.Lock()
		early := c.asked[string(neutron.KindSecurityGroup)]
		c.mu.Unlock()
		wait(10 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, id := range a.world.PortIDs() {
			state, reason := world.Wired, "bound"
			switch id {
			case "p17":
				state, reason = world.Waiting, "its security group g17 has not been told yet"
			case "p23":
				state, reason = world.Waiting, "the server does not know its security group g23"
			}
			if got := a.world.Port(id).Wiring; got.State != state || !strings.Contains(got.Reason, reason) {
				t.Errorf("%s is %s (%s), want %s (%s)", id, got.State, got.Reason, state, reason)
			}
		}
		if early > 20 || c.asked["members"] > 10 {
			t.Errorf("%d questions about groups at first, %d about members of %d groups", early, c.asked["members"], count-2)
		}
		if late := c.asked[string(neutron.KindSecurityGroup)] - early; late > 100 || late < 20 {
			t.Errorf("%d more questions about groups in ten minutes: pauses grow to half a minute", late)
		}
	})
}

// settle has an agent take everything that has happened, outside its loop.
func settle(t *testing.T, a *Agent) {
	t.Helper()
	for {
		for _, o := range a.world.Settle() {
			a.compile(o)
		}
		a.pullMissing(t.Context())
		a.reportPorts(t.Context())
		a.work.Wait()
		events := a.inbox.take()
		if len(events) == 0 {
			return
		}
		for _, e := range events {
			a.receive(t.Context(), e)
		}
	}
}

// obeyed tells an agent that its bridge has exactly what is wanted.
func obeyed(a *Agent) {
	var have []openflow.Entry
	for _, o := range a.world.Everything() {
		for _, f := range pipeline.Compile(a.world, &a.cfg.Settings, o).Flows {
			have = append(have, f.Entry)
		}
	}
	hasFlows(a, "br-int", have)
}

// hasFlows tells an agent that one of its bridges has flows. It is connected to it if it is not yet.
func hasFlows(a *Agent, name string, flows []openflow.Entry) {
	if !a.dataplane.Bridge(name).Connected {
		a.dataplane.Linked(name, obedient{}, nil, time.Now())
	}
	a.dataplane.Read(dataplane.Reading{Bridge: name, Conn: obedient{}, Flows: flows, MaxMeters: 9}, time.Now())
}

// rowsWritten tells an agent that all rows of what has its flows are as wanted.
func rowsWritten(a *Agent) {
	a.dataplane.Contain = func(world.Object, func()) bool { return true }
	a.dataplane.Next(dataplane.Input{View: a.world.View, Connected: true, Unflushed: a.unflushedZone}, time.Now())
	a.dataplane.Landed()
	a.dataplane.Contain = a.inRows
}

func TestAPortThatTheServerPutDownIsReportedAgain(t *testing.T) {
	c := &cloud{}
	a, _, batch := filtering(t, c, nil, 1)
	a.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
	a.started, a.switchUp = true, true
	a.world.Switch(batch)
	settle(t, a)
	if len(c.status) != 0 {
		t.Fatalf("reported before its filters were in place: %v", c.status)
	}
	obeyed(a)
	push := func(revision int, status string) {
		t.Helper()
		data := cloudPort("p0", revision, status)
		body := map[string]any{}
		if err := answer(data, nil, &body); err != nil {
			t.Fatal(err)
		}
		p := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: make([]neutron.Primitive, 1)}
		if err := answer(primitive(neutron.KindPort, body), nil, &p.Objects[0]); err != nil {
			t.Fatal(err)
		}
		if err := a.world.Push(p, time.Now()); err != nil {
			t.Fatal(err)
		}
		settle(t, a)
	}
	const report = "up [p0] down []"
	settle(t, a)
	want := []string{report}
	for _, step := range []struct {
		revision int
		status   string
		again    bool
	}{{5, "DOWN", false}, {6, "ACTIVE", false}, {7, "DOWN", true}, {7, "DOWN", false}, {6, "DOWN", false}, {8, "ACTIVE", false}, {9, "BUILD", true}} {
		push(step.revision, step.status)
		if step.again {
			want = append(want, report)
		}
		if !slices.Equal(c.status, want) {
			t.Fatalf("after %s at revision %d: %v, want %v", step.status, step.revision, c.status, want)
		}
	}
}

func TestConnectionTrackingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ct := &tracker{began: time.Now()}
		a, _, batch := filtering(t, &cloud{}, ct, 2)
		a.versions = neutron.Versions{neutron.KindPort: "1.7", neutron.KindSecurityGroup: "1.5"}
		a.started = true
		batch.Ports[0].New.OtherConfig = nil // nothing says that its network had VLAN 1
		batch.Ports[1].New.OtherConfig = nil
		a.world.Switch(batch)
		settle(t, a)
		makeRound(t, a, nil)
		if !slices.Equal(ct.calls, []string{"flush 1 at 0s"}) {
			t.Fatalf("a VLAN with a new network: %v", ct.calls)
		}
		if r := makeRound(t, a, nil); len(r.Flush) > 0 {
			t.Errorf("emptied again: %v", r.Flush)
		}
		if !a.zones.TakeChanged()[1] {
			t.Error("filters of VLAN 1 changed, and it is not due")
		}
		ct.calls = nil
		// The rules of g0 let in who is 10.0.0.1, and nobody else.
		allowed := conntrack.Connection{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.5.0"), Protocol: 6, DstPort: 80}
		refused := allowed
		refused.Src = netip.MustParseAddr("10.0.0.2")
		ct.marked = []conntrack.Connection{refused, allowed}
		a.zones.Committed(map[uint16]bool{1: true}, time.Now())
		for range 100 {
			a.listConnections(t.Context())
			a.work.Wait()
			for _, e := range a.inbox.take() {
				a.receive(t.Context(), e)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if !slices.Equal(ct.released, []conntrack.Connection{allowed}) {
			t.Errorf("released %v", ct.released)
		}
		if want := []string{"list 1 at 0s", "release 1 at 0s", "list 1 at 1s", "list 1 at 5s"}; !slices.Equal(ct.calls, want) {
			t.Errorf("looked for connections that are allowed again: %v, want %v", ct.calls, want)
		}
	})
}

func TestWhatIsFoundOnTheBridge(t *testing.T) {
	entry := func(text string) openflow.Entry {
		f, err := openflow.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	const normal = "table=0,priority=0,actions=NORMAL"
	const drop, open, high = "table=0,priority=0,actions=drop", "table=0,priority=0,cookie=0x7,actions=resubmit(,59)", "table=0,priority=1,actions=drop"
	for _, c := range []struct {
		flows  []string
		closed bool
	}{{nil, true}, {[]string{drop}, true}, {[]string{open}, false}, {[]string{high}, true}, {[]string{high, open}, false}, {[]string{normal}, true}} {
		a, _, _ := filtering(t, &cloud{}, nil, 0)
		var entries []openflow.Entry
		for _, f := range c.flows {
			entries = append(entries, entry(f))
		}
		if a.adopt(entries); a.world.Closed() != c.closed {
			t.Errorf("%v: closed is %v", c.flows, a.world.Closed())
		}
	}
	got := conjunctionIDs(entry("table=72,priority=73,reg6=1,actions=conjunction(18,1/2),conjunction(27,1/2)"))
	got = append(got, conjunctionIDs(entry("table=72,priority=73,conj_id=43,ip,actions=resubmit(,73)"))...)
	if !slices.Equal(got, []uint32{18, 27, 43}) {
		t.Errorf("conjunction ids %v", got)
	}
}
