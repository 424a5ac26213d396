// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// none is the segmentation id of segments that have none, flat and local ones.
const none = -1

// SegmentKey identifies a segment: a network and the number under which one piece of it is carried. A local VLAN stands
// for exactly one of them.
type SegmentKey struct {
	Network string
	ID      int // none for flat and local
}

// String is "network/number", as the Python agent writes it.
func (k SegmentKey) String() string {
	if k.ID == none {
		return k.Network + "/None"
	}
	return k.Network + "/" + strconv.Itoa(k.ID)
}

// ParseSegmentKey reads what String wrote.
func ParseSegmentKey(s string) (SegmentKey, bool) {
	network, id, ok := strings.Cut(s, "/")
	if !ok {
		return SegmentKey{}, false
	}
	if id == "None" {
		return SegmentKey{network, none}, true
	}
	n, err := strconv.Atoi(id)
	return SegmentKey{network, n}, err == nil
}

// Segment is a piece of a network that has ports on this host.
type Segment struct {
	Key     SegmentKey
	Type    string // flat, vlan, vxlan, gre, geneve or local
	Physnet string
	VLAN    uint16

	ports map[string]bool
	fdb   fdb
}

// Segments are the pieces of networks that have ports on this host, and their local VLANs.
type Segments struct {
	*common
	byKey map[SegmentKey]*Segment
	vlans vlans
	fresh []uint16     // see TakeFreshVLANs
	begun []SegmentKey // see TakeBegun
}

// Tunnelled says whether the segment is carried by tunnels.
func (s *Segment) Tunnelled() bool { return tunnelled(s.Type) }

func tunnelled(networkType string) bool {
	return networkType == "vxlan" || networkType == "gre" || networkType == "geneve"
}

// Get returns a segment that has ports here, or nil.
func (w *Segments) Get(key SegmentKey) *Segment { return w.byKey[key] }

// All returns those with ports here, by VLAN.
func (w *Segments) All() []*Segment {
	return slices.SortedFunc(maps.Values(w.byKey), func(a, b *Segment) int { return cmp.Compare(a.VLAN, b.VLAN) })
}

// cannotCarry says why this host has no way to a segment, or nothing.
func (w *common) cannotCarry(s *neutron.Segment) string {
	switch {
	case s.NetworkType == "local":
		return ""
	case tunnelled(s.NetworkType):
		if !slices.Contains(w.Config.TunnelTypes, s.NetworkType) {
			return fmt.Sprintf("its network is carried by %s, which is not among [agent] tunnel_types", s.NetworkType)
		}
		return outOfRange(s)
	case s.NetworkType == "flat", s.NetworkType == "vlan":
		if w.Config.Physical[s.PhysicalNetwork] == "" {
			return fmt.Sprintf("[ovs] bridge_mappings has no bridge for its physical network %s", s.PhysicalNetwork)
		}
		return outOfRange(s)
	}
	return fmt.Sprintf("its network is of type %q, which is not known", s.NetworkType)
}

// IsVLAN says whether a number is that of a VLAN: 0 means no VLAN, and 4095 is reserved.
func IsVLAN(id int) bool { return id >= 1 && id <= maxVLAN }

// outOfRange says why the number of a segment cannot be carried, or nothing. Flows have fewer bits for it than the number
// may have: what is too large would come out as the number of another network.
func outOfRange(s *neutron.Segment) string {
	largest := map[string]int{"vlan": maxVLAN, "vxlan": 1<<24 - 1, "geneve": 1<<24 - 1, "gre": 1<<32 - 1}[s.NetworkType]
	switch {
	case largest == 0: // flat
		return ""
	case s.SegmentationID == nil:
		return fmt.Sprintf("its network is of type %s and has no segmentation id", s.NetworkType)
	case *s.SegmentationID < 1 || *s.SegmentationID > largest:
		return fmt.Sprintf("segmentation id %d of its network is not among those of type %s, 1 to %d", *s.SegmentationID, s.NetworkType, largest)
	}
	return ""
}

// join enters a port into its segment, which gets a local VLAN with the first one.
func (w *Segments) join(p *Port) {
	key := p.Wiring.Segment
	s := w.byKey[key]
	if s == nil {
		vlan, fresh, ok := w.vlans.take(key)
		if !ok {
			p.Wiring = Wiring{State: Dead, Reason: "all 4094 local VLANs of this host are in use"}
			return
		}
		if fresh && w.Config.Filter {
			w.fresh = append(w.fresh, vlan)
		}
		info := p.Details.SegmentOn(w.Config.Host)
		s = &Segment{Key: key, Type: info.NetworkType, Physnet: info.PhysicalNetwork, VLAN: vlan, ports: map[string]bool{}, fdb: newFDB()}
		w.recall(s)
		if w.Config.L2Population && s.Tunnelled() {
			w.begun = append(w.begun, key)
		}
		w.byKey[key] = s
		w.markSegment(key, s)
	}
	s.ports[p.ID] = true
	p.Wiring.VLAN = s.VLAN
}

// TakeBegun returns the segments with forwarding entries that have their first port since it was last called. What was known about one
// that had a port before went with that port.
func (w *Segments) TakeBegun() []SegmentKey {
	out := w.begun
	w.begun = nil
	return out
}

// TakeFreshVLANs returns the local VLANs that were given to segments which did not have them before, since it was called last. What connection
// tracking knows of their last users must not count for the new ones.
func (w *Segments) TakeFreshVLANs() []uint16 {
	out := w.fresh
	w.fresh = nil
	return out
}

// leave takes a port out of its segment. The segment goes with its last port, but not before Resolve:
// a port that is plugged out and in again keeps its VLAN.
func (w *Segments) leave(p *Port) {
	if s := w.byKey[p.Wiring.Segment]; s != nil {
		delete(s.ports, p.ID)
	}
}

// resolve gives back the VLANs of segments without ports. One that a waiting port of an earlier run bears stays: its packets pass meanwhile,
// and must not reach another network that is given the number.
func (w *Segments) resolve() {
	for key, s := range w.byKey {
		if len(s.ports) > 0 || w.hasWaitingPort(s.VLAN) {
			continue
		}
		w.markSegment(key, s)
		for _, e := range s.fdb.endpoints() {
			w.markTunnel(Endpoint{s.Type, e})
		}
		delete(w.byKey, key)
		w.vlans.release(key)
	}
}

// hasWaitingPort returns whether a port that waits has a local VLAN as its tag on the switch.
func (w *Segments) hasWaitingPort(vlan uint16) bool {
	for _, p := range w.ports {
		if p.Wiring.State == Waiting && w.InVLAN(p) && *w.View.Port(p.VIF.Port).Tag == int(vlan) {
			return true
		}
	}
	return false
}

func (w *Segments) markSegment(key SegmentKey, s *Segment) {
	w.mark(SegmentObject(key))
	for _, mac := range s.fdb.stations() {
		w.mark(StationObject{key, mac})
	}
}

func (w *Segments) markWhere(which func(*Segment) bool) {
	for key, s := range w.byKey {
		if which(s) {
			w.markSegment(key, s)
		}
	}
}
