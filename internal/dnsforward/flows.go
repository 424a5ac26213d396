// SPDX-License-Identifier: Apache-2.0

package dnsforward

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

const (
	// above is above the flow of the transient table that sends packets of a port to its filters, which is 100, and above those of the dns_forwarder
	// extension of a Python agent that ran before, which are 102 and take queries of all ports until they are pruned.
	above = 103

	arpRequest = 1
)

// Compile implements extension.Extension. Only queries of guests on this host come to the agent; the Python agent takes those of everybody who reaches
// the integration bridge.
func (d *Forwarder) Compile(o world.Object, want *pipeline.Want) {
	id, ok := world.PortID(o)
	if _, served := d.ports[id]; !ok || !served {
		return
	}
	p := d.w.Port(id)
	if !extension.IsGuest(p) {
		return
	}
	br, meter := d.w.Config.IntegrationBridge, d.meters.ID(id)
	if meter != 0 {
		want.Meters = append(want.Meters, extension.PacketMeter(br, "how often the port's DNS queries are answered", meter, d.PacketBound()))
	}
	toAgent := extension.OnlyToAgent(name, id, meter)
	add := func(reason string, priority uint16, actions []of.Action, match ...of.Term) {
		from := of.Match{of.FromPort(p.VIF.OFPort), of.Untagged(), of.HW(of.EthSrc, of.MAC(p.VIF.MAC))}
		want.Flow(br, reason, of.Flow{Table: pipeline.TableTransient, Priority: priority, Match: append(from, match...), Actions: actions})
	}
	var resolved []netip.Addr
	for _, at := range d.cfg.Listen {
		ip := at.Addr()
		ether, dst := uint64(datagram.EtherIPv4), of.IPv4Dst
		if ip.Is6() {
			ether, dst = datagram.EtherIPv6, of.IPv6Dst
		}
		add("the agent answers the port's DNS queries", above, toAgent, of.Num(of.EthType, ether), of.Num(of.IPProto, datagram.ProtoUDP),
			of.Num(of.UDPDst, uint64(at.Port())), of.IP(dst, netip.PrefixFrom(ip, ip.BitLen())))
		if !d.answersFor(p, ip) || slices.Contains(resolved, ip) {
			continue
		}
		resolved = append(resolved, ip)
		if ip.Is6() {
			add("the agent answers neighbour solicitations for the address that the port sends DNS queries to", above, toAgent, of.Num(of.EthType, ether),
				of.Num(of.IPProto, datagram.ProtoICMPv6), of.Num(of.ICMPv6Type, datagram.NeighbourAsk), of.Num(of.ICMPv6Code, 0), of.IP(of.NDTarget, netip.PrefixFrom(ip, 128)))
			continue
		}
		// The same flow as that of metadata_path, whichever of the two adds it.
		want.Flow(br, "answer for the address that the port sends DNS queries to", of.Flow{
			Table: pipeline.TableTransient, Priority: extension.AboveAll,
			Match: of.Match{
				of.FromPort(p.VIF.OFPort), of.Untagged(), of.Num(of.EthType, of.EtherARP), of.Num(of.ARPOp, arpRequest), of.IP(of.ARPTPA, netip.PrefixFrom(ip, 32)),
			},
			Actions: pipeline.ARPAnswer(extension.ServiceMAC(), ip),
		})
	}
}

// answersFor returns whether the agent tells a port who has an address that guests ask: one of the link alone, which no subnet has, unless it is the
// port's own. For others a guest has a router, and on some network they may be a guest's.
func (d *Forwarder) answersFor(p *world.Port, ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() && slices.ContainsFunc(d.cfg.Listen, func(at netip.AddrPort) bool { return at.Addr() == ip }) &&
		!slices.ContainsFunc(p.Details.FixedIPs, func(own neutron.FixedIP) bool { return own.IP == ip })
}

// Explain implements extension.Explainer: who answers the port's DNS queries, and whom the agent asks.
func (d *Forwarder) Explain(o world.Object) []string {
	id, ok := world.PortID(o)
	if !ok || !extension.IsGuest(d.w.Port(id)) {
		return nil
	}
	if len(d.cfg.Upstream) == 0 {
		return []string{"dns: [dns_forwarder] upstream_dns_server_ports names no resolver; its queries leave the port as any packet"}
	}
	out := []string{fmt.Sprintf("dns: the agent answers queries over UDP to %s, and asks %s for at most %s", list(d.cfg.Listen), list(d.cfg.Upstream), d.cfg.Timeout)}
	if n := d.ports[id]; n > 0 {
		out = append(out, fmt.Sprintf("dns: %d of its queries wait for an answer", n))
	}
	if l, ok := d.last[id]; ok {
		text := "dns: its last packet"
		if l.kind != "" {
			text = "dns: its last query, of type " + l.kind
		}
		text += fmt.Sprintf(" at %s, was %s", l.at.UTC().Format(time.RFC3339), l.outcome)
		if l.from.IsValid() && l.outcome == extension.Answered {
			text += " by " + l.from.String()
		}
		if l.err != nil {
			text += ": " + strings.ReplaceAll(l.err.Error(), "\n", "; ")
		}
		out = append(out, text)
	}
	return out
}

func list(all []netip.AddrPort) string {
	var out []string
	for _, at := range all {
		out = append(out, at.String())
	}
	return strings.Join(out, ", ")
}
