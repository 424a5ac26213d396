// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// traced is what ofproto/trace prints, from lines such as "br-int 1 priority=1: drop".
func traced(t *testing.T, datapath string, lines ...string) *Trace {
	t.Helper()
	var b strings.Builder
	bridge := ""
	for _, line := range lines {
		step, actions, _ := strings.Cut(line, ": ")
		f := strings.Fields(step)
		if f[0] != bridge {
			bridge = f[0]
			fmt.Fprintf(&b, "\nbridge(%q)\n----------------\n", bridge)
		}
		match := ""
		if len(f) > 3 {
			match = f[3] + ", "
		}
		fmt.Fprintf(&b, "%2s. %spriority %s, cookie 0x5061746368626179\n", f[1], match, strings.TrimPrefix(f[2], "priority="))
		for action := range strings.SplitSeq(actions, ",") {
			fmt.Fprintf(&b, "    %s\n", action)
		}
	}
	fmt.Fprintf(&b, "\nFinal flow: unchanged\nMegaflow: recirc_id=0\nDatapath actions: %s\n", datapath)
	trace, err := Parse(b.String())
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// add tells the host of flows that an extension wants.
func (h *Host) add(flows ...inspect.Flow) {
	for _, f := range flows {
		f.State = "present"
		f.Table = uint8(number(tableInFlow, f.Text))
		h.Flows = append(h.Flows, f)
	}
}

// Tables of distributed routing that refuse a packet say so, with the agent's reason if there is one.
func TestRouterRefuses(t *testing.T) {
	otherHost := inspect.Flow{
		Bridge: "br-int", Text: "table=0,priority=2,in_port=2,dl_src=fa:16:3f:00:00:02 actions=goto_table:1", Owner: "dvr fa:16:3f:00:00:02",
		Reason: "distributed routers of another host",
	}
	for _, c := range []struct {
		lines []string
		flow  inspect.Flow
		want  string
	}{
		{
			[]string{"br-int 0 priority=2 in_port=2,dl_src=fa:16:3f:00:00:02: goto_table:1", "br-int 1 priority=1: drop"},
			inspect.Flow{Bridge: "br-int", Text: "table=1,priority=1 actions=drop", Owner: "bridge br-int", Reason: "routed packets for nobody here"},
			"distributed routing does not send it on in table 1 DVR_TO_SRC_MAC of br-int: routed packets for nobody here",
		},
		{
			[]string{"br-int 0 priority=1 in_port=3: goto_table:59", "br-tun 0 priority=1 in_port=1: goto_table:1", "br-tun 1 priority=2 dl_vlan=1,dl_dst=fa:16:3e:00:00:01: drop"},
			inspect.Flow{
				Bridge: "br-tun", Text: "table=1,priority=2,dl_vlan=1,dl_dst=fa:16:3e:00:00:01 actions=drop", Owner: "port " + idB,
				Reason: "gateway " + idB + " is on every host: packets to it stay here",
			},
			"distributed routing does not send it on in table 1 DVR_PROCESS of br-tun: gateway b is on every host: packets to it stay here",
		},
		{
			[]string{"br-int 0 priority=5 in_port=2: goto_table:3", "br-int 3 priority=0: drop"}, inspect.Flow{Bridge: "none"},
			"distributed routing does not send it on in table 3 ARP_DVR_MAC_TO_DST_MAC of br-int: it is for this host's router address, and no interface of a router here is in its network",
		},
	} {
		h := host(t)
		h.add(otherHost, c.flow)
		from, to, err := h.Ends("a", "192.168.100.4")
		if err != nil {
			t.Fatal(err)
		}
		j := &Journey{From: from, To: to, Packet: Packet{Protocol: "icmp", Src: from.IP, Dst: to.IP, SrcMAC: macA, DstMAC: to.MAC}, Trace: traced(t, "drop", c.lines...)}
		if v := h.Judge(j); v.Cause != "router" || v.Text != c.want {
			t.Errorf("%s (%s)\nwant %s", v.Text, v.Cause, c.want)
		}
		if got := h.Say(&j.Trace.Steps[0]); c.flow.Text == "table=1,priority=1 actions=drop" && got != "distributed routers of another host (dvr fa:16:3f:00:00:02)" {
			t.Errorf("the step is told as %q", got)
		}
	}
}

// A packet that passes may still be one too many.
func TestLimits(t *testing.T) {
	h := host(t)
	h.Ports[0].Notes = []string{"qos: policy gold (q), the port's: at most 1000 kbit/s from it; at most 2000 packets/s from it by meter 7"}
	h.Ports[1].Notes = []string{"qos: policy lead (q2), its network's: at most 500 kbit/s to it; what it sends is marked with DSCP 26"}
	h.add(inspect.Flow{
		Bridge: "br-int", Text: "table=59,priority=100,in_port=3,dl_src=" + macA + " actions=meter:7,goto_table:60", Owner: "port " + idA,
		Reason: "at most 2000 packets/s from the port",
	})
	from, to, err := h.Ends("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	j := &Journey{
		From: from, To: to, Packet: Packet{Protocol: "icmp", Src: from.IP, Dst: to.IP, SrcMAC: macA, DstMAC: macB},
		Trace: traced(t, "meter(0),4", "br-int 0 priority=1 in_port=3: goto_table:59", "br-int 59 priority=100 in_port=3,dl_src="+macA+": meter:7,goto_table:60", "br-int 60 priority=3: NORMAL"),
		Ports: map[uint32]string{4: "tap6a18cdc6-3c"},
	}
	v := h.Judge(j)
	want := []string{
		"it goes through meter 7 in table 59 PACKET_RATE_LIMIT of br-int: at most 2000 packets/s from the port; packets beyond that are dropped, which no trace shows",
		"quality of service of port a: at most 1000 kbit/s from it; packets beyond that are dropped, which no trace shows",
		"quality of service of port b: at most 500 kbit/s to it; packets beyond that are dropped, which no trace shows",
	}
	if v.Outcome != Delivered {
		t.Errorf("%s", v)
	}
	if diff := cmp.Diff(want, v.Hints); diff != "" {
		t.Error(diff)
	}
}

// From a port to an address of another network the packet goes over a router with interfaces in both.
func TestAcross(t *testing.T) {
	const router = "11111111-1111-1111-1111-111111111111"
	h := host(t)
	h.Interfaces = append(h.Interfaces,
		Interface{Bridge: "br-int", Name: "qr-lan", OFPort: 31, PortID: "gw-lan", Tag: 2, Network: "lan"},
		Interface{Bridge: "br-int", Name: "qr-blue", OFPort: 32, PortID: "gw-blue", Tag: 1, Network: "blue"})
	h.Ports = append(h.Ports,
		inspect.Port{ID: "gw-lan", State: "wired", Network: "lan", VLAN: 2, Role: "router interface", Device: router, MAC: "fa:16:3e:00:00:11", Addresses: []string{"10.2.0.1"}},
		inspect.Port{ID: "gw-blue", State: "wired", Network: "blue", VLAN: 1, Role: "router interface", Device: router, MAC: "fa:16:3e:00:00:12", Addresses: []string{"192.168.100.1"}},
		inspect.Port{ID: "gw-other", State: "wired", Network: "blue", VLAN: 1, Role: "router interface", Device: "another", MAC: "fa:16:3e:00:00:13", Addresses: []string{"192.168.100.254"}})
	for _, c := range []struct{ from, to, want string }{
		{idV, "192.168.100.4", "in gw-lan, out gw-blue to 192.168.100.4 fa:16:3e:b9:da:a5"}, // a station on another host
		{idV, "b", "in gw-lan, out gw-blue to port b " + macB},
		{idV, "192.168.100.3", "in gw-lan, out gw-blue to port b " + macB},
		{idV, "203.0.113.9", "in gw-lan, out nowhere"},
		{idV, "2001:db8::9", "none"}, // no interface of that IP version
		{"a", "192.168.100.4", "none"},
		{"a", "b", "none"},
		{"gw-lan", "192.168.100.4", "none"}, // from the router itself
	} {
		from, to, err := h.Ends(c.from, c.to)
		if err != nil {
			t.Fatal(err)
		}
		got := "none"
		if x := h.Across(from, to, to.IP); x != nil {
			got = "in " + x.In.Port.ID + ", out nowhere"
			if x.Out != nil {
				got = fmt.Sprintf("in %s, out %s to %s %s", x.In.Port.ID, x.Out.Port.ID, x.To, x.To.MAC)
			}
			ask := "ip netns exec qrouter-" + router + " ip route get 192.0.2.1 from 192.0.2.2 iif qr-gw-lan"
			if s := x.Asks(&Packet{Src: netip.MustParseAddr("192.0.2.2"), Dst: netip.MustParseAddr("192.0.2.1")}); s != ask {
				t.Errorf("%s, want %s", s, ask)
			}
		}
		if got != c.want {
			t.Errorf("from %s to %s: %s, want %s", c.from, c.to, got, c.want)
		}
	}
}

// A packet of a distributed router leaves as from the host.
func TestSentAs(t *testing.T) {
	h := host(t)
	from, to, err := h.Ends("a", "192.168.100.4")
	if err != nil {
		t.Fatal(err)
	}
	j := &Journey{
		From: from, To: to, Packet: Packet{Protocol: "icmp", Src: from.IP, Dst: to.IP, SrcMAC: macA, DstMAC: to.MAC},
		Trace: traced(t, "set(eth(src=fa:16:3f:00:00:01,dst="+to.MAC+")),set(tunnel(tun_id=0x3e8,dst=10.251.1.12,ttl=64,flags(df|key))),4",
			"br-tun 1 priority=1 dl_vlan=1: goto_table:2"),
	}
	if v := h.Judge(j); v.Text != "to 10.251.1.12, number 1000, with sender fa:16:3f:00:00:01 in place of "+macA || j.Sender() != "fa:16:3f:00:00:01" {
		t.Errorf("%s, sent by %s", v, j.Sender())
	}
}

// The ports of a trunk are patches on the integration bridge; their packets come and go by the VM's interface on the trunk's.
func TestTrunkPorts(t *testing.T) {
	h := host(t)
	const parent, sub = "11111111-parent", "22222222-sub"
	h.Interfaces = append(h.Interfaces,
		Interface{Bridge: "tbr-t", Name: "tapvm", OFPort: 1, PortID: parent},
		Interface{Bridge: "tbr-t", Name: "tpt-1", Type: "patch", OFPort: 2, PortID: parent, Peer: "tpi-1"},
		Interface{Bridge: "tbr-t", Name: "spt-2", Type: "patch", OFPort: 3, PortID: sub, Peer: "spi-2", Tag: 100},
		Interface{Bridge: "br-int", Name: "tpi-1", Type: "patch", OFPort: 21, PortID: parent, Peer: "tpt-1", Tag: 1},
		Interface{Bridge: "br-int", Name: "spi-2", Type: "patch", OFPort: 22, PortID: sub, Peer: "spt-2", Tag: 1})
	h.Ports = append(h.Ports,
		inspect.Port{ID: parent, State: "wired", Network: "blue", VLAN: 1, MAC: "fa:16:3e:00:00:01", Addresses: []string{"192.168.100.21"}, Role: "trunk parent"},
		inspect.Port{ID: sub, State: "wired", Network: "blue", VLAN: 1, MAC: "fa:16:3e:00:00:02", Addresses: []string{"192.168.100.22"}, Role: "sub-port"})
	for id, want := range map[string]string{
		parent: "tbr-t in_port=1: from port " + parent + ", interface tapvm of tbr-t, untagged",
		sub:    "tbr-t in_port=1,dl_vlan=100: from port " + sub + ", interface tapvm of tbr-t, under VLAN 100",
	} {
		from, to, err := h.Ends(id, "a")
		if err != nil {
			t.Fatal(err)
		}
		if from.Plug.Bridge != "br-int" {
			t.Errorf("%s is looked for on %s", id, from.Plug.Bridge)
		}
		s, err := h.Start(from, to, "")
		if got := fmt.Sprintf("%s %s: %s", s.Bridge, s.Flow, s.Text); err != nil || got != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
	// To the sub-port under its VLAN it is delivered; untagged it would be the parent's.
	for datapath, want := range map[string]string{"push_vlan(vid=100,pcp=0),9": Delivered, "9": Dropped} {
		from, to, err := h.Ends("a", sub)
		if err != nil {
			t.Fatal(err)
		}
		j := &Journey{
			From: from, To: to, Packet: Packet{Protocol: "icmp", Src: netip.MustParseAddr("192.168.100.2"), Dst: to.IP, SrcMAC: macA, DstMAC: to.MAC},
			Trace: traced(t, datapath, "br-int 0 priority=1 in_port=3: goto_table:59"), Ports: map[uint32]string{9: "tapvm"},
		}
		if v := h.Judge(j); v.Outcome != want {
			t.Errorf("%s: %s", datapath, v)
		}
	}
}

// A packet that an extension answers goes to the agent, and nowhere else.
func TestAnsweredByTheAgent(t *testing.T) {
	h := host(t)
	h.add(inspect.Flow{
		Bridge: "br-int", Text: "table=60,priority=101,udp,in_port=3,dl_src=" + macA + ",tp_src=68,tp_dst=67 actions=meter:7,controller(userdata=64.68)", Owner: "port " + idA,
		Reason: "the agent answers the port's DHCP",
	})
	from, to, err := h.Ends("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	v := h.Judge(&Journey{
		From: from, To: to, Packet: Packet{Protocol: "udp", Src: from.IP, Dst: to.IP, SrcMAC: macA, DstMAC: macB},
		Trace: traced(t, "meter(0),userspace(pid=0,controller(reason=1))", "br-int 0 priority=1 in_port=3: goto_table:60",
			"br-int 60 priority=101 udp,in_port=3,dl_src="+macA+",tp_src=68,tp_dst=67: meter:7,controller(userdata=64.68)"),
	})
	if v.Outcome != Answered || v.Text != "the agent answers the port's DHCP" {
		t.Errorf("%s", v)
	}
}

// A packet that is dropped and logged is dropped: the agent gets a copy.
func TestLoggedIsNotAnswered(t *testing.T) {
	h := host(t)
	from, to, err := h.Ends("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	v := h.Judge(&Journey{
		From: from, To: to, Packet: Packet{Protocol: "udp", Src: from.IP, Dst: to.IP, SrcMAC: macA, DstMAC: macB},
		Trace: traced(t, "userspace(pid=0,controller(reason=1))", "br-int 0 priority=1 in_port=3: goto_table:60",
			"br-int 71 priority=10 reg5=0x3,in_port=3: ct_clear,resubmit(,93)", "br-int 93 priority=53 reg5=0x3: controller(userdata=6c.6f.67,meter_id=7)"),
	})
	if v.Outcome != Dropped {
		t.Errorf("%s", v)
	}
}
