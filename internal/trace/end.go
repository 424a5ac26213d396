// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/tables"
)

// End is one end of the way: a port of this host, or a station somewhere else.
type End struct {
	Port *inspect.Port // nil for a station, and for a port when no agent answers
	Plug *Interface    // where it is plugged in here; nil for a station
	MAC  string
	IP   netip.Addr
	// Tunnel is the interface of the tunnel bridge behind which a station is, if the flows say so.
	Tunnel *Interface
	VLAN   int    // local VLAN of a station
	given  string // as the user wrote it
}

// Here says whether the end is a port of this host.
func (e *End) Here() bool { return e.Plug != nil || e.Port != nil }

// String is the end for people.
func (e *End) String() string {
	switch {
	case e.Port != nil:
		return "port " + portName(e.Port)
	case e.Plug != nil:
		return "port " + short(e.Plug.PortID)
	case e.IP.IsValid():
		return e.IP.String()
	}
	return e.given
}

// network is that of a port, empty for a station.
func (e *End) network() string {
	switch {
	case e.Port != nil && e.Port.Network != "":
		return e.Port.Network
	case e.Plug != nil:
		return e.Plug.Network
	}
	return ""
}

// vlan is the local VLAN on which the end should be, 0 if nobody knows.
func (e *End) vlan() int {
	switch {
	case e.Port != nil && e.Port.VLAN != 0:
		return int(e.Port.VLAN)
	case e.Plug != nil && e.Plug.Wanted != 0:
		return e.Plug.Wanted
	case e.Plug != nil:
		return e.Plug.Tag
	}
	return e.VLAN
}

// Addresses are those of a port.
func (h *Host) Addresses(e *End) []netip.Addr {
	var out []netip.Addr
	if e.Port != nil {
		for _, text := range e.Port.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				out = append(out, a)
			}
		}
		return out
	}
	if e.Plug == nil {
		return nil
	}
	// Without an agent: the addresses for which the flows let it speak.
	from := "in_port=" + strconv.Itoa(e.Plug.OFPort) + ","
	for _, f := range h.Flows {
		if f.Bridge != e.Plug.Bridge || f.Table != 71 && f.Table != 24 || !strings.Contains(terms(f.Text), from) {
			continue
		}
		if m := spoken.FindStringSubmatch(f.Text); m != nil {
			if a, err := netip.ParseAddr(m[1]); err == nil && !a.IsLinkLocalUnicast() && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

var spoken = regexp.MustCompile(`(?:arp_spa|nd_target)=([0-9a-f.:]+)(?:[ ,]|$)`)

// Ends finds what the user means by both ends. Addresses may be used in several networks: the ends are then taken from one.
func (h *Host) Ends(from, to string) (*End, *End, error) {
	sources, targets := related(from, to, h.candidates(from), h.candidates(to))
	for _, c := range []struct {
		ref  string
		list []End
	}{{from, sources}, {to, targets}} {
		if len(c.list) > 1 {
			var names []string
			for _, e := range c.list {
				names = append(names, h.described(&e))
			}
			return nil, nil, fmt.Errorf("%q may be %s: say which by its id", c.ref, strings.Join(names, " or "))
		}
	}
	if len(sources) == 0 {
		sources = []End{h.station(from, targets)}
	}
	if len(targets) == 0 {
		targets = []End{h.station(to, sources)}
	}
	source, target := &sources[0], &targets[0]
	if !source.Here() && !target.Here() {
		return nil, nil, fmt.Errorf("neither %q nor %q is a port of this host", from, to)
	}
	for _, e := range []*End{source, target} {
		if !e.Here() && !e.IP.IsValid() && e.MAC == "" {
			return nil, nil, fmt.Errorf("%q is no port of this host, and no address", e.given)
		}
	}
	return source, target, nil
}

func (h *Host) described(e *End) string {
	text := e.String()
	if e.Plug != nil {
		text += " (" + e.Plug.PortID + ")"
	}
	return text
}

// related keeps the ends that are in a network in which the other end may be as well. An address that is a port's only in
// another network is a station's in this one.
func related(from, to string, sources, targets []End) ([]End, []End) {
	if len(sources) == 0 || len(targets) == 0 {
		return sources, targets
	}
	apart := func(list []End) func(e End) bool {
		return func(e End) bool {
			return !slices.ContainsFunc(list, func(o End) bool { return o.network() == e.network() })
		}
	}
	s := slices.DeleteFunc(slices.Clone(sources), apart(targets))
	t := slices.DeleteFunc(slices.Clone(targets), apart(sources))
	switch {
	case len(s) > 0:
		return s, t
	case isAddress(to):
		return sources, nil
	case isAddress(from):
		return nil, targets
	}
	return sources, targets
}

func isAddress(ref string) bool {
	_, err := netip.ParseAddr(ref)
	return err == nil
}

// candidates are the ports of this host that a word may mean: by id, the beginning of it, name, interface or address.
func (h *Host) candidates(ref string) []End {
	var all []End
	for i := range h.Ports {
		p := &h.Ports[i]
		plug := h.plugged(p.ID)
		if plug == nil {
			plug = h.named(p.Interface)
		}
		all = append(all, End{Port: p, Plug: plug, MAC: p.MAC, given: ref})
	}
	if !h.Live {
		for i := range h.Interfaces {
			if p := &h.Interfaces[i]; p.PortID != "" && p == h.plugged(p.PortID) {
				all = append(all, End{Plug: p, MAC: p.MAC, given: ref})
			}
		}
	}
	ip, _ := netip.ParseAddr(ref)
	for _, fits := range []func(e *End) bool{
		func(e *End) bool { return e.id() == ref || e.Plug != nil && e.Plug.Name == ref },
		func(e *End) bool { return e.Port != nil && e.Port.Name == ref },
		func(e *End) bool { return ip.IsValid() && slices.Contains(h.Addresses(e), ip) },
		func(e *End) bool { return strings.EqualFold(e.MAC, ref) },
		func(e *End) bool { return len(ref) >= 3 && strings.HasPrefix(e.id(), ref) },
	} {
		var found []End
		for _, e := range all {
			if fits(&e) {
				if e.IP = ip; !ip.IsValid() {
					e.IP = first(h.Addresses(&e))
				}
				found = append(found, e)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// id returns the port's id, which the switch knows too.
func (e *End) id() string {
	if e.Port != nil {
		return e.Port.ID
	}
	return e.Plug.PortID
}

func first(list []netip.Addr) netip.Addr {
	if len(list) == 0 {
		return netip.Addr{}
	}
	return list[0]
}

var (
	answerMAC = regexp.MustCompile(`set_field:([0-9a-f:]{17})->eth_src|mod_dl_src:([0-9a-f:]{17})`)
	outputTo  = regexp.MustCompile(`\boutput:(\d+)`)
)

// station makes an end of an address that is no port of this host. Where the other end is tells in which network.
func (h *Host) station(ref string, other []End) End {
	e := End{given: ref}
	e.IP, _ = netip.ParseAddr(ref)
	if mac, err := net.ParseMAC(ref); err == nil {
		e.MAC = mac.String()
	}
	for i := range other {
		e.VLAN = other[i].vlan()
	}
	vlan := fmt.Sprintf("dl_vlan=%d,", e.VLAN)
	tun := h.bridgeOf(tables.Tunnel)
	find := func(table uint8, term string) string {
		for _, f := range h.Flows {
			if f.Bridge == tun && f.Table == table && strings.Contains(terms(f.Text), term+",") && strings.Contains(terms(f.Text), vlan) {
				return f.Text
			}
		}
		return ""
	}
	if e.IP.IsValid() && e.MAC == "" {
		// The flow that answers requests for its address knows it.
		if m := answerMAC.FindStringSubmatch(find(21, "arp_tpa="+e.IP.String())); m != nil {
			e.MAC = m[1] + m[2]
		}
	}
	if e.MAC != "" {
		if m := outputTo.FindStringSubmatch(find(20, "dl_dst="+e.MAC)); m != nil {
			n, _ := strconv.Atoi(m[1])
			e.Tunnel = h.numbered(tun, n)
		}
	}
	return e
}

// terms is the text of a flow with every part followed by a comma.
func terms(flow string) string { return strings.ReplaceAll(flow, " ", ",") + "," }
