// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// limit is how many mirrors a bridge of Open vSwitch can have.
const limit = 32

// Directions of taps, as seen by the VM.
const (
	in   = "IN"
	out  = "OUT"
	both = "BOTH"
)

// refuses returns why a tap flow cannot be carried out on a host, or nothing.
func refuses(host string, f *flow) string {
	switch {
	case f.Host != host:
		return fmt.Sprintf("port %s is on host %s and the port of the tap service, %s, on host %s, and packets are copied within a host only; "+
			"move one of the ports, or make a tap mirror with a GRE or ERSPAN tunnel to where packets are looked at", f.Source, host, f.Port, cmp.Or(f.Host, "(none)"))
	case f.Source == f.Port:
		return "the port of the tap service is the one whose packets are to be copied"
	case f.Hybrid:
		return behindBridge(f.Port)
	case f.Direction != in && f.Direction != out && f.Direction != both:
		return fmt.Sprintf("direction %q is not known", f.Direction)
	}
	return ""
}

func behindBridge(port string) string {
	return fmt.Sprintf("port %s of the tap service is behind a Linux bridge (firewall_driver = iptables_hybrid), which drops copies; let the service have a port that is plugged "+
		"into the integration bridge itself", port)
}

// refusesMirror returns why a tap mirror cannot be carried out with these tunnel types, or nothing.
func refusesMirror(tunnelTypes []string, t *tunnel) string {
	if _, err := netip.ParseAddr(t.Remote); err != nil {
		return fmt.Sprintf("remote_ip %q is no address", t.Remote)
	}
	for d := range t.Directions {
		if d != in && d != out && d != both {
			return fmt.Sprintf("direction %q is not known", d)
		}
	}
	switch {
	case t.Type != "gre" && t.Type != "erspanv1":
		return fmt.Sprintf("mirror_type %q is not known", t.Type)
	case t.Type == "gre" && slices.Contains(tunnelTypes, "gre"):
		// A tunnel with a key is preferred to those of networks, which have none: it would take packets of the network whose segmentation id its key is.
		return "this host carries networks over GRE, whose packets the tunnel of the mirror could take; use the mirror_type erspanv1"
	}
	return ""
}

// plugged returns a port that is on the integration bridge, or nil. One that the server has not been asked about since a start is: the server has said about
// the tap that it is for a port of this host.
func (m *Mirrors) plugged(id string) *world.Port {
	p := m.w.Port(id)
	if p == nil || p.VIF == nil || p.VIF.OFPort == 0 || p.Wiring.State != world.Wired && p.Wiring.State != world.Waiting {
		return nil
	}
	return p
}

// waits returns what a tap needs that is not here yet, or nothing.
func (m *Mirrors) waits(ports ...string) string {
	for _, id := range ports {
		if m.plugged(id) == nil {
			return fmt.Sprintf("port %s is not plugged in here", id)
		}
	}
	return ""
}

// flowsTo returns the ids of the tap flows of a tap service that can be carried out now, sorted.
func (m *Mirrors) flowsTo(service string) []string {
	var ids []string
	for id, f := range m.Flows {
		if f.Service == service && !f.Gone && refuses(m.w.Config.Host, f) == "" && m.waits(f.Source, f.Port) == "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// admit gives out the room for mirrors: to those that are there first. Mirrors of others stay.
func (m *Mirrors) admit() {
	left, have := limit, map[string]bool{}
	if b := m.w.View.BridgeByName(m.w.Config.IntegrationBridge); b != nil {
		for _, row := range m.w.View.MirrorsOn(b) {
			if row.ExternalIDs[mark] == "" {
				left--
			} else {
				have[row.Name] = true
			}
		}
	}
	var names []string
	owner := map[string]string{}
	for _, id := range m.ids() {
		for _, c := range m.wanted(id) {
			names, owner[c.name] = append(names, c.name), id
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case have[a] && !have[b]:
			return -1
		case have[b] && !have[a]:
			return 1
		}
		return 0
	})
	before := maps.Clone(m.room)
	clear(m.room)
	for i, n := range names {
		if m.room[n] = i < left; m.room[n] != before[n] {
			m.touched[owner[n]] = true
		}
	}
}

// noRoom says that the bridge has no room for a tap.
func (m *Mirrors) noRoom(id string) string {
	for _, c := range m.wanted(id) {
		if !m.room[c.name] {
			return fmt.Sprintf("a bridge of Open vSwitch has %d mirrors at most, and %s has them", limit, m.w.Config.IntegrationBridge)
		}
	}
	return ""
}

// refused returns why a tap flow cannot be carried out, or nothing.
func (m *Mirrors) refused(f *flow) string {
	return cmp.Or(refuses(m.w.Config.Host, f), m.noRoom(f.Service))
}

// state returns what keeps a tap flow from being carried out: for good, or for now. Nothing: its packets are copied.
func (m *Mirrors) state(f *flow) (refused, waiting string) {
	refused, waiting = m.refused(f), m.waits(f.Source, f.Port)
	switch {
	case waiting != "":
	case f.Told != neutron.TapActive:
		waiting = "the server has not confirmed yet that it still has it"
	case !m.complete[f.Service]:
		waiting = "its mirror is not in place yet"
	}
	return refused, waiting
}

// report notes what the server has to be told, and warns of what is refused. A tap flow is reported as active when its ports are here, and its packets are
// copied when the server has taken the report. A server deletes a tap flow that is not active without telling the agent: one that waited for its port
// may be deleted by now, and nobody may look at packets then.
func (m *Mirrors) report() {
	clear(m.due)
	tell := func(r report, i *item, status string) {
		if status != "" && status != i.Told {
			m.due[r] = status
		}
	}
	for id, s := range m.Services {
		switch {
		case s.Gone && m.complete[id]:
			tell(report{"service", id}, &s.item, neutron.TapInactive)
		case !s.Gone && s.Hybrid:
			tell(report{"service", id}, &s.item, neutron.TapError)
			m.warn(id, fmt.Sprintf("tap service %s is reported as ERROR: %s", id, behindBridge(s.Port)))
		case !s.Gone && m.waits(s.Port) == "":
			tell(report{"service", id}, &s.item, neutron.TapActive)
		}
	}
	for id, f := range m.Flows {
		refused := m.refused(f)
		switch {
		case f.Gone && m.complete[f.Service]:
			tell(report{"flow", id}, &f.item, neutron.TapInactive)
		case f.Gone:
		case refused != "":
			tell(report{"flow", id}, &f.item, neutron.TapError)
			m.warn(id, fmt.Sprintf("tap flow %s is not carried out, and reported as ERROR: %s", id, refused))
		case m.waits(f.Source, f.Port) == "":
			tell(report{"flow", id}, &f.item, neutron.TapActive)
			m.warn(id, "")
		}
	}
	for id, t := range m.Tunnels {
		refused := cmp.Or(refusesMirror(m.w.Config.TunnelTypes, t), m.noRoom(id), m.failed(id))
		if refused != "" {
			refused = fmt.Sprintf("tap mirror %s of port %s is not carried out: %s", id, t.Port, refused)
		}
		m.warn(id, refused)
	}
}

// failed returns why the switch could not make a tunnel.
func (m *Mirrors) failed(id string) string {
	for _, c := range m.wanted(id) {
		if i := m.w.View.InterfaceByName(c.port); i != nil && i.Error != "" {
			return fmt.Sprintf("Open vSwitch cannot make the port %s: %s", c.port, i.Error)
		}
	}
	return ""
}

// Explain implements extension.Explainer.
func (m *Mirrors) Explain(o world.Object) []string {
	port, ok := world.PortID(o)
	if !ok {
		return nil
	}
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(m.Flows)) {
		f := m.Flows[id]
		if f.Source == port && !f.Gone {
			refused, waiting := m.state(f)
			lines = append(lines, outcome(fmt.Sprintf("taas: tap flow %s copies what the port %s to port %s of tap service %s", id, does(f.Direction), f.Port, f.Service), refused, waiting))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.Services)) {
		if s := m.Services[id]; s.Port == port && !s.Gone {
			from := []string{}
			for _, f := range m.flowsTo(id) {
				from = append(from, m.Flows[f].Source)
			}
			lines = append(lines, fmt.Sprintf("taas: port of tap service %s, to which packets of %d ports are copied: %s", id, len(from), cmp.Or(strings.Join(from, ", "), "none")))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.Tunnels)) {
		t := m.Tunnels[id]
		if t.Port != port {
			continue
		}
		refused, waiting := cmp.Or(refusesMirror(m.w.Config.TunnelTypes, t), m.noRoom(id), m.failed(id)), ""
		if !m.complete[id] {
			waiting = "its rows are not in place yet"
		}
		for _, d := range slices.Sorted(maps.Keys(t.Directions)) {
			lines = append(lines, outcome(fmt.Sprintf("taas: tap mirror %s copies what the port %s to %s by %s with id %d", id, does(d), t.Remote, t.Type, t.Directions[d]), refused, waiting))
		}
	}
	return lines
}

// does is a direction in words.
func does(direction string) string {
	switch direction {
	case in:
		return "receives"
	case out:
		return "sends"
	}
	return "sends and receives"
}

func outcome(what, refused, waiting string) string {
	switch {
	case refused != "":
		return what + "; refused: " + refused
	case waiting != "":
		return what + "; waiting: " + waiting
	}
	return what + "; in place"
}
