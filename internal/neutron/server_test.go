// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// counting passes calls on, and counts those that a server of a release refuses.
type counting struct {
	Caller
	calls, refused int
}

// Call implements Caller.
func (c *counting) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	c.calls++
	err := c.Caller.Call(ctx, t, method, args, result)
	if err != nil {
		c.refused++
	}
	return err
}

// furnish puts into a region what most have: an external network with a subnet and a DHCP port, or a shared one with nothing on it. An empty one has nothing.
func furnish(t *testing.T, region *sim.Region, sort string) {
	t.Helper()
	yes, project := true, "admin"
	spec := sim.NetworkSpec{Project: &project}
	switch sort {
	case "external":
		spec.External = &yes
	case "shared":
		spec.Shared = &yes
	default:
		return
	}
	n, err := region.CreateNetwork(t.Context(), spec)
	if sort == "shared" && err == nil {
		return
	}
	if err == nil {
		_, err = region.CreateSubnet(t.Context(), sim.SubnetSpec{NetworkID: n.ID, CIDR: netip.MustParsePrefix("192.0.2.0/24")})
	}
	if err != nil {
		t.Fatal(err)
	}
	region.Put("Port", map[string]any{"id": "dhcp", "network_id": n.ID, "device_owner": "network:dhcp"})
}

// The release is told by what the server has, with few questions, and fewer that it refuses. Never is a version newer than the server's.
func TestNegotiate(t *testing.T) {
	for _, c := range []struct {
		release                 int
		empty, shared, external string // what is found out in an empty region, in one with an empty shared network, and one with an external network
		refused, spared         int    // questions that the server refuses at most, in the one and in the others
	}{
		{17, "17", "17", "17", 2, 0}, {18, "18", "18", "18", 2, 1}, {19, "19", "19", "19", 1, 0}, {20, "20", "20", "20", 2, 1},
		{21, "21 to 22", "21 to 23", "21 to 22", 1, 0}, {22, "21 to 22", "21 to 23", "21 to 22", 1, 0}, {23, "23 to 26", "21 to 23", "23", 1, 0},
		{24, "23 to 26", "24 to 25", "24", 1, 0}, {25, "23 to 26", "24 to 25", "25", 1, 0}, {26, "23 to 26", "26 to 28", "26 to 28", 1, 0},
		{27, "27 or later", "26 to 28", "26 to 28", 0, 0}, {28, "27 or later", "26 to 28", "26 to 28", 0, 0},
		{29, "27 or later", "29 or later", "29 or later", 0, 0},
	} {
		for _, sort := range []string{"empty", "external", "shared"} {
			t.Run(fmt.Sprint(c.release, " ", sort), func(t *testing.T) {
				region := sim.New(sim.Config{Release: c.release})
				furnish(t, region, sort)
				want, refused := map[string]string{"empty": c.empty, "shared": c.shared, "external": c.external}[sort], c.spared
				if sort == "empty" {
					refused = c.refused
				}
				server := &counting{Caller: region.Join("hv1", nil)}
				releases, v, err := Negotiate(t.Context(), NewServer(server, "hv1"))
				if err != nil || releases != want || server.calls > 7 || server.refused > refused {
					t.Errorf("got %q, %d calls, %d refused, %v", releases, server.calls, server.refused, err)
				}
				same := true
				for kind, own := range region.Versions() {
					if sim.Older(own, v[Kind(kind)]) {
						t.Errorf("%s %s is newer than the server's own %s: it could tell nobody about one", kind, v[Kind(kind)], own)
					}
					same = same && own == v[Kind(kind)]
				}
				if !same && (sort == "external" || !PushesAfterReport(releases)) {
					t.Errorf("the server's own versions are %v, asked for are %v", region.Versions(), v)
				}
			})
		}
	}
}

// future is a server of a release that does not exist yet: its networks have a version that nobody knows.
type future struct{ Caller }

// Call implements Caller.
func (f future) Call(ctx context.Context, t messaging.Target, method string, args, result any) error {
	err := f.Caller.Call(ctx, t, method, args, result)
	if found, ok := result.(*primitives); ok {
		for i := range *found {
			if (*found)[i].Name == string(KindNetwork) {
				(*found)[i].Version = "1.12"
			}
		}
	}
	return err
}

func TestNegotiateWithLaterReleases(t *testing.T) {
	region := sim.New(sim.Config{Release: 29})
	furnish(t, region, "external")
	releases, v, err := Negotiate(t.Context(), NewServer(future{region.Join("hv1", nil)}, "hv1"))
	if err != nil || releases != "29 or later" || v[KindNetwork] != "1.12" || v[KindPort] != "1.11" || !PushesAfterReport(releases) {
		t.Errorf("%q, Network %s, Port %s, %v", releases, v[KindNetwork], v[KindPort], err)
	}
}

func TestReleases(t *testing.T) {
	for text, want := range map[string]struct {
		first, last int
		told        bool
	}{
		"17": {17, 17, false}, "21 to 22": {21, 22, false}, "21 to 23": {21, 23, true}, "23 to 26": {23, 26, true}, "26 to 28": {26, 28, false},
		"27 or later": {27, 29, true}, "29 or later": {29, 29, true},
	} {
		s := parseSpan(text)
		if len(s) == 0 || s[0].number != want.first || s[len(s)-1].number != want.last || s.String() != text || PushesAfterReport(text) != want.told {
			t.Errorf("%q: %q, pushes when told: %v", text, s, PushesAfterReport(text))
		}
	}
	for _, r := range releases() {
		for number := 17; number <= 29; number++ {
			alike := maps.Equal(r.versions, releases()[number-17].versions)
			if r.versions.Since(number) != (r.number >= number || alike) {
				t.Errorf("objects of %d: since %d is %v", r.number, number, r.versions.Since(number))
			}
		}
	}
	if parseSpan("unknown") != nil || PushesAfterReport("") {
		t.Error("nonsense is a release")
	}
	if compareVersions("1.9", "1.10") >= 0 || compareVersions("2.0", "1.10") <= 0 || compareVersions("", "1.0") >= 0 {
		t.Error("versions are in a wrong order")
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
	if diff := cmp.Diff(reported, parseSpan("21")[0].versions); diff != "" {
		t.Errorf("differs from what the Python agent reports (-python +ours):\n%s", diff)
	}
}

func TestNegotiateFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := sim.New(sim.Config{}).Join("hv1", nil)
		link.Leave()
		if _, _, err := Negotiate(t.Context(), NewServer(link, "hv1")); !errors.Is(err, messaging.ErrTimeout) {
			t.Errorf("a server that does not answer: %v", err)
		}
	})
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

	err = s.SyncTaps(ctx)
	check("sync_tap_resources", "1.0", `{"host":"hv1","sync_tap_res":{"host_id":"hv1"}}`, nil, nil, err)
	err = s.TapServiceStatus(ctx, "s", TapActive)
	check("set_tap_service_status", "1.0", `{"host":"hv1","msg":{"id":"s"},"status":"ACTIVE"}`, nil, nil, err)
	err = s.TapFlowStatus(ctx, "f", TapError)
	check("set_tap_flow_status", "1.0", `{"host":"hv1","msg":{"id":"f"},"status":"ERROR"}`, nil, nil, err)

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
