// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// What extensions do about a port is part of its explanation.
func TestExplainPortWithExtensions(t *testing.T) {
	h := host(t)
	p := &h.Ports[1]
	p.Role = "router interface"
	p.Notes = []string{
		"distributed routing: the gateway of subnet s on this host; its packets leave the host as fa:16:3f:00:00:01",
		"qos: policy gold (q), its network's: at most 1000 kbit/s from it; what it sends is marked with DSCP 26",
	}
	x, err := h.ExplainPort("b")
	if err != nil {
		t.Fatal(err)
	}
	const list = `
besides
  distributed routing: the gateway of subnet s on this host; its packets leave the host as fa:16:3f:00:00:01
  qos: policy gold (q), its network's: at most 1000 kbit/s from it; what it sends is marked with DSCP 26
`
	if got := x.String(); !strings.Contains(got, "\nIts role: router interface.\n") || !strings.Contains(got, list) {
		t.Errorf("explained as\n%s", got)
	}
}

func TestExplainPort(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(h *Host)
		want   []string
	}{
		"wired": {func(h *Host) {
			h.Ports[1].Timeline = inspect.Timeline{Plugged: began, Answered: began.Add(12 * time.Millisecond), Reported: began.Add(40 * time.Millisecond)}
			h.Ports[1].Status, h.Ports[1].Segment = "ACTIVE", "vxlan 1000"
		}, []string{
			"Port b (" + idB + ") is wired: bound to this host.",
			"It is plugged in as interface tap6a18cdc6-3c, port 4 of br-int, with MAC fa:16:3e:6a:18:cd and 192.168.100.3, MTU 1400.",
			"Its VLAN is 1, which stands for network blue (vxlan 1000) on this host and nowhere else.",
			"It was seen on the switch at 2026-01-02 03:04:05; after 12ms its details were pulled; after 40ms it was reported up.",
			"The agent reported it up; the last status from the server is ACTIVE.",
			"group web (" + web + ")\n  egress   allow everything to anywhere (IPv4)  (rule r1)\n  ingress  allow tcp/80 from anywhere (IPv4)  (rule r2)",
		}},
		"switched off":     {func(h *Host) { h.Ports[1].State, h.Ports[1].Reason = "down", "admin down" }, []string{"is down: admin down.", "Its VLAN is 4095"}},
		"waiting":          {func(h *Host) { h.Ports[1].State, h.Ports[1].VLAN = "waiting", 0 }, []string{"is waiting", "It belongs to network blue and has no VLAN yet.", "It waits for its details from the server."}},
		"unwritten":        {func(h *Host) { h.Ports[1].Applied, h.Ports[1].Status = false, "BUILD" }, []string{"It waits for its flows and rows to be written to the switch."}},
		"no port security": {func(h *Host) { h.Ports[1].Secured = false }, []string{"Port security is off: it may send under any address, and everything may pass."}},
		"no group":         {func(h *Host) { h.Ports[1].Groups = nil }, []string{"It has no security group"}},
		"wrong VLAN":       {func(h *Host) { h.named("tap6a18cdc6-3c").Tag = 9 }, []string{"But it is cut off from its network: interface tap6a18cdc6-3c of port b is on VLAN 9"}},
		"link":             {func(h *Host) { h.named("tap6a18cdc6-3c").Down = "has no carrier" }, []string{"The interface has no carrier.", "But nothing passes: interface tap6a18cdc6-3c of port b has no carrier."}},
		"drift": {func(h *Host) {
			h.Flows[0].Owner, h.Flows[0].State = "port "+idB, "missing"
		}, []string{"flows that are not as wanted\n  br-int: missing: "}},
	} {
		h := host(t)
		c.change(h)
		x, err := h.ExplainPort("b")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(x.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, x)
			}
		}
	}
	h := host(t)
	if _, err := h.ExplainPort("nobody"); err == nil || !strings.Contains(err.Error(), "no port of this host") {
		t.Errorf("nobody: %v", err)
	}
	if _, err := h.ExplainPort("192.168.100.2"); err == nil || !strings.Contains(err.Error(), "may be port a") {
		t.Errorf("two ports: %v", err)
	}
	h.Live, h.Ports = false, nil
	h.named("tap6a18cdc6-3c").Tag = 4095
	if x, err := h.ExplainPort(idB); err != nil || !strings.Contains(x.String(), "It is on VLAN 4095: an agent decided") {
		t.Errorf("without an agent: %v, %v", x, err)
	}
}

func TestExplainFlow(t *testing.T) {
	h := host(t)
	for i := range h.Flows {
		if f := &h.Flows[i]; f.Table == 60 && strings.Contains(f.Text, "in_port=3 ") {
			f.Owner, f.Reason = "port "+idA, "rule r of group "+web+" allows ingress"
		}
	}
	for ref, want := range map[string]string{
		"table=60,priority=100,in_port=3": "It is in table 60 TRANSIENT of br-int, for port a, because: rule r of group web allows ingress.\nWith ids: port " + idA,
		"cookie=0x5061746368626179, duration=12.5s, table=60, n_packets=3, n_bytes=210, priority=100,in_port=3 actions=set_field:0x3->reg5": "for port a",
	} {
		x, err := h.ExplainFlow(ref, "")
		if err != nil || !strings.Contains(x.String(), want) {
			t.Errorf("%s: %v\n%s", ref, err, x)
		}
	}
	h.Flows = append(h.Flows,
		inspect.Flow{Bridge: "br-int", Table: 5, Text: "cookie=0x1,table=5,priority=9,ip actions=drop", State: "foreign"},
		inspect.Flow{Bridge: "br-int", Table: 5, Text: "table=5,priority=8,ip actions=drop", State: "missing", Owner: "bridge br-int", Reason: "base"})
	for ref, want := range map[string]string{"table=5,priority=9,ip": "not the agent's", "table=5,priority=8,ip": "not in the switch at the moment"} {
		if x, err := h.ExplainFlow(ref, "br-int"); err != nil || !strings.Contains(x.String(), want) {
			t.Errorf("%s: %v\n%s", ref, err, x)
		}
	}
	for _, ref := range []string{"table=5,priority=7,ip", "table=5,nonsense=1"} {
		if x, err := h.ExplainFlow(ref, ""); err == nil {
			t.Errorf("%s: %s", ref, x)
		}
	}
}
