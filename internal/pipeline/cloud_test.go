// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// failer is a test of either kind.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// cloud is a host together with a server that it asks.
type cloud struct {
	*host
	ports     map[string]*neutron.Port // of all hosts
	groups    map[string]*neutron.SecurityGroup
	addresses map[string]*neutron.AddressGroup
	networks  map[string]neutron.Segment
}

func newCloud(cfg world.Config) *cloud {
	return &cloud{
		host: newHost(cfg), ports: map[string]*neutron.Port{}, groups: map[string]*neutron.SecurityGroup{},
		addresses: map[string]*neutron.AddressGroup{}, networks: map[string]neutron.Segment{},
	}
}

func filterConfig() world.Config {
	return world.Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
		Physical: map[string]string{"physnet1": "br-ex"}, LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan", "gre"},
		Filter: true, FilterTables: true,
	}
}

// converge does what the agent does: compile what has changed, and ask for what is missing.
func (c *cloud) converge(t failer) {
	t.Helper()
	if c.host.flows[world.BridgeObject("br-int")] == nil {
		c.compile(t, c.w.Everything())
	}
	c.answerAll(t)
	for ids := c.w.Missing(); len(ids) > 0; ids = c.w.Missing() {
		for _, id := range ids { // one after the other, so that local VLANs are given in this order
			c.answerPorts([]string{id})
			c.answerAll(t)
		}
	}
}

// answerAll answers what is asked about groups until nothing more is. What the server does not know is asked once; what it knows may be
// forgotten again, and asked anew after another port was told.
func (c *cloud) answerAll(t failer) {
	asked := map[world.Item]bool{}
	for {
		c.settle(t)
		var first []world.Item
		for _, i := range c.w.MissingItems() {
			if key := (world.Item{Kind: i.Kind, ID: i.ID}); !asked[key] {
				asked[key] = true
				first = append(first, i)
			}
		}
		if len(first) == 0 {
			return
		}
		c.answerItems(first)
	}
}

func (c *cloud) answerPorts(ids []string) { c.answerPortsAsked(c.w.Now(), ids) }

func (c *cloud) answerPortsAsked(at uint64, ids []string) {
	var found []neutron.Port
	for _, id := range ids {
		if p := c.ports[id]; p != nil {
			found = append(found, *p)
		}
	}
	c.w.PortsAsked(at, ids, found)
}

func (c *cloud) answerItems(items []world.Item) {
	for _, item := range items {
		one := []world.Item{item}
		switch item.Kind {
		case neutron.KindSecurityGroup:
			var found []neutron.SecurityGroup
			if g := c.groups[item.ID]; g != nil {
				found = append(found, *g)
			}
			c.w.Groups.Pulled(one, found)
		case neutron.KindAddressGroup:
			var found []neutron.AddressGroup
			if g := c.addresses[item.ID]; g != nil {
				found = append(found, *g)
			}
			c.w.Members.AddressGroupsPulled(one, found)
		case neutron.KindPort:
			var found []neutron.Member
			for _, id := range slices.Sorted(maps.Keys(c.ports)) {
				if p := c.ports[id]; slices.Contains(p.SecurityGroupIDs, item.ID) {
					found = append(found, *p.Member())
				}
			}
			c.w.Members.Pulled(one, found)
		}
	}
}

// bind gives a port its place on this host.
func (c *cloud) bind(p *neutron.Port, network string) {
	s := c.networks[network]
	p.NetworkID, p.AdminStateUp = network, true
	p.Bindings = neutron.List[neutron.Binding]{{Host: "hv1", Status: "ACTIVE"}}
	p.BindingLevels = neutron.List[neutron.BindingLevel]{{Host: "hv1", Segment: neutron.Maybe[neutron.Segment]{Value: &s}}}
}

// plugInto adds an interface to the integration bridge.
func (c *cloud) plugInto(name string, ofport int, ids map[string]string) {
	old := c.w.View.BridgeByName("br-int")
	br := *old
	b := &ovsdb.Batch{Kind: ovsdb.Update}
	c.addPort(b, &br, name, ofport, ids)
	b.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{Old: old, New: &br}}
	c.apply(b)
}

// conjunctionNames tells what each conjunction id in use stands for: "web<db/4" is what group web lets in over IPv4 from
// members of db, "web>db/4" what it lets out to them.
func (c *cloud) conjunctionNames() map[uint32]string {
	names := map[uint32]string{}
	for _, g := range slices.Sorted(maps.Keys(c.groups)) {
		for _, r := range c.w.Groups.Rules(g) {
			if r.Remote == "" {
				continue
			}
			arrow := "<"
			if r.Direction == world.Egress {
				arrow = ">"
			}
			names[c.w.Members.ConjunctionID(conjunctionOf(g, &r))] = fmt.Sprintf("%s%s%s/%d", g, arrow, r.Remote, r.IPVersion)
		}
	}
	delete(names, 0)
	return names
}

// all are the flows of the integration bridge that some objects want. Where two want a flow differently the first of them
// counts, as on a real bridge. Only ports that share a MAC may.
func (c *cloud) all(t failer, which func(world.Object) bool) map[of.Key]Flow {
	out := map[of.Key]Flow{}
	for _, o := range world.SortedObjects(c.host.flows) {
		seen := map[of.Key]bool{}
		for _, f := range c.host.flows[o] {
			k := f.Entry.Key()
			if f.Bridge != "br-int" || !which(o) {
				continue
			}
			if seen[k] {
				t.Fatalf("%s wants one flow twice: %s", o, f.Entry)
			}
			seen[k] = true
			other, taken := out[k]
			if _, isPort := world.PortID(o); taken && other.Entry != f.Entry && (!isPort || k.Table() != intTransient && k.Table() != fwAcceptOrIngress) {
				t.Fatalf("%s wants %s, another %s", o, f.Entry, other.Entry)
			}
			if !taken {
				out[k] = f
			}
		}
	}
	return out
}

// rename writes the conjunctions of a flow by name. Offsets stay numbers.
func rename(text string, names map[uint32]string) string {
	for base, name := range names {
		for i := range uint32(8) {
			with := fmt.Sprintf("%s+%d", name, i)
			text = strings.ReplaceAll(text, fmt.Sprintf("conjunction(%d,", base+i), "conjunction("+with+",")
			text = strings.ReplaceAll(text, fmt.Sprintf("conj_id=%d,", base+i), "conj_id="+with+",")
			text = strings.ReplaceAll(text, fmt.Sprintf("set_field:%#x->reg7", base+i), "set_field:"+with+"->reg7")
		}
	}
	return text
}
