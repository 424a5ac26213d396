// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"maps"
	"slices"
)

// Zones of connections: each port has its own, above those that are local VLANs.
const (
	firstZone = 4097
	lastZone  = 65535
)

var errNoZone = errors.New("all zones of connection tracking are in use")

// Zones are the zones of ports, by the part of the port id that is in device names. A port keeps its zone, unplugged or not: with another one
// its connections would be unknown.
type Zones struct {
	of map[string]uint16
	// noted are the zones from the chain of notes, by the part of the id that is used there.
	noted map[string]uint16
}

// NewZones returns zones without any port.
func NewZones() *Zones { return &Zones{map[string]uint16{}, map[string]uint16{}} }

// Read takes the zones of rules that are in place. What is known already stays.
func (z *Zones) Read(rules Ruleset) {
	for _, chain := range slices.Sorted(maps.Keys(rules["raw"])) {
		into := z.of
		if chain == chainZones {
			into = z.noted
		}
		for _, rule := range rules["raw"][chain] {
			device, zone, ok := zoneOf(rule)
			if _, known := into[cut(device, maxDevice)[min(3, len(device)):]]; ok && !known {
				into[cut(device, maxDevice)[3:]] = zone
			}
		}
	}
}

// Of returns the zone of a port; 0 if it has none.
func (z *Zones) Of(id string) uint16 { return z.of[short(id)] }

// Take returns the zone of a port, a new one if it has none. The new one is above all others, or if there is none a free one; when all are
// in use, those of ports that are not live are free.
func (z *Zones) Take(id string, live func(part string) bool) (uint16, error) {
	key := short(id)
	if zone := z.of[key]; zone != 0 {
		return zone, nil
	}
	zone := z.noted[shifted(id)]
	if zone == 0 || z.used(zone) {
		if zone = z.free(); zone == 0 {
			maps.DeleteFunc(z.of, func(part string, _ uint16) bool { return !live(part) })
			clear(z.noted)
			if zone = z.free(); zone == 0 {
				return 0, errNoZone
			}
		}
	}
	z.of[key] = zone
	return zone, nil
}

func (z *Zones) used(zone uint16) bool {
	for _, other := range z.of {
		if other == zone {
			return true
		}
	}
	return false
}

// free returns a zone that no port has; 0 if there is none.
func (z *Zones) free() uint16 {
	used := map[uint16]bool{}
	highest := uint16(firstZone - 1)
	for _, all := range []map[string]uint16{z.of, z.noted} {
		for _, zone := range all {
			used[zone] = true
			highest = max(highest, zone)
		}
	}
	if highest < lastZone {
		return highest + 1
	}
	for zone := firstZone; zone <= lastZone; zone++ {
		if !used[uint16(zone)] {
			return uint16(zone)
		}
	}
	return 0
}
