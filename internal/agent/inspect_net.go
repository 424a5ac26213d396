// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// segments looks at every segment with ports here, a few at a time.
func (a *Agent) segments(ctx context.Context, look func(core.View, *world.Segment)) error {
	var keys []world.SegmentKey
	err := a.ask(ctx, func(v core.View) {
		for _, s := range v.World.Segments.All() {
			keys = append(keys, s.Key)
		}
	})
	if err != nil {
		return err
	}
	return inSteps(ctx, a, keys, segmentsPerStep, func(v core.View, key world.SegmentKey) {
		if s := v.World.Segments.Get(key); s != nil {
			look(v, s)
		}
	})
}

// Networks implements [inspect.Source].
func (a *Agent) Networks(ctx context.Context) ([]inspect.Network, error) {
	type flooded struct {
		doc inspect.Network
		to  []world.Endpoint
	}
	var all []flooded
	err := a.segments(ctx, func(v core.View, s *world.Segment) {
		f := flooded{doc: inspect.Network{
			ID: s.Key.Network, Type: s.Type, Physical: s.Physnet, Number: max(s.Key.ID, 0), VLAN: s.VLAN, Ports: s.PortIDs(),
			Stations: s.StationCount(),
		}}
		if s.Tunnelled() {
			f.to = v.World.Tunnels.FloodTo(s)
		}
		all = append(all, f)
	})
	if err != nil {
		return nil, err
	}
	out := make([]inspect.Network, len(all))
	for i, f := range all {
		for _, e := range f.to {
			f.doc.Endpoints = append(f.doc.Endpoints, e.IP.String())
		}
		out[i] = f.doc
	}
	return out, nil
}

// Tunnels implements [inspect.Source].
func (a *Agent) Tunnels(ctx context.Context) ([]inspect.Tunnel, error) {
	uses := map[world.Endpoint][]string{}
	err := a.segments(ctx, func(_ core.View, s *world.Segment) {
		if !s.Tunnelled() {
			return
		}
		if a.cfg.World.L2Population {
			for _, ip := range s.Endpoints() {
				e := world.Endpoint{Type: s.Type, IP: ip}
				uses[e] = append(uses[e], s.Key.Network)
			}
			return
		}
		// Every endpoint gets every broadcast; the list is the same for all.
		all := world.Endpoint{Type: s.Type, IP: netip.Addr{}}
		uses[all] = append(uses[all], s.Key.Network)
	})
	if err != nil {
		return nil, err
	}
	type copied struct {
		endpoint world.Endpoint
		name     string
		there    bool
		ofport   uint32
		err      string
	}
	var all []copied
	err = a.ask(ctx, func(v core.View) {
		w := v.World
		for _, e := range w.Tunnels.WantedEndpoints() {
			c := copied{endpoint: e, name: w.TunnelName(e)}
			if i := w.View.InterfaceByName(c.name); i != nil {
				c.there, c.err, c.ofport = true, i.Error, w.OFPort(i.Name)
			}
			all = append(all, c)
		}
	})
	counters := readCounters(ctx, a.cfg.Statistics)
	out := make([]inspect.Tunnel, len(all))
	for i, c := range all {
		e := c.endpoint
		out[i] = inspect.Tunnel{
			Name: c.name, Type: e.Type, Remote: e.IP.String(), OFPort: c.ofport, Error: c.err, State: "up",
			Networks: append(uses[e], uses[world.Endpoint{Type: e.Type}]...),
			Counters: counters(c.name),
		}
		switch {
		case !c.there:
			out[i].State = "missing"
		case c.ofport == 0:
			out[i].State = "failed"
		}
	}
	return out, err
}

// Groups implements [inspect.Source].
func (a *Agent) Groups(ctx context.Context) ([]inspect.Group, error) {
	var ids []string
	if err := a.ask(ctx, func(v core.View) { ids = v.World.Groups.IDs() }); err != nil {
		return nil, err
	}
	var known []world.KnownGroup
	err := inSteps(ctx, a, ids, groupsPerStep, func(v core.View, id string) {
		if g, ok := v.World.Groups.KnownGroup(id); ok {
			known = append(known, g)
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]inspect.Group, len(known))
	for i, g := range known {
		out[i] = inspect.Group{ID: g.ID, Name: inspect.Printable(g.Name), Known: g.Known, Ports: g.Ports, Rules: []inspect.Rule{}}
		for _, r := range g.Rules {
			out[i].Rules = append(out[i].Rules, ruleDocument(r, g.Members))
		}
	}
	return out, nil
}

func ruleDocument(r *neutron.SecurityGroupRule, members map[string]int) inspect.Rule {
	doc := inspect.Rule{
		ID: r.ID, Direction: r.Direction, EtherType: r.EtherType, Protocol: r.Protocol, PortMin: r.PortRangeMin, PortMax: r.PortRangeMax,
	}
	if r.RemoteIPPrefix != nil && r.RemoteIPPrefix.IsValid() {
		doc.Remote = r.RemoteIPPrefix.String()
	}
	if doc.Group = r.RemoteGroupID; doc.Group == "" {
		doc.Group = r.RemoteAddressGroupID
	}
	doc.Members = members[doc.Group]
	doc.Text = ruleText(&doc, r.RemoteAddressGroupID != "" && r.RemoteGroupID == "")
	return doc
}

// ruleText is the rule as one says it: "allow tcp/22 from 10.0.0.0/8".
func ruleText(r *inspect.Rule, addresses bool) string {
	var b strings.Builder
	b.WriteString("allow ")
	if r.Protocol == "" {
		b.WriteString("everything")
	} else {
		b.WriteString(r.Protocol)
	}
	icmp := strings.Contains(r.Protocol, "icmp") || r.Protocol == "1" || r.Protocol == "58"
	switch {
	case icmp && r.PortMin != nil && r.PortMax != nil:
		fmt.Fprintf(&b, " type %d code %d", *r.PortMin, *r.PortMax)
	case icmp && r.PortMin != nil:
		fmt.Fprintf(&b, " type %d", *r.PortMin)
	case r.PortMin != nil && r.PortMax != nil && *r.PortMin == *r.PortMax:
		fmt.Fprintf(&b, "/%d", *r.PortMin)
	case r.PortMin != nil && r.PortMax != nil:
		fmt.Fprintf(&b, "/%d-%d", *r.PortMin, *r.PortMax)
	}
	if r.Direction == "egress" {
		b.WriteString(" to ")
	} else {
		b.WriteString(" from ")
	}
	switch {
	case r.Group != "" && addresses:
		b.WriteString("address group " + r.Group)
	case r.Group != "":
		b.WriteString("members of group " + r.Group)
	case r.Remote != "":
		b.WriteString(r.Remote)
	default:
		b.WriteString("anywhere")
	}
	if r.Remote == "" {
		fmt.Fprintf(&b, " (%s)", r.EtherType)
	}
	return b.String()
}
