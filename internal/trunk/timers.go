// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"time"
)

// Deadline implements extension.Timed.
func (t *trunks) Deadline() time.Time {
	var first time.Time
	wait := func(at time.Time) {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	for name := range t.busy {
		switch b := t.bridges[name]; {
		case b.empty.IsZero():
		case !b.patchesGo:
			wait(b.empty.Add(patchGrace))
		case !b.bridgeGoes:
			wait(b.empty.Add(bridgeGrace))
		}
	}
	for _, s := range t.strays {
		if !s.goes {
			wait(s.since.Add(patchGrace))
		}
	}
	return first
}

// OnTime implements extension.Timed.
func (t *trunks) OnTime(now time.Time) {
	passed := func(since time.Time, grace time.Duration) bool { return !now.Before(since.Add(grace)) }
	for name := range t.busy {
		if b := t.bridges[name]; !b.empty.IsZero() {
			b.patchesGo, b.bridgeGoes = passed(b.empty, patchGrace), passed(b.empty, bridgeGrace)
			if b.patchesGo { // nobody asks for the trunk of no VM: what is known of it grows old
				b.trunk, b.confirmed = nil, false
				clear(b.macs)
			}
			t.touched[name] = true
		}
	}
	for name, s := range t.strays {
		if !s.goes && passed(s.since, patchGrace) {
			s.goes, t.suspects[name] = true, true
		}
	}
}
