// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// scenario is what testdata/record.py plays to the Python agent.
type scenario struct {
	Name    string
	Options struct {
		Sets     *bool `json:"enable_ipset"`
		Comments *bool `json:"comment_iptables_rules"`
	}
	Steps []step
}

// step names what changes; what is nil is deleted.
type step struct {
	Do        string
	Ports     map[string]*portFacts
	Others    map[string]*portFacts
	Groups    map[string]*groupFacts
	Addresses map[string][]string `json:"address_groups"`
	Many      []struct {
		Group string
		First netip.Addr
		Count int
	}
}

type portFacts struct {
	MAC      neutron.MAC
	IPs      []netip.Addr
	Groups   []string
	Pairs    [][2]string
	Security *bool
	Owner    string
}

type groupFacts struct {
	Rules    []neutron.SecurityGroupRule
	Stateful *bool
}

func scenarios(t *testing.T) []scenario {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "scenarios.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []scenario
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// then is the state after another step.
func (s step) then(next step) step {
	s.Ports, s.Others, s.Groups, s.Addresses = maps.Clone(s.Ports), maps.Clone(s.Others), maps.Clone(s.Groups), maps.Clone(s.Addresses)
	s.Ports, s.Others = merged(s.Ports, next.Ports), merged(s.Others, next.Others)
	s.Groups = merged(s.Groups, next.Groups)
	if s.Addresses == nil {
		s.Addresses = map[string][]string{}
	}
	maps.Copy(s.Addresses, next.Addresses)
	for _, m := range next.Many {
		ip := m.First
		for i := range m.Count {
			s.Others[fmt.Sprintf("%s-%d", m.Group, i)] = &portFacts{IPs: []netip.Addr{ip}, Groups: []string{m.Group}}
			ip = ip.Next()
		}
	}
	return s
}

func merged[T any](a, b map[string]*T) map[string]*T {
	if a == nil {
		a = map[string]*T{}
	}
	maps.Copy(a, b)
	maps.DeleteFunc(a, func(_ string, v *T) bool { return v == nil })
	return a
}

// neutronPort is the port as the server tells it.
func (p *portFacts) neutronPort(id string) neutron.Port {
	number := 7
	out := neutron.Port{
		ID: id, MAC: p.MAC, NetworkID: "n1", AdminStateUp: true, DeviceOwner: p.Owner, Revision: 5, SecurityGroupIDs: p.Groups,
		Bindings: neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}},
		BindingLevels: neutron.List[neutron.BindingLevel]{{
			Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "vxlan", SegmentationID: &number}},
		}},
	}
	if p.Owner == "" {
		out.DeviceOwner = "compute:nova"
	}
	if p.Security != nil {
		out.Security.Value = &neutron.Security{PortSecurityEnabled: *p.Security}
	}
	for _, ip := range p.IPs {
		out.FixedIPs = append(out.FixedIPs, neutron.FixedIP{IP: ip})
	}
	for _, pair := range p.Pairs {
		mac, errMAC := neutron.ParseMAC(pair[0])
		prefix, errIP := neutron.ParsePrefix(pair[1])
		if errMAC != nil || errIP != nil {
			panic(fmt.Sprint(errMAC, errIP))
		}
		out.AllowedAddressPairs = append(out.AllowedAddressPairs, neutron.AddressPair{MAC: mac, IP: prefix})
	}
	return out
}

// world is what the agent knows in a state.
func (s step) world() *world.World {
	w := world.New(world.Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", TunnelTypes: []string{"vxlan"}, LocalIP: netip.MustParseAddr("10.0.0.1"),
		Filter: true, FailClosed: true,
	})
	batch := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}
	br := &ovsdb.Bridge{UUID: "b", Name: "br-int"}
	var found []neutron.Port
	for i, id := range slices.Sorted(maps.Keys(s.Ports)) {
		number, name, p := i+1, "qvo"+id[:11], s.Ports[id]
		br.Ports = append(br.Ports, ovsdb.UUID("port"+name))
		batch.Ports = append(batch.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{
			UUID: ovsdb.UUID("port" + name), Name: name, Interfaces: []ovsdb.UUID{ovsdb.UUID(name)},
		}})
		ids := map[string]string{"iface-id": id, "attached-mac": p.MAC.String()}
		if p.Owner == "" {
			ids["vm-uuid"] = "vm"
		}
		batch.Interfaces = append(batch.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
			UUID: ovsdb.UUID(name), Name: name, OFPort: &number, ExternalIDs: ids,
		}})
		found = append(found, p.neutronPort(id))
	}
	batch.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{New: br}}
	w.Switch(batch)
	w.Resolve()
	w.Ports(slices.Collect(maps.Keys(s.Ports)), found)
	for range 4 { // groups, then what they refer to
		w.Resolve()
		for _, i := range w.MissingItems() {
			s.answer(w, i)
		}
	}
	w.Resolve()
	return w
}

func (s step) answer(w *world.World, i world.Item) {
	switch i.Kind {
	case neutron.KindSecurityGroup:
		group := neutron.SecurityGroup{ID: i.ID, Stateful: s.Groups[i.ID].Stateful}
		for n, r := range s.Groups[i.ID].Rules {
			r.ID, r.SecurityGroupID = fmt.Sprintf("%s-%d", i.ID, n), i.ID
			group.Rules = append(group.Rules, r)
		}
		w.Groups.Pulled([]world.Item{i}, []neutron.SecurityGroup{group})
	case neutron.KindAddressGroup:
		group := neutron.AddressGroup{ID: i.ID}
		for _, a := range s.Addresses[i.ID] {
			group.Addresses = append(group.Addresses, neutron.Address{Prefix: neutron.Prefix{Prefix: netip.MustParsePrefix(a)}})
		}
		w.Members.AddressGroupsPulled([]world.Item{i}, []neutron.AddressGroup{group})
	default:
		var members []neutron.Member
		for _, all := range []map[string]*portFacts{s.Ports, s.Others} {
			for id, p := range all {
				if slices.Contains(p.Groups, i.ID) {
					port := p.neutronPort(id)
					members = append(members, *port.Member())
				}
			}
		}
		w.Members.Pulled([]world.Item{i}, members)
	}
}

// tell has a filter know a state, as the agent would.
func (s step) tell(t *testing.T, f *Filter) {
	t.Helper()
	w := s.world()
	for id := range f.ports {
		if s.Ports[id] == nil {
			f.Delete(id)
		}
	}
	for id := range s.Ports {
		p, ok := PortOf(w, id)
		if !ok {
			t.Fatalf("port %s is not wired: %+v", id, w.Port(id).Wiring)
		}
		f.Set(p)
	}
	for _, remote := range f.Remotes() {
		f.SetMembers(remote, w.Members.Addresses(remote))
	}
}

// debian is the configuration under which the recordings were made.
func debian(t *testing.T, s *scenario) Config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "protocols"))
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Protocols:  ReadProtocols(text),
		NoSets:     s.Options.Sets != nil && !*s.Options.Sets,
		NoComments: s.Options.Comments != nil && !*s.Options.Comments,
	}
}

// recorded reads what the Python agent of a release had written after each step.
func recorded(t *testing.T, release, name string) []State {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "recordings", release, name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	var out []State
	for _, part := range strings.Split("\n"+string(text), "\n== ")[1:] {
		var s State
		sections := strings.Split(part, "\n-- ")
		for _, section := range sections[1:] {
			tool, dump, _ := strings.Cut(section, "\n")
			switch tool {
			case "iptables-save":
				s.Rules[0], err = ParseRules(dump)
			case "ip6tables-save":
				s.Rules[1], err = ParseRules(dump)
			case "ipset save":
				s.Sets, err = ParseSets(dump)
			default:
				t.Fatalf("what printed %s?", tool)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, s)
	}
	return out
}
