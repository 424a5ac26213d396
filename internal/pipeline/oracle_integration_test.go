// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/lab/peer"
	of "github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// python is the Python agent's firewall, from Debian's neutron-openvswitch-agent, without a switch and without a server.
type python struct {
	in  io.Writer
	out *bufio.Reader
}

func startPython(t *testing.T) *python {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "testdata/firewall_oracle.py") // needs package neutron-openvswitch-agent
	in, out := peer.Start(t, cmd)
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &python{in, bufio.NewReader(out)}
}

type oraclePort struct {
	ID             string      `json:"id"`
	MAC            string      `json:"mac"`
	OFPort         uint32      `json:"ofport"` // 0 elsewhere
	VLAN           uint16      `json:"vlan"`
	NetworkType    string      `json:"network_type"`
	Physnet        string      `json:"physnet"`
	SegmentationID *int        `json:"segmentation_id"`
	DeviceOwner    string      `json:"device_owner"`
	PortSecurity   bool        `json:"port_security"`
	FixedIPs       []string    `json:"fixed_ips"`
	Pairs          [][2]string `json:"pairs"`
	Groups         []string    `json:"groups"`
}

type oracleGroup struct {
	ID    string           `json:"id"`
	Rules []map[string]any `json:"rules"`
}

type oracleAddresses struct {
	ID        string   `json:"id"`
	Addresses []string `json:"addresses"`
}

type oracleCase struct {
	EgressDirect        bool              `json:"egress_direct"`
	Offload             bool              `json:"offload"`
	PermittedEtherTypes []string          `json:"permitted_ethertypes"`
	BridgeMappings      map[string]string `json:"bridge_mappings"`
	Patches             map[string]uint32 `json:"patches"`
	Ports               []oraclePort      `json:"ports"`
	Groups              []oracleGroup     `json:"groups"`
	AddressGroups       []oracleAddresses `json:"address_groups"`
}

// caseOf is the cloud in Python's words. Ports that wait are left out: Python has no such state.
func (c *cloud) caseOf() oracleCase {
	cfg := &c.w.Config
	o := oracleCase{
		EgressDirect: cfg.EgressDirect, Offload: c.w.View.Capabilities().HWOffload, PermittedEtherTypes: []string{},
		BridgeMappings: cfg.Physical, Patches: map[string]uint32{"patch-tun": c.w.OFPort("patch-tun"), "int-br-ex": c.w.OFPort("int-br-ex")},
		Ports: []oraclePort{}, Groups: []oracleGroup{}, AddressGroups: []oracleAddresses{},
	}
	for _, e := range cfg.PermittedEtherTypes {
		o.PermittedEtherTypes = append(o.PermittedEtherTypes, fmt.Sprintf("%#x", e))
	}
	for _, id := range slices.Sorted(maps.Keys(c.ports)) {
		p := c.ports[id]
		s := p.BindingLevels[0].Segment.Value
		port := oraclePort{
			ID: id, MAC: p.MAC.String(), NetworkType: s.NetworkType, Physnet: s.PhysicalNetwork, SegmentationID: s.SegmentationID,
			DeviceOwner: p.DeviceOwner, PortSecurity: p.PortSecurityEnabled(), FixedIPs: []string{}, Pairs: [][2]string{}, Groups: []string{},
		}
		if here := c.w.Port(id); here != nil && here.Wiring.State == world.Wired {
			port.OFPort, port.VLAN = here.VIF.OFPort, here.Wiring.VLAN
		}
		for _, f := range p.FixedIPs {
			port.FixedIPs = append(port.FixedIPs, f.IP.String())
		}
		for _, pair := range p.AllowedAddressPairs {
			port.Pairs = append(port.Pairs, [2]string{pair.MAC.String(), pair.IP.String()})
		}
		port.Groups = append(port.Groups, p.SecurityGroupIDs...)
		o.Ports = append(o.Ports, port)
	}
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		g := oracleGroup{ID: id, Rules: []map[string]any{}}
		for _, r := range c.groups[id].Rules {
			rule := map[string]any{"id": r.ID, "direction": r.Direction, "ethertype": r.EtherType}
			for key, v := range map[string]string{"protocol": r.Protocol, "remote_group_id": r.RemoteGroupID, "remote_address_group_id": r.RemoteAddressGroupID} {
				if v != "" {
					rule[key] = v
				}
			}
			if r.PortRangeMin != nil {
				rule["port_range_min"] = *r.PortRangeMin
			}
			if r.PortRangeMax != nil {
				rule["port_range_max"] = *r.PortRangeMax
			}
			if r.RemoteIPPrefix != nil {
				rule["remote_ip_prefix"] = r.RemoteIPPrefix.String()
			}
			g.Rules = append(g.Rules, rule)
		}
		o.Groups = append(o.Groups, g)
	}
	for _, id := range slices.Sorted(maps.Keys(c.addresses)) {
		a := oracleAddresses{ID: id, Addresses: []string{}}
		for _, x := range c.addresses[id].Addresses {
			a.Addresses = append(a.Addresses, x.Prefix.String())
		}
		o.AddressGroups = append(o.AddressGroups, a)
	}
	return o
}

// answer is what Python makes of a cloud.
type answer struct {
	Flows        []string `json:"flows"`
	Log          []string `json:"log"`
	Conjunctions [][5]any `json:"conjunctions"`
}

// ask asks about a cloud, and returns by which number we know what conjunctions of Python stand for.
func (p *python) ask(t failer, c *cloud) (answer, func(id uint32) uint32) {
	t.Helper()
	question, err := json.Marshal(c.caseOf())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(p.in, "%s\n", question); err != nil {
		t.Fatal(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var all answer
	if err := json.Unmarshal(line, &all); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	ours := map[uint32]uint32{}
	for _, k := range all.Conjunctions {
		conj := world.Conjunction{Group: k[0].(string), Remote: k[1].(string), IPVersion: 4}
		if k[2] == "ingress" {
			conj.Direction = world.Ingress
		}
		if k[3] == "IPv6" {
			conj.IPVersion = 6
		}
		ours[uint32(k[4].(float64))] = c.w.Members.ConjunctionID(conj)
	}
	return all, func(id uint32) uint32 { return ours[id&^7] + id&7 }
}

// flows asks for the flows of a cloud, with the numbers of conjunctions that we use.
func (p *python) flows(t failer, c *cloud) map[of.Key]of.Entry {
	t.Helper()
	all, number := p.ask(t, c)
	out := map[of.Key]of.Entry{}
	for _, text := range all.Flows {
		f, err := of.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		for i, term := range f.Match {
			if term.Field == of.ConjID {
				f.Match[i] = of.Num(of.ConjID, uint64(number(uint32(term.Value.Lo))))
			}
		}
		for i, a := range f.Actions {
			switch a := a.(type) {
			case of.Conjunction:
				a.ID = number(a.ID)
				f.Actions[i] = a
			case of.SetField:
				if a.Field == regAllowed {
					f.Actions[i] = of.Set(regAllowed, of.Uint(uint64(number(uint32(a.Value.Lo)))))
				}
			}
		}
		if len(f.Actions) > 0 {
			if _, ok := f.Actions[0].(of.Conjunction); ok {
				slices.SortFunc(f.Actions, func(a, b of.Action) int { return int(a.(of.Conjunction).ID) - int(b.(of.Conjunction).ID) })
				f.Actions = slices.Compact(f.Actions) // one rule in two spellings
			}
		}
		f.Cookie = Cookie
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Key()] = e
	}
	return out
}

// compare asks both about the flows of the filters.
func (p *python) compare(t failer, c *cloud) {
	t.Helper()
	theirs, ours := closed(t, c, p.flows(t, c)), map[of.Key]of.Entry{}
	for k, f := range c.all(t, func(world.Object) bool { return true }) {
		if k.Table() == intARPSpoof && k.Priority() > 0 || k.Table() > intTransient || k.Table() == intTransient && k.Priority() >= pairMAC {
			ours[k] = f.Entry
		}
	}
	delete(ours, openflowtest.Entry(t, "table=62,priority=3,actions=NORMAL").Key()) // not the filters'
	for _, shared := range []string{"table=72,priority=50,ct_state=+inv+trk,actions=drop", "table=82,priority=50,ct_state=+inv+trk,actions=drop"} {
		if k := openflowtest.Entry(t, shared).Key(); theirs[k].IsZero() {
			delete(ours, k) // they come with Python's first port
		}
	}
	for _, fragments := range []string{
		"table=72,priority=78,ct_state=+trk-inv,ip,ct_nw_proto=17,ct_tp_src=67,ct_tp_dst=68,actions=drop",
		"table=72,priority=78,ct_state=+trk-inv,ipv6,ct_nw_proto=17,ct_tp_src=547,ct_tp_dst=546,actions=drop",
	} {
		k := openflowtest.Entry(t, fragments).Key()
		if ours[k].IsZero() {
			t.Fatalf("there is no flow %s", fragments)
		}
		delete(ours, k) // Python lets them pass
	}
	names := c.conjunctionNames()
	var diff []string
	for k, e := range theirs {
		if ours[k] != e {
			diff = append(diff, rename("- "+e.String(), names))
		}
	}
	for k, e := range ours {
		if theirs[k] != e {
			diff = append(diff, rename("+ "+e.String(), names))
		}
	}
	if slices.Sort(diff); len(diff) > 0 {
		t.Fatalf("- Python, + Patchbay:\n%s", strings.Join(diff, "\n"))
	}
}

// closed changes Python's flows as parity/accepted.md says under "Flows that differ on purpose" and "Lines of Neutron 21 that 29 has otherwise". Which MACs
// a port has it takes from Python's own flows of ARP, IP and neighbour solicitations.
func closed(t failer, c *cloud, theirs map[of.Key]of.Entry) map[of.Key]of.Entry {
	own := map[of.Value]bool{}
	for _, id := range c.w.PortIDs() {
		if vif := c.w.Port(id).VIF; vif != nil {
			own[hw(vif.MAC).Value()] = true
		}
	}
	macs := map[of.Value]map[of.Term]bool{} // of a port
	var flows []of.Flow
	for _, e := range theirs {
		f, err := e.Flow()
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, f)
		from, okFrom := f.Match.Lookup(of.InPort)
		mac, okMAC := f.Match.Lookup(of.EthSrc)
		if f.Table != fwBaseEgress || !okFrom || !okMAC {
			continue
		}
		if macs[from.Value] == nil {
			macs[from.Value] = map[of.Term]bool{}
		}
		macs[from.Value][mac] = true
	}
	out := map[of.Key]of.Entry{}
	put := func(f of.Flow) {
		e, err := f.Entry()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Key()] = e
	}
	for _, f := range flows {
		to, _ := f.Match.Lookup(of.EthDst)
		tag, tagged := f.Match.Lookup(of.VLANTCI)
		if vid, ok := f.Match.Lookup(of.VLANVID); ok {
			tag, tagged = vid, true
		}
		kind, _ := f.Match.Lookup(of.ICMPv6Type)
		ether, _ := f.Match.Lookup(of.EthType)
		from, bound := f.Match.Lookup(of.InPort)
		switch {
		case f.Table == intTransient && f.Priority == ownMAC && tagged && !local(f, tag):
		case f.Table == intTransient && f.Priority == ownMAC && !own[to.Value]:
			f.Priority = pairMAC
			put(f)
		case f.Table == fwAcceptOrIngress && f.Priority == ownMACLocal && !own[to.Value]:
			f.Priority = pairMACLocal
			put(f)
		case f.Table == fwBaseEgress && f.Priority == 95 && kind.Value.Lo == neighborAdvertisement:
			f.Table, f.Priority = intARPSpoof, 2
			put(f)
		case f.Table == fwBaseEgress && f.Priority == 95 && !bound && ether.Value.Lo != 0:
			port, _ := f.Match.Lookup(regPort)
			for mac := range macs[port.Value] {
				g := f
				g.Match = f.Match.With(of.FromPort(uint32(port.Value.Lo)), mac)
				put(g)
			}
			put(of.Flow{ // since 23
				Table: fwBaseIngress, Priority: 100, Cookie: Cookie, Match: f.Match, Actions: []of.Action{of.Output(uint32(port.Value.Lo))},
			})
		case f.Table == fwAcceptedNormal && f.Priority == 12:
			put(f)
			network, _ := f.Match.Lookup(regNetwork)
			put(of.Flow{ // since 25, and here not for what ports of this host send
				Table: f.Table, Priority: f.Priority, Cookie: Cookie, Match: of.Match{to, of.VLAN(uint16(network.Value.Lo)), of.Num(regNetwork, 0)},
				Actions: append([]of.Action{of.PopVLAN{}}, f.Actions...),
			})
		case isHalf(f):
			state, _ := f.Match.Lookup(of.CTState)
			set := uint32(state.Value.Lo)
			f.Match = slices.DeleteFunc(f.Match, func(m of.Term) bool { return m.Field == of.CTState }).With(of.CTFlags(set|of.CTTrk, uint32(state.Mask.Lo)&^set))
			put(f)
		default:
			put(f)
			if f.Table == fwBaseEgress && kind.Value.Lo == neighborSolicitation { // advertisements come from the same addresses
				for mac := range macs[from.Value] {
					g := f
					g.Match = slices.DeleteFunc(slices.Clone(f.Match), func(m of.Term) bool {
						return m.Field == of.ICMPv6Type || m.Field == of.EthSrc
					}).With(mac, of.Num(of.ICMPv6Type, neighborAdvertisement))
					g.Actions = []of.Action{of.To(intARPSpoof)}
					put(g)
				}
			}
		}
	}
	for from, all := range macs { // since 24
		for mac := range all {
			put(of.Flow{
				Table: fwBaseEgress, Priority: 95, Cookie: Cookie,
				Match:   of.Match{of.FromPort(uint32(from.Lo)), of.Num(regPort, from.Lo), mac, etherType(of.EtherRARP)},
				Actions: []of.Action{of.To(fwAcceptedNormal)},
			})
		}
	}
	return out
}

// isHalf says whether a flow is half of a conjunction.
func isHalf(f of.Flow) bool {
	return slices.ContainsFunc(f.Actions, func(a of.Action) bool { _, ok := a.(of.Conjunction); return ok })
}

// local says whether a flow of the transient table matches the local VLAN that it writes down.
func local(f of.Flow, tag of.Term) bool {
	for _, a := range f.Actions {
		if s, ok := a.(of.SetField); ok && s.Field == regNetwork {
			return tag.Value.Lo&0xfff == s.Value.Lo
		}
	}
	return false
}

// TestPythonFirewall compares the flows of every script, and of random clouds, with those that the Python agent's own code
// makes of the same ports and groups.
func TestPythonFirewall(t *testing.T) {
	p := startPython(t)
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			s := play(t, string(data))
			if !s.cfg.Filter || s.cfg.Hybrid {
				t.Skip("without filters of the switch")
			}
			if strings.Contains(string(data), "\n# Unlike Python") {
				t.Skip("the script says what Python does instead")
			}
			p.compare(t, s.c)
		})
	}
	t.Run("random", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { p.compare(t, drawCloud(t)) })
	})
}

func drawCloud(t *rapid.T) *cloud {
	cfg := filterConfig()
	cfg.EgressDirect = rapid.Bool().Draw(t, "direct")
	cfg.PermittedEtherTypes = rapid.SampledFrom([][]uint16{nil, {0x4008}, {0x88cc, 0x4008}}).Draw(t, "ethertypes")
	c := newCloud(cfg)
	if rapid.Bool().Draw(t, "offload") {
		c.apply(&ovsdb.Batch{Kind: ovsdb.Update, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{
			Old: c.w.View.Root(), New: &ovsdb.OpenVSwitch{UUID: "root", OtherConfig: map[string]string{"hw-offload": "true"}},
		}}})
	}
	n := func(i int) *int { return &i }
	c.networks = map[string]neutron.Segment{
		"N1": {NetworkType: "vxlan", SegmentationID: n(42)}, "N2": {NetworkType: "vlan", PhysicalNetwork: "physnet1", SegmentationID: n(101)},
		"N3": {NetworkType: "flat", PhysicalNetwork: "physnet1"}, "N4": {NetworkType: "local"},
	}
	groups := []string{"g1", "g2", "g3"}
	drawAddressGroups(t, c)
	for _, id := range groups {
		g := &neutron.SecurityGroup{ID: id}
		for i := range rapid.IntRange(0, 6).Draw(t, "rules") {
			g.Rules = append(g.Rules, drawRule(t, fmt.Sprintf("%s.%d", id, i), id, groups))
		}
		c.groups[id] = g
	}
	for i, id := range []string{"A", "B", "C", "D"} {
		p := drawPort(t, id, i, groups)
		c.bind(p, rapid.SampledFrom([]string{"N1", "N1", "N2", "N3", "N4"}).Draw(t, "network"))
		c.ports[id] = p
		if rapid.IntRange(0, 3).Draw(t, "elsewhere") > 0 {
			c.plugInto("tap"+id, 11+i, map[string]string{"iface-id": id, "attached-mac": p.MAC.String()})
		}
	}
	c.converge(t)
	return c
}

func drawAddressGroups(t *rapid.T, c *cloud) {
	for _, id := range []string{"a1", "a2"} {
		g := &neutron.AddressGroup{ID: id}
		for _, x := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"192.0.2.0/24", "10.0.0.10", "2001:db8::10", "2001:db8:1::/48", "10.8.0.0/16"}), rapid.ID).Draw(t, "addresses") {
			p, err := neutron.ParsePrefix(x)
			if err != nil {
				t.Fatal(err)
			}
			g.Addresses = append(g.Addresses, neutron.Address{Prefix: p})
		}
		c.addresses[id] = g
	}
}

func drawRule(t *rapid.T, id, group string, groups []string) neutron.SecurityGroupRule {
	r := neutron.SecurityGroupRule{
		ID: id, SecurityGroupID: group, Direction: rapid.SampledFrom([]string{"ingress", "egress"}).Draw(t, "direction"),
		EtherType: rapid.SampledFrom([]string{"IPv4", "IPv6"}).Draw(t, "ethertype"),
		Protocol:  rapid.SampledFrom([]string{"", "tcp", "tcp", "udp", "sctp", "6", "icmp", "icmp", "ipv6-icmp", "icmpv6", "1", "58", "dccp", "47", "vrrp"}).Draw(t, "protocol"),
	}
	switch r.Protocol {
	case "tcp", "6", "udp", "sctp":
		if rapid.Bool().Draw(t, "ports") {
			lo := rapid.SampledFrom([]int{1, 22, 80, 85, 90, 1000, 8000, 65535}).Draw(t, "low")
			hi := max(lo, rapid.SampledFrom([]int{22, 80, 84, 89, 90, 95, 1024, 8063, 65535}).Draw(t, "high"))
			r.PortRangeMin, r.PortRangeMax = &lo, &hi
		}
	case "icmp", "ipv6-icmp", "icmpv6", "1", "58":
		// ICMP of the other IP version has no types, and Python counts only the last of several rules then.
		known := r.Protocol == "icmp" || (r.Protocol == "1") == (r.EtherType == "IPv4")
		if known && rapid.Bool().Draw(t, "type") {
			kind := rapid.SampledFrom([]int{0, 8, 128}).Draw(t, "kind")
			r.PortRangeMin = &kind
			if rapid.Bool().Draw(t, "code") {
				code := rapid.SampledFrom([]int{0, 3}).Draw(t, "coded")
				r.PortRangeMax = &code
			}
		}
	}
	switch rapid.IntRange(0, 4).Draw(t, "remote") {
	case 0, 1:
		r.RemoteGroupID = rapid.SampledFrom(groups).Draw(t, "group")
	case 2:
		r.RemoteAddressGroupID = rapid.SampledFrom([]string{"a1", "a2"}).Draw(t, "addresses")
	case 3:
		prefix := map[string][]string{"IPv4": {"10.0.0.0/8", "192.0.2.1/32", "0.0.0.0/0"}, "IPv6": {"2001:db8::/32", "::/0", "fd00::1/128"}}[r.EtherType]
		r.RemoteIPPrefix = &neutron.Prefix{Prefix: netip.MustParsePrefix(rapid.SampledFrom(prefix).Draw(t, "prefix"))}
	}
	return r
}

func drawPort(t *rapid.T, id string, i int, groups []string) *neutron.Port {
	p := &neutron.Port{ID: id, DeviceOwner: rapid.SampledFrom([]string{"compute:nova", "compute:nova", "compute:nova", "network:dhcp"}).Draw(t, "owner")}
	p.MAC = neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, byte(10 + i)}
	for _, ip := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{fmt.Sprintf("10.0.0.%d", 10+i), fmt.Sprintf("2001:db8::%d", 10+i)}), rapid.ID).Draw(t, "ips") {
		p.FixedIPs = append(p.FixedIPs, neutron.FixedIP{IP: netip.MustParseAddr(ip)})
	}
	if rapid.IntRange(0, 4).Draw(t, "unprotected") == 0 {
		p.Security.Value = &neutron.Security{}
	} else {
		p.SecurityGroupIDs = rapid.SliceOfDistinct(rapid.SampledFrom(groups), rapid.ID).Draw(t, "groups")
	}
	pairs := []string{"10.9.0.0/16", "10.0.0.10", "2001:db8:9::/64", fmt.Sprintf("10.0.0.%d/32", 10+i)}
	if i == 0 {
		// Only one port: Python joins the conjunctions of all that may send under every address, whatever their MACs.
		pairs = append(pairs, "0.0.0.0/0", "::/0")
	}
	for _, ip := range rapid.SliceOfNDistinct(rapid.SampledFrom(pairs), 0, 2, rapid.ID).Draw(t, "pairs") {
		prefix, err := neutron.ParsePrefix(ip)
		if err != nil {
			t.Fatal(err)
		}
		mac := rapid.SampledFrom([]neutron.MAC{p.MAC, {0, 0, 0x5e, 0, 1, byte(i)}}).Draw(t, "pair's mac")
		p.AllowedAddressPairs = append(p.AllowedAddressPairs, neutron.AddressPair{MAC: mac, IP: prefix})
	}
	return p
}
