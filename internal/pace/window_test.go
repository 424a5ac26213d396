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

// TestWindowAtItsBounds: an answer that is exactly as slow as it may be is good, and one bad answer begins the count of good ones anew.
func TestWindowAtItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		answers []time.Duration // for one item each
		want    int
	}{
		"as slow as may be":                       {[]time.Duration{slowItem, slowItem}, 3},
		"slower":                                  {[]time.Duration{slowItem, slowItem + 1}, 1},
		"slower, twice":                           {[]time.Duration{slowItem + 1, slowItem + 1, slowItem + 1}, 1},
		"a stretched one begins the count anew":   {[]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 10 * time.Millisecond}, 2},
		"and then two good ones":                  {[]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond}, 3},
		"a slow one begins the count anew":        {[]time.Duration{slowItem, slowItem + 1, slowItem}, 2},
		"a window that grew begins the count":     {[]time.Duration{slowItem, slowItem, slowItem, slowItem}, 3},
		"a window that grew, and three good ones": {[]time.Duration{slowItem, slowItem, slowItem, slowItem, slowItem}, 4},
	} {
		var w Window
		for _, took := range c.answers {
			w.Answered(1, took)
		}
		if got := w.Size(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	var w Window
	w.Answered(1, slowItem)
	w.Failed() // a window of one
	w.Failed()
	if w.Answered(1, slowItem); w.Size() != 2 {
		t.Errorf("after a failure and a good answer: %d", w.Size())
	}
	if w.Answered(1, slowItem); w.Size() != 2 {
		t.Errorf("after another: %d", w.Size())
	}
}
