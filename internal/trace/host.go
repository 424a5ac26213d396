// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/tables"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// Interface is an interface of a bridge, as the switch's database has it.
type Interface struct {
	Bridge string
	Name   string
	Type   string // patch, vxlan, internal …; empty for a device of the system
	OFPort int    // 0 or less when the switch has none
	Error  string
	Tag    int // 0 for none
	// Wanted, Network, PhysicalNetwork and NetworkType are what an agent has written down on the port: its VLAN and its network.
	Wanted      int
	Network     string
	NetworkType string
	Physical    string
	Segment     int
	// PortID and MAC are what the one who plugged it in has written down.
	PortID string
	MAC    string
	Peer   string // of a patch
	Remote string // other end of a tunnel
	Local  string // this end of it
	MTU    int
	Down   string // why it carries nothing: switched off, no carrier
}

// Host is what is known about a host: the switch's interfaces, and what its agent says about itself.
type Host struct {
	Interfaces []Interface
	// Live: an agent has answered. Without one there are only the flows, with no owner and no reason.
	Live     bool
	Ports    []inspect.Port
	Networks []inspect.Network
	Tunnels  []inspect.Tunnel
	Groups   []inspect.Group
	Bridges  []inspect.Bridge
	Flows    []inspect.Flow
	// Member tells whether an address is in an IP set of the host, and whether that is known; nil: nothing is.
	Member func(set string, a netip.Addr) (in, known bool)
}

// Source is what is asked of an agent.
type Source interface {
	Ports(ctx context.Context) ([]inspect.Port, error)
	Networks(ctx context.Context) ([]inspect.Network, error)
	Tunnels(ctx context.Context) ([]inspect.Tunnel, error)
	Groups(ctx context.Context) ([]inspect.Group, error)
	Bridges(ctx context.Context) ([]inspect.Bridge, error)
	Flows(ctx context.Context, bridge string) ([]inspect.Flow, error)
}

// Ask fills in what an agent says.
func (h *Host) Ask(ctx context.Context, from Source) error {
	var err error
	if h.Ports, err = from.Ports(ctx); err != nil {
		return err
	}
	if h.Networks, err = from.Networks(ctx); err != nil {
		return err
	}
	if h.Tunnels, err = from.Tunnels(ctx); err != nil {
		return err
	}
	if h.Groups, err = from.Groups(ctx); err != nil {
		return err
	}
	if h.Bridges, err = from.Bridges(ctx); err != nil {
		return err
	}
	if h.Flows, err = from.Flows(ctx, ""); err != nil {
		return err
	}
	h.Live = true
	return nil
}

// Remember makes up for interfaces that cannot be looked at with what the agent knows of them.
func (h *Host) Remember() {
	for i := range h.Ports {
		if p := &h.Ports[i]; p.Interface != "" {
			h.Interfaces = append(h.Interfaces, Interface{
				Bridge: h.bridgeOf(tables.Integration), Name: p.Interface, OFPort: int(p.OFPort), Tag: int(p.VLAN), Wanted: int(p.VLAN),
				Network: p.Network, PortID: p.ID, MAC: p.MAC,
			})
		}
	}
}

// bridgeOf is the name of the bridge that plays a part.
func (h *Host) bridgeOf(kind tables.Kind) string {
	for _, b := range h.Bridges {
		if b.Role == "integration" && kind == tables.Integration || b.Role == "tunnel" && kind == tables.Tunnel {
			return b.Name
		}
	}
	if kind == tables.Tunnel {
		return "br-tun"
	}
	return "br-int"
}

// kindOf is the part that a bridge plays.
func (h *Host) kindOf(bridge string) tables.Kind {
	for _, b := range h.Bridges {
		if b.Name != bridge {
			continue
		}
		switch b.Role {
		case "integration":
			return tables.Integration
		case "tunnel":
			return tables.Tunnel
		}
	}
	return tables.KindOf(bridge)
}

// Ours lists the bridges that belong to the pipeline.
func (h *Host) Ours() []string {
	names := []string{h.bridgeOf(tables.Integration), h.bridgeOf(tables.Tunnel)}
	for _, b := range h.Bridges {
		names = append(names, b.Name)
	}
	for _, i := range h.Interfaces { // a bridge that is patched to the integration bridge
		if p := h.named(i.Peer); i.Type == "patch" && i.Bridge == names[0] && p != nil {
			names = append(names, p.Bridge)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(n string) bool {
		return !slices.ContainsFunc(h.Interfaces, func(i Interface) bool { return i.Bridge == n })
	})
}

func (h *Host) named(name string) *Interface {
	for i := range h.Interfaces {
		if h.Interfaces[i].Name == name && name != "" {
			return &h.Interfaces[i]
		}
	}
	return nil
}

// numbered finds the interface that is a port of a bridge.
func (h *Host) numbered(bridge string, ofport int) *Interface {
	for i := range h.Interfaces {
		if h.Interfaces[i].Bridge == bridge && h.Interfaces[i].OFPort == ofport && ofport > 0 {
			return &h.Interfaces[i]
		}
	}
	return nil
}

// plugged finds the interface of a port. The ports of a trunk have several: that on the integration bridge is it.
func (h *Host) plugged(id string) *Interface {
	best, bestRank := -1, -1
	for i := range h.Interfaces {
		p := &h.Interfaces[i]
		rank := 0
		if p.OFPort > 0 {
			rank++
		}
		if p.Bridge == h.bridgeOf(tables.Integration) {
			rank += 2
		}
		if p.PortID == id && id != "" && rank > bestRank {
			best, bestRank = i, rank
		}
	}
	if best < 0 {
		return nil
	}
	return &h.Interfaces[best]
}

// behind finds the VM's interface behind a patch that stands for a port of a trunk, and the VLAN under which the VM speaks there;
// 0 for none. It returns nil for any other interface.
func (h *Host) behind(i *Interface) (device *Interface, vlan int) {
	if i == nil || i.Type != "patch" {
		return nil, 0
	}
	peer := h.named(i.Peer)
	if peer == nil || i.PortID == "" {
		return nil, 0
	}
	for k := range h.Interfaces {
		if d := &h.Interfaces[k]; d.Bridge == peer.Bridge && d.Type != "patch" && d.PortID != "" {
			return d, peer.Tag
		}
	}
	return nil, 0
}

func (h *Host) group(id string) *inspect.Group {
	for i := range h.Groups {
		if h.Groups[i].ID == id {
			return &h.Groups[i]
		}
	}
	return nil
}

func (h *Host) network(id string) *inspect.Network {
	for i := range h.Networks {
		if h.Networks[i].ID == id {
			return &h.Networks[i]
		}
	}
	return nil
}

// groupName is the name of a group if it is known, else its id.
func (h *Host) groupName(id string) string {
	if g := h.group(id); g != nil && g.Name != "" {
		return g.Name
	}
	return id
}

// portName is what people call a port.
func portName(p *inspect.Port) string {
	return cmp.Or(p.Name, short(p.ID))
}

// short is enough of an id to tell it from others on a host.
func short(id string) string {
	if len(id) == 36 {
		return id[:8]
	}
	return id
}

// Named puts names in place of the ids of groups and ports that have one.
func (h *Host) Named(text string) string {
	for _, g := range h.Groups {
		if g.Name != "" {
			text = strings.ReplaceAll(text, g.ID, g.Name)
		}
	}
	for _, p := range h.Ports {
		if p.Name != "" {
			text = strings.ReplaceAll(text, p.ID, p.Name)
		}
	}
	return text
}

// name says whose flow each step took.
func (h *Host) name(steps []Step) {
	for i := range steps {
		s := &steps[i]
		kind := h.kindOf(s.Bridge)
		s.Name = kind.Refine(func(table uint8) bool { return h.uses(s.Bridge, table) }).Name(s.Table)
		if s.Missed || !h.Live {
			continue
		}
		if f := h.flow(s.Bridge, s.Table, s.Priority, s.Match); f != nil {
			s.Owner, s.Reason, s.State = f.Owner, f.Reason, f.State
		} else if slices.Contains(h.Ours(), s.Bridge) {
			s.State = "unknown" // newer than the agent's answer
		}
	}
}

func (h *Host) uses(bridge string, table uint8) bool {
	return slices.ContainsFunc(h.Flows, func(f inspect.Flow) bool { return f.Bridge == bridge && f.Table == table })
}

// flow finds the flow with a match, however it is written.
func (h *Host) flow(bridge string, table uint8, priority uint16, match string) *inspect.Flow {
	want := canonical(match)
	mark := fmt.Sprintf("priority=%d,", priority)
	for i := range h.Flows {
		f := &h.Flows[i]
		if f.Bridge != bridge || f.Table != table || priority != openflow.DefaultPriority && !strings.Contains(f.Text+",", mark) &&
			!strings.Contains(f.Text, strings.TrimSuffix(mark, ",")+" ") {
			continue
		}
		if p, m, ok := priorityAndMatch(f.Text); ok && p == priority && m == want {
			return f
		}
	}
	return nil
}

func canonical(match string) string {
	m, err := openflow.ParseMatch(match)
	if err != nil {
		return match
	}
	return m.String()
}

func priorityAndMatch(flow string) (uint16, string, bool) {
	f, err := openflow.ParseFlow(flow)
	if err != nil {
		return 0, "", false
	}
	return f.Priority, f.Match.String(), true
}
