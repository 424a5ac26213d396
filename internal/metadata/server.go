// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// dhcpOwner is the device_owner of DHCP ports.
const dhcpOwner = "network:dhcp"

// network is what is known of a network: its DHCP ports.
type network struct {
	dhcp   map[string]dhcpPort // by id
	pushed bool                // one was pushed since they are asked for
	ports  map[string]bool     // of VMs here
}

// dhcpPort is a DHCP port of a network, of any host.
type dhcpPort struct {
	ID       string       `json:"id"`
	Revision int64        `json:"revision"`
	MAC      neutron.MAC  `json:"mac"`
	IPs      []netip.Addr `json:"ips"` // IPv4
}

// sorted returns the DHCP ports, in a stable order.
func (n *network) sorted() []dhcpPort {
	if n == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(n.dhcp), func(a, b dhcpPort) int { return cmp.Compare(a.ID, b.ID) })
}

func dhcpPortOf(p *neutron.Port) dhcpPort {
	out := dhcpPort{ID: p.ID, Revision: p.Revision, MAC: p.MAC}
	for _, ip := range p.FixedIPs {
		if ip.IP.Is4() {
			out.IPs = append(out.IPs, ip.IP)
		}
	}
	return out
}

// use returns a network, whose DHCP ports are asked for if it is new here.
func (m *Metadata) use(id string) *network {
	n := m.networks[id]
	if n == nil {
		n = cmp.Or(m.recalled[id], &network{dhcp: map[string]dhcpPort{}})
		delete(m.recalled, id)
		n.ports = map[string]bool{}
		m.networks[id] = n
		m.missing[dhcpPorts(id)] = true
	}
	return n
}

// touch has the ports of a network compiled again.
func (m *Metadata) touch(n *network) {
	for id := range n.ports {
		m.dirty[world.PortObject(id)] = true
	}
}

// Kinds implements extension.PushHandler.
func (*Metadata) Kinds() []neutron.Kind { return []neutron.Kind{neutron.KindPort} }

// OnPush implements extension.PushHandler. Of the ports of all hosts only those are decoded that may be DHCP ports.
func (m *Metadata) OnPush(p *neutron.Push) error {
	var errs []error // each object counts alone
	for _, o := range p.Objects {
		if bytes.Contains(o.Data, []byte(dhcpOwner)) {
			errs = append(errs, m.pushed(p.Event, o))
		}
	}
	return errors.Join(errs...)
}

// pushed takes what was pushed about a DHCP port. While those of the network are asked for, the answer may be older or newer than the push: it is
// merged, and asked for once more.
func (m *Metadata) pushed(event neutron.Event, o neutron.Primitive) error {
	var decoded neutron.Port
	if err := o.Decode(neutron.KindPort, &decoded); err != nil {
		return err
	}
	n := m.networks[decoded.NetworkID]
	if n == nil || decoded.DeviceOwner != dhcpOwner {
		return nil
	}
	n.pushed = m.missing[dhcpPorts(decoded.NetworkID)]
	have, known := n.dhcp[decoded.ID]
	switch {
	case event == neutron.Deleted:
		delete(n.dhcp, decoded.ID)
	case known && decoded.Revision < have.Revision:
		return nil
	default:
		n.dhcp[decoded.ID] = dhcpPortOf(&decoded)
	}
	m.touch(n)
	return nil
}

// dhcpPorts asks for the DHCP ports of a network.
func dhcpPorts(network string) extension.Item {
	return extension.Item{Kind: neutron.KindPort, ID: network, By: "network_id&device_owner=" + dhcpOwner}
}

// Resync implements extension.Resyncer.
func (m *Metadata) Resync() {
	for id, n := range m.networks {
		m.missing[dhcpPorts(id)], n.pushed = true, false
	}
}

// Missing implements extension.Puller.
func (m *Metadata) Missing() []extension.Item { return extension.Sorted(m.missing) }

// OnPulled implements extension.Puller.
func (m *Metadata) OnPulled(kind neutron.Kind, asked []string, found []neutron.Primitive) error {
	decoded, err := neutron.DecodeAll[neutron.Port](kind, found)
	if err != nil {
		return err
	}
	byNetwork := map[string][]dhcpPort{}
	for i := range decoded {
		if p := &decoded[i]; p.DeviceOwner == dhcpOwner {
			byNetwork[p.NetworkID] = append(byNetwork[p.NetworkID], dhcpPortOf(p))
		}
	}
	for _, id := range asked {
		n := m.networks[id]
		if n == nil || !m.missing[dhcpPorts(id)] {
			continue
		}
		before, pushed := n.dhcp, n.pushed
		n.pushed, n.dhcp = false, map[string]dhcpPort{}
		if pushed { // asked for once more, and that answer counts
			n.dhcp = before
		} else {
			delete(m.missing, dhcpPorts(id))
		}
		for _, p := range byNetwork[id] {
			if p.Revision >= n.dhcp[p.ID].Revision {
				n.dhcp[p.ID] = p
			}
		}
		m.touch(n)
	}
	return nil
}

// Save implements extension.Saver: the DHCP ports of each network. Ports are in the agent's own memory, and provider addresses in their rows.
func (m *Metadata) Save() any {
	out := map[string][]dhcpPort{}
	for id, n := range m.networks {
		out[id] = n.sorted()
	}
	return out
}

// Load implements extension.Saver.
func (m *Metadata) Load(data json.RawMessage) error {
	var saved map[string][]dhcpPort
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	for id, list := range saved {
		n := &network{dhcp: map[string]dhcpPort{}}
		for _, p := range list {
			n.dhcp[p.ID] = p
		}
		m.recalled[id] = n
	}
	return nil
}
