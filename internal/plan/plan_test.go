// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fdb"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/mirror"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/internal/world"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// database has one batch to give.
type database struct {
	first   *ovsdb.Batch
	changes chan *ovsdb.Batch
}

func (d *database) Run(ctx context.Context) {
	select {
	case d.changes <- d.first:
	case <-ctx.Done():
	}
	<-ctx.Done()
}
func (d *database) Changes() <-chan *ovsdb.Batch { return d.changes }

// dump is a bridge's flows.
type dump []openflow.Entry

func (d dump) Flows(context.Context, openflow.Filter) ([]openflow.Entry, error) { return d, nil }
func (d dump) Meters(context.Context) ([]openflow.MeterDesc, error)             { return nil, nil }
func (d dump) MeterFeatures(context.Context) (openflow.MeterFeatures, error) {
	return openflow.MeterFeatures{}, nil
}
func (d dump) Close() error { return nil }

// asked is a server of release 21 that has ports on one vxlan network, in groups whose rules refer to each other. It takes
// down what it is asked.
type asked struct {
	lacks string // a group that it does not answer about

	mu      sync.Mutex
	methods map[string]int
	closed  bool
	region  *sim.Region
	link    *sim.Link
}

func wrapped(data map[string]any) map[string]any {
	return map[string]any{"versioned_object.data": data}
}

func (s *asked) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.methods[method]++
	all, _ := args.(map[string]any)
	filter, _ := all["filter_kwargs"].(map[string]any)
	ids, _ := filter["id"].([]string)
	kind, _ := all["resource_type"].(neutron.Kind)
	port := func(id string) {
		s.region.Put("Port", map[string]any{
			"id": id, "network_id": "n", "admin_state_up": true, "device_owner": "compute:nova", "status": "ACTIVE",
			"mac_address": "fa:16:3e:00:00:01", "security_group_ids": []string{"g"},
			"fixed_ips": []any{wrapped(map[string]any{"ip_address": "10.0.0." + id[1:]})},
			"bindings":  []any{wrapped(map[string]any{"host": "hv1", "status": "ACTIVE"})},
			"binding_levels": []any{wrapped(map[string]any{
				"segment": wrapped(map[string]any{"network_type": "vxlan", "segmentation_id": 77}),
			})},
		})
	}
	if s.region == nil {
		s.region = sim.New(sim.Config{})
		s.region.Put("Trunk", map[string]any{"id": trunkID, "port_id": "p1", "status": "ACTIVE", "sub_ports": []any{
			wrapped(map[string]any{"port_id": "p3", "trunk_id": trunkID, "segmentation_type": "vlan", "segmentation_id": 101}),
		}})
		port("p7")
	}
	for _, id := range ids {
		switch {
		case kind == neutron.KindPort && id != neutron.Nobody:
			port(id)
		case kind == neutron.KindSecurityGroup && id == s.lacks:
			return &messaging.RemoteError{Class: "KeyError", Message: id}
		case kind == neutron.KindSecurityGroup:
			s.region.Put("SecurityGroupRule", map[string]any{
				"id": "r", "security_group_id": id, "direction": "ingress", "ethertype": "IPv4", "remote_group_id": id,
			})
		}
	}
	if s.link == nil {
		s.link = s.region.Join("hv1", nil)
	}
	return s.link.Call(ctx, t, method, args, result)
}

func (s *asked) Serve(context.Context, messaging.Service) error { return errors.New("subscribed") }
func (s *asked) RemoveLeftovers(context.Context, []string, string) ([]string, error) {
	return nil, errors.New("touched queues")
}
func (s *asked) Close(context.Context) error { s.closed = true; return nil }

func input(first *ovsdb.Batch, flows map[string]dump, s *asked) Input {
	return Input{
		Agent: agent.Config{
			Host: "hv1", ReportInterval: 30 * time.Second, PortsPerReport: 20, Log: slog.New(slog.DiscardHandler),
			World: world.Config{
				Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
				TunnelTypes: []string{"vxlan"}, L2Population: true, ARPResponder: true, LocalIP: netip.MustParseAddr("192.0.2.1"),
				FilterTables: true, Filter: true, FailClosed: true,
			},
			Settings: pipeline.Settings{DatapathType: "netdev", Controller: "tcp:127.0.0.1:6633", VXLANPort: 4789},
		},
		Filtered: true,
		Database: &database{first, make(chan *ovsdb.Batch)},
		Dial: func(_ context.Context, bridge string) (Dumper, error) {
			if d, ok := flows[bridge]; ok {
				return d, nil
			}
			return nil, fmt.Errorf("%s was not to be read", bridge)
		},
		Open: func(func(messaging.Event)) (agent.Broker, error) { return s, nil },
	}
}

func newAsked() *asked { return &asked{methods: map[string]int{}} }

// plugged is a host with a bridge that nobody has set up, and two ports.
func plugged() *ovsdb.Batch {
	b := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}
	br := &ovsdb.Bridge{UUID: "br", Name: "br-int", DatapathID: "1"}
	for i := range 2 {
		n := i + 1
		name, port, iface := fmt.Sprintf("tap%d", n), ovsdb.UUID(fmt.Sprintf("port%d", n)), ovsdb.UUID(fmt.Sprintf("iface%d", n))
		br.Ports = append(br.Ports, port)
		b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: port, Name: name, Interfaces: []ovsdb.UUID{iface}}})
		b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: iface, Name: name, OFPort: &n,
			ExternalIDs: map[string]string{"iface-id": fmt.Sprintf("p%d", n), "attached-mac": fmt.Sprintf("fa:16:3e:00:00:0%d", n)},
		}})
	}
	b.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
	b.OpenVSwitch = []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", Bridges: []ovsdb.UUID{"br"}}}}
	return b
}

func normal(t *testing.T) openflow.Entry {
	t.Helper()
	f := openflow.Flow{Actions: []openflow.Action{openflow.Output(openflow.PortNormal)}}
	e, err := f.Entry()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// again is the input for a host as a plan would leave it.
func again(rows *ovsdb.Rehearsal, after *bridges, s *asked, more ...openflow.Entry) Input {
	var b *ovsdb.Batch
	rows.Look(func(v *ovsdb.View) { b = ovsdb.Whole(v) })
	flows := map[string]dump{}
	for name, br := range after.all {
		flows[name] = slices.Collect(maps.Values(br.now))
	}
	flows["br-tun"] = append(flows["br-tun"], more...)
	return input(b, flows, s)
}

func TestAPlanIsWhatAStartWouldDoAndThenThereIsNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAsked()
		in := input(plugged(), map[string]dump{"br-int": {normal(t)}}, s)
		var log bytes.Buffer
		in.Agent.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		p, rows, after, err := rehearse(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if log.Len() > 0 {
			t.Errorf("the plan of a first start warns: %s", log.String())
		}
		if !p.Complete || p.Empty() || p.Reported != (Reported{Up: 2}) || !slices.Equal(p.Flushed, []string{"br-int"}) || !slices.Equal(p.Zones, []uint16{1}) {
			t.Errorf("plan %+v", p)
		}
		for method := range s.methods {
			if method != "has_alive_neutron_server" && method != "bulk_pull" && method != "get_networks" {
				t.Errorf("the server was asked %s", method)
			}
		}
		if !s.closed {
			t.Error("the broker's connection is left open")
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`"change":"added","table":"Bridge","name":"br-tun"`,
			`"change":"changed","table":"Port","name":"tap1","bridge":"br-int"`, `{"column":"tag","after":"1"}`,
			`"match":"in_port=\"patch-int\""`, // it has no number yet
			`"reason":"packets of this host's ports"`, `"owner":"port p2"`,
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("no %s in the plan:\n%s", want, text)
			}
		}
		p, _, _, err = rehearse(t.Context(), again(rows, after, newAsked()))
		if err != nil || !p.Complete || !p.Empty() {
			t.Errorf("after that, %v and %+v", err, p)
		}
	})
}

// kernel has one device, whose table it does not let change.
type kernel struct {
	agent.Forwarding
	t *testing.T
}

func (kernel) Read(context.Context, []string) (forwarding.Tables, error) {
	return forwarding.Tables{"ens1": {{0xfa, 0x16, 0x3e, 0, 0, 9}, {2, 0, 0, 0, 0, 9}}}, nil
}

func (k kernel) Change(context.Context, forwarding.Changes) error {
	k.t.Error("changed")
	return nil
}

// Entries of forwarding tables are planned, and not written.
func TestForwardingTablesArePlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := input(plugged(), map[string]dump{"br-int": {normal(t)}}, newAsked())
		in.Agent.Forwarding = kernel{t: t}
		in.Agent.Extensions = []extension.New{fdb.New(map[string][]string{"physnet1": {"ens1"}})}
		in.Agent.Memory = &world.Memory{Extensions: map[string]json.RawMessage{"fdb": json.RawMessage(`{"ens1":["fa:16:3e:00:00:09"]}`)}}
		p, _, _, err := rehearse(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"bridge fdb del fa:16:3e:00:00:09 dev ens1 self permanent"}; !p.Complete || !slices.Equal(p.Forwarding, want) {
			t.Errorf("complete %v, %q, want %q; missing %q", p.Complete, p.Forwarding, want, p.Missing)
		}
	})
}

const trunkID = "11111111-aaaa-4000-8000-000000000001"

// A trunk is joined to the integration bridge, and nothing is bound or reported.
func TestATrunkIsPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := plugged()
		br := rows.Bridges[0].New
		bridge := &ovsdb.Bridge{UUID: "tbr", Name: "tbr-" + trunkID[:10], DatapathID: "2", Ports: br.Ports[:1]} // with the first port
		br.Ports = br.Ports[1:]
		rows.Bridges = append(rows.Bridges, ovsdb.Diff[ovsdb.Bridge]{New: bridge})
		rows.OpenVSwitch[0].New.Bridges = append(rows.OpenVSwitch[0].New.Bridges, "tbr")
		s := newAsked()
		in := input(rows, map[string]dump{"br-int": {normal(t)}}, s)
		in.Agent.Extensions = []extension.New{trunk.New}
		p, _, _, err := rehearse(t.Context(), in)
		if err != nil || !p.Complete {
			t.Fatalf("%v, complete: %v", err, p.Complete)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`"change":"added","table":"Port","name":"tpi-p1","bridge":"br-int"`, `"change":"added","table":"Port","name":"spi-p3","bridge":"br-int"`,
			`"change":"added","table":"Port","name":"spt-p3","bridge":"` + bridge.Name + `"`, `"owner":"port p3"`,
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("no %s in the plan:\n%s", want, text)
			}
		}
		if n := s.methods["update_subport_bindings"] + s.methods["update_trunk_status"]; n != 0 {
			t.Error("the server was told something")
		}
	})
}

// The server would send all taps once more. A plan does not have it do so.
func TestTapsArePlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAsked()
		in := input(plugged(), map[string]dump{"br-int": {normal(t)}}, s)
		in.Agent.Extensions = []extension.New{mirror.New}
		var log strings.Builder
		in.Agent.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		p, _, _, err := rehearse(t.Context(), in)
		if err != nil || !p.Complete || s.methods["sync_tap_resources"] != 0 || strings.Contains(log.String(), "sync_tap_resources") {
			t.Fatalf("%v, complete: %v, asked %v, log %s", err, p.Complete, s.methods, log.String())
		}
	})
}

func TestAForeignFlowStaysAndALeftOverOneGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rows, after, err := rehearse(t.Context(), input(plugged(), map[string]dump{"br-int": {normal(t)}}, newAsked()))
		if err != nil {
			t.Fatal(err)
		}
		entry := func(cookie uint64, vlan uint16) openflow.Entry {
			f := openflow.Flow{Cookie: cookie, Table: 22, Priority: 1, Match: openflow.Match{openflow.VLAN(vlan)}}
			e, err := f.Entry()
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		p, _, _, err := rehearse(t.Context(), again(rows, after, newAsked(), entry(0, 9), entry(0xabc, 10)))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Flows) != 1 || p.Flows[0].Change != "removed" || p.Flows[0].Match != "dl_vlan=10" || p.Flows[0].Cookie != "0xabc" {
			t.Errorf("plan %+v", p.Flows)
		}
	})
}

func TestAnOpenBridgeIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rows, after, err := rehearse(t.Context(), input(plugged(), map[string]dump{"br-int": {normal(t)}}, newAsked()))
		if err != nil {
			t.Fatal(err)
		}
		open := openflow.Flow{Cookie: 0xabc, Actions: []openflow.Action{openflow.GotoTable(59)}} // the Python agent's
		e, err := open.Entry()
		if err != nil {
			t.Fatal(err)
		}
		after.all["br-int"].now[e.Key()] = e
		p, _, _, err := rehearse(t.Context(), again(rows, after, newAsked()))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Flows) != 1 || p.Flows[0].Change != "changed" || p.Flows[0].Before != "goto_table:59" || p.Flows[0].Actions != "drop" {
			t.Errorf("plan %+v", p.Flows)
		}
	})
}

func TestTunnelsAndEntriesAreReadBackFromTheSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// What a server would have told goes in, is compiled, and is read back.
		told := neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{"n": {NetworkType: "vxlan", SegmentationID: new(int), Ports: map[netip.Addr][]neutron.FDBEntry{
			netip.MustParseAddr("192.0.2.2"): {
				{IP: netip.IPv4Unspecified()},
				{MAC: neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 9}, IP: netip.MustParseAddr("10.0.0.9")},
				{MAC: neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 10}, IP: netip.MustParseAddr("fd00::10")},
			},
		}}}}
		*told.Networks["n"].SegmentationID = 77
		in := input(plugged(), map[string]dump{"br-int": {normal(t)}}, newAsked())
		in.Agent.Memory = &world.Memory{Segments: []world.SegmentMemory{{Network: "n", ID: 77, Stations: []world.StationMemory{
			{Endpoint: netip.MustParseAddr("192.0.2.2"), Entry: neutron.FDBEntry{IP: netip.IPv4Unspecified()}},
		}}}}
		for _, e := range told.Networks["n"].Ports[netip.MustParseAddr("192.0.2.2")][1:] {
			in.Agent.Memory.Segments[0].Stations = append(in.Agent.Memory.Segments[0].Stations,
				world.StationMemory{Endpoint: netip.MustParseAddr("192.0.2.2"), Entry: e})
		}
		p, rows, after, err := rehearse(t.Context(), in)
		if err != nil || !slices.ContainsFunc(p.Flows, func(f Flow) bool { return strings.Contains(f.Actions, `output:"vxlan-c0000202"`) }) {
			t.Fatalf("%v %+v", err, p)
		}
		p, _, _, err = rehearse(t.Context(), again(rows, after, newAsked())) // without memory
		if err != nil || !p.Empty() || p.Assumed != (Assumed{Tunnels: 1, Entries: 3}) {
			t.Errorf("%v %+v", err, p)
		}
	})
}

func TestWithoutAnAnswerThePlanIsNotComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAsked()
		s.lacks = "g"
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := Make(ctx, input(plugged(), map[string]dump{"br-int": {normal(t)}}, s))
		if err != nil || p.Complete || !strings.Contains(strings.Join(p.Missing, ";"), "bulk_pull of 1 group") || !strings.Contains(strings.Join(p.Missing, ";"), "KeyError") {
			t.Errorf("%v %+v", err, p)
		}
	})
}

func TestOfflineThereIsOnlyWhatWasWrittenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := input(plugged(), map[string]dump{"br-int": {normal(t)}}, nil)
		in.Open = nil
		p, err := Make(t.Context(), in)
		if err != nil || !p.Complete || !p.Offline {
			t.Fatalf("%v %+v", err, p)
		}
		apart := 0
		for _, r := range p.Rows {
			if r.Table != "Port" || !strings.HasPrefix(r.Name, "tap") {
				continue
			}
			// A port without a tag would hear every network of the host. That is all that is known of it.
			for _, v := range r.Values {
				if v.Column+"="+v.After != "tag=4095" && v.Column+"="+v.After != "trunks=4095" && v.Column+"="+v.After != "vlan_mode=trunk" {
					t.Errorf("a port would change that nobody knows anything about: %+v", r)
				}
			}
			apart++
		}
		if apart != 2 {
			t.Errorf("%d ports would be isolated, want 2: %+v", apart, p.Rows)
		}
	})
}

func TestASwitchThatCannotBeReadIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := input(&ovsdb.Batch{Kind: ovsdb.Disconnected, Err: errors.New("refused")}, nil, newAsked())
		if _, err := Make(t.Context(), in); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Error(err)
		}
		if _, err := Make(t.Context(), input(plugged(), nil, newAsked())); err == nil || !strings.Contains(err.Error(), "br-int") {
			t.Error(err)
		}
	})
}
