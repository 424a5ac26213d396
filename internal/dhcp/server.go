// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Kinds implements extension.PushHandler.
func (*DHCP) Kinds() []neutron.Kind { return []neutron.Kind{neutron.KindNetwork, neutron.KindSubnet} }

// OnPush implements extension.PushHandler.
func (d *DHCP) OnPush(p *neutron.Push) error {
	var errs []error // each object counts alone
	for _, o := range p.Objects {
		if p.Kind == neutron.KindNetwork {
			errs = append(errs, d.pushNetwork(p.Event, o))
		} else {
			errs = append(errs, d.pushSubnet(p.Event, o))
		}
	}
	return errors.Join(errs...)
}

func (d *DHCP) pushNetwork(event neutron.Event, o neutron.Primitive) error {
	var decoded neutron.Network
	if err := o.Decode(neutron.KindNetwork, &decoded); err != nil {
		return err
	}
	n := d.networks[decoded.ID]
	if n == nil || event == neutron.Deleted || n.known && decoded.Revision < n.network.Revision {
		return nil // a network goes when no port here has it any more
	}
	d.learnNetwork(n, &decoded)
	return nil
}

func (d *DHCP) learnNetwork(n *network, decoded *neutron.Network) {
	n.known, n.network = true, *decoded
	d.touch(n)
}

// touch has the ports of a network compiled again.
func (d *DHCP) touch(n *network) {
	for id := range n.ports {
		d.dirty[world.PortObject(id)] = true
	}
}

// pushSubnet takes what was pushed about a subnet. While subnets of the network are asked for, the answer may be older or newer than the push: it is
// merged, and asked for once more.
func (d *DHCP) pushSubnet(event neutron.Event, o neutron.Primitive) error {
	var decoded neutron.Subnet
	if err := o.Decode(neutron.KindSubnet, &decoded); err != nil {
		return err
	}
	n := d.networks[decoded.NetworkID]
	if n == nil {
		return nil
	}
	n.pushed = d.missing[subnetsItem(decoded.NetworkID)]
	have, known := n.subnets[decoded.ID]
	switch {
	case event == neutron.Deleted:
		delete(n.subnets, decoded.ID)
	case known && decoded.Revision < have.Revision:
		return nil
	default:
		n.subnets[decoded.ID] = decoded
	}
	d.touch(n)
	return nil
}

func networkItem(id string) extension.Item {
	return extension.Item{Kind: neutron.KindNetwork, ID: id}
}

func subnetsItem(network string) extension.Item {
	return extension.Item{Kind: neutron.KindSubnet, ID: network, By: "network_id"}
}

// Resync implements extension.Resyncer.
func (d *DHCP) Resync() {
	for id, n := range d.networks {
		d.missing[networkItem(id)], d.missing[subnetsItem(id)], n.pushed = true, true, false
	}
}

// Missing implements extension.Puller.
func (d *DHCP) Missing() []extension.Item { return extension.Sorted(d.missing) }

// OnPulled implements extension.Puller.
func (d *DHCP) OnPulled(kind neutron.Kind, asked []string, found []neutron.Primitive) error {
	if kind == neutron.KindNetwork {
		return d.networksPulled(asked, found)
	}
	return d.subnetsPulled(asked, found)
}

func (d *DHCP) networksPulled(asked []string, found []neutron.Primitive) error {
	decoded, err := neutron.DecodeAll[neutron.Network](neutron.KindNetwork, found)
	for i := range decoded {
		if n := d.networks[decoded[i].ID]; n != nil && (!n.known || decoded[i].Revision >= n.network.Revision) {
			d.learnNetwork(n, &decoded[i])
		}
	}
	if err != nil {
		return err // what cannot be read is asked for again
	}
	for _, id := range asked {
		delete(d.missing, networkItem(id))
		if n := d.networks[id]; n != nil && !n.known { // gone, and so will be its ports
			d.learnNetwork(n, &neutron.Network{ID: id})
		}
	}
	return nil
}

func (d *DHCP) subnetsPulled(asked []string, found []neutron.Primitive) error {
	decoded, err := neutron.DecodeAll[neutron.Subnet](neutron.KindSubnet, found)
	if err != nil {
		return err
	}
	byNetwork := map[string][]neutron.Subnet{}
	for _, s := range decoded {
		byNetwork[s.NetworkID] = append(byNetwork[s.NetworkID], s)
	}
	for _, id := range asked {
		n := d.networks[id]
		if n == nil || !d.missing[subnetsItem(id)] {
			continue
		}
		before, pushed := n.subnets, n.pushed
		n.listed, n.pushed, n.subnets = true, false, map[string]neutron.Subnet{}
		if pushed { // asked for once more, and that answer counts
			n.subnets = before
		} else {
			delete(d.missing, subnetsItem(id))
		}
		for _, s := range byNetwork[id] {
			if s.Revision >= n.subnets[s.ID].Revision {
				n.subnets[s.ID] = s
			}
		}
		d.touch(n)
	}
	return nil
}

// memory is what goes into the snapshot.
type memory struct {
	Networks []neutron.Network `json:"networks"`
	Subnets  []neutron.Subnet  `json:"subnets"`
}

// Save implements extension.Saver.
func (d *DHCP) Save() any {
	var m memory
	for _, id := range slices.Sorted(maps.Keys(d.networks)) {
		n := d.networks[id]
		if !n.known || !n.listed {
			continue
		}
		m.Networks = append(m.Networks, n.network)
		for _, s := range slices.Sorted(maps.Keys(n.subnets)) {
			m.Subnets = append(m.Subnets, n.subnets[s])
		}
	}
	return m
}

// Load implements extension.Saver.
func (d *DHCP) Load(data json.RawMessage) error {
	var m memory
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	for _, n := range m.Networks {
		d.recalled[n.ID] = &network{network: n, subnets: map[string]neutron.Subnet{}, known: true, listed: true}
	}
	for _, s := range m.Subnets {
		if n := d.recalled[s.NetworkID]; n != nil {
			n.subnets[s.ID] = s
		}
	}
	return nil
}
