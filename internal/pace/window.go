// SPDX-License-Identifier: Apache-2.0

package pace

import "time"

// Window is how many calls of a kind may be in flight to a server. It opens while the server answers well, and closes when it slows down or
// fails. The zero Window is ready to use.
type Window struct {
	size, good int
	best       time.Duration // for one item, of the answers so far
}

const (
	startingWindow = 2
	widestWindow   = 8
	// stretched is by how much an answer may take longer than the best one: the server has more calls than it works on.
	stretched = 3
	// slowItem is the time for one item that is too long whatever the best one was: other hosts have the server's time.
	slowItem = 500 * time.Millisecond
)

// Size returns how many calls may be in flight, one at least.
func (w *Window) Size() int {
	if w.size == 0 {
		return startingWindow
	}
	return w.size
}

// Answered takes how long an answer about so many items took.
func (w *Window) Answered(items int, took time.Duration) {
	each := max(took/time.Duration(max(items, 1)), time.Millisecond)
	w.best += w.best / 32 // a server that has become slower for good is not held against its past for ever
	if w.best == 0 || each < w.best {
		w.best = each
	}
	switch w.size = w.Size(); {
	case each > slowItem:
		w.size, w.good = max(1, w.size-1), 0
	case each > stretched*w.best:
		w.good = 0
	default:
		if w.good++; w.good >= w.size {
			w.size, w.good = min(widestWindow, w.size+1), 0
		}
	}
}

// Failed takes that a call was not answered, or with an error that is not about its items.
func (w *Window) Failed() { w.size, w.good = max(1, w.Size()/2), 0 }
