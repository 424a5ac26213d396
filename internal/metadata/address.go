// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Keys of a port's other_config, as the Python agent writes them.
const (
	ipKey  = "provider_ip"
	macKey = "provider_mac"
)

// gatewayMAC is that of Device.
var gatewayMAC = of.MAC{0xfa, 0x16, 0xee, 0, 0, 1}

// address is who a port is on the bridge of meta. Without an IP there was none left.
type address struct {
	ip  netip.Addr
	mac of.MAC
}

// provided gives out provider addresses. A port keeps the one that its row has, unless that is no provider address any more or another port has it.
type provided struct {
	cfg  Config
	used map[netip.Addr]string // by which port
	of   map[string]netip.Addr // by port
	// noted are the addresses in the rows of ports, by the row; nil: not read since.
	noted map[netip.Addr]ovsdb.UUID
}

// to returns the address of a port whose row is given.
func (p *provided) to(id string, view *ovsdb.View, row ovsdb.UUID) address {
	var config map[string]string
	if r := view.Port(row); r != nil {
		config = r.OtherConfig
	}
	ip, given := p.of[id] // else the row is about to say the same
	if !given {
		ip, _ = netip.ParseAddr(config[ipKey])
	}
	if by := p.used[ip]; !p.usable(ip) || by != "" && by != id {
		if p.noted == nil {
			p.noted = read(view)
		}
		ip = p.draw(id, row)
	}
	if !ip.IsValid() {
		return address{}
	}
	p.used[ip], p.of[id] = id, ip
	mac, err := neutron.ParseMAC(config[macKey])
	if m := of.MAC(mac); err == nil && m[0]&1 == 0 && m != (of.MAC{}) && m != gatewayMAC && m != extension.ServiceMAC() {
		return address{ip, m}
	}
	return address{ip, p.mac(ip)}
}

// release takes back the address of a port.
func (p *provided) release(id string) {
	if ip, given := p.of[id]; given {
		delete(p.used, ip)
		delete(p.of, id)
	}
}

// usable returns whether an address may be a VM's: not the network's, the proxy's or the broadcast address.
func (p *provided) usable(ip netip.Addr) bool {
	if !ip.Is4() || !p.cfg.CIDR.Contains(ip) {
		return false
	}
	n := p.offset(ip)
	return n > 1 && n < p.size()-1
}

// size returns how many addresses there are, with those that nobody gets.
func (p *provided) size() uint64 { return 1 << (32 - p.cfg.CIDR.Bits()) }

func (p *provided) offset(ip netip.Addr) uint64 {
	a, first := ip.As4(), p.cfg.CIDR.Masked().Addr().As4()
	return uint64(binary.BigEndian.Uint32(a[:]) - binary.BigEndian.Uint32(first[:]))
}

// draw returns an address that no port has, not even in its row. Where it looks first depends on the port's id alone.
func (p *provided) draw(id string, row ovsdb.UUID) netip.Addr {
	if p.size() < 4 {
		return netip.Addr{}
	}
	n := p.size() - 3
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	base := p.cfg.CIDR.Masked().Addr().As4()
	first := uint64(binary.BigEndian.Uint32(base[:]))
	for i := range n {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(first+2+(h.Sum64()%n+i)%n)) //nolint:gosec // within 32 bits: it is an address of the network
		ip := netip.AddrFrom4(a)
		if by, noted := p.noted[ip]; p.used[ip] == "" && (!noted || by == row) {
			return ip
		}
	}
	return netip.Addr{}
}

// mac returns the address on the bridge that goes with a provider address: the first octets of the base, then the number of the address.
func (p *provided) mac(ip netip.Addr) of.MAC {
	m, n := of.MAC(p.cfg.BaseMAC), p.offset(ip)
	m[4], m[5] = byte(n>>8), byte(n)
	if m[3] == 0 {
		m[3] = byte(n >> 16)
	}
	return m
}

// read returns the provider addresses that are written down in rows of ports.
func read(view *ovsdb.View) map[netip.Addr]ovsdb.UUID {
	out := map[netip.Addr]ovsdb.UUID{}
	for p := range view.Ports() {
		ip, err := netip.ParseAddr(p.OtherConfig[ipKey])
		if by, twice := out[ip]; err == nil && (!twice || p.UUID < by) {
			out[ip] = p.UUID
		}
	}
	return out
}
