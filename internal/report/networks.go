// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/patchbay-sdn/patchbay/internal/world"

// join takes the network of a port for a batch, and says whether it could: whether what else is in flight of the network lets it.
func (r *Reporter) join(b *Batch, c Claim, held map[world.SegmentKey]bool) bool {
	key, counted := r.network(c)
	if !counted {
		return true
	}
	first := c.Status == Up && r.first(key)
	alone := c.Status != Up || first
	wasAlone, joined := b.networks[key]
	if joined && first {
		return false // the server sends all entries for each port of the batch: one is enough
	}
	if others, taken := r.running(key); taken || others > 0 && alone || held[key] && !joined {
		held[key] = held[key] || alone
		return false
	}
	b.networks[key] = wasAlone || alone
	return true
}

// network returns the network of a port, and whether the server counts its ports. A port that is gone has the one it was reported with.
func (r *Reporter) network(c Claim) (key world.SegmentKey, counted bool) {
	for _, c := range []Claim{c, r.confirmed[c.Port], r.unsure[c.Port]} {
		if c.Segment != (world.SegmentKey{}) {
			return c.Segment, c.Tunnelled
		}
	}
	return key, false
}

// first says whether the server knows of no port of a network that is up.
func (r *Reporter) first(key world.SegmentKey) bool { return r.up[key] == 0 }

// running returns how many batches of a network are in flight, and whether one of them runs alone.
func (r *Reporter) running(key world.SegmentKey) (batches int, alone bool) {
	for _, b := range r.flights {
		if only, ok := b.networks[key]; ok {
			batches++
			alone = alone || only
		}
	}
	return batches, alone
}
