// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// watch waits for the first flow of a host that has a field, or for one to go.
type watch struct {
	kind  string
	since time.Time
	field string // such as in_port=7
	gone  bool
	// disturbed: agent, broker, server or switch were away meanwhile, which is what took the time.
	disturbed bool
	times     *times
}

// times are how long changes took until there was a flow, by kind of change.
type times struct {
	mu        sync.Mutex
	calm      map[string][]time.Duration
	disturbed []time.Duration
}

func newTimes() *times { return &times{calm: map[string][]time.Duration{}} }

func (t *times) add(w *watch, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.disturbed {
		t.disturbed = append(t.disturbed, took)
		return
	}
	t.calm[w.kind] = append(t.calm[w.kind], took)
}

// watch has the time taken until the host's switch has, or no longer has, a flow with the field.
func (h *host) watch(w watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.disturbed = w.disturbed || h.running == nil || time.Since(h.started) < startTime
	h.watches = append(h.watches, &w)
}

// startTime is how long an agent that was started is not yet as quick as others, at most.
const startTime = 15 * time.Second

// overtaken forgets what is waited for about a field: another change came before it.
func (h *host) overtaken(field string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watches = slices.DeleteFunc(h.watches, func(w *watch) bool { return w.field == field })
}

// disturb marks everything that is waited for.
func (h *host) disturb() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watches {
		w.disturbed = true
	}
}

// unseen is how much is still waited for.
func (h *host) unseen() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watches)
}

// committed hears what a bundle did to a bridge.
func (h *host) committed(bridge string, mods []openflowtest.Mod, wiped bool, _ map[openflow.Key]openflow.Entry) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watches) == 0 || bridge != integration || wiped {
		return
	}
	for _, m := range mods {
		text, gone := "", m.Entry.IsZero()
		h.watches = slices.DeleteFunc(h.watches, func(w *watch) bool {
			if w.gone != gone {
				return false
			}
			if text == "" {
				text = m.Key.String()
			}
			if !hasField(text, w.field) {
				return false
			}
			w.times.add(w, now.Sub(w.since))
			return true
		})
	}
}

// hasField says whether a match, in the words of ovs-ofctl, has a field with exactly that value.
func hasField(match, field string) bool {
	for part := range strings.FieldsFuncSeq(match, func(r rune) bool { return r == ',' || r == ' ' }) {
		if part == field {
			return true
		}
	}
	return false
}
