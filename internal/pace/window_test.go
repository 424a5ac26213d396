// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"testing"
	"time"
)

// A window opens by one after as many good answers, up to a bound, and closes when answers fail or become slow.
func TestWindow(t *testing.T) {
	var w Window
	answers := func(n, items int, took time.Duration) int {
		for range n {
			w.Answered(items, took)
		}
		return w.Size()
	}
	for _, step := range []struct {
		what string
		do   func() int
		want int
	}{
		{"at first", w.Size, 2},
		{"one good answer", func() int { return answers(1, 1, 100*time.Millisecond) }, 2},
		{"a window of good answers", func() int { return answers(1, 1, 100*time.Millisecond) }, 3},
		{"many good answers, about more items", func() int { return answers(100, 5, 500*time.Millisecond) }, widestWindow},
		{"a failure", func() int { w.Failed(); return w.Size() }, widestWindow / 2},
		{"many failures", func() int { w.Failed(); w.Failed(); w.Failed(); return w.Size() }, 1},
		{"a good answer", func() int { return answers(1, 5, 500*time.Millisecond) }, 2},
		{"answers that take four times as long", func() int { return answers(4, 5, 2*time.Second) }, 2},
		{"good answers", func() int { return answers(2, 5, 500*time.Millisecond) }, 3},
		{"slow answers", func() int { return answers(2, 5, 3*time.Second) }, 1},
		{"no items, at once", func() int { return answers(1, 0, 0) }, 2},
	} {
		if got := step.do(); got != step.want {
			t.Errorf("after %s: %d, want %d", step.what, got, step.want)
		}
	}
	// A server that is slower for good is measured by what it does now.
	w = Window{}
	answers(1, 1, 10*time.Millisecond)
	if got := answers(200, 1, 100*time.Millisecond); got != widestWindow {
		t.Errorf("a server that became slower has a window of %d", got)
	}
}
