// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// TestHypervisors: who is said to have a bridge's bandwidth.
func TestHypervisors(t *testing.T) {
	o := load(t, `
[ovs]
bridge_mappings = p1:br-1,p2:br-2
resource_provider_hypervisors = br-2:named
resource_provider_default_hypervisor = default
resource_provider_bandwidths = br-1:1000:,br-2::2000
resource_provider_packet_processing_without_direction = :500
resource_provider_inventory_defaults = allocation_ratio:1.5,min_unit:2
`)
	c := configurations(o, "machine")
	if c.RPHypervisors["br-1"] != "default" || c.RPHypervisors["br-2"] != "named" || c.BridgeMappings["p2"] != "br-2" {
		t.Errorf("%v, %v", c.RPHypervisors, c.BridgeMappings)
	}
	if b := c.RPBandwidths; *b["br-1"].Egress != 1000 || b["br-1"].Ingress != nil || *b["br-2"].Ingress != 2000 || b["br-2"].Egress != nil {
		t.Errorf("%+v", b)
	}
	if i := c.RPInventoryDefaults; *i.MinUnit != 2 || float64(*i.AllocationRatio) != 1.5 || i.MaxUnit != nil {
		t.Errorf("%+v", i)
	}
	for _, any := range c.RPPacketsWithoutDirection {
		if *any["any"] != 500 {
			t.Errorf("%+v", any)
		}
	}
	if len(c.RPPacketsWithoutDirection) != 1 || c.TunnelingIP != nil {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string][2]string{ // with the objects of 21, and of 26
		"": {"", "machine"}, "[ml2]\ntunnelled_network_rp_name =\n": {"", ""},
		"[ovs]\nresource_provider_hypervisors = rp_tunnelled:named\n":        {"named", "named"},
		"[ovs]\nresource_provider_bandwidths = rp_tunnelled:1000:1000\n":     {"machine", "machine"},
		"[ovs]\nresource_provider_default_hypervisor = default\n":            {"", "default"},
		"[ml2]\ntunnelled_network_rp_name = tun\n[ovs]\nlocal_ip = 10.0.0.1": {"", ""},
	} {
		c := configurations(load(t, text), "machine")
		for i, release := range []int{21, 26} {
			_, v, err := neutron.Negotiate(t.Context(), neutron.NewServer(sim.New(sim.Config{Release: release}).Join("hv1", nil), "hv1"))
			if got := neutron.ConfigurationsFor(c, v).RPHypervisors["rp_tunnelled"]; err != nil || got != want[i] {
				t.Errorf("%q for release %d: %q, want %q, %v", text, release, got, want[i], err)
			}
		}
		if name := c.ImpliedRP; name != "" && c.RPHypervisors[name] == "" {
			t.Errorf("%q: the options' own value has changed: %v", text, c.RPHypervisors)
		}
	}
	if c := configurations(load(t, "[ovs]\nbridge_mappings = p1:br-1\n"), "machine"); c.RPHypervisors["br-1"] != "machine" || c.TunnelTypes == nil || c.Extensions == nil {
		t.Errorf("%+v", c)
	}
}

// TestWordsOfRules: a rule as one says it.
func TestWordsOfRules(t *testing.T) {
	prefix, err := neutron.ParsePrefix("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]int{"g": 3, "a": 5}
	for _, c := range []struct {
		r       neutron.SecurityGroupRule
		text    string
		members int
	}{
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4"}, "allow everything from anywhere (IPv4)", 0},
		{neutron.SecurityGroupRule{Direction: "egress", EtherType: "IPv6", Protocol: "udp"}, "allow udp to anywhere (IPv6)", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortRangeMin: new(22), PortRangeMax: new(22), RemoteIPPrefix: &prefix}, "allow tcp/22 from 10.0.0.0/8", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortRangeMin: new(22), PortRangeMax: new(23), RemoteGroupID: "g"}, "allow tcp/22-23 from members of group g (IPv4)", 3},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortRangeMin: new(22)}, "allow tcp from anywhere (IPv4)", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", RemoteAddressGroupID: "a"}, "allow everything from address group a (IPv4)", 5},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", RemoteAddressGroupID: "a", RemoteGroupID: "g"}, "allow everything from members of group g (IPv4)", 3},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "icmp", PortRangeMin: new(8), PortRangeMax: new(0)}, "allow icmp type 8 code 0 from anywhere (IPv4)", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv6", Protocol: "58", PortRangeMin: new(8)}, "allow 58 type 8 from anywhere (IPv6)", 0},
		{neutron.SecurityGroupRule{Direction: "ingress", EtherType: "IPv4", Protocol: "1", PortRangeMin: new(8)}, "allow 1 type 8 from anywhere (IPv4)", 0},
	} {
		if got := ruleDocument(&c.r, members); got.Text != c.text || got.Members != c.members {
			t.Errorf("%q with %d members, want %q with %d", got.Text, got.Members, c.text, c.members)
		}
	}
}
