// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

var begin = time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC)

// server is the plugin of the server: it has the status of what it knows, and sends what is active when it is asked.
type server struct {
	status map[string]string // by id
	calls  []string
	err    error
	sends  func()
	gone   func()    // it is told that something is inactive
	until  time.Time // how long the last call waits for an answer
}

// Call implements neutron.Caller.
func (s *server) Call(ctx context.Context, t messaging.Target, method string, args, _ any) error {
	s.until, _ = ctx.Deadline()
	text, _ := json.Marshal(args)
	var a struct {
		Msg          struct{ ID string }
		Status, Host string
		Sync         struct {
			Host string `json:"host_id"`
		} `json:"sync_tap_res"`
	}
	_ = json.Unmarshal(text, &a)
	if t.Topic != "n-taas-plugin" || a.Host != "hv1" {
		return fmt.Errorf("%s called on %s for %s", method, t.Topic, a.Host)
	}
	s.calls = append(s.calls, strings.TrimSpace(method+" "+a.Msg.ID+" "+a.Status))
	if s.err != nil {
		return s.err
	}
	if method == "sync_tap_resources" {
		if a.Sync.Host != "hv1" {
			return errors.New("no host to sync")
		}
		if s.sends != nil {
			s.sends()
		}
		return nil
	}
	if _, has := s.status[a.Msg.ID]; !has {
		return &messaging.RemoteError{Class: map[bool]string{true: "TapFlowNotFound", false: "TapServiceNotFound"}[strings.Contains(method, "flow")]}
	}
	if s.status[a.Msg.ID] = a.Status; a.Status == "INACTIVE" {
		delete(s.status, a.Msg.ID)
		s.gone()
	}
	return nil
}

// host is an agent's world with the extension, over a database in memory.
type host struct {
	*testing.T
	db      *ovsdb.Rehearsal
	w       *world.World
	m       *Mirrors
	wants   map[world.Object]pipeline.Want
	server  *server
	types   []string
	writes  []string // what commits changed, for the extension's objects
	offline bool
}

func newHost(t *testing.T, types ...string) *host {
	first := &ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial,
		OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", Bridges: []ovsdb.UUID{"br-int"}}}},
		Bridges:     []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "br-int", Name: "br-int"}}},
	}
	h := &host{T: t, db: ovsdb.NewRehearsal(first), server: &server{status: map[string]string{}, gone: func() {}}, types: types}
	h.db.OnCommit = func(b *ovsdb.Batch) { h.w.Switch(b); h.m.OnRows(b) }
	h.start(first, nil)
	return h
}

func (h *host) start(rows *ovsdb.Batch, saved json.RawMessage) {
	h.w = world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int", TunnelTypes: h.types})
	h.w.Time = begin
	h.m = New(h.w).(*Mirrors)
	h.wants = map[world.Object]pipeline.Want{}
	if saved != nil {
		if err := h.m.Load(saved); err != nil {
			h.Fatal(err)
		}
	}
	h.w.Switch(rows)
	h.m.OnRows(rows)
	h.compile(append(h.w.Everything(), h.m.Resolve(h.w.Everything())...))
	h.settle()
}

// restart has another agent start over the same rows. Without is whether it has lost what the last one saved.
func (h *host) restart(without bool) {
	var saved json.RawMessage
	if v := h.m.Save(); v != nil && !without {
		var err error
		if saved, err = json.Marshal(v); err != nil {
			h.Fatal(err)
		}
	}
	h.start(ovsdb.Whole(h.w.View), saved)
}

func (h *host) compile(objects []world.Object) {
	for _, o := range objects {
		var want pipeline.Want
		h.m.Compile(o, &want)
		h.wants[o] = want
	}
}

// settle takes the agent's steps until nothing changes any more.
func (h *host) settle() {
	h.Helper()
	for range 200 {
		objects := h.w.Resolve()
		objects = append(objects, h.m.Resolve(objects)...)
		h.compile(objects)
		missing := h.w.Missing()
		ports := make([]neutron.Port, len(missing))
		for i, id := range missing {
			ports[i] = neutron.Port{
				ID: id, NetworkID: "net", AdminStateUp: true, DeviceOwner: "compute:nova", Bindings: neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}},
				BindingLevels: neutron.List[neutron.BindingLevel]{{Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "local"}}}},
			}
		}
		h.w.Ports(missing, ports)
		called := false
		if !h.offline {
			for _, c := range h.m.Calls() {
				result, err := c.Run(h.Context(), neutron.NewServer(h.server, "hv1"))
				h.m.OnCall(c.Key, result, err)
				called = called || err == nil || !c.Background
			}
		}
		tx := extensiontest.Unwritten(h.w.View, h.wants)
		if tx == nil && !called && len(missing) == 0 && len(objects) == 0 {
			return
		}
		if tx != nil {
			before := h.marked()
			if _, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx}); errs[0] != nil {
				h.Fatal(errs[0])
			}
			if after := h.marked(); after != before {
				h.writes = append(h.writes, after)
			}
		}
	}
	h.Fatal("does not come to rest")
}

func (h *host) edit(add func(*ovsdb.Tx)) {
	h.Helper()
	tx := ovsdb.NewTx(h.w.View)
	add(tx)
	if _, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx}); errs[0] != nil {
		h.Fatal(errs[0])
	}
	h.settle()
}

func (h *host) plug(ids ...string) {
	h.Helper()
	for _, id := range ids {
		h.edit(func(tx *ovsdb.Tx) {
			tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "tap" + id, ExternalIDs: map[string]string{"iface-id": id, "attached-mac": "fa:16:3e:00:00:01"}})
		})
	}
}

func (h *host) unplug(id string) {
	h.Helper()
	h.edit(func(tx *ovsdb.Tx) { tx.DeletePort(h.w.View.PortByName("tap" + id).UUID) })
}

func (h *host) pass(d time.Duration) {
	h.Helper()
	for end := h.w.Time.Add(d); ; {
		at := h.m.Deadline()
		if at.IsZero() || at.After(end) {
			h.w.Time = end
			return
		}
		h.w.Time = at
		h.m.OnTime(at)
		h.settle()
	}
}

func (h *host) cast(method, args string) {
	h.Helper()
	if err := h.m.OnCast(method, []byte(args)); err != nil {
		h.Fatal(err)
	}
	h.settle()
}

func port(id, host string) string {
	return fmt.Sprintf(`{"id":%q,"binding:host_id":%q,"binding:vnic_type":"normal","binding:vif_details":{"ovs_hybrid_plug":%t}}`, id, host, strings.HasSuffix(id, "h"))
}

// service is what the server sends about a tap service.
func serviceMessage(id, portID, host, status string) string {
	return fmt.Sprintf(`{"tap_service_msg":{"tap_service":{"id":%q,"port_id":%q,"status":%q},"taas_id":3900,"port":%s},"host":%q}`, id, portID, status, port(portID, host), host)
}

// tap is a tap flow from one port to another.
type tap struct{ id, service, from, to, direction, host, toHost, status string }

func (f tap) message() string {
	return fmt.Sprintf(`{"tap_flow_msg":{"tap_flow":{"id":%q,"tap_service_id":%q,"source_port":%q,"direction":%q,"status":%q},"port_mac":"x","taas_id":3900,"port":%s,"tap_service_port":%s},"host":%q}`,
		f.id, f.service, f.from, f.direction, f.status, port(f.from, f.host), port(f.to, f.toHost), f.host)
}

func (h *host) createService(id, portID string) {
	h.Helper()
	h.server.status[id] = "DOWN"
	h.cast("create_tap_service", serviceMessage(id, portID, "hv1", "DOWN"))
}

func (h *host) createFlow(id, service, from, to, direction string) {
	h.Helper()
	h.server.status[id] = "DOWN"
	h.cast("create_tap_flow", tap{id, service, from, to, direction, "hv1", "hv1", "DOWN"}.message())
}

// marked are the rows of the extension, in lines.
func (h *host) marked() string {
	var lines []string
	names := func(ids []ovsdb.UUID) (out []string) {
		for _, id := range ids {
			out = append(out, h.w.View.Port(id).Name)
		}
		slices.Sort(out)
		return out
	}
	b := h.w.View.BridgeByName("br-int")
	for _, m := range h.w.View.MirrorsOn(b) {
		output := []ovsdb.UUID{m.Output}
		if m.Output == "" {
			output = nil
		}
		lines = append(lines, fmt.Sprintf("mirror %s of %q from %v to %v by %v", m.Name, m.ExternalIDs[mark], names(m.SelectSrc), names(m.SelectDst), names(output)))
	}
	for _, i := range h.w.View.InterfacesOn(b) {
		if p := h.w.View.PortOf(i.UUID); i.ExternalIDs[mark] != "" {
			lines = append(lines, fmt.Sprintf("port %s of %q: %s %v, VLAN %d %s%v", i.Name, i.ExternalIDs[mark], i.Type, i.Options, *p.Tag, p.VLANMode, p.Trunks))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// flows are those of the extension.
func (h *host) flows() string {
	var lines []string
	for o, want := range h.wants {
		if _, ok := own.Key(o); ok {
			for _, f := range want.Flows {
				text := strings.Replace(f.Entry.String(), fmt.Sprintf(",cookie=%#x", pipeline.Cookie), "", 1)
				for _, i := range h.w.View.InterfacesOn(h.w.View.BridgeByName("br-int")) {
					text = strings.ReplaceAll(text, fmt.Sprint(*i.OFPort), i.Name)
				}
				lines = append(lines, text)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (h *host) check(what, got string, want ...string) {
	h.Helper()
	if got != strings.Join(want, "\n") {
		h.Errorf("%s:\n%s\nwant:\n%s", what, got, strings.Join(want, "\n"))
	}
}

func (h *host) told(want ...string) {
	h.Helper()
	got := slices.DeleteFunc(h.server.calls, func(c string) bool { return c == "sync_tap_resources" })
	slices.Sort(got)
	h.check("told", strings.Join(got, "\n"), want...)
	h.server.calls = nil
}

const (
	s1, f1 = "5e000001-0000", "f1000001-0000"
	s2, f2 = "5e000002-0000", "f2000002-0000"
	m1     = "3a000001-0000"
)

func patches(id string) []string {
	return []string{
		fmt.Sprintf(`port ts_in_%[2]s of %[1]q: patch map[peer:ts_out_%[2]s], VLAN 4095 trunk[4095]`, id, id[:8]),
		fmt.Sprintf(`port ts_out_%[2]s of %[1]q: patch map[peer:ts_in_%[2]s], VLAN 4095 []`, id, id[:8]),
	}
}

func mirrorOf(id, from, to string) []string {
	return append([]string{fmt.Sprintf("mirror ts_%s of %q from %s to %s by [ts_out_%s]", id[:8], id, from, to, id[:8])}, patches(id)...)
}

// The packets of a port are copied, in each direction, to the port of a tap service; until the server deletes the tap flow.
func TestTapFlow(t *testing.T) {
	for direction, c := range map[string]struct{ src, dst string }{"BOTH": {"[tap1]", "[tap1]"}, "IN": {"[]", "[tap1]"}, "OUT": {"[tap1]", "[]"}} {
		h := newHost(t)
		h.plug("1", "2")
		h.createService(s1, "2")
		h.told("set_tap_service_status " + s1 + " ACTIVE")
		h.check("a tap service alone", h.marked())
		h.createFlow(f1, s1, "1", "2", direction)
		h.told("set_tap_flow_status " + f1 + " ACTIVE")
		h.check(direction, h.marked(), mirrorOf(s1, c.src, c.dst)...)
		h.check("flows", h.flows(), "table=0,priority=300,in_port=ts_in_5e000001,actions=output:tap2", "table=0,priority=300,in_port=ts_out_5e000001,actions=drop")
		if len(h.writes) != 2 { // the ports, and then the mirror: packets find the flow that leads them on
			t.Errorf("written: %q", h.writes)
		}

		h.server.gone = func() { h.check("when the server is told", h.marked()) }
		h.cast("delete_tap_flow", tap{f1, s1, "1", "2", direction, "hv1", "hv1", "PENDING_DELETE"}.message())
		h.told("set_tap_flow_status " + f1 + " INACTIVE")
		h.check("after the tap flow", h.marked())
		h.check("flows", h.flows())
		h.cast("delete_tap_service", serviceMessage(s1, "2", "hv1", "PENDING_DELETE"))
		h.told("set_tap_service_status " + s1 + " INACTIVE")
		if h.m.Save() != nil || len(h.m.doomed)+len(h.m.complete) != 0 {
			t.Errorf("left over: %+v", h.m)
		}
	}
}

// Several tap flows of a tap service are one mirror. What is known of them is not written again by another agent, and follows the ports.
func TestRestart(t *testing.T) {
	h := newHost(t)
	h.plug("1", "2", "3")
	h.createService(s1, "2")
	h.createFlow(f1, s1, "1", "2", "BOTH")
	h.createFlow(f2, s1, "3", "2", "OUT")
	whole := mirrorOf(s1, "[tap1 tap3]", "[tap1]")
	h.check("two", h.marked(), whole...)
	h.writes, h.server.calls = nil, nil

	h.server.err = errors.New("away")
	h.restart(false)
	h.check("after a restart", h.marked(), whole...)
	h.check("flows", h.flows(), "table=0,priority=300,in_port=ts_in_5e000001,actions=output:tap2", "table=0,priority=300,in_port=ts_out_5e000001,actions=drop")
	if len(h.writes) > 0 {
		t.Errorf("a restart writes %q", h.writes)
	}
	h.unplug("3")
	h.check("a port less", h.marked(), mirrorOf(s1, "[tap1]", "[tap1]")...)
	h.plug("3")
	h.check("a port more", h.marked(), whole...)
	h.unplug("2")
	h.check("without the port of the tap service", h.marked())
	h.plug("2")
	h.check("with it again", h.marked(), whole...)
	h.told()

	// Somebody changes what is the agent's.
	h.edit(func(tx *ovsdb.Tx) { tx.DeletePort(h.w.View.PortByName("ts_out_5e000001").UUID) })
	h.check("after a port was deleted", h.marked(), whole...)
}

// What the server has no more is not copied when its port comes: it deletes without a message what is not active.
func TestDeletedWhileWaiting(t *testing.T) {
	h := newHost(t)
	h.plug("2")
	h.createService(s1, "2")
	h.createFlow(f1, s1, "1", "2", "BOTH")
	h.told("set_tap_service_status " + s1 + " ACTIVE")
	if got := h.m.Explain(world.PortObject("1")); len(got) != 1 || !strings.Contains(got[0], "waiting: port 1 is not plugged in here") {
		t.Errorf("explained: %q", got)
	}
	delete(h.server.status, f1)
	h.plug("1")
	h.told("set_tap_flow_status " + f1 + " ACTIVE")
	if len(h.writes) > 0 || len(h.m.Flows) > 0 {
		t.Errorf("written: %q, known: %v", h.writes, h.m.Flows)
	}

	h.offline = true // the report does not arrive
	h.createFlow(f2, s1, "1", "2", "BOTH")
	if len(h.writes) > 0 {
		t.Errorf("written before the server has confirmed it: %q", h.writes)
	}
	h.offline = false
	h.settle()
	h.check("confirmed", h.marked(), mirrorOf(s1, "[tap1]", "[tap1]")...)
}

// What cannot be carried out is reported as such, with a sentence that says what to do.
func TestRefused(t *testing.T) {
	for what, c := range map[string]struct {
		f    tap
		want []string
	}{
		"another host": {tap{f1, s1, "1", "2", "BOTH", "hv1", "hv2", "DOWN"}, []string{f1, "port 1 is on host hv1", "the tap service, 2, on host hv2", "tap mirror"}},
		"no host":      {tap{f1, s1, "1", "2", "BOTH", "hv1", "", "ACTIVE"}, []string{f1, "on host (none)"}},
		"itself":       {tap{f1, s1, "1", "1", "BOTH", "hv1", "hv1", "DOWN"}, []string{f1, "the one whose packets"}},
		"hybrid":       {tap{f1, s1, "1", "2h", "BOTH", "hv1", "hv1", "DOWN"}, []string{f1, "iptables_hybrid"}},
		"direction":    {tap{f1, s1, "1", "2", "UP", "hv1", "hv1", "DOWN"}, []string{f1, `direction "UP"`}},
	} {
		h := newHost(t)
		h.plug("1", "2", "2h")
		h.server.status[f1] = "DOWN"
		h.cast("create_tap_flow", c.f.message())
		h.cast("create_tap_flow", c.f.message())
		h.told("set_tap_flow_status "+f1+" ERROR", "set_tap_flow_status "+f1+" ERROR")
		got := h.m.Warnings()
		if len(got) != 1 {
			t.Errorf("%s: warnings %q", what, got)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(got[0], part) {
				t.Errorf("%s: %q is not in %q", what, part, got[0])
			}
		}
		if got := h.m.Explain(world.PortObject("1")); len(got) != 1 || !strings.Contains(got[0], "refused: ") {
			t.Errorf("%s: explained %q", what, got)
		}
		if len(h.writes) > 0 {
			t.Errorf("%s: written %q", what, h.writes)
		}
	}
	h := newHost(t)
	h.plug("2h")
	h.createService(s1, "2h")
	h.told("set_tap_service_status " + s1 + " ERROR")
	if got := h.m.Warnings(); len(got) != 1 || !strings.Contains(got[0], "iptables_hybrid") {
		t.Errorf("warnings %q", got)
	}
}

// Messages about other hosts, and about ports of the SR-IOV agent, change nothing; but what was here and is elsewhere now goes.
func TestOtherHosts(t *testing.T) {
	h := newHost(t)
	h.plug("1", "2")
	direct := func(s string) string { return strings.ReplaceAll(s, `"normal"`, `"direct"`) }
	far, here := tap{f1, s1, "1", "2", "BOTH", "hv2", "hv2", "DOWN"}, tap{f1, s1, "1", "2", "BOTH", "hv1", "hv1", "ACTIVE"}
	mirror := func(host string) string {
		return fmt.Sprintf(`{"tap_mirror_msg":{"tap_mirror":{"id":%q,"remote_ip":"10.0.0.9","mirror_type":"gre","directions":{"IN":7}},"port":%s},"host":%q}`, m1, port("1", host), host)
	}
	for _, event := range []string{"create", "delete"} {
		h.cast(event+"_tap_service", serviceMessage(s1, "2", "hv2", "DOWN"))
		h.cast(event+"_tap_flow", far.message())
		h.cast(event+"_tap_mirror", mirror("hv2"))
		h.cast(event+"_tap_service", direct(serviceMessage(s1, "2", "hv1", "DOWN")))
		h.cast(event+"_tap_flow", direct(here.message()))
		h.cast(event+"_tap_mirror", direct(mirror("hv1")))
		h.cast(event+"_tap_nothing", `{}`)
		h.cast("tunnel_update", `{}`)
	}
	if len(h.writes)+len(h.m.Calls()) > 0 || h.m.Save() != nil {
		t.Errorf("written %q, to tell %v, known %+v", h.writes, h.m.Calls(), h.m.known)
	}
	h.told()

	h.server.status[f1], h.server.status[s1] = "ACTIVE", "ACTIVE"
	h.cast("create_tap_service", serviceMessage(s1, "2", "hv1", "ACTIVE"))
	h.cast("create_tap_flow", here.message())
	h.cast("create_tap_mirror", mirror("hv1"))
	if !strings.Contains(h.marked(), "mirror ts_") || !strings.Contains(h.marked(), "mirror tm_in_") {
		t.Fatalf("rows: %s", h.marked())
	}
	h.cast("create_tap_flow", far.message())
	h.cast("create_tap_service", serviceMessage(s1, "2", "hv2", "ACTIVE"))
	h.cast("create_tap_mirror", mirror("hv2"))
	h.check("after all have moved", h.marked())
	h.told()
	if h.m.Save() != nil {
		t.Errorf("known: %+v", h.m.known)
	}

	// A port that is gone has no host: whoever has the tap reports.
	h.server.gone = func() { h.check("when the server is told", h.marked()) }
	h.cast("create_tap_service", serviceMessage(s1, "2", "hv1", "ACTIVE"))
	h.cast("create_tap_flow", here.message())
	h.cast("delete_tap_service", `{"tap_service_msg":{"tap_service":{"id":"`+s1+`"},"port":null},"host":null}`)
	h.told("set_tap_service_status " + s1 + " INACTIVE")
	h.check("after all are gone", h.marked())
	for _, bad := range []string{`{`, `{}`, `{"tap_flow_msg":{"tap_flow":{"id":"x"}}}`} {
		if err := h.m.OnCast("create_tap_flow", []byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// After a gap the server sends what is active. What it does not send any more goes when that has had time to arrive, and not before the server has answered.
func TestSync(t *testing.T) {
	h := newHost(t)
	h.plug("1", "2", "3")
	h.createService(s1, "2")
	h.createFlow(f1, s1, "1", "2", "BOTH")
	h.createFlow(f2, s1, "3", "2", "BOTH")
	h.createFlow("f3", s1, "9", "2", "BOTH") // waits for its port: it is not active, and not sent
	h.createService(s2, "3")
	h.pass(time.Hour)
	whole := mirrorOf(s1, "[tap1 tap3]", "[tap1 tap3]")
	h.check("at first", h.marked(), whole...)

	h.server.err, h.server.calls = errors.New("no answer"), nil
	h.m.Resync()
	for i := range 3 { // the agent is in sync only after the first answer, and then while it asks again
		calls := h.m.Calls()
		if len(calls) != 1 || calls[0].Background != (i > 0) {
			t.Fatalf("%d: calls %+v", i, calls)
		}
		_, err := calls[0].Run(t.Context(), neutron.NewServer(h.server, "hv1"))
		if left := time.Until(h.server.until); h.server.until.IsZero() != (i > 0) || left > firstWait {
			t.Errorf("%d: the call waits %s for an answer", i, left)
		}
		if err == nil || !strings.Contains(err.Error(), "no answer; ") || !strings.Contains(err.Error(), "service_plugins = taas") {
			t.Errorf("%v", err)
		}
		h.m.OnCall(calls[0].Key, nil, err)
	}
	h.pass(3 * time.Minute)
	if len(h.m.Services) != 2 {
		t.Errorf("known %v", h.m.Services)
	}
	h.check("without an answer", h.marked(), whole...)

	h.server.err = nil
	h.server.sends = func() {
		for method, args := range map[string]string{
			"create_tap_service": serviceMessage(s1, "2", "hv1", "ACTIVE"), "create_tap_flow": tap{f1, s1, "1", "2", "BOTH", "hv1", "hv1", "ACTIVE"}.message(),
		} {
			if err := h.m.OnCast(method, []byte(args)); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.server.calls = nil
	h.settle()
	h.pass(settleAfter - time.Second)
	h.check("before everything has arrived", h.marked(), whole...)
	h.pass(time.Second)
	h.check("after", h.marked(), mirrorOf(s1, "[tap1]", "[tap1]")...)
	if got := slices.Sorted(maps.Keys(h.m.Flows)); fmt.Sprint(got) != fmt.Sprint([]string{f1, "f3"}) || len(h.m.Services) != 1 {
		t.Errorf("known: %v, %v", got, h.m.Services)
	}
	h.told() // nothing is reported as inactive on a guess
}

// An agent that has lost its snapshot deletes its rows when the server has said what there is. Rows of others stay.
func TestOrphans(t *testing.T) {
	h := newHost(t)
	h.plug("1", "2")
	h.createService(s1, "2")
	h.createFlow(f1, s1, "1", "2", "BOTH")
	h.cast("create_tap_mirror", fmt.Sprintf(`{"tap_mirror_msg":{"tap_mirror":{"id":%q,"remote_ip":"10.0.0.9","mirror_type":"gre","directions":{"IN":7}},"port":%s},"host":"hv1"}`, m1, port("1", "hv1")))
	h.edit(func(tx *ovsdb.Tx) {
		tx.Add(ovsdb.MirrorSpec{Bridge: "br-int", Name: "theirs", Src: []string{"tap1"}, Output: "tap2"})
	})
	h.edit(func(tx *ovsdb.Tx) { // made by an agent that ended before it came to the mirror
		tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "ts_in_x", ExternalIDs: map[string]string{mark: "x"}, Tag: new(int)})
	})
	before := h.marked()
	h.restart(true)
	h.check("at the start", h.marked(), before)
	h.pass(settleAfter - time.Second)
	h.check("before the server has had time", h.marked(), before)
	h.pass(time.Second)
	h.check("after", h.marked(), `mirror theirs of "" from [tap1] to [] by [tap2]`)
	if got := h.m.Warnings(); len(got) != 1 || !strings.Contains(got[0], "no tap mirror "+m1) {
		t.Errorf("warnings: %q", got)
	}
	if len(h.m.doomed) > 0 {
		t.Errorf("doomed: %v", h.m.doomed)
	}
}

// A bridge has room for 32 mirrors, of whomever. What has one keeps it.
func TestRoom(t *testing.T) {
	h := newHost(t)
	h.plug("1", "2")
	h.edit(func(tx *ovsdb.Tx) {
		tx.Add(ovsdb.MirrorSpec{Bridge: "br-int", Name: "theirs", ExternalIDs: map[string]string{"owner": "them"}, Src: []string{"tap1"}, Output: "tap2"})
	})
	id := func(i int) string { return fmt.Sprintf("%08x-s", 0x50-i) } // later ones come first in order
	for i := range 31 {
		h.createFlow("f"+id(i), id(i), "1", "2", "IN")
	}
	h.server.calls, h.writes = nil, nil
	h.createFlow("last", id(31), "1", "2", "IN")
	h.told("set_tap_flow_status last ERROR")
	if got := h.m.Warnings(); len(got) != 1 || !strings.Contains(got[0], "32 mirrors at most") {
		t.Errorf("warnings: %q", got)
	}
	if strings.Count(h.marked(), "mirror ") != 32 || len(h.writes) > 0 {
		t.Errorf("written %q", h.writes)
	}
	h.restart(false)
	if len(h.writes) > 0 {
		t.Errorf("a restart writes %q", h.writes)
	}
	h.server.calls = nil
	h.cast("delete_tap_flow", tap{"f" + id(3), id(3), "1", "2", "IN", "hv1", "hv1", "x"}.message())
	h.told("set_tap_flow_status f"+id(3)+" INACTIVE", "set_tap_flow_status last ACTIVE")
	if !strings.Contains(h.marked(), id(31)[:8]) || strings.Count(h.marked(), "mirror ") != 32 {
		t.Error("the room that is left is not used")
	}
	h.createFlow("late", id(40), "1", "2", "IN")
	h.edit(func(tx *ovsdb.Tx) { tx.Add(ovsdb.AbsentMarked{Bridge: "br-int", Key: "owner", Value: "them"}) })
	h.told("set_tap_flow_status late ACTIVE", "set_tap_flow_status late ERROR")
}

// A tap mirror has a tunnel for each direction, by which nothing comes in.
func TestTapMirror(t *testing.T) {
	h := newHost(t, "vxlan")
	h.plug("1")
	message := func(id, remote, kind, directions string) string {
		return fmt.Sprintf(`{"tap_mirror_msg":{"tap_mirror":{"id":%q,"remote_ip":%q,"mirror_type":%q,"directions":%s},"port":%s},"host":"hv1"}`, id, remote, kind, directions, port("1", "hv1"))
	}
	h.cast("create_tap_mirror", message(m1, "10.0.0.9", "gre", `{"IN":7,"OUT":"8"}`))
	h.check("gre", h.marked(),
		`mirror tm_in_3a000001 of "3a000001-0000" from [] to [tap1] by [tm_in_3a000001]`,
		`mirror tm_out_3a000001 of "3a000001-0000" from [tap1] to [] by [tm_out_3a000001]`,
		`port tm_in_3a000001 of "3a000001-0000": gre map[key:7 remote_ip:10.0.0.9], VLAN 4095 []`,
		`port tm_out_3a000001 of "3a000001-0000": gre map[key:8 remote_ip:10.0.0.9], VLAN 4095 []`)
	h.check("flows", h.flows(), "table=0,priority=300,in_port=tm_in_3a000001,actions=drop", "table=0,priority=300,in_port=tm_out_3a000001,actions=drop")
	if !strings.Contains(h.writes[0], "VLAN 4095 trunk[4095]") || strings.Contains(h.writes[0], "mirror") {
		t.Errorf("before its flow is there a tunnel has %q", h.writes[0])
	}
	if got := h.m.Explain(world.PortObject("1")); len(got) != 2 || !strings.HasSuffix(got[0], "copies what the port receives to 10.0.0.9 by gre with id 7; in place") {
		t.Errorf("explained: %q", got)
	}
	h.writes = nil
	h.restart(false)
	h.pass(time.Hour)
	if len(h.writes) > 0 {
		t.Errorf("a restart writes %q", h.writes)
	}
	h.cast("delete_tap_mirror", message(m1, "10.0.0.9", "gre", `{"IN":7,"OUT":8}`))
	h.check("after it", h.marked())
	h.check("flows", h.flows())

	h.cast("create_tap_mirror", message(m1, "fd00::9", "erspanv1", `{"BOTH":100}`))
	h.check("erspan", h.marked(),
		`mirror tm_both_3a00000 of "3a000001-0000" from [tap1] to [tap1] by [tm_both_3a00000]`,
		`port tm_both_3a00000 of "3a000001-0000": ip6erspan map[erspan_idx:100 erspan_ver:1 key:100 remote_ip:fd00::9], VLAN 4095 []`)
	h.unplug("1")
	h.check("without the port", h.marked())
	h.told()
	if got := h.m.Warnings(); len(got) > 0 {
		t.Errorf("warnings: %q", got)
	}
	for _, bad := range []string{message("x", "nowhere", "gre", `{"IN":7}`), message("x", "10.0.0.9", "vxlan", `{"IN":7}`), message("x", "10.0.0.9", "gre", `{"UP":7}`)} {
		h.cast("create_tap_mirror", bad)
		if got := h.m.Warnings(); len(got) != 1 || !strings.Contains(got[0], "tap mirror x of port 1 is not carried out") {
			t.Errorf("%s: %q", bad, got)
		}
	}
}

// Where networks are carried over GRE, a tunnel of a mirror would take packets of the network whose segmentation id is its key.
func TestTapMirrorOverGRE(t *testing.T) {
	h := newHost(t, "vxlan", "gre")
	h.plug("1")
	for kind, made := range map[string]bool{"gre": false, "erspanv1": true} {
		h.cast("create_tap_mirror", fmt.Sprintf(`{"tap_mirror_msg":{"tap_mirror":{"id":%q,"remote_ip":"10.0.0.9","mirror_type":%q,"directions":{"IN":7}},"port":%s},"host":"hv1"}`, kind+m1, kind, port("1", "hv1")))
		if strings.Contains(h.marked(), kind+m1) != made {
			t.Errorf("%s: %s", kind, h.marked())
		}
	}
	if got := h.m.Warnings(); len(got) != 1 || !strings.Contains(got[0], "carries networks over GRE") {
		t.Errorf("warnings: %q", got)
	}
}

// What the switch says about a tunnel that it cannot make is told.
func TestTunnelFails(t *testing.T) {
	h := newHost(t)
	h.plug("1")
	h.cast("create_tap_mirror", fmt.Sprintf(`{"tap_mirror_msg":{"tap_mirror":{"id":%q,"remote_ip":"10.0.0.9","mirror_type":"gre","directions":{"IN":7}},"port":%s},"host":"hv1"}`, m1, port("1", "hv1")))
	i := h.w.View.InterfaceByName("tm_in_3a000001")
	failed := *i
	none := -1
	failed.Error, failed.OFPort = "could not add network device", &none
	b := &ovsdb.Batch{Seq: h.w.View.Seq() + 1, Kind: ovsdb.Update, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: i, New: &failed}}}
	h.w.Switch(b)
	h.m.OnRows(b)
	h.m.Resolve(h.w.Resolve())
	if got := h.m.Warnings(); len(got) != 1 || !strings.Contains(got[0], "cannot make the port tm_in_3a000001: could not add network device") {
		t.Errorf("warnings: %q", got)
	}
}

var _ interface {
	extension.CastHandler
	extension.RowHandler
	extension.Caller
	extension.Resyncer
	extension.Timed
	extension.Warner
	extension.Saver
	extension.Explainer
} = (*Mirrors)(nil)
