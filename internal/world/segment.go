// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
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

// Tunnelled says whether the segment is carried by tunnels.
func (s *Segment) Tunnelled() bool { return tunnelled(s.Type) }

func tunnelled(networkType string) bool {
	return networkType == "vxlan" || networkType == "gre" || networkType == "geneve"
}

// Segment returns a segment that has ports here, or nil.
func (w *World) Segment(key SegmentKey) *Segment { return w.segments[key] }

// Segments lists those with ports here, by VLAN.
func (w *World) Segments() []*Segment {
	out := make([]*Segment, 0, len(w.segments))
	for _, s := range w.segments {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Segment) int { return cmp.Compare(a.VLAN, b.VLAN) })
	return out
}

// cannotCarry says why this host has no way to a segment, or nothing.
func (w *World) cannotCarry(s *neutron.Segment) string {
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
func (w *World) join(p *Port) {
	key := p.Wiring.Segment
	s := w.segments[key]
	if s == nil {
		vlan, fresh, ok := w.vlans.take(key)
		if !ok {
			p.Wiring = Wiring{State: Dead, Reason: "all 4094 local VLANs of this host are in use"}
			return
		}
		if fresh && w.Config.Filter {
			w.fresh = append(w.fresh, vlan)
		}
		info := p.Details.BindingLevels[len(p.Details.BindingLevels)-1].Segment.Value
		s = &Segment{Key: key, Type: info.NetworkType, Physnet: info.PhysicalNetwork, VLAN: vlan, ports: map[string]bool{}, fdb: newFDB()}
		w.recallStations(s)
		w.segments[key] = s
		w.markSegment(key, s)
	}
	s.ports[p.ID] = true
	p.Wiring.VLAN = s.VLAN
}

// leave takes a port out of its segment. The segment goes with its last port, but not before the news are settled:
// a port that is plugged out and in again keeps its VLAN.
func (w *World) leave(p *Port) {
	if s := w.segments[p.Wiring.Segment]; s != nil {
		delete(s.ports, p.ID)
	}
}

// settleSegments gives back the VLANs of segments without ports.
func (w *World) settleSegments() {
	for key, s := range w.segments {
		if len(s.ports) > 0 {
			continue
		}
		w.markSegment(key, s)
		for _, e := range s.fdb.endpoints() {
			w.markTunnel(Endpoint{s.Type, e})
		}
		delete(w.segments, key)
		w.vlans.release(key)
	}
}

func (w *World) markSegment(key SegmentKey, s *Segment) {
	w.mark(KindSegment, key.String())
	for _, mac := range s.fdb.stations() {
		w.mark(KindStation, stationID(key, mac))
	}
}

func (w *World) markSegments(which func(*Segment) bool) {
	for key, s := range w.segments {
		if which(s) {
			w.markSegment(key, s)
		}
	}
}

// vlans gives each segment a local VLAN of its own.
type vlans struct {
	of   map[SegmentKey]uint16
	used map[uint16]bool
	// kept are numbers that ports on the switch bear from an earlier run; they wait for their segments.
	kept map[SegmentKey]uint16
	next uint16
}

// Local VLANs lie between 1 and maxVLAN; 4095 is that of dead ports.
const (
	maxVLAN  = 4094
	DeadVLAN = 4095
)

func newVLANs() vlans {
	return vlans{of: map[SegmentKey]uint16{}, used: map[uint16]bool{}, kept: map[SegmentKey]uint16{}, next: 1}
}

// take gives a segment its number: the one its ports had before, or one that was free for the longest time, since
// connection tracking remembers a number's last user for a while. Fresh: it is not the one it had before.
func (v *vlans) take(key SegmentKey) (n uint16, fresh, ok bool) {
	if n, ok := v.of[key]; ok {
		return n, false, true
	}
	if n, ok := v.kept[key]; ok {
		delete(v.kept, key)
		v.of[key] = n
		return n, false, true
	}
	for range maxVLAN {
		n := v.next
		v.next = v.next%maxVLAN + 1
		if !v.used[n] {
			v.used[n], v.of[key] = true, n
			return n, true, true
		}
	}
	return 0, false, false
}

func (v *vlans) release(key SegmentKey) {
	if n, ok := v.of[key]; ok {
		delete(v.of, key)
		delete(v.used, n)
	}
}

// keep reserves a number that a port on the switch bears. Whoever comes first has it; a second segment that claims the
// same number gets another.
func (v *vlans) keep(key SegmentKey, n uint16) {
	if _, known := v.of[key]; known || v.used[n] || v.kept[key] != 0 || n < 1 || n > maxVLAN {
		return
	}
	v.kept[key], v.used[n] = n, true
}

// restoreVLANs reads the numbers of an earlier run back from the ports of the integration bridge. A port that is off or dead
// has its number only written down; it may have been given to another network since, whose ports come first.
func (w *World) restoreVLANs(b *ovsdb.Batch) {
	for _, d := range b.Ports {
		if d.New != nil && d.New.Tag != nil && *d.New.Tag != DeadVLAN {
			w.restoreVLAN(d.New, *d.New.Tag)
		}
	}
	for _, d := range b.Ports {
		if d.New != nil && d.New.Tag != nil && *d.New.Tag == DeadVLAN {
			if number, err := strconv.Atoi(d.New.OtherConfig["tag"]); err == nil {
				w.restoreVLAN(d.New, number)
			}
		}
	}
}

func (w *World) restoreVLAN(p *ovsdb.Port, number int) {
	if p.OtherConfig["net_uuid"] == "" {
		return
	}
	if br := w.View.BridgeOf(p.UUID); br == nil || br.Name != w.Config.IntegrationBridge {
		return
	}
	id := p.OtherConfig["segmentation_id"]
	if id == "" {
		id = "None"
	}
	if key, ok := ParseSegmentKey(p.OtherConfig["net_uuid"] + "/" + id); ok && number > 0 && number <= maxVLAN {
		w.vlans.keep(key, uint16(number))
	}
}
