// SPDX-License-Identifier: Apache-2.0

// Package zones decides what connection tracking is told about the zones of networks. A zone has the number of a local VLAN.
//
// Its inputs are zones that got a new network ([Zones.Allocated]), zones whose filters change ([Zones.FiltersChanged],
// [Zones.Committed]) and the outcomes of its jobs. Its outputs are jobs as data: zones to flush before a network has flows
// ([Zones.ToFlush]), zones whose marked connections are listed ([Zones.Next]), connections to release ([Zones.Listed]), and the
// limit of each zone ([Limits.Next]). The caller runs the jobs. Nothing in it waits or reads the clock.
package zones

import (
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// Zones is the state of all zones. It has one owner.
type Zones struct {
	unflushed map[uint16]bool // zones with a new network
	retries   pace.Backoff[uint16]
	// changed are zones whose filters may change with the next bundle.
	changed map[uint16]bool
	// listings are the zones whose filters have changed.
	listings map[uint16]listing
	listing  bool
	// pausedUntil ends the pause after a listing, see dumpPauseFactor.
	pausedUntil time.Time
}

// dumpPauseFactor makes the pause after a listing 20 times as long as the listing took: a listing stalls a userspace datapath
// without threads for packets, and with many connections and many changes there would be one listing after the other.
const dumpPauseFactor = 20

// listing is when a zone's marked connections are listed next, and how often they have been. A mark stops a connection that is
// not allowed. The switch uses cached flows for up to a second and may mark a connection after its rule is back, so one listing
// is not enough.
//
// Connections that are still not allowed stay in the table: the mark is what stops them, and both ends try for minutes. Were
// one deleted, a packet of the end that may begin connections would look like the first of a new one, and all packets
// of the other end would pass as answers to it.
type listing struct {
	at   time.Time
	done int
}

// pauses returns the pauses before each listing of a zone.
func pauses() []time.Duration { return []time.Duration{0, time.Second, 4 * time.Second} }

// abandonPause is the pause before zones are listed again whose listing was abandoned.
const abandonPause = time.Second

// New returns the state without any zone.
func New() *Zones {
	return &Zones{unflushed: map[uint16]bool{}, retries: pace.Backoff[uint16]{}, changed: map[uint16]bool{}, listings: map[uint16]listing{}}
}

// Allocated records that a zone has a new network: it is flushed before the network's ports have flows.
func (z *Zones) Allocated(zone uint16) { z.unflushed[zone] = true }

// FiltersChanged records that the filters of a zone may change with the next bundle.
func (z *Zones) FiltersChanged(zone uint16) { z.changed[zone] = true }

// TakeChanged takes the zones whose filters change with the bundle that is sent now.
func (z *Zones) TakeChanged() map[uint16]bool {
	taken := z.changed
	z.changed = map[uint16]bool{}
	return taken
}

// Withheld gives back what [Zones.TakeChanged] took: not all changes were sent.
func (z *Zones) Withheld(taken map[uint16]bool) { maps.Copy(z.changed, taken) }

// Committed schedules listings of zones whose filters have changed.
func (z *Zones) Committed(taken map[uint16]bool, now time.Time) {
	for zone := range taken {
		z.listings[zone] = listing{at: now}
	}
}

// ToFlush returns the zones to flush now.
func (z *Zones) ToFlush(now time.Time) []uint16 {
	var out []uint16
	for _, zone := range slices.Sorted(maps.Keys(z.unflushed)) {
		if !z.retries.Waiting(zone, now) {
			out = append(out, zone)
		}
	}
	return out
}

// Unflushed returns whether a zone still has the connections of its last network.
func (z *Zones) Unflushed(zone uint16) bool { return z.unflushed[zone] }

// Pending returns how many zones are not flushed.
func (z *Zones) Pending() int { return len(z.unflushed) }

// Failed returns the zones whose last flush failed, sorted.
func (z *Zones) Failed() []uint16 { return slices.Sorted(maps.Keys(z.retries)) }

// Flushed takes the outcome of a flush. It returns whether earlier ones of the zone had failed and this one did not.
func (z *Zones) Flushed(zone uint16, err error, now time.Time) (recovered bool) {
	if err != nil {
		z.retries.Fail(zone, now)
		return false
	}
	recovered = z.retries[zone].Failed > 0
	delete(z.unflushed, zone)
	z.retries.Forget(zone)
	return recovered
}

// Next takes the zones whose marked connections are listed now. There are none until [Zones.Released] or [Zones.Abandoned] ends
// the last listing.
func (z *Zones) Next(now time.Time) []uint16 {
	if z.listing || z.pausedUntil.After(now) {
		return nil
	}
	var out []uint16
	for _, zone := range slices.Sorted(maps.Keys(z.listings)) {
		l := z.listings[zone]
		if l.at.After(now) {
			continue
		}
		out = append(out, zone)
		if l.done++; l.done == len(pauses()) {
			delete(z.listings, zone)
		} else {
			z.listings[zone] = listing{now.Add(pauses()[l.done]), l.done}
		}
	}
	z.listing = len(out) > 0
	return out
}

// Connections are connections of one zone.
type Connections struct {
	Zone uint16
	List []conntrack.Connection
}

// Listed takes the marked connections of zones, and how long listing them took. It returns those to release: allowed says
// that filters let them pass again.
func (z *Zones) Listed(found []Connections, took time.Duration, allowed func(zone uint16, c conntrack.Connection) bool, now time.Time) []Connections {
	z.pausedUntil = now.Add(dumpPauseFactor * took)
	var out []Connections
	for _, f := range found {
		var again []conntrack.Connection
		for _, c := range f.List {
			if allowed(f.Zone, c) {
				again = append(again, c)
			}
		}
		if len(again) > 0 {
			out = append(out, Connections{f.Zone, again})
		}
	}
	return out
}

// Released takes that a listing is over, and the connections of it are released that are allowed again.
func (z *Zones) Released() { z.listing = false }

// Abandoned takes that what became of a listing is not known: its zones are listed again.
func (z *Zones) Abandoned(found []Connections, now time.Time) {
	z.listing = false
	for _, f := range found {
		z.listings[f.Zone] = listing{at: now.Add(abandonPause)}
	}
}

// Deadline returns the next time after now at which there may be a job, or zero.
func (z *Zones) Deadline(now time.Time) time.Time {
	var first time.Time
	earlier := func(at time.Time) {
		if at.After(now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for zone := range z.unflushed {
		earlier(z.retries[zone].At)
	}
	if z.listing {
		return first
	}
	for _, l := range z.listings {
		if z.pausedUntil.After(l.at) {
			l.at = z.pausedUntil
		}
		earlier(l.at)
	}
	return first
}
