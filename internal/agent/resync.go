// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// resyncing is where the check of what is known against the server stands. It is owned by the loop.
//
// After a broker's restart every host of a region has missed news at the same moment, so what is known is checked with
// moderation: from a random moment within spread on, one question about ports and one about filters at a time, and not
// more of them than the bucket lets through. What is known stays in force meanwhile. What is not known, such as a port that
// was just plugged in, is not part of a check: it is asked for and reported at once, whatever else goes on.
type resyncing struct {
	at     time.Time // of the next check; zero when none is due
	bucket bucket
	// networks have forwarding entries that the server is to send again. Only the report of a port makes it do so.
	networks map[world.SegmentKey]bool
	count    int // of checks, to tell a report from before one
}

// spread is the time over which hosts that missed something at the same moment begin to check. It leaves most of the five
// seconds in which what was missed has to be in place.
const spread = 2 * time.Second

// resync has everything checked, after something may have been missed.
func (a *Agent) resync() {
	if a.resyncing.at.IsZero() {
		a.resyncing.at = time.Now().Add(rand.N(spread))
		a.wakeUp(a.resyncing.at)
	}
}

// beginResync begins the check that is due.
func (a *Agent) beginResync() {
	if a.resyncing.at.IsZero() {
		return
	}
	if time.Now().Before(a.resyncing.at) {
		a.wakeUp(a.resyncing.at)
		return
	}
	a.resyncing.at = time.Time{}
	a.seen.totals.Resyncs++
	a.world.Doubt()
	a.extensions.doubt()
	a.swept = false // what is not confirmed goes then
	for _, t := range a.cfg.World.TunnelTypes {
		a.tunnels[t] = tunnelUnsynced
	}
	a.refreshNetworks()
}

// refreshNetworks has the server send all forwarding entries again.
func (a *Agent) refreshNetworks() {
	if !a.cfg.World.L2Population {
		return
	}
	a.resyncing.count++
	a.syncedAt = time.Time{}
	for _, s := range a.world.Segments() {
		if s.Tunnelled() {
			a.resyncing.networks[s.Key] = true
		}
	}
}

// refreshers are ports to be reported once more because of their networks: one a network will do.
func (a *Agent) refreshers(now time.Time) []string {
	if len(a.resyncing.networks) == 0 {
		return nil
	}
	var ids []string
	taken := map[world.SegmentKey]bool{}
	for _, id := range slices.Sorted(maps.Keys(a.ports.told)) {
		p := a.world.Port(id)
		if p == nil || p.Wiring.State != world.Wired || a.ports.told[id].status != up || a.ports.told[id].vif != p.VIF.Interface ||
			taken[p.Wiring.Segment] || !a.resyncing.networks[p.Wiring.Segment] {
			continue
		}
		taken[p.Wiring.Segment] = true
		if a.ports.onWay[id] {
			continue
		}
		if a.ports.retries.waiting(id, now) {
			a.wakeUp(a.ports.retries[id].at)
			continue
		}
		if len(ids) < a.cfg.PortsPerReport {
			ids = append(ids, id)
		}
	}
	if len(taken) == 0 {
		clear(a.resyncing.networks) // the reports of their ports are still to come, and will do it
	}
	return ids
}

// refreshed takes that the server was asked for the forwarding entries of the ports' networks, unless that was before news
// were missed. A port may be gone since.
func (a *Agent) refreshed(e toldAbout, failed map[string]bool) {
	if e.count != a.resyncing.count {
		return
	}
	for _, id := range e.update.Up {
		if !failed[id] {
			delete(a.resyncing.networks, e.at[id].segment)
		}
	}
}

// mayCheck takes a token for one question of a check, or has the loop come back when there is one.
func (a *Agent) mayCheck(now time.Time) bool {
	if a.resyncing.bucket.take(now) {
		return true
	}
	a.wakeUp(a.resyncing.bucket.next())
	return false
}

// bucket holds tokens: so many at first, and then as many as drip into it.
type bucket struct {
	full time.Time // when it will be full again
}

const (
	bucketSize = 10                     // questions at once
	dripEvery  = 100 * time.Millisecond // and then one each
)

// take takes a token if there is one.
func (b *bucket) take(now time.Time) bool {
	if now.Before(b.next()) {
		return false
	}
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(dripEvery)
	return true
}

// next is from when on there is a token.
func (b *bucket) next() time.Time { return b.full.Add(-(bucketSize - 1) * dripEvery) }
