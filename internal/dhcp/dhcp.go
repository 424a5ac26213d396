// SPDX-License-Identifier: Apache-2.0

// Package dhcp is the extension that answers the DHCP of ports on this host, in place of DHCP agents and their dnsmasq.
//
// The server is asked for the networks of ports here and for their subnets, and pushes their changes; the snapshot keeps both, so that a VM gets its
// address with the server away. Flows send DHCP packets of ports that get an answer, and of nobody else, to the agent (flows.go). An answer is a
// pure function of the port, its network, the subnets and the request: package datagram reads and writes packets, client.go knows what a port gets,
// answer4.go and answer6.go decide and write the answers, names.go has dnsmasq's names of options, which Neutron's extra_dhcp_opts use.
//
// The port by which a packet came says whose it is. What the packet says about its sender is only compared with that.
package dhcp

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// name is that in agent.extensions.
const name = "dhcp"

// DHCP is the extension. It belongs to the agent's loop.
type DHCP struct {
	w   *world.World
	cfg Config

	networks map[string]*network // of ports here that may be answered, by id
	recalled map[string]*network // from an earlier run
	ports    map[string]string   // networks of such ports, by id
	meters   *extension.PortMeters
	missing  map[extension.Item]bool
	dirty    map[world.Object]bool
	last     map[string]answered
}

// network is a network with its subnets.
type network struct {
	network neutron.Network
	subnets map[string]neutron.Subnet
	// Known: the server has told the network, and its subnets, or that there are none.
	known, listed bool
	pushed        bool // a subnet of it was pushed since they are asked for
	ports         map[string]bool
	// sought are subnets that a port names and nobody has told: they were asked for once more.
	sought map[string]bool
}

// request is what a client asked for.
type request struct {
	name string
	got  netip.Addr
}

// answered is the last packet of a port.
type answered struct {
	request
	outcome extension.Outcome
	at      time.Time
}

// New returns the maker of the extension.
func New(cfg Config) extension.New {
	return func(w *world.World) extension.Extension {
		return &DHCP{
			w: w, cfg: cfg, networks: map[string]*network{}, recalled: map[string]*network{}, ports: map[string]string{}, meters: extension.NewPortMeters(w, name),
			missing: map[extension.Item]bool{}, dirty: map[world.Object]bool{}, last: map[string]answered{},
		}
	}
}

// Name implements extension.Extension.
func (*DHCP) Name() string { return name }

// Resolve implements extension.Extension.
func (d *DHCP) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		if id, ok := world.PortID(o); ok {
			d.settle(id)
		}
	}
	if d.meters.Renewed() {
		for id := range d.ports {
			d.meters.Number(id)
			d.dirty[world.PortObject(id)] = true
		}
	}
	for id, n := range d.networks {
		if len(n.ports) == 0 {
			delete(d.networks, id)
			delete(d.missing, networkItem(id))
			delete(d.missing, subnetsItem(id))
		}
	}
	d.meters.Forget()
	return extension.TakeDirty(d.dirty)
}

// settle notes which network a port has.
func (d *DHCP) settle(id string) {
	p, before := d.w.Port(id), d.ports[id]
	next := ""
	if extension.IsGuest(p) {
		next = p.Details.NetworkID
	}
	if next != before {
		if n := d.networks[before]; n != nil {
			delete(n.ports, id)
		}
		delete(d.ports, id)
	}
	if next == "" {
		d.meters.Release(id)
		delete(d.last, id)
		return
	}
	d.ports[id] = next
	n := d.use(next)
	n.ports[id] = true
	d.seek(n, p.Details)
	d.meters.Number(id)
}

// seek asks for the subnets of a network once more if a port names one that is not among them: its push may have been missed.
func (d *DHCP) seek(n *network, p *neutron.Port) {
	for _, ip := range p.FixedIPs {
		if _, known := n.subnets[ip.SubnetID]; n.listed && !known && !n.sought[ip.SubnetID] {
			n.sought[ip.SubnetID] = true
			d.missing[subnetsItem(p.NetworkID)] = true
		}
	}
}

// use returns a network, which is asked for if it is new here.
func (d *DHCP) use(id string) *network {
	n := d.networks[id]
	if n == nil {
		n = cmp.Or(world.TakeRecalled(d.w, d.recalled, id), &network{subnets: map[string]neutron.Subnet{}})
		n.ports, n.sought = map[string]bool{}, map[string]bool{}
		d.networks[id] = n
		d.missing[networkItem(id)], d.missing[subnetsItem(id)] = true, true
	}
	return n
}

// clientOf returns what answers to a port are made from; nil while it is not known, or if the port gets none.
func (d *DHCP) clientOf(id string) *client {
	n, p := d.networks[d.ports[id]], d.w.Port(id)
	if n == nil || !n.known || !n.listed || !extension.IsGuest(p) {
		return nil
	}
	c := &client{cfg: &d.cfg, mac: p.VIF.MAC, port: p.Details, network: &n.network}
	for _, id := range slices.Sorted(maps.Keys(n.subnets)) {
		c.subnets = append(c.subnets, n.subnets[id])
	}
	return c
}

// OnPacket implements extension.PacketHandler.
func (d *DHCP) OnPacket(p extension.Packet) ([]of.Message, extension.Outcome) {
	c := d.clientOf(p.Key)
	if c == nil || d.w.Port(p.Key).VIF.OFPort != p.InPort() || p.Bridge != d.w.Config.IntegrationBridge {
		return nil, extension.Refused // a flow of before, which is about to go
	}
	answer, r, outcome := c.answer(p.PacketIn.Packet)
	d.last[p.Key] = answered{r, outcome, d.w.Time}
	if answer == nil {
		return nil, outcome
	}
	return []of.Message{of.PacketOut{Packet: answer.Bytes(), Actions: []of.Action{of.Output(p.InPort())}}}, outcome
}

// answer returns the answer to a packet that came from the client's port; nil if it gets none.
func (c *client) answer(packet []byte) (*datagram.Frame, request, extension.Outcome) {
	f, err := datagram.Read(packet)
	switch {
	case err != nil:
		return nil, request{}, extension.Malformed
	case f.Src.Is4() && f.SrcPort == clientPort4 && f.DstPort == serverPort4:
		return answer4(c, &f)
	case f.Src.Is6() && f.SrcPort == clientPort6 && f.DstPort == serverPort6:
		return answer6(c, &f)
	}
	return nil, request{}, extension.Malformed
}
