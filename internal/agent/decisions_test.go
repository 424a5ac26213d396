// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/tape"
)

var (
	decisions    = flag.Int("decisions", 20, "random histories whose decisions are made again")
	keepTapes    = flag.String("keeptapes", "", "directory to keep the tapes of histories in")
	decisionSeed = flag.Uint64("decisionseed", 1, "seed of the histories; 0: new ones")
)

// TestDecisions: the same times and events give the same effects, byte for byte. Agents live through the histories of TestCrashes, with crashes, or
// of TestUnkindServer with VMs behind Linux bridges; then what each of them was told is told to a fresh core, twice.
func TestDecisions(t *testing.T) {
	seed := seedOf(t, *decisionSeed)
	playHistories(t, seed, *decisions, func(t *testing.T, rnd *rand.Rand, n int) {
		var tapes []*keptTape
		if n%4 == hybridEvery {
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
		for life, kept := range tapes {
			kept.keep(t, fmt.Sprintf("%d-%d.tape", n, life))
			for again := range 2 {
				playAgain(t, kept, fmt.Sprintf("seed %d, history %d, life %d, time %d", seed, n, life, again+2))
			}
			steps += kept.inputs
		}
		if steps < 20 {
			t.Errorf("%d inputs in %d lives", steps, len(tapes))
		}
	})
}

// keptTape keeps what a tape has on disk.
type keptTape struct {
	bytes.Buffer
	writer *tape.Writer
	makers []extension.New
	inputs int
	err    error
}

func (k *keptTape) Begin(h tape.Header) { k.writer, k.err = tape.NewWriter(&k.Buffer, h) }

func (k *keptTape) Put(in tape.Input) {
	if k.inputs++; k.err == nil {
		k.err = k.writer.Write(in)
	}
}

// keep writes the tape to a file, if somebody wants it.
func (k *keptTape) keep(t *testing.T, name string) {
	t.Helper()
	if *keepTapes == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*keepTapes, name), k.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// playAgain makes the decisions of a tape again, and compares the effects.
func playAgain(t *testing.T, k *keptTape, name string) {
	t.Helper()
	if k.err != nil {
		t.Fatalf("%s: %v", name, k.err)
	}
	r, err := tape.NewReader(bytes.NewReader(k.Bytes()))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	p := tape.NewPlayer(r, k.makers)
	for {
		s, err := p.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !s.Same {
			t.Fatalf("%s: step %d of %d differs after %q:\n%s", name, s.N, k.inputs, s.Events, firstDifference(s.Recorded, s.Out))
		}
	}
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

// TestTimeOfDecisions: a replay, which knows the start and what has passed since, decides at the same nanosecond.
func TestTimeOfDecisions(t *testing.T) {
	of := turns{start: time.Now()}
	for range 10_000 {
		if now := of.now(); of.start.Round(0).Add(now.Sub(of.start)).UnixNano() != now.UnixNano() {
			t.Fatalf("%v after %v is not %v", now.Sub(of.start), of.start, now)
		}
	}
}
