// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// fdb is what the server told about the addresses of one segment on other hosts.
type fdb struct {
	// received: the server has sent entries for this segment since it has ports here. Before that nothing is known, which is
	// not the same as nothing being there.
	received bool
	// known: it has done so at some time, or had in an earlier run.
	known bool
	flood map[netip.Addr]bool // endpoints that get broadcasts
	// at holds, for each address, the endpoints it was announced at, oldest first. A VM that moves is announced at its
	// new host before it is taken back at the old one.
	at map[neutron.MAC][]station
	// uses counts the entries above by endpoint.
	uses map[netip.Addr]int
	// stale are entries that may be out of date: from an earlier run, or from before messages were lost. They stay in
	// force until the server has sent those of the segment again.
	stale map[staleEntry]bool
	// withdrawn are entries that all hosts were told to forget, and when. swept is when those that are too old were last dropped.
	withdrawn map[staleEntry]time.Time
	swept     time.Time
}

// lateList is how long after an entry was taken back a list of all entries may come that still has it: one worker of the server reads the ports, and before
// it has sent them another one tells all hosts that a port is gone.
const lateList = 30 * time.Second

type staleEntry struct {
	endpoint netip.Addr
	entry    neutron.FDBEntry
}

type station struct {
	endpoint netip.Addr
	ips      []netip.Addr
}

func newFDB() fdb {
	return fdb{flood: map[netip.Addr]bool{}, at: map[neutron.MAC][]station{}, uses: map[netip.Addr]int{}, stale: map[staleEntry]bool{}, withdrawn: map[staleEntry]time.Time{}}
}

// entries lists all that is known, in a stable order.
func (f *fdb) entries() []staleEntry {
	var out []staleEntry
	for _, e := range slices.SortedFunc(maps.Keys(f.flood), netip.Addr.Compare) {
		out = append(out, staleEntry{e, neutron.FDBEntry{IP: netip.IPv4Unspecified()}})
	}
	for _, mac := range f.stations() {
		for _, s := range f.at[mac] {
			for _, ip := range s.ips {
				out = append(out, staleEntry{s.endpoint, neutron.FDBEntry{MAC: mac, IP: ip}})
			}
		}
	}
	return out
}

// markStale says that what is known may be out of date.
func (f *fdb) markStale() {
	f.received = false
	clear(f.withdrawn) // that they are back may be among what was not heard
	for _, e := range f.entries() {
		f.stale[e] = true
	}
}

func (f *fdb) stations() []neutron.MAC {
	return slices.SortedFunc(maps.Keys(f.at), func(a, b neutron.MAC) int { return bytes.Compare(a[:], b[:]) })
}

// endpoints lists those that the segment needs, sorted.
func (f *fdb) endpoints() []netip.Addr {
	return slices.SortedFunc(maps.Keys(f.uses), netip.Addr.Compare)
}

func (f *fdb) use(endpoint netip.Addr, n int) {
	if f.uses[endpoint] += n; f.uses[endpoint] == 0 {
		delete(f.uses, endpoint)
	}
}

func (f *fdb) add(endpoint netip.Addr, e neutron.FDBEntry) {
	delete(f.stale, staleEntry{endpoint, e})
	delete(f.withdrawn, staleEntry{endpoint, e})
	if e.Flood() {
		if !f.flood[endpoint] {
			f.flood[endpoint] = true
			f.use(endpoint, 1)
		}
		return
	}
	list := f.at[e.MAC]
	i := slices.IndexFunc(list, func(s station) bool { return s.endpoint == endpoint })
	if i < 0 {
		f.at[e.MAC] = append(list, station{endpoint, []netip.Addr{e.IP}})
		f.use(endpoint, 1)
		return
	}
	// Announced again: it becomes the latest.
	s := list[i]
	if !slices.Contains(s.ips, e.IP) {
		s.ips = append(slices.Clone(s.ips), e.IP)
		slices.SortFunc(s.ips, netip.Addr.Compare)
	}
	f.at[e.MAC] = append(slices.Delete(list, i, i+1), s)
}

// knows says whether a station was announced at an endpoint.
func (f *fdb) knows(endpoint netip.Addr, mac neutron.MAC) bool {
	return slices.ContainsFunc(f.at[mac], func(s station) bool { return s.endpoint == endpoint })
}

// withdraw notes that all hosts were told to forget an entry. An endpoint without ports may still be flooded to: the server does not always tell that it has some again.
func (f *fdb) withdraw(endpoint netip.Addr, e neutron.FDBEntry, now time.Time) {
	if now.Sub(f.swept) > lateList {
		maps.DeleteFunc(f.withdrawn, func(_ staleEntry, at time.Time) bool { return now.Sub(at) > lateList })
		f.swept = now
	}
	if !e.Flood() {
		f.withdrawn[staleEntry{endpoint, e}] = now
	}
}

// late returns whether a list of all entries that has this one was read before the server took it back. When it holds again, all hosts are told.
func (f *fdb) late(endpoint netip.Addr, e neutron.FDBEntry, now time.Time) bool {
	at, ok := f.withdrawn[staleEntry{endpoint, e}]
	return ok && now.Sub(at) <= lateList
}

// remove takes an entry back; a station without addresses is gone.
func (f *fdb) remove(endpoint netip.Addr, e neutron.FDBEntry) {
	delete(f.stale, staleEntry{endpoint, e})
	if e.Flood() {
		if f.flood[endpoint] {
			delete(f.flood, endpoint)
			f.use(endpoint, -1)
		}
		return
	}
	list := f.at[e.MAC]
	i := slices.IndexFunc(list, func(s station) bool { return s.endpoint == endpoint })
	if i < 0 {
		return
	}
	list[i].ips = slices.DeleteFunc(slices.Clone(list[i].ips), func(ip netip.Addr) bool { return ip == e.IP })
	if len(list[i].ips) > 0 {
		return
	}
	f.use(endpoint, -1)
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(f.at, e.MAC)
		return
	}
	f.at[e.MAC] = list
}

// FDBAdd takes all forwarding entries of networks, as the server sends them to this host. Those of segments without ports here are dropped: the server
// sends them again when the first port comes up.
func (w *Tunnels) FDBAdd(m *neutron.FDBAdd) { w.fdbAdd(m, true) }

// FDBBroadcast takes forwarding entries that all hosts are sent: those of another host's port. In a region whose agents restart they come before the list of
// all, and do not stand for it.
func (w *Tunnels) FDBBroadcast(m *neutron.FDBAdd) { w.fdbAdd(m, false) }

func (w *Tunnels) fdbAdd(m *neutron.FDBAdd, all bool) {
	w.eachEntry(m.Networks, func(s *Segment, endpoint netip.Addr, e neutron.FDBEntry) {
		s.fdb.received, s.fdb.known = s.fdb.received || all, true
		if !all || !s.fdb.late(endpoint, e, w.Time) {
			s.fdb.add(endpoint, e)
		}
	})
}

// FDBRemove takes forwarding entries back.
func (w *Tunnels) FDBRemove(m *neutron.FDBRemove) {
	w.eachEntry(m.Networks, func(s *Segment, endpoint netip.Addr, e neutron.FDBEntry) {
		s.fdb.remove(endpoint, e)
		s.fdb.withdraw(endpoint, e, w.Time)
	})
}

func (w *Tunnels) eachEntry(networks map[string]neutron.FDBNetwork, do func(*Segment, netip.Addr, neutron.FDBEntry)) {
	if !w.Config.L2Population {
		return
	}
	for network, n := range networks {
		key := SegmentKey{network, none}
		if n.SegmentationID != nil {
			key.ID = *n.SegmentationID
		}
		s := w.segments.byKey[key]
		if s == nil || !s.Tunnelled() {
			continue
		}
		for endpoint, entries := range n.Ports {
			if endpoint == w.Config.LocalIP {
				continue
			}
			for _, e := range entries {
				do(s, endpoint, e)
				w.markEntry(s, endpoint, e)
			}
		}
	}
}

func (w *common) markEntry(s *Segment, endpoint netip.Addr, e neutron.FDBEntry) {
	if e.Flood() {
		w.mark(SegmentObject(s.Key))
	} else {
		w.mark(StationObject{s.Key, e.MAC})
	}
	w.markTunnel(Endpoint{s.Type, endpoint})
}

// FDBChange takes changed IP addresses of stations that are known. The server tells them of ports that are not ACTIVE as well,
// which were never announced: nothing is behind their endpoint yet, and when there is, all their addresses are told.
func (w *Tunnels) FDBChange(m *neutron.FDBChange) {
	if !w.Config.L2Population {
		return
	}
	for network, endpoints := range m.Networks {
		for _, s := range w.segments.byKey {
			if s.Key.Network != network || !s.Tunnelled() {
				continue
			}
			for endpoint, change := range endpoints {
				if endpoint == w.Config.LocalIP {
					continue
				}
				for _, e := range change.After {
					if s.fdb.knows(endpoint, e.MAC) {
						s.fdb.add(endpoint, e)
						w.markEntry(s, endpoint, e)
					}
				}
				for _, e := range change.Before {
					s.fdb.remove(endpoint, e)
					s.fdb.withdraw(endpoint, e, w.Time)
					w.markEntry(s, endpoint, e)
				}
			}
		}
	}
}

// Station is where an address of a segment is found.
type Station struct {
	MAC      neutron.MAC
	Endpoint Endpoint
	IPs      []netip.Addr
}

// Station finds where an address was announced last.
func (s *Segment) Station(mac neutron.MAC) (Station, bool) {
	list := s.fdb.at[mac]
	if len(list) == 0 {
		return Station{}, false
	}
	last := list[len(list)-1]
	return Station{mac, Endpoint{s.Type, last.endpoint}, last.ips}, true
}

// FDBReceived says whether the server has sent this host the forwarding entries of the segment since it has ports here.
func (s *Segment) FDBReceived() bool { return s.fdb.received }
