// SPDX-License-Identifier: Apache-2.0

package pace

import "time"

// Limits bounds how often each of many may do something: Burst times at once, and then once every Every. It has one owner.
type Limits[K comparable] struct {
	Every time.Duration
	Burst int

	// full is when a key may do it Burst times again. Who is not in it may now.
	full map[K]time.Time
}

// manyKeys is how many keys are kept before those are forgotten that have been quiet.
const manyKeys = 4096

// Take says whether a key may do it now, and counts that it does.
func (l *Limits[K]) Take(k K, now time.Time) bool {
	full := l.full[k]
	if full.Before(now) {
		full = now
	}
	if next := full.Add(l.Every); next.Sub(now) <= time.Duration(l.Burst)*l.Every {
		if l.full == nil {
			l.full = map[K]time.Time{}
		}
		l.full[k] = next
		l.forget(now)
		return true
	}
	return false
}

func (l *Limits[K]) forget(now time.Time) {
	if len(l.full) < manyKeys {
		return
	}
	for k, full := range l.full {
		if full.Before(now) {
			delete(l.full, k)
		}
	}
}
