// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// counter is neutron-server as far as l2population goes. It works on several reports at once, a step of one, then a step of another. A port takes three
// steps: its status is written, the active ports of its network on the host are counted, and by that count forwarding entries are sent.
type counter struct {
	active  map[string]string // network by port
	known   map[string]bool   // networks for which other hosts flood to this one
	entries map[string]bool   // networks whose entries were sent to this host
	work    []*work
}

type work struct {
	batch Batch
	steps []func()
}

func (c *counter) count(network string) (n int) {
	for _, other := range c.active {
		if other == network {
			n++
		}
	}
	return n
}

// take begins to work on a report: ports that are up, then those that are down.
func (c *counter) take(b Batch, networks map[string]string) {
	w := &work{batch: b}
	for _, id := range b.Update.Up {
		n, count := networks[id], 0
		w.steps = append(w.steps, func() { c.active[id] = n }, func() { count = c.count(n) }, func() {
			if count == 1 || count == 2 || b.Update.RefreshTunnels {
				c.known[n], c.entries[n] = true, true
			}
		})
	}
	for _, id := range append(slices.Clone(b.Update.Down), b.AdminDown) {
		if id == "" {
			continue
		}
		n, count := networks[id], 0
		w.steps = append(w.steps, func() { delete(c.active, id) }, func() { count = c.count(n) }, func() {
			if count == 0 {
				c.known[n] = false
			}
		})
	}
	c.work = append(c.work, w)
}

// TestTheServerCountsRight has ports come, go, be plugged in again and be disabled while the server works on several reports at once. When all is
// told, other hosts flood to this one exactly for the networks that have a port up, and it has the entries of those.
func TestTheServerCountsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ports := rapid.IntRange(2, 4).Draw(t, "ports")
		h := &host{ports: map[string]Claim{}, now: time.Unix(1000, 0)}
		h.Reporter = New(rapid.IntRange(1, 10).Draw(t, "perReport"), &pace.Bucket{})
		server := &counter{active: map[string]string{}, known: map[string]bool{}, entries: map[string]bool{}}
		networks := map[string]string{}
		for i := range ports {
			networks[fmt.Sprint("p", i)] = fmt.Sprint("n", i/3)
		}
		ids := slices.Sorted(maps.Keys(networks))
		for step := range 60 {
			if step < 40 && rapid.Bool().Draw(t, "change") {
				id := rapid.SampledFrom(ids).Draw(t, "port")
				c := tunnelled(id, networks[id])
				switch rapid.IntRange(-2, 6).Draw(t, "what") {
				case 0, -1, -2:
					h.gone(id)
				case 1:
					c.Status = AdminDown
					h.set(c)
				case 2:
					c.Interface = "another"
					h.set(c)
				case 3:
					h.Refresh(world.SegmentKey{Network: networks[id]})
				default:
					h.set(c)
				}
			}
			for _, b := range h.next() {
				server.take(b, networks)
			}
			server.run(t, h, step >= 40)
		}
		for h.Stats() != (Stats{}) {
			h.now = h.now.Add(time.Second)
			for _, b := range h.next() {
				server.take(b, networks)
			}
			server.run(t, h, true)
		}
		for _, n := range []string{"n0", "n1"} {
			if up := server.count(n) > 0; server.known[n] != up || up && !server.entries[n] {
				t.Fatalf("%s: %d ports are up, other hosts flood to it: %v, it has the entries: %v", n, server.count(n), server.known[n], server.entries[n])
			}
		}
	})
}

// run takes some steps, or all, of reports in any order, and answers those that are done.
func (c *counter) run(t *rapid.T, h *host, all bool) {
	for n := rapid.IntRange(0, 6).Draw(t, "steps"); len(c.work) > 0 && (all || n > 0); n-- {
		i := rapid.IntRange(0, len(c.work)-1).Draw(t, "of")
		w := c.work[i]
		w.steps[0]()
		if w.steps = w.steps[1:]; len(w.steps) > 0 {
			continue
		}
		c.work = slices.Delete(c.work, i, i+1)
		h.now = h.now.Add(10 * time.Millisecond)
		h.Done(w.batch, Result{DeviceResult: neutron.DeviceResult{}}, h.now)
	}
}
