// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// bridge compiles the base of a bridge: its rows, its patches to the others, and the flows that are there without any
// port or network.
func (c *compiler) bridge(name string) {
	cfg := &c.w.Config
	switch {
	case name == cfg.IntegrationBridge:
		c.integrationRows(name)
		c.integrationBase(name)
	case cfg.Tunnels() && name == cfg.TunnelBridge:
		c.row(c.base(name, true))
		c.tunnelBase(name)
	default:
		for _, bridge := range cfg.Physical {
			if bridge == name && c.w.View.BridgeByName(name) != nil {
				c.row(c.base(name, false))
				c.physicalBase(name)
				return
			}
		}
	}
}

func (c *compiler) integrationBase(br string) {
	cfg := &c.w.Config
	c.flow(br, "a switch that lost its flows is known by this one missing", of.Flow{Table: intCanary})
	c.flow(br, "packets of dead ports", of.Flow{Table: intEntry, Priority: 65535, Match: of.Match{of.VLAN(world.DeadVLAN)}})
	const next = "on to the next stage"
	for _, hop := range []struct{ from, to uint8 }{
		{intEntry, intRateLimit}, {intLocal, intRateLimit}, {intLocalIP, intRateLimit}, {intRateLimit, intBandwidth}, {intBandwidth, intTransient},
	} {
		if hop.from == intEntry && c.w.Closed() {
			c.flow(br, "ports whose filters are not in place yet", of.Flow{Table: intEntry})
			continue
		}
		c.flow(br, next, of.Flow{Table: hop.from, Actions: []of.Action{of.GotoTable(hop.to)}})
	}
	c.flow(br, "senders that were not found to be genuine", of.Flow{Table: intARPSpoof})
	for _, last := range []struct {
		table    uint8
		priority uint16
	}{{intTransient, 1}, {intEgress, 3}} {
		c.flow(br, "ordinary switching within a local VLAN", of.Flow{
			Table: last.table, Priority: last.priority, Actions: []of.Action{of.Output(of.PortNormal)},
		})
	}
	if cfg.FilterTables {
		c.filterBase(br)
	}
	c.directBase(br)
	if cfg.Tunnels() {
		c.row(patch(br, cfg.IntPatch, cfg.TunPatch, c.snoopingFlood()))
	}
	for _, bridge := range c.physical() {
		name := world.IntPatchName(bridge)
		c.row(closedPatch(br, name))
		if p := c.w.OFPort(name); p != 0 {
			c.flow(br, "packets from "+bridge+" that belong to no network of this host", of.Flow{
				Table: intEntry, Priority: 2, Match: of.Match{of.FromPort(p)},
			})
			c.after(patch(br, name, world.PhysPatchName(bridge), c.snoopingFlood()))
		}
	}
}

func (c *compiler) tunnelBase(br string) {
	cfg := &c.w.Config
	c.row(patch(br, cfg.TunPatch, cfg.IntPatch, nil))
	drop := func(table uint8, reason string) { c.flow(br, reason, of.Flow{Table: table}) }
	drop(tunEntry, "packets from ports that are no tunnels of ours")
	for _, t := range []uint8{tunGRE, tunVXLAN, tunGeneve} {
		drop(t, "tunnelled packets of networks that have no ports here")
	}
	drop(tunFlood, "broadcasts of networks without tunnels")
	goTo := func(table uint8, priority uint16, reason string, to uint8, match ...of.Term) {
		c.flow(br, reason, of.Flow{Table: table, Priority: priority, Match: match, Actions: []of.Action{of.GotoTable(to)}})
	}
	if cfg.ARPResponder {
		goTo(tunFromLocal, 1, "requests that we may answer ourselves", tunResponder, etherType(typeARP), of.HW(of.EthDst, broadcast))
		goTo(tunResponder, 0, "requests for addresses that we do not know", tunFlood)
	}
	goTo(tunFromLocal, 0, "to one address", tunUnicast, unicast())
	goTo(tunFromLocal, 0, "to many addresses", tunFlood, multicast())
	goTo(tunUnicast, 0, "addresses that we do not know", tunFlood)
	local := c.w.OFPort(cfg.TunPatch)
	if local == 0 {
		return
	}
	goTo(tunEntry, 1, "packets of this host's ports", tunFromLocal, of.FromPort(local))
	c.learn(br, local)
}

// learn remembers behind which tunnel a sender is. Announcements of an address have flows of their own with the same actions, as
// with the Python agent since 28.
func (c *compiler) learn(br string, local uint32) {
	const reason = "remember behind which tunnel a sender is"
	actions := []of.Action{
		of.Learn{
			Table: tunUnicast, Priority: 1, HardTimeout: 300, Cookie: Cookie,
			Specs: []of.LearnSpec{
				of.LearnMatch(of.VLANTCI.Bits(0, 11), of.VLANTCI.Bits(0, 11)),
				of.LearnMatch(of.EthDst.All(), of.EthSrc.All()),
				of.LearnLoadValue(of.VLANTCI.All(), of.Uint(0)),
				of.LearnLoad(of.TunID.All(), of.TunID.All()),
				of.LearnOutput(of.InPort.All()),
			},
		},
		of.Output(local),
	}
	c.flow(br, reason, of.Flow{Table: tunLearn, Priority: 1, Actions: actions})
	icmp6 := of.Match{etherType(typeIPv6), of.Num(of.IPProto, protoICMPv6)}
	for _, announcement := range []of.Match{
		{etherType(typeARP), of.HW(of.ARPTHA, broadcast)},
		icmp6.With(of.Num(of.ICMPv6Type, routerAdvertisement)),
		icmp6.With(of.Num(of.ICMPv6Type, neighborAdvertisement)),
	} {
		c.flow(br, reason, of.Flow{Table: tunLearn, Priority: 2, Match: announcement, Actions: actions})
	}
}

func (c *compiler) physicalBase(br string) {
	c.flow(br, "ordinary switching on the physical network", of.Flow{Table: physEntry, Actions: []of.Action{of.Output(of.PortNormal)}})
	name := world.PhysPatchName(br)
	c.row(closedPatch(br, name))
	if p := c.w.OFPort(name); p != 0 {
		c.flow(br, "packets of this host that belong to no network on this bridge", of.Flow{
			Table: physEntry, Priority: 2, Match: of.Match{of.FromPort(p)},
		})
		c.after(patch(br, name, world.IntPatchName(br), nil))
	}
}

var broadcast = of.MAC{255, 255, 255, 255, 255, 255}

// physical lists the physical bridges that exist, sorted.
func (c *compiler) physical() []string {
	var out []string
	for _, b := range c.w.Config.Physical {
		if c.w.View.BridgeByName(b) != nil {
			out = append(out, b)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nonexistentPeer keeps a patch closed until the flows that guard it are in place.
const nonexistentPeer = "nonexistent-peer"

// base is how a bridge shall be.
//
// A bridge that nobody has set up yet, which shows in its fail mode, gets a controller. Nothing listens there, but a
// Python agent that takes over later would add it, and the first controller of a bridge flushes its flows. So it comes
// before the first flow, with the fail mode, and the flows wait until the switch has taken it over.
func (c *compiler) base(name string, create bool) ovsdb.BridgeSpec {
	probe := c.s.InactivityProbe
	return ovsdb.BridgeSpec{
		Name: name, Create: create, FailMode: "secure", DatapathType: c.s.DatapathType, Protocols: []string{"OpenFlow10", "OpenFlow13", "OpenFlow14"},
		OtherConfig:     map[string]string{"mac-table-size": strconv.Itoa(c.s.MACTableSize), "disable-in-band": "true"},
		FirstController: &ovsdb.Controller{Target: c.s.Controller, ConnectionMode: "out-of-band", InactivityProbe: &probe},
	}
}

// integrationRows are how the integration bridge shall be.
func (c *compiler) integrationRows(name string) {
	cfg, spec, snooping := &c.w.Config, c.base(name, true), c.s.IGMPSnooping
	if cfg.FilterTables || cfg.Filter && !cfg.Hybrid { // as the Python agent's firewall has them, which speaks to the bridge by itself
		spec.Protocols = append(spec.Protocols, "OpenFlow11", "OpenFlow12")
	}
	spec.OtherConfig["mcast-snooping-disable-flood-unregistered"] = strconv.FormatBool(!c.s.IGMPFloodUnregistered)
	spec.McastSnooping = &snooping
	c.row(spec)
	switch { // the mark that no rules of iptables are left
	case cfg.Hybrid:
		c.row(ovsdb.BridgeSpec{Name: name, RemoveConfig: []string{world.RulesGoneKey}})
	case c.w.RulesGone():
		c.row(ovsdb.BridgeSpec{Name: name, OtherConfig: map[string]string{world.RulesGoneKey: "true"}})
	}
}

// snoopingFlood is what a patch of the integration bridge does with multicast that snooping has an eye on.
func (c *compiler) snoopingFlood() map[string]string {
	return map[string]string{
		"mcast-snooping-flood": strconv.FormatBool(c.s.IGMPFlood), "mcast-snooping-flood-reports": strconv.FormatBool(c.s.IGMPFloodReports),
	}
}

// patch is how a patch port shall be.
func patch(bridge, name, peer string, config map[string]string) ovsdb.PortSpec {
	return ovsdb.PortSpec{Bridge: bridge, Name: name, Type: "patch", Options: map[string]string{"peer": peer}, OtherConfig: config}
}

// closedPatch is how a patch port begins: one that exists is left as it is.
func closedPatch(bridge, name string) ovsdb.PortSpec {
	spec := patch(bridge, name, nonexistentPeer, nil)
	spec.KeepIfPresent = true
	return spec
}
