// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// The traces were recorded from an ovs-vswitchd 3.1.0 with the flows in br-*.flows, which are those of a Patchbay that filters:
// ports a and b and a station c in network "blue", which is VLAN 1 here, and port v in network "lan", VLAN 299 on the wire.
const (
	macA, macB, macC, macV = "fa:16:3e:b0:7e:3a", "fa:16:3e:6a:18:cd", "fa:16:3e:b9:da:a5", "fa:16:3e:ee:1c:30"
	idA                    = "b07e3ac9-b03c-4c9b-aa6e-00b65c1527da"
	idB                    = "6a18cdc6-3cf7-4cb7-a494-b8b3f21fc2e3"
	idV                    = "ee1c30d2-e1e7-4056-bb72-cfd3ae9c0c39"
	web                    = "11111111-2222-4333-8444-555555555555"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func recorded(t *testing.T, name string) *Trace {
	t.Helper()
	tr, err := Parse(read(t, name+".trace"))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func port(n int) *int { return &n }

// host is the recorded host with its agent.
func host(t *testing.T) *Host {
	t.Helper()
	h := &Host{
		Live: true,
		Interfaces: []Interface{
			{Bridge: "br-int", Name: "int-br-ex", Type: "patch", OFPort: 1, Peer: "phy-br-ex"},
			{Bridge: "br-int", Name: "patch-tun", Type: "patch", OFPort: 2, Peer: "patch-int"},
			{Bridge: "br-int", Name: "tapb07e3ac9-b0", OFPort: 3, Tag: 1, Wanted: 1, Network: "blue", NetworkType: "vxlan", Segment: 1000, PortID: idA, MAC: macA, MTU: 1400},
			{Bridge: "br-int", Name: "tap6a18cdc6-3c", OFPort: 4, Tag: 1, Wanted: 1, Network: "blue", NetworkType: "vxlan", Segment: 1000, PortID: idB, MAC: macB, MTU: 1400},
			{Bridge: "br-int", Name: "tapee1c30d2-e1", OFPort: 5, Tag: 2, Wanted: 2, Network: "lan", NetworkType: "vlan", Segment: 299, PortID: idV, MAC: macV, MTU: 1400},
			{Bridge: "br-tun", Name: "patch-int", Type: "patch", OFPort: 1, Peer: "patch-tun"},
			{Bridge: "br-tun", Name: "vxlan-0afb010c", Type: "vxlan", OFPort: 2, Remote: "10.251.1.12", Local: "10.251.1.11"},
			{Bridge: "br-ex", Name: "ext0", OFPort: 1, MTU: 1500},
			{Bridge: "br-ex", Name: "phy-br-ex", Type: "patch", OFPort: 2, Peer: "int-br-ex"},
			{Bridge: "br-under", Name: "under0", OFPort: 1, MTU: 1450},
		},
		Ports: []inspect.Port{
			{ID: idA, Name: "a", State: "wired", Reason: "bound to this host", MAC: macA, Addresses: []string{"192.168.100.2"}, Network: "blue", VLAN: 1, Secured: true, Filtered: true, Groups: []string{web}, Applied: true, Reported: "up"},
			{ID: idB, Name: "b", State: "wired", Reason: "bound to this host", MAC: macB, Addresses: []string{"192.168.100.3"}, Network: "blue", VLAN: 1, Secured: true, Filtered: true, Groups: []string{web}, Applied: true, Reported: "up"},
			{ID: idV, Name: "v", State: "wired", Reason: "bound to this host", MAC: macV, Addresses: []string{"192.168.100.2"}, Network: "lan", VLAN: 2, Secured: true, Filtered: true, Groups: []string{web}, Applied: true, Reported: "up"},
		},
		Networks: []inspect.Network{
			{ID: "blue", Type: "vxlan", Number: 1000, VLAN: 1, Endpoints: []string{"10.251.1.12"}},
			{ID: "lan", Type: "vlan", Physical: "physnet1", Number: 299, VLAN: 2},
		},
		Tunnels: []inspect.Tunnel{{Name: "vxlan-0afb010c", Type: "vxlan", Remote: "10.251.1.12", OFPort: 2, State: "up"}},
		Groups: []inspect.Group{{ID: web, Name: "web", Known: true, Rules: []inspect.Rule{
			{ID: "r1", Direction: "egress", EtherType: "IPv4", Text: "allow everything to anywhere (IPv4)"},
			{ID: "r2", Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortMin: port(80), PortMax: port(80), Text: "allow tcp/80 from anywhere (IPv4)"},
		}}},
		Bridges: []inspect.Bridge{{Name: "br-int", Role: "integration"}, {Name: "br-tun", Role: "tunnel"}, {Name: "br-ex", Role: "physical", Physical: "physnet1"}},
	}
	for _, br := range []string{"br-int", "br-tun", "br-ex"} {
		for line := range strings.Lines(read(t, br+".flows")) {
			f := inspect.Flow{Bridge: br, Text: strings.TrimSpace(line), State: "present", Owner: "bridge " + br, Reason: "part of the base"}
			f.Table = uint8(number(tableInFlow, f.Text))
			h.Flows = append(h.Flows, f)
		}
	}
	return h
}

// steps is a trace in short.
func steps(t *Trace) []string {
	var out []string
	for _, s := range t.Steps {
		text := fmt.Sprintf("%s %d/%d", s.Bridge, s.Table, s.Priority)
		if s.Tracked != "" {
			text = s.Tracked + ": " + text
		}
		if s.Missed {
			text += " missed"
		}
		if len(s.Errors) > 0 {
			text += " ! " + strings.Join(s.Errors, "; ")
		}
		out = append(out, text)
	}
	return out
}

func TestParse(t *testing.T) {
	for name, want := range map[string][]string{
		"local": {
			"br-int 0/1", "br-int 59/0", "br-int 60/100", "br-int 71/65",
			"trk|new: br-int 72/74", "br-int 73/100", "br-int 81/80", "br-int 82/70", "br-int 92/0",
		},
		// The switch prints br-tun for the second part, which is on br-int.
		"from-tunnel": {
			"br-tun 0/1", "br-tun 4/1", "br-tun 10/1", "br-int 0/1", "br-int 59/0", "br-int 60/90", "br-int 81/90",
			"trk|new: br-int 82/70", "br-int 92/0",
		},
		// Flooded: bridges nest.
		"arp-nested": {
			"br-int 0/1", "br-int 59/0", "br-int 60/100", "br-int 71/95", "br-int 94/1",
			"br-tun 0/1", "br-tun 2/1", "br-tun 21/1", "br-int 0/1", "br-int 59/0", "br-int 60/90", "br-int 81/100", "br-ex 0/2",
		},
		"no-tunnel": {
			"br-int 0/1", "br-int 59/0", "br-int 60/100", "br-int 71/65",
			"trk|new: br-int 72/74", "br-int 73/90", "br-int 91/1", "br-int 94/1", "br-ex 0/2", "br-tun 0/1", "br-tun 2/0", "br-tun 20/2 ! Nonexistent output port",
		},
		"missed": {"br-int 0/1", "br-int 59/0", "br-int 60/0 missed"},
	} {
		if diff := cmp.Diff(want, steps(recorded(t, name))); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	s := recorded(t, "local").Steps[3]
	if s.Match != "ip,reg5=0x3,in_port=3,dl_src=fa:16:3e:b0:7e:3a,nw_src=192.168.100.2" || s.Cookie != patchbayCookie {
		t.Errorf("step %+v", s)
	}
	for _, bad := range []string{"", "br-foo: unknown bridge\n", "Flow: tcp\n"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q was taken for a trace", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.trace")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := Parse(text)
		if err != nil {
			return
		}
		for _, s := range tr.Steps {
			if s.Bridge == "" && !strings.Contains(text, `bridge("")`) {
				t.Fatalf("a step on no bridge: %+v", s)
			}
		}
		tr.exits()
	})
}

func TestExits(t *testing.T) {
	push := "tnl_push(tnl_port(6),header(size=50,type=4,eth(dst=56:17:06:b7:96:45,src=12:68:bf:d1:99:4a,dl_type=0x0800)," +
		"ipv4(src=10.251.1.11,dst=10.251.1.12,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x3e8)),out_port(4))"
	for actions, want := range map[string][]Exit{
		"drop":                       nil,
		"ct(commit,zone=1),8":        {{Port: 8}},
		"push_vlan(vid=299,pcp=0),2": {{Port: 2, VLAN: 299}},
		"3,pop_vlan,ct(zone=2),7":    {{Port: 3}, {Port: 7}},
		"clone(" + push + ",5),9":    {{Port: 6, Remote: "10.251.1.12", Number: 1000}, {Port: 5, Header: 50}, {Port: 9}},
		"set(vlan(vid=9,pcp=0)),4":   {{Port: 4, VLAN: 9}},
		"ct(zone=1),recirc(0x1)":     nil,
		"set(eth(src=fa:16:3f:00:00:01,dst=fa:16:3e:00:00:02)),clone(" + push + ",5)": {
			{Port: 6, Remote: "10.251.1.12", Number: 1000, From: "fa:16:3f:00:00:01"}, {Port: 5, Header: 50, From: "fa:16:3f:00:00:01"},
		},
		"set(tunnel(tun_id=0x3e8,dst=10.251.1.12,ttl=64,tp_dst=4789,flags(df|key))),4": {{Port: 4, Remote: "10.251.1.12", Number: 1000}},
	} {
		if diff := cmp.Diff(want, exits(actions, "")); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", actions, diff)
		}
	}
	if got := ParsePorts(read(t, "dpif-show.txt")); got[9] != "tap6a18cdc6-3c" || got[5] != "under0" || len(got) != 10 {
		t.Errorf("ports %v", got)
	}
}

// judged follows a recorded packet on a host.
func judged(t *testing.T, h *Host, name, from, to string, change ...func(*Packet)) (Verdict, *Journey) {
	t.Helper()
	a, b, err := h.Ends(from, to)
	if err != nil {
		t.Fatal(err)
	}
	j := &Journey{From: a, To: b, Trace: recorded(t, name), Ports: ParsePorts(read(t, "dpif-show.txt"))}
	j.Packet = Packet{Protocol: "tcp", SrcMAC: a.MAC, DstMAC: b.MAC, Src: a.IP, Dst: b.IP, SrcPort: 40000, DstPort: 22}
	for _, c := range change {
		c(&j.Packet)
	}
	return h.Judge(j), j
}

func TestVerdicts(t *testing.T) {
	const remote = "192.168.100.4"
	for _, c := range []struct {
		trace, from, to string
		change          func(h *Host)
		packet          func(p *Packet)
		want            string // verdict, and a part of a hint after |
		cause           string
	}{
		{trace: "local", from: "a", to: "b", want: "delivered: to port b (tap6a18cdc6-3c)"},
		{trace: "tunnel", from: "a", to: remote, want: "leaves: to 10.251.1.12 over vxlan, number 1000"},
		{trace: "from-tunnel", from: remote, to: "a", want: "delivered: to port a (tapb07e3ac9-b0)"},
		{trace: "wire", from: "v", to: "192.168.100.3", want: "leaves: by ext0 of br-ex, VLAN 299"},
		{trace: "from-wire", from: "192.168.100.9", to: "v", want: "delivered: to port v (tapee1c30d2-e1)"},
		{trace: "arp", from: "a", to: remote, packet: func(p *Packet) { p.Protocol = ARP }, want: "answered: the switch answers for 192.168.100.4, as the server said where it is"},
		{
			trace: "refused-ingress", from: "a", to: "b", cause: "group",
			want: "dropped: no ingress rule of group web allows tcp/22 from 192.168.100.2|rule r2 of group web: allow tcp/80 from anywhere",
		},
		{
			trace: "refused-ingress", from: "a", to: "b", cause: "group",
			change: func(h *Host) {
				h.Groups[0].Rules[1] = inspect.Rule{ID: "r3", Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", Group: "gone", Text: "allow tcp from members of group gone"}
			},
			want: "dropped: no ingress rule of group web allows tcp/22 from 192.168.100.2|rule r3 of group web: allow tcp from members of group gone, and 192.168.100.2 is no member",
		},
		{
			trace: "refused-ingress", from: "a", to: "b", cause: "missing-flow",
			change: func(h *Host) { h.Groups[0].Rules[1].PortMin, h.Groups[0].Rules[1].PortMax = nil, nil },
			want:   "dropped: rule r2 of group web allows tcp/22 from 192.168.100.2, but its flow is not in the switch",
		},
		{
			trace: "refused-ingress", from: "a", to: "b", cause: "group", change: func(h *Host) { h.Ports[1].Groups = nil },
			want: "dropped: port b has no security group, so nothing may pass: tcp/22 from 192.168.100.2 neither",
		},
		{
			trace: "refused-egress", from: "a", to: "b", cause: "group", change: func(h *Host) { h.Groups[0].Rules = h.Groups[0].Rules[1:] },
			want: "dropped: no egress rule of group web allows tcp/22 to 192.168.100.3|has no egress rule at all for IPv4",
		},
		{
			trace: "spoofed", from: "a", to: "b", cause: "spoofed", packet: func(p *Packet) { p.Src = netip.MustParseAddr("1.2.3.4") },
			want: "dropped: port a sends under 1.2.3.4, which port security does not let it|add an allowed address pair",
		},
		{
			trace: "spoofed", from: "a", to: "b", cause: "spoofed", packet: func(p *Packet) { p.Src, p.SrcMAC = netip.MustParseAddr("192.168.100.3"), macB },
			want: "dropped: port a sends under fa:16:3e:6a:18:cd with 192.168.100.3, which port security does not let it|192.168.100.3 is an address of port b",
		},
		{
			trace: "dhcp-server", from: "a", to: "b", cause: "port-security", packet: func(p *Packet) { p.Protocol, p.SrcPort, p.DstPort = "udp", 67, 68 },
			change: func(h *Host) {
				for i := range h.Flows {
					if h.Flows[i].Table == 71 && strings.Contains(h.Flows[i].Text, "priority=70") {
						h.Flows[i].Reason = "the port must not act as a DHCP server"
					}
				}
			},
			want: "dropped: port security of port a does not let it pass: must not act as a DHCP server",
		},
		{
			trace: "dead", from: "a", to: "b", cause: "dead", change: func(h *Host) { h.Ports[0].State, h.Ports[0].Reason = "dead", "bound to host hv9, not to this one" },
			want: "dropped: port a is dead: bound to host hv9, not to this one",
		},
		{
			trace: "dead", from: "a", to: "b", cause: "down", change: func(h *Host) { h.Ports[0].State, h.Ports[0].Reason = "down", "admin down" },
			want: "dropped: port a is admin down",
		},
		{
			trace: "foreign", from: "a", to: "b", cause: "foreign-flow",
			change: func(h *Host) {
				h.Flows = append(h.Flows, inspect.Flow{Bridge: "br-int", Text: "cookie=0x1234,table=0,priority=100,in_port=3 actions=drop", State: "foreign"})
			},
			want: "dropped: a flow in table 0 LOCAL_SWITCHING of br-int that is not the agent's drops it|cookie=0x1234,table=0,priority=100,in_port=3 actions=drop",
		},
		{
			trace: "wrong-vlan", from: "a", to: remote, cause: "vlan", change: func(h *Host) { h.named("tapb07e3ac9-b0").Tag = 7 },
			want: "dropped: interface tapb07e3ac9-b0 of port a is on VLAN 7, but its network has VLAN 1 on this host",
		},
		{
			trace: "no-endpoint", from: "a", to: remote, cause: "tunnel", change: func(h *Host) { h.Networks[0].Endpoints = nil },
			want: "dropped: no tunnel of this host leads to where 192.168.100.4 is|the server has sent no forwarding entries of other hosts for network blue",
		},
		{
			trace: "no-tunnel", from: "a", to: remote, cause: "tunnel", change: func(h *Host) { h.Tunnels[0].State = "missing" },
			want: "dropped: the tunnel to 10.251.1.12 is missing: table 20 UCAST_TO_TUN of br-tun sends it to port 2, which does not exist",
		},
		{
			trace: "broken-patch", from: "a", to: remote, cause: "patch", change: func(h *Host) { h.named("patch-tun").Peer = "nobody" },
			want: "dropped: patch patch-tun of br-int leads nowhere: its other end nobody does not exist",
		},
		{trace: "from-wire-other-vlan", from: "192.168.100.9", to: "v", cause: "vlan", want: "dropped: this host has no network with that VLAN: nothing takes it over from int-br-ex"},
		{trace: "other-vni", from: remote, to: "a", cause: "network", want: "dropped: no port of this host is in the network with that number"},
		{
			trace: "missed", from: "a", to: "b", cause: "missing-flow",
			change: func(h *Host) {
				for i := range h.Flows {
					if h.Flows[i].Table == 60 && strings.Contains(h.Flows[i].Text, "in_port=3") {
						h.Flows[i].State, h.Flows[i].Owner, h.Flows[i].Reason = "missing", "port "+idA, "packets from the port"
					}
				}
			},
			want: "dropped: flows that the agent wants are missing in table 60 TRANSIENT of br-int|packets from the port, for port a",
		},
		{trace: "local", from: "a", to: "b", packet: func(p *Packet) { p.Size = 1400 }, want: "delivered: to port b (tap6a18cdc6-3c)"},
		{
			trace: "local", from: "a", to: "b", cause: "mtu", packet: func(p *Packet) { p.Size = 1400 }, change: func(h *Host) { h.named("tap6a18cdc6-3c").MTU = 1000 },
			want: "dropped: a packet of 1400 bytes does not fit through tap6a18cdc6-3c, whose MTU is 1000",
		},
		{
			trace: "tunnel", from: "a", to: remote, cause: "mtu", packet: func(p *Packet) { p.Size = 1401 }, change: func(h *Host) { h.named("tapb07e3ac9-b0").MTU = 9000 },
			want: "dropped: a packet of 1451 bytes (50 of them the tunnel's header) does not fit through under0, whose MTU is 1450",
		},
		{
			trace: "local", from: "a", to: "b", cause: "link", change: func(h *Host) { h.named("tap6a18cdc6-3c").Down = "has no carrier" },
			want: "dropped: interface tap6a18cdc6-3c of port b has no carrier",
		},
	} {
		h := host(t)
		if c.change != nil {
			c.change(h)
		}
		if c.packet == nil {
			c.packet = func(*Packet) {}
		}
		v, j := judged(t, h, c.trace, c.from, c.to, c.packet)
		want, hint, _ := strings.Cut(c.want, "|")
		if v.String() != want || v.Cause != c.cause || !strings.Contains(strings.Join(v.Hints, "\n"), hint) {
			t.Errorf("%s: got %q (%s) %q\nwant %q (%s) %q", c.trace, v, v.Cause, v.Hints, want, c.cause, hint)
		}
		for _, s := range j.Trace.Steps {
			if s.State == "unknown" && c.trace != "refused-egress" && c.trace != "dead" && s.Priority != 100 {
				t.Errorf("%s: nobody knows the flow of %+v", c.trace, s)
			}
		}
	}
}

// At three in the morning the agent may be dead.
func TestVerdictsWithoutAnAgent(t *testing.T) {
	const remote = "192.168.100.4"
	for _, c := range []struct {
		trace, from, to string
		change          func(h *Host)
		want, cause     string
	}{
		{trace: "local", from: idA, to: "tap6a18cdc6-3c", want: "delivered: to port 6a18cdc6 (tap6a18cdc6-3c)"},
		{trace: "tunnel", from: idA[:6], to: remote, want: "leaves: to 10.251.1.12 over vxlan, number 1000"},
		{trace: "from-tunnel", from: remote, to: idA, want: "delivered: to port b07e3ac9 (tapb07e3ac9-b0)"},
		{trace: "refused-ingress", from: idA, to: idB, cause: "group", want: "dropped: no ingress rule of the groups of port 6a18cdc6 allows tcp/22 from 192.168.100.2"},
		{trace: "foreign", from: idA, to: idB, cause: "foreign-flow", want: "dropped: a flow in table 0 LOCAL_SWITCHING of br-int that is not the agent's drops it"},
		{
			trace: "dead", from: idA, to: idB, cause: "dead", change: func(h *Host) { h.named("tapb07e3ac9-b0").Tag = 4095 },
			want: "dropped: port b07e3ac9 is dead: its interface tapb07e3ac9-b0 is on VLAN 4095, where the agent puts ports that may not speak",
		},
		{
			trace: "wrong-vlan", from: idA, to: remote, cause: "vlan", change: func(h *Host) { h.named("tapb07e3ac9-b0").Tag = 7 },
			want: "dropped: interface tapb07e3ac9-b0 of port b07e3ac9 is on VLAN 7, but its network has VLAN 1 on this host",
		},
		{
			trace: "no-tunnel", from: idA, to: remote, cause: "tunnel",
			want: "dropped: the tunnel to the other host is missing: table 20 UCAST_TO_TUN of br-tun sends it to port 2, which does not exist",
		},
		{
			trace: "broken-patch", from: idA, to: remote, cause: "patch", change: func(h *Host) { h.named("patch-tun").Peer = "nobody" },
			want: "dropped: patch patch-tun of br-int leads nowhere: its other end nobody does not exist",
		},
	} {
		h := host(t)
		h.Live, h.Ports, h.Networks, h.Tunnels, h.Groups, h.Bridges = false, nil, nil, nil, nil, nil
		for i := range h.Flows {
			h.Flows[i].Owner, h.Flows[i].Reason, h.Flows[i].State = "", "", ""
		}
		if c.change != nil {
			c.change(h)
		}
		if v, _ := judged(t, h, c.trace, c.from, c.to); v.String() != c.want || v.Cause != c.cause {
			t.Errorf("%s: got %q (%s)\nwant %q (%s)", c.trace, v, v.Cause, c.want, c.cause)
		}
	}
}

func TestEnds(t *testing.T) {
	h := host(t)
	for _, c := range []struct{ from, to, want string }{
		{"a", "b", "port a 192.168.100.2 → port b 192.168.100.3"},
		{idA, macB, "port a 192.168.100.2 → port b 192.168.100.3"},
		{"tapb07e3ac9-b0", "6a18", "port a 192.168.100.2 → port b 192.168.100.3"},
		{"192.168.100.2", "b", "port a 192.168.100.2 → port b 192.168.100.3"}, // v has that address, too, in another network
		{"v", "192.168.100.2", "port v 192.168.100.2 → port v 192.168.100.2"},
		{"v", "192.168.100.3", "port v 192.168.100.2 → 192.168.100.3 192.168.100.3 behind nothing"}, // b has it, elsewhere
		{"a", "192.168.100.4", "port a 192.168.100.2 → 192.168.100.4 192.168.100.4 " + macC + " behind vxlan-0afb010c"},
		{"192.168.100.2", "192.168.100.200", `"192.168.100.2" may be port a (` + idA + `) or port v (` + idV + `): say which by its id`},
		{"nobody", "a", `"nobody" is no port of this host, and no address`},
		{"10.0.0.1", "10.0.0.2", `neither "10.0.0.1" nor "10.0.0.2" is a port of this host`},
	} {
		a, b, err := h.Ends(c.from, c.to)
		var got string
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%s %s → %s %s", a, a.IP, b, b.IP)
			if !b.Here() {
				where := "behind nothing"
				if b.Tunnel != nil {
					where = b.MAC + " behind " + b.Tunnel.Name
				}
				got += " " + where
			}
		}
		if got != c.want {
			t.Errorf("%s to %s: %s\nwant %s", c.from, c.to, got, c.want)
		}
	}
}

func TestFits(t *testing.T) {
	p := Packet{Protocol: "tcp", Src: netip.MustParseAddr("10.0.0.5"), Dst: netip.MustParseAddr("10.0.0.9"), DstPort: 22}
	ping := Packet{Protocol: "icmp", Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), Type: 128}
	for _, c := range []struct {
		rule inspect.Rule
		p    Packet
		want fit
	}{
		{inspect.Rule{Direction: "ingress", EtherType: "IPv4"}, p, allowed},
		{inspect.Rule{Direction: "egress", EtherType: "IPv4"}, p, other},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv6"}, p, other},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv4", Protocol: "udp"}, p, other},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv4", Protocol: "6"}, p, allowed},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortMin: port(20), PortMax: port(22)}, p, allowed},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortMin: port(23), PortMax: port(80)}, p, other},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv4", Remote: "10.0.0.0/24"}, p, allowed},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv4", Remote: "10.0.1.0/24"}, p, stranger},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv4", Group: "g"}, p, maybe},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv6", Protocol: "ipv6-icmp"}, ping, allowed},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv6", Protocol: "icmp", PortMin: port(128)}, ping, allowed},
		{inspect.Rule{Direction: "ingress", EtherType: "IPv6", Protocol: "icmp", PortMin: port(129)}, ping, other},
	} {
		if got := fits(&c.rule, "ingress", &c.p); got != c.want {
			t.Errorf("%+v: %d, want %d", c.rule, got, c.want)
		}
	}
}

func TestPacket(t *testing.T) {
	p := Packet{Protocol: "tcp", SrcMAC: macA, DstMAC: macB, Src: netip.MustParseAddr("10.0.0.5"), Dst: netip.MustParseAddr("10.0.0.9"), SrcPort: 40000, DstPort: 22}
	if got, want := p.Flow(), ",dl_src="+macA+",dl_dst="+macB+",ip,nw_src=10.0.0.5,nw_dst=10.0.0.9,nw_proto=6,nw_ttl=64,tcp_src=40000,tcp_dst=22"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	back := p.Answer()
	if back.Src != p.Dst || back.SrcMAC != macB || back.SrcPort != 22 || back.DstPort != 40000 {
		t.Errorf("the answer is %+v", back)
	}
	ping := Packet{Protocol: "icmp", SrcMAC: macA, DstMAC: macB, Src: netip.MustParseAddr("fd00::5"), Dst: netip.MustParseAddr("fd00::9"), Type: 128}
	if got, want := ping.Flow(), ",dl_src="+macA+",dl_dst="+macB+",ipv6,ipv6_src=fd00::5,ipv6_dst=fd00::9,nw_proto=58,nw_ttl=64,icmpv6_type=128,icmpv6_code=0"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if back := ping.Answer(); back.Type != 129 {
		t.Errorf("a ping is answered by type %d", back.Type)
	}
	for what, bad := range map[string]Packet{
		"none of tcp": {Protocol: "foo"}, "not known": {Protocol: "tcp", Src: p.Src}, "different IP versions": {Protocol: "tcp", Src: p.Src, Dst: ping.Dst},
		"no ARP": {Protocol: ARP, Src: ping.Src, Dst: ping.Dst}, "--dst-mac": {Protocol: "tcp", Src: p.Src, Dst: p.Dst},
	} {
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestWrite(t *testing.T) {
	h := host(t)
	for i := range h.Flows {
		if h.Flows[i].Table == 82 && strings.Contains(h.Flows[i].Text, "ct_state=-est,reg5=0x4 ") {
			h.Flows[i].Owner, h.Flows[i].Reason = "port "+idB, "rule r of group "+web+" allows nothing"
		}
	}
	_, j := judged(t, h, "refused-ingress", "a", "b")
	var b strings.Builder
	h.Write(&b, j.Trace.Steps, false)
	lines := strings.Split(b.String(), "\n")
	if lines[0] != "br-int" || !slices.Contains(lines, "     connection tracking: trk|new") ||
		!strings.Contains(b.String(), "82  RULES_INGRESS      priority 40   rule r of group web allows nothing (port b)\n") {
		t.Errorf("printed\n%s", b.String())
	}
}
