// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// hybridRules are the rules of a port, as its agent lists them.
func hybridRules(t *testing.T, id, mac, ip string, rules []world.Rule, cfg iptables.Config) (out []string) {
	t.Helper()
	hw, err := neutron.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	f := iptables.New(cfg)
	f.Set(iptables.Port{ID: id, MAC: hw, FixedIPs: []netip.Addr{netip.MustParseAddr(ip)}, Rules: rules})
	f.SetMembers("22222222-aaaa-4000-8000-000000000002", []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")})
	f.Next(iptables.State{Sets: map[string]iptables.Set{}}, false)
	for _, l := range f.Lines(id) {
		out = append(out, l.String())
	}
	return out
}

func allowing() []world.Rule {
	port := func(n int) *int { return &n }
	return []world.Rule{
		{ID: "out", Direction: world.Egress, IPVersion: 4, Protocol: world.AnyProtocol},
		{ID: "web", Direction: world.Ingress, IPVersion: 4, Protocol: 6, Min: port(80), Max: port(90)},
		{ID: "ssh", Direction: world.Ingress, IPVersion: 4, Protocol: 6, Min: port(22), Max: port(22), Prefix: netip.MustParsePrefix("10.1.0.0/16")},
		{ID: "ping", Direction: world.Ingress, IPVersion: 4, Protocol: 1, Min: port(8)},
		{ID: "members", Direction: world.Ingress, IPVersion: 4, Protocol: 6, Min: port(3306), Max: port(3306), Remote: "22222222-aaaa-4000-8000-000000000002"},
		{ID: "six", Direction: world.Ingress, IPVersion: 6, Protocol: 6, Min: port(443), Max: port(443)},
	}
}

// TestChains: the rule that decides is the one that the kernel's table would come to, and is told with its place, its text and what it is there for.
func TestChains(t *testing.T) {
	const mac = "fa:16:3e:00:00:0a"
	members := func(set string, a netip.Addr) (in, known bool) {
		return netip.MustParsePrefix("10.9.0.0/16").Contains(a), strings.HasPrefix(set, "NIPv422222222-aaaa")
	}
	tcp := func(from string, port uint16) Packet {
		return Packet{Protocol: "tcp", SrcMAC: mac, Src: netip.MustParseAddr(from), Dst: netip.MustParseAddr("10.0.0.5"), SrcPort: 40000, DstPort: port}
	}
	out := func(change func(*Packet)) Packet {
		p := Packet{Protocol: "udp", SrcMAC: mac, Src: netip.MustParseAddr("10.0.0.5"), Dst: netip.MustParseAddr("10.2.0.1"), SrcPort: 40000, DstPort: 53}
		change(&p)
		return p
	}
	for _, c := range []struct {
		name, direction string
		packet          Packet
		tracked         bool
		unknown         bool // whether addresses are in sets
		want            string
		passes          bool
		unsure          string
	}{
		{name: "range of ports", direction: "ingress", packet: tcp("10.7.0.1", 85), passes: true, want: "-p tcp -m tcp -m multiport --dports 80:90 -j RETURN (security group rule web)"},
		{name: "prefix", direction: "ingress", packet: tcp("10.1.0.1", 22), passes: true, want: "-s 10.1.0.0/16 -p tcp -m tcp --dport 22 -j RETURN (security group rule ssh)"},
		{name: "not the prefix", direction: "ingress", packet: tcp("10.7.0.1", 22), want: `"Send unmatched traffic to the fallback chain." -j neutron-openvswi-sg-fallback`},
		{name: "an answer", direction: "ingress", packet: tcp("10.7.0.1", 22), tracked: true, passes: true, want: "--state RELATED,ESTABLISHED"},
		{name: "a member", direction: "ingress", packet: tcp("10.9.0.1", 3306), passes: true, want: " src -j RETURN (security group rule members)"},
		{name: "no member", direction: "ingress", packet: tcp("10.7.0.1", 3306), want: "neutron-openvswi-sg-fallback"},
		{name: "nobody knows the set", direction: "ingress", packet: tcp("10.7.0.1", 3306), unknown: true, want: "neutron-openvswi-sg-fallback", unsure: "--match-set"},
		{name: "ping", direction: "ingress", packet: Packet{Protocol: "icmp", Type: 8, Src: netip.MustParseAddr("10.7.0.1"), Dst: netip.MustParseAddr("10.0.0.5")},
			passes: true, want: "-p icmp -m icmp --icmp-type 8 -j RETURN (security group rule ping)"},
		{name: "another type", direction: "ingress", packet: Packet{Protocol: "icmp", Type: 13, Src: netip.MustParseAddr("10.7.0.1"), Dst: netip.MustParseAddr("10.0.0.5")},
			want: "neutron-openvswi-sg-fallback"},
		{name: "DHCP to the port", direction: "ingress", packet: Packet{Protocol: "udp", Src: netip.MustParseAddr("10.0.0.2"), Dst: netip.MustParseAddr("10.0.0.5"), SrcPort: 67, DstPort: 68},
			passes: true, want: "-d 10.0.0.5/32 -p udp -m udp --sport 67 --dport 68 -j RETURN"},
		{name: "IPv6", direction: "ingress", packet: Packet{Protocol: "tcp", Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::5"), DstPort: 443},
			passes: true, want: "-p tcp -m tcp --dport 443 -j RETURN (security group rule six)"},
		{name: "what it sends", direction: "egress", packet: out(func(*Packet) {}), passes: true, want: "-j RETURN (security group rule out)"},
		{name: "forged address", direction: "egress", packet: out(func(p *Packet) { p.Src = netip.MustParseAddr("10.0.0.6") }), want: `"Drop traffic without an IP/MAC allow rule." -j DROP`},
		{name: "forged MAC", direction: "egress", packet: out(func(p *Packet) { p.SrcMAC = "fa:16:3e:00:00:0b" }), want: `"Drop traffic without an IP/MAC allow rule." -j DROP`},
		{name: "DHCP server", direction: "egress", packet: out(func(p *Packet) { p.SrcPort, p.DstPort = 67, 68 }), want: `"Prevent DHCP Spoofing by VM." -j DROP`},
	} {
		c.packet.DstMAC = mac
		lines := hybridRules(t, idA, mac, "10.0.0.5", allowing(), iptables.Config{})
		chains := readChains(lines, c.packet.Dst.Is6())
		p := &passage{&c.packet, c.tracked, members}
		if c.unknown {
			p.member = nil
		}
		got, decided := chains.walk(chains.entry(c.direction), p)
		if !decided || got.Passes != c.passes || !strings.Contains(got.String(), c.want) {
			t.Errorf("%s: %v, passes %v, want %q, %v", c.name, &got, got.Passes, c.want, c.passes)
		}
		if (got.Unsure == "") != (c.unsure == "") || !strings.Contains(got.Unsure, c.unsure) {
			t.Errorf("%s: unsure %q, want %q", c.name, got.Unsure, c.unsure)
		}
		// The place is the line's: iptables counts the rules of a chain from 1.
		n := 0
		for _, line := range lines {
			if program := strings.HasPrefix(line, "ip6tables") == c.packet.Dst.Is6(); program && strings.Contains(line, " -A "+got.Chain+" ") {
				if n++; n == got.Number && strings.Split(line, "  #")[0] != strings.Fields(line)[0]+" -A "+got.Chain+" "+got.Text {
					t.Errorf("%s: rule %d is %s, not %s", c.name, n, line, got.Text)
				}
			}
		}
	}
}

// A hybrid port: what iptables drops is dropped, before or behind the switch, and what passes says by which rule.
func TestVerdictsOfHybridPorts(t *testing.T) {
	rules := allowing()
	for _, c := range []struct {
		name        string
		port        uint16
		src         string
		from, to    []world.Rule
		want, cause string
		hint        string
	}{
		{name: "passes", port: 80, from: rules, to: rules, want: "delivered: to port b (tap6a18cdc6-3c)", hint: "iptables of the Linux bridge of port b lets it pass to it by rule "},
		{name: "not let in", port: 23, from: rules, to: rules, cause: "group",
			want: "dropped: iptables does not let tcp/23 into port b: rule 9 of neutron-openvswi-i6a18cdc6-3: -m comment --comment \"Send unmatched traffic to the fallback chain.\" -j neutron-openvswi-sg-fallback",
			hint: "no ingress rule of group web allows tcp/23 from 192.168.100.2"},
		{name: "not let out", port: 80, from: rules[1:], to: rules, cause: "group",
			want: "dropped: iptables does not let tcp/80 out of port a: rule 7 of neutron-openvswi-ob07e3ac9-b: -m comment --comment \"Send unmatched traffic to the fallback chain.\" -j neutron-openvswi-sg-fallback"},
		{name: "forged", port: 80, src: "192.168.100.77", from: rules, to: rules, cause: "spoofed",
			want: "dropped: iptables does not let tcp/80 out of port a: rule 2 of neutron-openvswi-sb07e3ac9-b: -m comment --comment \"Drop traffic without an IP/MAC allow rule.\" -j DROP"},
	} {
		h := host(t)
		port := func(i int, rules []world.Rule) {
			p := &h.Ports[i]
			p.Rules = hybridRules(t, p.ID, p.MAC, p.Addresses[0], rules, iptables.Config{})
		}
		port(0, c.from)
		port(1, c.to)
		v, _ := judged(t, h, "local", "a", "b", func(p *Packet) {
			if p.DstPort = c.port; c.src != "" {
				p.Src = netip.MustParseAddr(c.src)
			}
		})
		if !strings.HasPrefix(v.String(), c.want) || v.Cause != c.cause || !strings.Contains(strings.Join(v.Hints, "\n"), c.hint) {
			t.Errorf("%s: got %q (%s) %q\nwant %q (%s) %q", c.name, v, v.Cause, v.Hints, c.want, c.cause, c.hint)
		}
	}
	// Frames that are not IP meet no rule.
	j := &judge{&Journey{Packet: Packet{Protocol: ARP}}, &Host{}}
	if m := j.throughRules(&End{Port: &inspect.Port{Rules: []string{"iptables -A neutron-openvswi-iX -j DROP"}}}, "ingress"); m != nil {
		t.Errorf("ARP meets %v", m)
	}
}
