// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"net/netip"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

const (
	etherIPv4 = 0x0800
	protoTCP  = 6
	request   = 1
	http      = 80

	// Priorities, as the Python agent has them. Those of the entry tables are above all others of a port.
	above, meta, translate = 200, 201, 202
)

// Tables of the bridge of meta, as the Python agent has them.
const (
	entry       = 0
	toProvider  = 80 // from a VM's address to its provider address
	toProxy     = 87
	answerARP   = 90
	toInstances = 91
)

// service is the address that VMs ask.
var service = netip.MustParseAddr("169.254.169.254")

func only(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip, ip.BitLen()) }

func ipv4(f of.Field, ip netip.Addr) of.Term { return of.IP(f, only(ip)) }

// tcp matches TCP over IPv4, from or to a port.
func tcp(port of.Field, number uint16, more ...of.Term) of.Match {
	return append(of.Match{of.Num(of.EthType, etherIPv4), of.Num(of.IPProto, protoTCP), of.Num(port, uint64(number))}, more...)
}

// Compile implements extension.Extension.
func (m *Metadata) Compile(o world.Object, want *pipeline.Want) {
	if id, ok := world.PortID(o); ok {
		m.compilePort(id, want)
	} else if br, ok := o.(world.BridgeObject); ok && string(br) == m.bridge() && m.w.View.BridgeByName(string(br)) != nil {
		m.compileBridge(string(br), want)
	}
}

// compileBridge adds the proxy's port, and the flows that do not depend on who asks. Everything from the proxy's port that is no answer to a VM is dropped.
func (m *Metadata) compileBridge(br string, want *pipeline.Want) {
	tag := int(m.cfg.VLAN)
	want.Rows = append(want.Rows, ovsdb.PortSpec{
		Bridge: br, Name: Device, Type: "internal", Tag: &tag, OtherConfig: map[string]string{"tag": strconv.Itoa(tag)},
		ExternalIDs: map[string]string{"iface-status": "active", "attached-mac": gatewayMAC.String()},
	})
	if !m.numbers.known() {
		return
	}
	n, device := m.numbers, of.FromPort(m.numbers.device)
	flow := func(reason string, table uint8, priority uint16, match of.Match, actions ...of.Action) {
		want.Flow(br, reason, of.Flow{Table: table, Priority: priority, Match: match, Actions: actions})
	}
	flow("metadata requests of VMs", entry, meta, tcp(of.TCPDst, http, of.FromPort(n.out), ipv4(of.IPv4Dst, service)), of.GotoTable(toProvider))
	flow("answers of the metadata proxy", entry, meta, of.Match{of.Num(of.EthType, etherIPv4), of.Num(of.IPProto, protoTCP), device},
		of.PushVLAN(of.EtherVLAN), of.SetVLAN(m.cfg.VLAN), of.GotoTable(toInstances))
	flow("who has a provider address", entry, meta, of.Match{of.Num(of.EthType, of.EtherARP), device}, of.GotoTable(answerARP))
	flow("what the metadata proxy's host sends besides", entry, above, of.Match{device})
	flow("to the metadata proxy", toProxy, translate, tcp(of.TCPDst, http, ipv4(of.IPv4Dst, service)),
		of.Set(of.EthDst, gatewayMAC.Value()), of.Set(of.IPv4Dst, of.Addr(m.cfg.Gateway())), of.Set(of.TCPDst, of.Uint(uint64(m.cfg.Port))), of.Output(n.device))
	flow("requests of nobody known here", toProvider, 0, nil)
	flow("what is no metadata request", toProxy, 0, nil)
	flow("provider addresses that no VM has", answerARP, 0, nil)
	flow("answers to nobody known here", toInstances, 0, nil)
}

// compilePort adds the way of a port to the proxy and back, and has ARP for the service's address answered. A request has to come by the port, and with its
// MAC and address; the Python agent sends on every packet of the port, and leaves it to the MAC, the address and the network to say whose it is.
func (m *Metadata) compilePort(id string, want *pipeline.Want) {
	p, at := m.ports[id], m.w.Port(id)
	if p == nil || !asks(at) || !p.ip.IsValid() {
		return
	}
	want.Rows = append(want.Rows, ovsdb.When{Ports: []ovsdb.UUID{at.VIF.Port}, Specs: []ovsdb.Spec{
		ovsdb.ConfigSpec{Port: at.VIF.Port, Set: map[string]string{ipKey: p.ip.String(), macKey: p.mac.String()}},
	}})
	if !m.numbers.known() {
		return
	}
	n, ofport, vlan, mac := m.numbers, of.FromPort(at.VIF.OFPort), at.Wiring.VLAN, hw(at.VIF.MAC)
	br, metaBridge, own := m.w.Config.IntegrationBridge, m.bridge(), p.client.Address
	want.Flow(br, "metadata requests of the port", of.Flow{
		Table: entry, Priority: above, Match: tcp(of.TCPDst, http, ofport, of.Untagged(), of.HW(of.EthSrc, mac), ipv4(of.IPv4Src, own), ipv4(of.IPv4Dst, service)),
		Actions: []of.Action{of.PushVLAN(of.EtherVLAN), of.SetVLAN(vlan), of.Output(n.in)},
	})
	want.Flow(br, "answers to metadata requests of the port", of.Flow{
		Table: entry, Priority: above,
		Match:   tcp(of.TCPSrc, http, of.FromPort(n.in), of.VLAN(vlan), of.HW(of.EthDst, mac), ipv4(of.IPv4Src, service), ipv4(of.IPv4Dst, own)),
		Actions: []of.Action{of.PopVLAN{}, of.Output(at.VIF.OFPort)},
	})
	m.answers(want, br, at.VIF.OFPort, p)
	want.Flow(metaBridge, "the port asks from its provider address", of.Flow{
		Table: toProvider, Priority: meta, Match: of.Match{of.Num(of.EthType, etherIPv4), of.VLAN(vlan), of.HW(of.EthSrc, mac), ipv4(of.IPv4Src, own)},
		Actions: []of.Action{of.PopVLAN{}, of.Set(of.EthSrc, p.mac.Value()), of.Set(of.IPv4Src, of.Addr(p.ip)), of.GotoTable(toProxy)},
	})
	want.Flow(metaBridge, "answer for the port's provider address", of.Flow{
		Table: answerARP, Priority: above, Match: of.Match{of.Num(of.EthType, of.EtherARP), of.Num(of.ARPOp, request), ipv4(of.ARPTPA, p.ip)},
		Actions: pipeline.ARPAnswer(p.mac, p.ip),
	})
	want.Flow(metaBridge, "answers to the port have the service's address", of.Flow{
		Table: toInstances, Priority: translate, Match: tcp(of.TCPSrc, m.cfg.Port, of.FromPort(n.device), of.VLAN(m.cfg.VLAN), ipv4(of.IPv4Dst, p.ip)),
		Actions: []of.Action{
			of.SetVLAN(vlan), of.Set(of.EthDst, mac.Value()), of.Set(of.IPv4Src, of.Addr(service)), of.Set(of.IPv4Dst, of.Addr(own)),
			of.Set(of.TCPSrc, of.Uint(http)), of.Output(n.out),
		},
	})
}

// answers adds the answers to ARP of a port: for the service's address, and for those of the network's DHCP ports, which a VM may have as its way there.
func (m *Metadata) answers(want *pipeline.Want, br string, ofport uint32, p *port) {
	answer := func(reason string, ip netip.Addr, mac of.MAC) {
		want.Flow(br, reason, of.Flow{
			Table: pipeline.TableTransient, Priority: extension.AboveAll,
			Match: of.Match{
				of.FromPort(ofport), of.Untagged(), of.Num(of.EthType, of.EtherARP), of.Num(of.ARPOp, request), ipv4(of.ARPTPA, ip),
			},
			Actions: pipeline.ARPAnswer(mac, ip),
		})
	}
	answer("answer for the metadata service's address", service, extension.ServiceMAC())
	for _, d := range m.networks[p.network].sorted() {
		for _, ip := range d.IPs {
			if ip != p.client.Address {
				answer("answer for the network's DHCP port, which may be the way to the metadata service", ip, hw(d.MAC))
			}
		}
	}
}
