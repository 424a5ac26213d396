// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// release is a fake server that knows what a real one of that release knows: interface versions and kinds of object.
type release struct {
	reports, plugin string
	kinds           []Kind
	fail            error
	calls, refused  int
}

// Call implements Caller.
func (r *release) Call(_ context.Context, t messaging.Target, method string, args, result any) error {
	r.calls++
	if r.fail != nil {
		return r.fail
	}
	served := r.plugin
	if t.Topic == topicReports {
		served = r.reports
	}
	if !messaging.VersionServed(served, t.Version) {
		r.refused++
		return messaging.NewUnsupportedVersion(t.Version, method)
	}
	switch method {
	case "has_alive_neutron_server":
		*result.(*bool) = true
	case "bulk_pull":
		kind := args.(map[string]any)["resource_type"].(Kind)
		for _, k := range r.kinds {
			if k == kind {
				return nil
			}
		}
		r.refused++
		return &messaging.RemoteError{Class: "InvalidResourceTypeClass", Message: "Invalid resource type " + string(kind)}
	}
	return nil
}

func TestNegotiate(t *testing.T) {
	k17 := []Kind{KindPort, KindNetwork}
	k18 := append(k17[:2:2], KindAddressGroup)
	k20 := append(k18[:3:3], KindLocalIPAssociation)
	k21 := append(k20[:4:4], KindNDPProxy)
	for _, c := range []struct {
		name     string
		server   release
		releases string
		port     string // version of Port
		refused  int
	}{
		{"17", release{reports: "1.2", plugin: "1.8", kinds: k17}, "17", "1.5", 3},
		{"18", release{reports: "1.2", plugin: "1.8", kinds: k18}, "18", "1.7", 2},
		{"19", release{reports: "1.2", plugin: "1.9", kinds: k18}, "19", "1.7", 1},
		{"20", release{reports: "1.2", plugin: "1.9", kinds: k20}, "20", "1.7", 2},
		{"21", release{reports: "1.2", plugin: "1.9", kinds: k21}, "21 to 22", "1.7", 1},
		{"26", release{reports: "1.3", plugin: "1.9", kinds: k21}, "23 to 26", "1.8", 1},
		{"29", release{reports: "1.4", plugin: "1.9", kinds: k21}, "27 or later", "1.10", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			releases, v, err := Negotiate(t.Context(), NewServer(&c.server, "hv1"))
			if err != nil || releases != c.releases || v[KindPort] != c.port || c.server.calls > 3 || c.server.refused > c.refused {
				t.Errorf("got %q, Port %s, %d calls, %d refused, %v", releases, v[KindPort], c.server.calls, c.server.refused, err)
			}
		})
	}
}

// What a Python agent of the same release reports, read from the transcript and from the releases' own sources.
func TestVersionsOfRelease21AreThePythonAgents(t *testing.T) {
	var reported Versions
	for _, m := range transcript(t) {
		var args struct {
			AgentState struct {
				AgentState struct {
					ResourceVersions Versions `json:"resource_versions"`
				} `json:"agent_state"`
			} `json:"agent_state"`
		}
		if m.Message.Method == "report_state" && json.Unmarshal(m.Message.Args, &args) == nil {
			if v := args.AgentState.AgentState.ResourceVersions; len(v) > 0 {
				reported = v
			}
		}
	}
	for _, g := range generations() {
		if g.Releases == "21 to 22" {
			if diff := cmp.Diff(reported, g.Versions); diff != "" {
				t.Errorf("differs from what the Python agent reports (-python +ours):\n%s", diff)
			}
			return
		}
	}
	t.Fatal("no generation for release 21")
}

func TestNegotiateFailure(t *testing.T) {
	down := &release{fail: messaging.ErrTimeout}
	if _, _, err := Negotiate(t.Context(), NewServer(down, "hv1")); !errors.Is(err, messaging.ErrTimeout) {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// recorder answers every call with a fixed result and keeps what was asked.
type recorder struct {
	target messaging.Target
	method string
	args   string
	result string
}

// Call implements Caller.
func (r *recorder) Call(_ context.Context, t messaging.Target, method string, args, result any) error {
	b, err := json.Marshal(args)
	if err != nil {
		return err
	}
	r.target, r.method, r.args = t, method, string(b)
	if result == nil {
		return nil
	}
	return json.Unmarshal([]byte(r.result), result)
}

func TestCalls(t *testing.T) {
	ctx := t.Context()
	r := &recorder{}
	s := NewServer(r, "hv1")
	check := func(method, version, args string, got, want any, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
		if r.method != method || r.target.Version != version || r.args != args {
			t.Errorf("sent %s %s %s\nwant %s %s %s", r.method, r.target.Version, r.args, method, version, args)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", method, diff)
		}
	}

	r.result = `{"devices_up":["a"],"failed_devices_up":["b"],"devices_down":[{"device":"c","exists":false}],"failed_devices_down":[]}`
	devices, err := s.UpdateDevices(ctx, DeviceUpdate{Up: []string{"a", "b"}, Down: []string{"c"}, RefreshTunnels: true})
	check("update_device_list", "1.8",
		`{"agent_id":"ovs-agent-hv1","devices_down":["c"],"devices_up":["a","b"],"host":"hv1","refresh_tunnels":true}`,
		devices, DeviceResult{[]string{"a"}, []string{"b"}, []DeviceStatus{{"c", false}}, []string{}}, err)

	r.result = `{"tunnels":[{"host":"hv2","ip_address":"10.0.0.2","udp_port":4789}]}`
	tunnels, err := s.TunnelSync(ctx, netip.MustParseAddr("10.0.0.1"), "vxlan")
	check("tunnel_sync", "1.4", `{"host":"hv1","tunnel_ip":"10.0.0.1","tunnel_type":"vxlan"}`,
		tunnels, []Tunnel{{"hv2", netip.MustParseAddr("10.0.0.2")}}, err)

	r.result = `{"device":"a","exists":true}`
	down, err := s.DeviceDown(ctx, "a")
	check("update_device_down", "1.0", `{"agent_id":"ovs-agent-hv1","device":"a","host":"hv1"}`, down, DeviceStatus{"a", true}, err)

	r.result = `null`
	object, err := s.Pull(ctx, Versions{KindTrunk: "1.1"}, KindTrunk, "x")
	check("pull", "1.1", `{"resource_id":"x","resource_type":"Trunk","version":"1.1"}`, object, (*Primitive)(nil), err)

	r.result = `[{"versioned_object.name":"Trunk","versioned_object.data":{"id":"t","port_id":"p","sub_ports":[` +
		`{"versioned_object.name":"SubPort","versioned_object.data":{"port_id":"s","trunk_id":"t","segmentation_type":"vlan","segmentation_id":7}}]}}]`
	passenger := SubPort{"s", "t", "vlan", 7}
	trunks, err := s.TrunksOf(ctx, []string{"p"})
	check("bulk_pull", "1.1", `{"filter_kwargs":{"port_id":["p"]},"resource_type":"Trunk","version":"1.1"}`,
		trunks, []Trunk{{ID: "t", PortID: "p", SubPorts: List[SubPort]{passenger}}}, err)

	r.result = `{"t":[{"id":"s","mac_address":"fa:16:3e:00:00:01","name":"x"}]}`
	bound, err := s.BindSubPorts(ctx, []SubPort{passenger})
	check("update_subport_bindings", "1.0",
		`{"subports":[{"port_id":"s","trunk_id":"t","segmentation_type":"vlan","segmentation_id":7}]}`,
		bound, []BoundSubPort{{"s", MAC{0xfa, 0x16, 0x3e, 0, 0, 1}}}, err)
	err = s.TrunkStatus(ctx, "t", TrunkActive)
	check("update_trunk_status", "1.0", `{"status":"ACTIVE","trunk_id":"t"}`, nil, nil, err)

	if _, err := s.BulkPull(ctx, Versions{}, KindAddressGroup, nil); err == nil {
		t.Error("pulled a kind that the server does not have")
	}
}

func TestReportState(t *testing.T) {
	r := &recorder{result: `"revived"`}
	s := NewServer(r, "hv1")
	now := time.Date(2026, 11, 15, 1, 2, 3, 4000, time.FixedZone("X", 3600))
	status, err := s.ReportState(t.Context(), AgentState{Binary: Binary, Host: "hv1"}, now)
	if err != nil || status != StatusRevived {
		t.Errorf("got %q, %v", status, err)
	}
	if !strings.Contains(r.args, `"time":"2026-11-15T00:02:03.000004"`) || strings.Contains(r.args, "start_flag") ||
		strings.Contains(r.args, "resource_versions") || strings.Contains(r.args, `"uuid":""`) {
		t.Errorf("sent %s", r.args)
	}
	r.result = `null` // the server started after our clock's now
	if status, err := s.ReportState(t.Context(), AgentState{}, now); status != "" || err != nil {
		t.Errorf("ignored report: %q, %v", status, err)
	}
}
