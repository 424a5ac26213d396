// SPDX-License-Identifier: Apache-2.0

package world

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Tunnels are the tunnel endpoints of other hosts, as the server announced them, and to which of them segments need tunnels.
type Tunnels struct {
	*common
	segments  *Segments
	endpoints map[Endpoint]uint64 // and when they were announced; none with l2population, which says who is behind which endpoint
	withdrawn map[Endpoint]uint64 // those that the server took back, and when
	listed    map[string]uint64   // when the last list of all endpoints of a type was asked for
}

// Up takes the announcement of another host's endpoint.
func (w *Tunnels) Up(e Endpoint) {
	w.setEndpoint(e, true)
	if _, known := w.endpoints[e]; known {
		w.seq++
		w.endpoints[e] = w.seq
	}
}

// Gone takes it back, and with it what was announced behind it. A list of endpoints that was asked for before may still have it.
func (w *Tunnels) Gone(e Endpoint) {
	w.setEndpoint(e, false)
	w.seq++
	w.withdrawn[e] = w.seq
	if !w.Config.L2Population {
		return
	}
	// The host has another address now, at which the server announces its ports again; here it takes none of them back.
	for _, s := range w.segments.byKey {
		if s.Type != e.Type || s.fdb.uses[e.IP] == 0 {
			continue
		}
		for _, known := range s.fdb.entries() {
			if known.endpoint == e.IP {
				s.fdb.remove(e.IP, known.entry)
				w.markEntry(s, e.IP, known.entry)
			}
		}
	}
}

// Sync takes the server's whole list of the endpoints of one type, that it was asked for at a moment: an endpoint that
// was heard of before and is not in the list is gone. One that went since then may be in it all the same, and stays gone; and a
// list that was asked for before the last one says nothing new.
func (w *Tunnels) Sync(tunnelType string, endpoints []netip.Addr, asked uint64) {
	if asked < w.listed[tunnelType] {
		return
	}
	w.listed[tunnelType] = asked
	for e, heard := range w.endpoints {
		if e.Type == tunnelType && heard <= asked && !slices.Contains(endpoints, e.IP) {
			w.setEndpoint(e, false)
		}
	}
	// Lists that were asked for earlier no longer count, and this one knows what went before it was asked for.
	maps.DeleteFunc(w.withdrawn, func(e Endpoint, at uint64) bool { return e.Type == tunnelType && at <= asked })
	if w.Config.L2Population {
		return
	}
	for _, ip := range endpoints {
		e := Endpoint{tunnelType, ip}
		if w.withdrawn[e] > asked {
			continue
		}
		before := w.endpoints[e]
		if w.setEndpoint(e, true); w.endpoints[e] > 0 {
			w.endpoints[e] = max(before, asked, 1)
		}
	}
}

// Listed says whether the server has told all endpoints of a type, and nothing was missed since.
func (w *Tunnels) Listed(tunnelType string) bool {
	asked, ok := w.listed[tunnelType]
	return ok && asked >= w.staleSince
}

func (w *Tunnels) setEndpoint(e Endpoint, up bool) {
	if w.Config.L2Population || !e.IP.IsValid() || e.IP == w.Config.LocalIP || e.IP.Is4() != w.Config.LocalIP.Is4() ||
		!slices.Contains(w.Config.TunnelTypes, e.Type) || (w.endpoints[e] > 0) == up {
		return
	}
	if up {
		w.seq++
		w.endpoints[e] = w.seq
		delete(w.withdrawn, e)
	} else {
		delete(w.endpoints, e)
	}
	w.markTunnel(e)
	w.segments.markWhere(func(s *Segment) bool { return s.Type == e.Type })
}

// WantedEndpoints lists the endpoints to which tunnels are needed: with l2population those behind which a segment of ours
// has stations, without it all that were announced.
func (w *Tunnels) WantedEndpoints() []Endpoint {
	set := map[Endpoint]bool{}
	if w.Config.L2Population {
		for _, s := range w.segments.byKey {
			for _, ip := range s.fdb.endpoints() {
				set[Endpoint{s.Type, ip}] = true
			}
		}
	} else {
		for e := range w.endpoints {
			set[e] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b Endpoint) int { return strings.Compare(a.String(), b.String()) })
}

// Wanted says whether a tunnel to the endpoint is needed.
func (w *Tunnels) Wanted(e Endpoint) bool {
	if !w.Config.L2Population {
		return w.endpoints[e] > 0
	}
	for _, s := range w.segments.byKey {
		if s.Type == e.Type && s.fdb.uses[e.IP] > 0 {
			return true
		}
	}
	return false
}

// FloodTo lists the endpoints that get the segment's broadcasts. Until the server has told about a segment every tunnel
// of its type gets them, so that a station nobody told about is still found.
func (w *Tunnels) FloodTo(s *Segment) []Endpoint {
	var out []Endpoint
	if w.Config.L2Population && s.fdb.known {
		for _, ip := range slices.SortedFunc(maps.Keys(s.fdb.flood), netip.Addr.Compare) {
			out = append(out, Endpoint{s.Type, ip})
		}
		return out
	}
	for _, e := range w.WantedEndpoints() {
		if e.Type == s.Type {
			out = append(out, e)
		}
	}
	return out
}

// HasTunnels says whether the segment's broadcasts go anywhere.
func (w *Tunnels) HasTunnels(s *Segment) bool {
	return len(s.fdb.flood) > 0 || !w.Config.L2Population
}
