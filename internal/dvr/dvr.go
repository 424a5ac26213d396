// SPDX-License-Identifier: Apache-2.0

// Package dvr is distributed routing: what the switch needs so that a router can be on every host at once.
//
// Each host has a router's interface with the same address, so that address must never be seen outside of the host. Packets
// that a router sends leave the host with an address of the host's own (its router address, which the server gives out)
// as their sender, and where they arrive the gateway's takes its place again. Requests for the gateway stay on the host.
//
// It is an extension (see package extension and docs/tutorial/first-extension.md), loaded by [agent] enable_distributed_routing. Its inputs
// are the ports of the world, the router addresses of all hosts, and for a subnet whose gateway is not on this host the
// gateway's address. Its outputs are flows: flows.go has them all. It asks the server as little as it can: what ports of a
// subnet are here, and the address of a gateway that is here, the world knows.
package dvr

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

const name = "dvr"

// routing is the extension.
type routing struct {
	w *world.World

	mac     neutron.MAC          // this host's router address; zero until the server has said it
	macs    map[neutron.MAC]bool // those of other hosts
	current bool                 // the list is the server's, and every change of it is heard

	ports   map[string]role    // what ports are to routing, by id
	subnets map[string]*subnet // with a router's interface or a SNAT port here
	marked  map[world.Object]bool
}

// role is what a port is to routing.
type role struct {
	part    part
	mac     neutron.MAC
	subnets []string
}

type part uint8

const (
	none     part = iota
	gateway       // a router's interface, the same on every host
	snat          // where a router's packets leave for the outside
	serviced      // routed for
)

// subnet is one with ports of any part here.
type subnet struct {
	ports map[string]bool
	// pulled is the address of the gateway as the server says it; needed where it does not show from the ports here.
	pulled   neutron.MAC
	answered bool

	owned bool // by a router's interface here
	mac   neutron.MAC
}

// New makes the extension.
func New(w *world.World) extension.Extension {
	return &routing{w: w, macs: map[neutron.MAC]bool{}, ports: map[string]role{}, subnets: map[string]*subnet{}, marked: map[world.Object]bool{}}
}

// Name implements extension.Extension.
func (*routing) Name() string { return name }

// Topics implements extension.CastHandler: every agent has the topic already.
func (*routing) Topics() []string { return nil }

// OnCast implements extension.CastHandler.
func (r *routing) OnCast(method string, args []byte) error {
	if method != "dvr_mac_address_update" {
		return nil
	}
	var m neutron.DVRUpdate
	if err := json.Unmarshal(args, &m); err != nil {
		return fmt.Errorf("decoding %s: %w", method, err)
	}
	r.learn(m.MACs)
	r.current = true
	return nil
}

// learn takes the router addresses of all hosts.
func (r *routing) learn(all []neutron.DVRMAC) {
	macs := map[neutron.MAC]bool{}
	for _, m := range all {
		if m.Host == r.w.Config.Host {
			r.setMAC(m.MAC)
		} else {
			macs[m.MAC] = true
		}
	}
	for mac := range macs {
		if !r.macs[mac] {
			r.marked[own.Object(mac)] = true
		}
	}
	for mac := range r.macs {
		if !macs[mac] {
			r.marked[own.Object(mac)] = true
		}
	}
	r.macs = macs
}

func (r *routing) setMAC(mac neutron.MAC) {
	if mac == r.mac {
		return
	}
	r.mac = mac
	for _, bridge := range r.w.Bridges() {
		r.marked[world.BridgeObject(bridge)] = true
	}
	for id := range r.ports {
		r.marked[world.PortObject(id)] = true
	}
}

// own names the extension's own objects: the router addresses of other hosts.
const own extension.Objects[neutron.MAC] = name

// Resync implements extension.Resyncer.
func (r *routing) Resync() {
	r.current = false
	for _, s := range r.subnets {
		s.answered = false
	}
}

// Resolve implements extension.Extension.
func (r *routing) Resolve(changed []world.Object) []world.Object {
	touched := map[string]bool{}
	for _, o := range changed {
		switch o := o.(type) {
		case world.PortObject:
			r.resolvePort(string(o), touched)
		case world.BridgeObject:
			// The patches may have other numbers.
			for mac := range r.macs {
				r.marked[own.Object(mac)] = true
			}
			for id := range r.ports {
				r.marked[world.PortObject(id)] = true
			}
		}
	}
	for id := range touched {
		r.resolveSubnet(id)
	}
	out := slices.Collect(maps.Keys(r.marked))
	clear(r.marked)
	return out
}

// resolvePort decides anew what a port is to routing.
func (r *routing) resolvePort(id string, touched map[string]bool) {
	before, now := r.ports[id], r.roleOf(r.w.Port(id))
	if now.part == none && before.part == none {
		return
	}
	for _, s := range before.subnets {
		touched[s] = true
		delete(r.subnets[s].ports, id)
	}
	for _, s := range now.subnets {
		touched[s] = true
		if r.subnets[s] == nil {
			r.subnets[s] = &subnet{ports: map[string]bool{}}
		}
		r.subnets[s].ports[id] = true
	}
	if now.part == none {
		delete(r.ports, id)
	} else {
		r.ports[id] = now
	}
}

// Owners of ports that matter.
const (
	ownerGateway = "network:router_interface_distributed"
	ownerSNAT    = "network:router_centralized_snat"
)

// servicedOwners are routed for besides ports of VMs.
var servicedOwners = []string{"network:dhcp", "neutron:LOADBALANCER", "neutron:LOADBALANCERV2", "trunk:subport"}

func (r *routing) roleOf(p *world.Port) role {
	if p == nil || p.Wiring.State != world.Wired || p.Details == nil || len(p.Details.FixedIPs) == 0 {
		return role{}
	}
	if s := r.w.Segments.Get(p.Wiring.Segment); s == nil || s.Type == "local" {
		return role{}
	}
	out := role{mac: p.VIF.MAC}
	switch owner := p.Details.DeviceOwner; {
	case owner == ownerGateway:
		out.part = gateway
	case owner == ownerSNAT:
		out.part = snat
	case neutron.IsComputeOwned(owner), slices.Contains(servicedOwners, owner):
		out.part = serviced
		for _, ip := range p.Details.FixedIPs {
			out.subnets = append(out.subnets, ip.SubnetID)
		}
		return out
	default:
		return role{}
	}
	out.subnets = []string{p.Details.FixedIPs[0].SubnetID} // an interface of a router has one address
	return out
}

// resolveSubnet works out whether a subnet is routed here, and which address its gateway has.
func (r *routing) resolveSubnet(id string) {
	s := r.subnets[id]
	gateways, central := r.gateways(s)
	owned, mac := len(gateways) > 0, neutron.MAC{}
	switch {
	case len(gateways) == 1:
		mac = gateways[0]
	case len(gateways) > 1 && slices.Contains(gateways, s.pulled):
		mac = s.pulled
	case len(gateways) > 1:
		mac = slices.MinFunc(gateways, func(a, b neutron.MAC) int { return slices.Compare(a[:], b[:]) })
	case central:
		if mac = s.pulled; mac == (neutron.MAC{}) && !s.answered {
			mac = s.mac // what it was, until the server has said
		}
	}
	if s.answered && s.pulled == (neutron.MAC{}) {
		s.answered = false // the server may know it now
	}
	if owned != s.owned || mac != s.mac {
		s.owned, s.mac = owned, mac
		for id := range s.ports {
			r.marked[world.PortObject(id)] = true
		}
	}
	if len(s.ports) == 0 {
		delete(r.subnets, id)
	}
}

// gateways lists the addresses of routers' interfaces of a subnet here, and says whether a SNAT port of it is here.
func (r *routing) gateways(s *subnet) (macs []neutron.MAC, central bool) {
	for id := range s.ports {
		switch p := r.ports[id]; p.part {
		case gateway:
			macs = append(macs, p.mac)
		case snat:
			central = true
		}
	}
	return macs, central
}

// AddState implements extension.StateReporter.
func (r *routing) AddState(c *neutron.Configurations) { c.InDistributedMode = r.mac != (neutron.MAC{}) }

// memory is what goes into the snapshot.
type memory struct {
	MAC      neutron.MAC            `json:"mac"`
	Others   []neutron.MAC          `json:"others"`
	Gateways map[string]neutron.MAC `json:"gateways,omitempty"`
}

// Save implements extension.Saver.
func (r *routing) Save() any {
	m := memory{MAC: r.mac, Gateways: map[string]neutron.MAC{}}
	m.Others = slices.SortedFunc(maps.Keys(r.macs), func(a, b neutron.MAC) int { return slices.Compare(a[:], b[:]) })
	for id, s := range r.subnets {
		// Also of one that is here: it may be gone at the next start, and the server away. Not what an earlier run knew and nobody
		// needs any more.
		if mac := cmp.Or(s.pulled, s.mac); mac != (neutron.MAC{}) && len(s.ports) > 0 {
			m.Gateways[id] = mac
		}
	}
	return m
}

// Load implements extension.Saver.
func (r *routing) Load(data json.RawMessage) error {
	var m memory
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	r.setMAC(m.MAC)
	for _, mac := range m.Others {
		r.macs[mac] = true
		r.marked[own.Object(mac)] = true
	}
	for id, mac := range m.Gateways {
		r.subnets[id] = &subnet{ports: map[string]bool{}, pulled: mac}
	}
	return nil
}

// Explain implements extension.Explainer.
func (r *routing) Explain(o world.Object) []string {
	id, _ := world.PortID(o)
	p := r.ports[id]
	if p.part == none {
		return nil
	}
	if r.mac == (neutron.MAC{}) {
		return []string{"distributed routing: the server has not told this host's router address yet"}
	}
	var out []string
	for _, id := range p.subnets {
		s := r.subnets[id]
		switch {
		case p.part == gateway:
			out = append(out, fmt.Sprintf("distributed routing: the gateway of subnet %s on this host; its packets leave the host as %s", id, r.mac))
		case p.part == snat && s.mac == (neutron.MAC{}):
			out = append(out, fmt.Sprintf("distributed routing: the server has not told the gateway of subnet %s", id))
		case p.part == snat:
			out = append(out, fmt.Sprintf("distributed routing: packets of subnet %s leave for the outside here; its gateway is %s", id, s.mac))
		case s.owned:
			out = append(out, fmt.Sprintf("distributed routing: routed packets of subnet %s reach it as from its gateway %s", id, s.mac))
		}
	}
	return out
}
