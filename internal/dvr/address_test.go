// SPDX-License-Identifier: Apache-2.0

package dvr

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// A router's address that changes leaves nothing of the old one behind: the flows are those of a host that has only ever known the
// new one. It may be that of this host, of another one, or of an interface of a router.
func TestRouterAddressChanges(t *testing.T) {
	// made has a VM with its gateway on each network, after what is to happen before all of it.
	made := func(own, other string, first func(c *cloud)) *cloud {
		c := newCloud(t)
		c.start("gwt", "vm1", "gwv", "vm2")
		first(c)
		c.macs("hv1", own, "hv2", other)
		c.answer("gwt", "tunnel", ownerGateway, "st", "10.0.0.1")
		c.answer("vm1", "tunnel", "compute:nova", "st", "10.0.0.11")
		c.answer("gwv", "vlan", ownerGateway, "sv", "10.1.0.1")
		c.answer("vm2", "vlan", "compute:nova", "sv", "10.1.0.11")
		return c
	}
	nothing := func(*cloud) {}
	cast := func(own, other string) func(*cloud) {
		return func(c *cloud) {
			data, err := json.Marshal(neutron.DVRUpdate{MACs: []neutron.DVRMAC{{Host: "hv1", MAC: macOf(own)}, {Host: "hv2", MAC: macOf(other)}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.r.OnCast("dvr_mac_address_update", data); err != nil {
				t.Fatal(err)
			}
			c.settle()
		}
	}
	for _, step := range []struct {
		name       string
		happens    func(c *cloud)
		own, other string // as which they are known then
		first      func(c *cloud)
	}{
		{"of this host, by a push", cast("new", "you"), "new", "you", nothing},
		{"of this host, by an answer", func(c *cloud) { c.r.Resync(); c.macs("hv1", "new", "hv2", "you") }, "new", "you", nothing},
		{"of another host", cast("me", "her"), "me", "her", nothing},
		{"of both at once", cast("new", "her"), "new", "her", nothing},
		{"of both, exchanged", cast("you", "me"), "you", "me", nothing},
		{"of a gateway with tunnels", func(c *cloud) { c.address("gwt", "ngt") }, "me", "you", func(c *cloud) { c.address("gwt", "ngt") }},
		{"of a gateway with VLANs", func(c *cloud) { c.address("gwv", "ngv") }, "me", "you", func(c *cloud) { c.address("gwv", "ngv") }},
	} {
		c := made("me", "you", nothing)
		before := c.dump()
		step.happens(c)
		want := made(step.own, step.other, step.first).dump()
		if before == want {
			t.Fatalf("%s: nothing shows that the address is another one", step.name)
		}
		if got := c.dump(); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, want)
		}
	}
}

// address gives an interface another address, as the layer-3 agent does when that of a router's port has changed.
func (c *cloud) address(port, mac string) {
	for i, d := range c.batch.Interfaces {
		if d.New.Name != port {
			continue
		}
		next := *d.New
		next.ExternalIDs = maps.Clone(next.ExternalIDs)
		next.ExternalIDs["attached-mac"] = macOf(mac).String()
		c.batch.Interfaces[i].New = &next
		c.w.Switch(&ovsdb.Batch{Seq: c.w.View.Seq() + 1, Kind: ovsdb.Update, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: d.New, New: &next}}})
	}
	c.settle()
}
