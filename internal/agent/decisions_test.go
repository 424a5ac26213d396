// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

var (
	decisions    = flag.Int("decisions", 20, "random histories whose decisions are made again")
	decisionSeed = flag.Uint64("decisionseed", 1, "seed of the histories; 0: new ones")
)

// TestDecisions: the same times and events give the same effects, byte for byte. Agents live through the histories of TestCrashes, with crashes, or
// of TestUnkindServer with VMs behind Linux bridges; then what each of them was told is told to a fresh core, twice.
func TestDecisions(t *testing.T) {
	seed := *decisionSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	for n := range *decisions {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var tapes []*tape
				if rnd := rand.New(rand.NewPCG(seed, uint64(n))); n%4 == hybridEvery {
					h := newUnkindHistory(t, rnd, true, true)
					h.play()
					tapes = h.tapes
				} else {
					h := newTapedHistory(t, rnd, true)
					h.rest()
					h.play()
					h.end()
					tapes = h.tapes
				}
				steps := 0
				for life, tape := range tapes {
					for again := range 2 {
						playAgain(t, tape, fmt.Sprintf("seed %d, history %d, life %d, time %d", seed, n, life, again+2))
					}
					steps += len(tape.inputs)
				}
				if steps < 20 {
					t.Errorf("%d inputs in %d lives", steps, len(tapes))
				}
			})
		})
	}
}

// playAgain tells a fresh core what is on the tape, and compares the effects.
func playAgain(t *testing.T, p *tape, name string) {
	t.Helper()
	cfg := p.cfg
	cfg.Log, cfg.Recorder, cfg.Probe = slog.New(slog.DiscardHandler), &core.Recorder{}, nil
	c := core.New(cfg, copied(t, p.saved), p.began)
	for i, in := range p.inputs {
		if !in.step {
			c.Take(in.now, in.events...)
			continue
		}
		if got := c.Step(in.now, in.events...).String(); got != in.out {
			t.Fatalf("%s: step %d of %d differs after %T:\n%s", name, i, len(p.inputs), in.events, firstDifference(in.out, got))
		}
	}
}

// copied is what was saved, as it was read: a core keeps what it is given.
func copied(t *testing.T, s *core.Saved) *core.Saved {
	t.Helper()
	if s == nil {
		return nil
	}
	text, err := json.Marshal(s.Memory)
	m := &world.Memory{}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &core.Saved{Memory: m, Written: s.Written}
}

// firstDifference shows the first line that differs.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d was %.400s\nand is %.400s", i, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d lines, and %d", len(x), len(y))
}
