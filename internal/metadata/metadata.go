// SPDX-License-Identifier: Apache-2.0

// Package metadata is the extension metadata_path: it leads the metadata requests of VMs on this host to a proxy on this host (package metaproxy), in place of
// metadata agents and their namespaces.
//
// Its inputs are ports of VMs, and the DHCP ports of their networks, which some VMs have as the way to the metadata service. Its outputs are flows
// of the integration bridge and of the bridge of physical network meta (flows.go), the rows of the proxy's port, the provider addresses of ports, which are
// kept in their rows (address.go), and the table of the proxy: which instance asks from which provider address.
//
// The port by which a packet came, the local VLAN, the MAC and the address say who asks. A packet that another VM sends under them never reaches the proxy.
package metadata

import (
	"net/netip"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// name is that in agent.extensions.
const name = "metadata_path"

// Physnet is the physical network whose bridge has the proxy's port.
const Physnet = "meta"

// Device is the proxy's port on that bridge.
const Device = "tap-meta"

// Config is what the extension reads of the options.
type Config struct {
	CIDR    netip.Prefix `json:"cidr"` // of provider addresses
	VLAN    uint16       `json:"vlan"` // of Device
	BaseMAC neutron.MAC  `json:"base_mac"`
	Port    uint16       `json:"port"` // that the proxy listens on
}

// Gateway returns the proxy's address: the first one.
func (c *Config) Gateway() netip.Addr { return c.CIDR.Masked().Addr().Next() }

// Metadata is the extension. It belongs to the agent's loop.
type Metadata struct {
	w   *world.World
	cfg Config

	ports    map[string]*port // of VMs that are served, by id
	provided provided
	networks map[string]*network // of these ports, by id
	recalled map[string]*network // from an earlier run
	missing  map[extension.Item]bool
	dirty    map[world.Object]bool
	numbers  numbers // when flows were compiled last
	service  *metaproxy.Service
	renew    bool // the service is another one
	state    metaproxy.State
}

// port is a port of a VM.
type port struct {
	network string
	address
	client metaproxy.Client
}

// numbers are ofports; 0: not known.
type numbers struct {
	device uint32 // of Device
	in     uint32 // of the integration bridge's patch to the bridge of meta
	out    uint32 // of its peer
}

func (n numbers) known() bool { return n.device != 0 && n.in != 0 && n.out != 0 }

// New returns the maker of the extension.
func New(cfg Config) extension.New {
	return func(w *world.World) extension.Extension {
		return &Metadata{
			w: w, cfg: cfg, ports: map[string]*port{}, provided: provided{cfg: cfg, used: map[netip.Addr]string{}, of: map[string]netip.Addr{}}, networks: map[string]*network{},
			recalled: map[string]*network{}, missing: map[extension.Item]bool{}, dirty: map[world.Object]bool{}, renew: true,
		}
	}
}

// Name implements extension.Extension.
func (*Metadata) Name() string { return name }

// bridge returns the bridge of the proxy's port.
func (m *Metadata) bridge() string { return m.w.Config.Physical[Physnet] }

// Resolve implements extension.Extension.
func (m *Metadata) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		if id, ok := world.PortID(o); ok {
			m.settle(id)
		}
	}
	br := m.bridge()
	now := numbers{m.w.OFPort(Device), m.w.OFPort(world.IntPatchName(br)), m.w.OFPort(world.PhysPatchName(br))}
	if now != m.numbers {
		m.numbers = now
		m.dirty[world.BridgeObject(br)] = true
		for id := range m.ports {
			m.dirty[world.PortObject(id)] = true
		}
	}
	for id, n := range m.networks {
		if len(n.ports) == 0 {
			delete(m.networks, id)
			delete(m.missing, dhcpPorts(id))
		}
	}
	if m.renew {
		m.service, m.renew = m.table(), false
	}
	m.provided.noted = nil
	return extension.TakeDirty(m.dirty)
}

// asks says whether a port is one whose VM may ask: wired, and an instance's.
func asks(p *world.Port) bool {
	return p != nil && p.Wiring.State == world.Wired && p.VIF != nil && p.VIF.OFPort != 0 && p.Details != nil &&
		strings.HasPrefix(p.Details.DeviceOwner, "compute:") && p.Details.DeviceID != ""
}

// source returns the address that the VM asks from: its first IPv4 address.
func source(p *neutron.Port) netip.Addr {
	for _, ip := range p.FixedIPs {
		if a := ip.IP; a.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// settle notes who a port is.
func (m *Metadata) settle(id string) {
	p, before := m.w.Port(id), m.ports[id]
	var next *port
	if asks(p) && source(p.Details).IsValid() {
		next = &port{
			network: p.Details.NetworkID, address: m.provided.to(id, m.w.View, p.VIF.Port),
			client: metaproxy.Client{Instance: p.Details.DeviceID, Project: p.Details.ProjectID, Address: source(p.Details)},
		}
	}
	if before != nil && (next == nil || next.network != before.network) {
		if n := m.networks[before.network]; n != nil {
			delete(n.ports, id)
		}
	}
	if next == nil {
		if before != nil {
			m.provided.release(id)
			m.renew = true
		}
		delete(m.ports, id)
		return
	}
	m.use(next.network).ports[id] = true
	m.ports[id], m.renew = next, m.renew || before == nil || *before != *next
}

// table returns what the proxy is to know.
func (m *Metadata) table() *metaproxy.Service {
	s := &metaproxy.Service{
		Device: Device, MAC: gatewayMAC, Address: netip.PrefixFrom(m.cfg.Gateway(), m.cfg.CIDR.Bits()), Port: m.cfg.Port, Clients: map[netip.Addr]metaproxy.Client{},
	}
	for _, p := range m.ports {
		if p.ip.IsValid() {
			s.Clients[p.ip] = p.client
		}
	}
	return s
}

// Service implements extension.Server.
func (m *Metadata) Service() *metaproxy.Service { return m.service }

// OnService implements extension.Server.
func (m *Metadata) OnService(s metaproxy.State) { m.state = s }

// hw turns Neutron's address into OpenFlow's.
func hw(m neutron.MAC) of.MAC { return of.MAC(m) }
