// SPDX-License-Identifier: Apache-2.0

package world

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// CVE-2015-5240: a port that the API calls one of Neutron's own was trusted on a VM's interface too. What is plugged in counts.
func TestVMIsNoPortOfNeutron(t *testing.T) {
	off := func(p *neutron.Port) { p.Security = neutron.Maybe[neutron.Security]{Value: &neutron.Security{}} }
	for _, c := range []struct {
		name     string
		change   func(*ovsdb.Interface)
		details  func(*neutron.Port)
		filtered bool
	}{
		{"os-vif", func(i *ovsdb.Interface) { i.ExternalIDs["vm-uuid"] = "v" }, nil, true},
		{"libvirt", func(i *ovsdb.Interface) { i.ExternalIDs["vm-id"] = "v" }, nil, true},
		{"trunk", func(i *ovsdb.Interface) { i.Type = "patch" }, nil, true},
		{"port security off", func(i *ovsdb.Interface) { i.ExternalIDs["vm-uuid"] = "v" }, off, false},
		{"internal port of a DHCP agent", func(i *ovsdb.Interface) { i.Type = "internal" }, nil, false},
		{"veth of a DHCP agent", func(*ovsdb.Interface) {}, nil, false},
	} {
		w := filtering(1)
		d := grouped(1, 5)
		if d.DeviceOwner = "network:dhcp"; c.details != nil {
			c.details(&d)
		}
		before := w.View.InterfaceByName("tap1")
		after := *before
		after.ExternalIDs = maps.Clone(before.ExternalIDs)
		c.change(&after)
		w.Switch(&ovsdb.Batch{Seq: 2, Kind: ovsdb.Update, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: before, New: &after}}})
		w.Ports([]string{"p1"}, []neutron.Port{d})
		w.Resolve()
		if p := w.Port("p1"); w.Filtered(p) != c.filtered || w.Trusted(p) == c.filtered || Checked(p) != c.filtered {
			t.Errorf("%s: filtered %v, trusted %v", c.name, w.Filtered(p), w.Trusted(p))
		}
	}
}

// CVE-2014-0187 and CVE-2015-3221: a prefix or an address that makes no sense, in a rule or an address pair, is refused as what it is. Ports
// that have nothing to do with it keep their filters, and the world goes on.
func TestPrefixThatMakesNoSense(t *testing.T) {
	for what, p := range map[string]*neutron.Push{
		"rule": {Kind: neutron.KindSecurityGroupRule, Event: neutron.Created, Objects: []neutron.Primitive{{Name: "SecurityGroupRule",
			Data: []byte(`{"id":"x","security_group_id":"other","direction":"ingress","ethertype":"IPv4","remote_ip_prefix":"10.0.0.0/33","revision_number":1}`)}}},
		"group": {Kind: neutron.KindSecurityGroup, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: "SecurityGroup",
			Data: []byte(`{"id":"other","revision_number":9,"rules":[{"versioned_object.name":"SecurityGroupRule","versioned_object.version":"1.0","versioned_object.data":{"id":"x","security_group_id":"other","direction":"ingress","ethertype":"IPv4","remote_ip_prefix":"nonsense"}}]}`)}}},
		"pair": {Kind: neutron.KindPort, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: "Port",
			Data: []byte(`{"id":"p1","revision_number":9,"allowed_address_pairs":[{"versioned_object.name":"PortAllowedAddressPair","versioned_object.version":"1.0","versioned_object.data":{"mac_address":"fa:16:3e:00:00:02","ip_address":"300.0.0.1"}}]}`)}}},
	} {
		w := wiredWorld(someServer())
		if err := w.Push(p, time.Unix(1000, 0)); err == nil {
			t.Errorf("%s: taken without a word", what)
		}
		w.Resolve()
		if p := w.Port("p1"); p.Wiring.State != Wired || !w.Filtered(p) || !slices.Equal(p.Groups, []string{"g"}) {
			t.Errorf("%s: port p1 is %s with groups %v: %s", what, p.Wiring.State, p.Groups, p.Wiring.Reason)
		}
	}
}
