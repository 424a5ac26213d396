// SPDX-License-Identifier: Apache-2.0

package world

import (
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

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
func (w *Segments) restoreVLANs(b *ovsdb.Batch) {
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

func (w *Segments) restoreVLAN(p *ovsdb.Port, number int) {
	if p.OtherConfig["net_uuid"] == "" {
		return
	}
	if br := w.View.BridgeOf(p.UUID); br == nil || br.Name != w.Config.IntegrationBridge {
		return
	}
	// Flat and local networks have no segmentation id. One in the row of their port is that of the segment on which the port was before.
	id, kind := p.OtherConfig["segmentation_id"], p.OtherConfig["network_type"]
	if id == "" || kind == "flat" || kind == "local" {
		id = "None"
	}
	if key, ok := ParseSegmentKey(p.OtherConfig["net_uuid"] + "/" + id); ok && number > 0 && number <= maxVLAN {
		w.vlans.keep(key, uint16(number))
	}
}
