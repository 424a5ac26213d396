// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// The server tells where addresses are on other hosts only to an agent that reports its ports up, and telling us would be
// an effect on it. The flows of the agent that runs here are what it was told: they are read back. What they say wrongly,
// or do not say, is not found by a plan.

// Tables of the tunnel bridge that hold forwarding entries. They are a contract between agents.
const (
	unicastTable   = 20
	responderTable = 21
	floodTable     = 22
)

// endpoints are those of the tunnels that are there, by the number of their port.
func endpoints(v *ovsdb.View, cfg *world.Config) map[uint32]world.Endpoint {
	out := map[uint32]world.Endpoint{}
	for i := range v.Interfaces() {
		p := v.PortOf(i.UUID)
		if p == nil || i.OFPort == nil || *i.OFPort <= 0 {
			continue
		}
		ip, err := netip.ParseAddr(i.Options["remote_ip"])
		if b := v.BridgeOf(p.UUID); err == nil && b != nil && b.Name == cfg.TunnelBridge {
			kind := i.Type
			if kind == "ip6gre" {
				kind = "gre"
			}
			out[uint32(*i.OFPort)] = world.Endpoint{Type: kind, IP: ip}
		}
	}
	return out
}

// entries reads forwarding entries from flows, one message a segment, and counts them.
func entries(v *ovsdb.View, cfg *world.Config, at map[uint32]world.Endpoint, flows []openflow.Entry) ([]neutron.FDBAdd, int) {
	found := map[uint16]*heard{}
	of := func(vlan uint16) *heard {
		if found[vlan] == nil {
			found[vlan] = &heard{flood: map[netip.Addr]bool{}, at: map[neutron.MAC]netip.Addr{}, ips: map[neutron.MAC][]netip.Addr{}}
		}
		return found[vlan]
	}
	for _, e := range flows {
		f, err := e.Flow()
		vlan, tagged := f.Match.Lookup(openflow.VLANVID)
		if err != nil || !tagged || f.HardTimeout != 0 || f.IdleTimeout != 0 || f.Priority == 0 {
			continue // learned from packets, or no entry
		}
		h := of(uint16(vlan.Value.Lo &^ openflow.VLANPresent))
		switch f.Table {
		case floodTable:
			for _, to := range outputs(f.Actions, at) {
				h.flood[to] = true
			}
		case unicastTable:
			dst, ok := f.Match.Lookup(openflow.EthDst)
			if to := outputs(f.Actions, at); ok && len(to) == 1 {
				h.at[mac(dst.Value)] = to[0]
			}
		case responderTable:
			ip, ok := f.Match.Lookup(openflow.ARPTPA)
			if m, known := answers(f.Actions); ok && known {
				var b [4]byte
				binary.BigEndian.PutUint32(b[:], uint32(ip.Value.Lo))
				h.ips[m] = append(h.ips[m], netip.AddrFrom4(b))
			}
		}
	}
	var out []neutron.FDBAdd
	n := 0
	done := map[uint16]bool{}
	for p := range v.Ports() {
		id, err := strconv.Atoi(p.OtherConfig["segmentation_id"])
		b := v.BridgeOf(p.UUID)
		if p.Tag == nil || err != nil || b == nil || b.Name != cfg.IntegrationBridge || done[uint16(*p.Tag)] {
			continue
		}
		done[uint16(*p.Tag)] = true
		if h := found[uint16(*p.Tag)]; h != nil {
			ports, count := h.ports()
			n += count
			out = append(out, neutron.FDBAdd{Networks: map[string]neutron.FDBNetwork{p.OtherConfig["net_uuid"]: {
				NetworkType: p.OtherConfig["network_type"], SegmentationID: &id, Ports: ports,
			}}})
		}
	}
	return out, n
}

// heard is what the flows of one VLAN say.
type heard struct {
	flood map[netip.Addr]bool
	at    map[neutron.MAC]netip.Addr
	ips   map[neutron.MAC][]netip.Addr
}

func (h *heard) ports() (map[netip.Addr][]neutron.FDBEntry, int) {
	out, n := map[netip.Addr][]neutron.FDBEntry{}, 0
	add := func(endpoint netip.Addr, e neutron.FDBEntry) {
		out[endpoint] = append(out[endpoint], e)
		n++
	}
	for endpoint := range h.flood {
		add(endpoint, neutron.FDBEntry{IP: netip.IPv4Unspecified()})
	}
	for m, endpoint := range h.at {
		for _, ip := range h.ips[m] {
			add(endpoint, neutron.FDBEntry{MAC: m, IP: ip})
		}
		if len(h.ips[m]) == 0 {
			// Its addresses do not show. For an IPv6 address nothing is answered, so any of these stands for them.
			add(endpoint, neutron.FDBEntry{MAC: m, IP: netip.IPv6Unspecified()})
		}
	}
	return out, n
}

// outputs are the endpoints that actions send to.
func outputs(actions []openflow.Action, at map[uint32]world.Endpoint) []netip.Addr {
	var out []netip.Addr
	for _, a := range actions {
		if port, ok := a.(openflow.Output); ok {
			if e, known := at[uint32(port)]; known {
				out = append(out, e.IP)
			}
		}
	}
	return out
}

// answers is the address that a flow answers ARP requests with.
func answers(actions []openflow.Action) (neutron.MAC, bool) {
	for _, a := range actions {
		switch a := a.(type) {
		case openflow.SetField:
			if a.Field == openflow.ARPSHA {
				return mac(a.Value), true
			}
		case openflow.Load:
			if a.To.Field == openflow.ARPSHA {
				return mac(openflow.Uint(a.Value)), true
			}
		}
	}
	return neutron.MAC{}, false
}

func mac(v openflow.Value) neutron.MAC {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v.Lo)
	return neutron.MAC(b[2:])
}
