// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// genuine is the flows that let a port's packets pass when they carry its own addresses: tables 0, 24 and 25.
func genuine(p *port) []of.Entry {
	from := of.FromPort(p.number)
	arp := of.Match{from, of.Num(of.EthType, 0x0806)}
	advertisement := of.Match{from, of.Num(of.EthType, 0x86dd), of.Num(of.IPProto, 58), of.Num(of.ICMPv6Type, 136)}
	out := []of.Entry{
		entry(25, 2, 30, of.Match{from, of.HW(of.EthSrc, of.MAC(p.mac))}),
		entry(0, 9, 25, of.Match{from}),
		entry(0, 10, 24, arp),
		entry(0, 10, 24, advertisement),
	}
	for _, tag := range []uint64{of.EtherVLAN, 0x88a8} { // a tag that the VM brings: dropped
		out = append(out, must(of.Flow{Table: 0, Priority: 11, Cookie: pipeline.Cookie, Match: of.Match{from, of.Num(of.EthType, tag)}}))
	}
	for _, ip := range p.addresses() {
		if ip.Is4() {
			out = append(out, entry(24, 2, 25, arp.With(of.IP(of.ARPSPA, netip.PrefixFrom(ip, 32)))))
		} else {
			out = append(out, entry(24, 2, 25, advertisement.With(of.IP(of.NDTarget, netip.PrefixFrom(ip, 128)))))
		}
	}
	return out
}

func entry(table uint8, priority uint16, to uint8, m of.Match) of.Entry {
	return must(of.Flow{Table: table, Priority: priority, Cookie: pipeline.Cookie, Match: m, Actions: []of.Action{of.GotoTable(to)}})
}

// network is the flow that gives tunnelled packets their local VLAN.
func network(s *neutron.Segment, vlan int) of.Entry {
	table := map[string]uint8{"gre": 3, "vxlan": 4, "geneve": 6}[s.NetworkType]
	return must(of.Flow{
		Table: table, Priority: 1, Cookie: pipeline.Cookie, Match: of.Match{of.Num(of.TunID, uint64(*s.SegmentationID))},
		Actions: []of.Action{of.PushVLAN(of.EtherVLAN), of.SetVLAN(uint16(vlan)), of.GotoTable(10)},
	})
}

// must is for flows that are the same but for their numbers: one that cannot be written is a mistake in this file.
func must(f of.Flow) of.Entry {
	e, err := f.Entry()
	if err != nil {
		panic(err)
	}
	return e
}

// addresses are those that a port may send from, besides its own.
func (p *port) addresses() []netip.Addr {
	m := p.mac
	out := []netip.Addr{netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})}
	for _, ip := range p.details.FixedIPs {
		out = append(out, ip.IP)
	}
	return out
}
