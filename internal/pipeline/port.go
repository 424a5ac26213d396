// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// port compiles a port that is plugged in here.
func (c *compiler) port(id string) {
	p := c.w.Port(id)
	if p == nil || p.VIF == nil {
		return
	}
	switch {
	case c.w.IsShut(p):
		c.row(isolate(p, ovsdb.NoVLAN))
	case p.Wiring.State == world.Waiting && c.unguarded(p):
		c.row(isolate(p, ovsdb.NoVLAN))
	case p.Wiring.State == world.Waiting || p.Wiring.State == world.Failed:
		c.row(isolate(p, ovsdb.AnyVLAN)) // one that was wired by an earlier run stays so
	}
	if p.VIF.OFPort == 0 {
		return
	}
	switch p.Wiring.State {
	case world.Wired:
		binding := ovsdb.AccessSpec{Port: p.VIF.Port, Tag: int(p.Wiring.VLAN), OtherConfig: c.bindingConfig(p)}
		c.steer(p)
		spoofs := c.w.Config.AntiSpoof && world.Checked(p)
		switch {
		case c.w.ByRules(p) && c.w.Guard(id) != world.Admitted:
			c.awaitRules(p)
		case c.w.Filtered(p) || spoofs:
			// Nothing reaches the port, and it reaches nobody, before the flows that guard it are in place.
			c.until(isolate(p, int(p.Wiring.VLAN)))
			c.after(binding)
		default:
			c.row(binding)
		}
		switch {
		case c.w.Config.Hybrid:
			c.unfiltered(p)
		case c.w.Filtered(p):
			c.filtered(p)
		case c.w.Trusted(p):
			c.trusted(p)
		default:
			c.unfiltered(p)
		}
		if spoofs {
			c.antiSpoof(p)
		}
	case world.Moved:
		c.row(ovsdb.AbsentPort{Port: p.VIF.Port})
	case world.Dead, world.Down:
		c.shut(p, p.Wiring.Reason)
	}
}

// steer writes down the hint of a port about its queues. Without one the key goes; other keys are somebody else's.
func (c *compiler) steer(p *world.Port) {
	hint := ovsdb.Steering(p.Details.TXSteering())
	if i := c.w.View.Interface(p.VIF.Interface); i != nil && (hint != "" || ovsdb.SteeringOf(i) != "") {
		c.row(ovsdb.InterfaceSpec{Interface: p.VIF.Interface, Steering: &hint})
	}
}

// bindingConfig is what is written down on the port, for the next run and for whoever takes over.
func (c *compiler) bindingConfig(p *world.Port) map[string]string {
	s := c.w.Segments.Get(p.Wiring.Segment)
	m := map[string]string{
		"net_uuid": s.Key.Network, "network_type": s.Type, "physical_network": s.Physnet, "tag": strconv.Itoa(int(s.VLAN)),
	}
	if s.Physnet == "" {
		m["physical_network"] = "None"
	}
	if s.Key.ID >= 0 {
		m["segmentation_id"] = strconv.Itoa(s.Key.ID)
	}
	return m
}

// antiSpoof lets only packets pass that a port sends under its own addresses.
func (c *compiler) antiSpoof(p *world.Port) {
	br, from := c.w.Config.IntegrationBridge, of.FromPort(p.VIF.OFPort)
	macs, ips := Senders(p)
	const reason = "addresses of the port"
	for _, mac := range macs {
		c.flow(br, reason, of.Flow{
			Table: intMACSpoof, Priority: 2, Match: of.Match{from, of.HW(of.EthSrc, hw(mac))}, Actions: []of.Action{of.GotoTable(intLocal)},
		})
	}
	const check = "check who the port says it is"
	c.flow(br, check, of.Flow{Table: intEntry, Priority: 9, Match: of.Match{from}, Actions: []of.Action{of.GotoTable(intMACSpoof)}})

	// Receivers look through tags of VLAN 0; the checks below do not look behind a second tag.
	for _, tag := range []uint64{of.EtherVLAN, etherServiceVLAN} {
		c.flow(br, check, of.Flow{Table: intEntry, Priority: 11, Match: of.Match{from, etherType(tag)}})
	}
	var v4, v6 []netip.Prefix
	for _, ip := range ips {
		if ip.Addr().Is4() {
			v4 = append(v4, ip)
		} else {
			v6 = append(v6, ip)
		}
	}
	advertisement := of.Match{from, etherType(typeIPv6), of.Num(of.IPProto, protoICMPv6), of.Num(of.ICMPv6Type, neighborAdvertisement)}
	if !anyAddress(v6) {
		for _, ip := range v6 {
			c.flow(br, reason, of.Flow{
				Table: intARPSpoof, Priority: 2, Match: advertisement.With(of.IP(of.NDTarget, ip)),
				// The Python agent goes past the check of the MAC, so that a forged source MAC is learned on this port.
				Actions: []of.Action{of.GotoTable(intMACSpoof)},
			})
		}
		c.flow(br, check, of.Flow{Table: intEntry, Priority: 10, Match: advertisement, Actions: []of.Action{of.GotoTable(intARPSpoof)}})
	}
	if !anyAddress(v4) {
		arp := of.Match{from, etherType(typeARP)}
		for _, ip := range v4 {
			c.flow(br, reason, of.Flow{
				Table: intARPSpoof, Priority: 2, Match: arp.With(of.IP(of.ARPSPA, ip)), Actions: []of.Action{of.GotoTable(intMACSpoof)},
			})
		}
		c.flow(br, check, of.Flow{Table: intEntry, Priority: 10, Match: arp, Actions: []of.Action{of.GotoTable(intARPSpoof)}})
	}
}

const etherServiceVLAN = 0x88a8

// anyAddress says whether the prefixes allow every address: then there is nothing to check.
func anyAddress(prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() == 0 })
}

// Senders returns the addresses under which a port may send: its own, those of its address pairs, and the link-local IPv6
// address of each MAC. Sorted, each once.
func Senders(p *world.Port) (macs []neutron.MAC, ips []netip.Prefix) {
	macSet := map[neutron.MAC]bool{p.VIF.MAC: true}
	ipSet := map[netip.Prefix]bool{}
	for _, ip := range p.Details.FixedIPs {
		if ip.IP.IsValid() {
			ipSet[netip.PrefixFrom(ip.IP, ip.IP.BitLen())] = true
		}
	}
	for _, pair := range p.Details.AllowedAddressPairs {
		if pair.MAC != (neutron.MAC{}) {
			macSet[pair.MAC] = true
		}
		if pair.IP.IsValid() {
			ipSet[pair.IP.Prefix] = true
		}
	}
	for mac := range macSet {
		ip := linkLocal(mac)
		ipSet[netip.PrefixFrom(ip, 128)] = true
	}
	macs = slices.SortedFunc(maps.Keys(macSet), func(a, b neutron.MAC) int { return slices.Compare(a[:], b[:]) })
	ips = slices.SortedFunc(maps.Keys(ipSet), netip.Prefix.Compare)
	return macs, ips
}

// linkLocal is the IPv6 address that a host makes from its MAC (EUI-64).
func linkLocal(m neutron.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// isolate has a port be in no network, but for the VLAN in which it may stay. The dead VLAN alone would not do: ports that have their filters,
// but not their network yet, would reach each other there. The port is isolated as the interface driver of Neutron's other agents plugs it
// in. What is written down about the network that the port was in stays.
func isolate(p *world.Port, keep int) ovsdb.IsolationSpec {
	return ovsdb.IsolationSpec{Port: p.VIF.Port, VLAN: world.DeadVLAN, Keep: keep}
}
