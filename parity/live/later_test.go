// SPDX-License-Identifier: Apache-2.0

//go:build parity

package live

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/parity"
)

// later is how many lines rules for releases after 21 explain. There are no recordings of these, so a run with PIN=1 writes the counts of the scenarios in which
// nothing is unexplained, and other runs hold them against those. A nil one is of 21, for which there are no such rules.
type later struct {
	file  string
	write bool
	pins  *parity.Pins // of earlier runs; the total of a scenario says that it was played
	seen  *parity.Pins
}

const laterHead = `# How many lines the accepted differences to later releases explain, by scenario, checkpoint and host: - those that only the Python agent has,
# + those that only Patchbay has. A total is that of a scenario that was played. The rules are in parity/accepted.md. Written by
# PIN=1 PATCHBAY_LAB_RELEASE=29 make parity, and read in review.
`

func laterOf(t *testing.T, release int) *later {
	t.Helper()
	if release == 21 {
		return nil
	}
	l := &later{
		file:  filepath.Join("..", "..", "verification", "matrix", fmt.Sprintf("explained-%d.txt", release)),
		write: os.Getenv("PIN") == "1", pins: parity.NewPins(), seen: parity.NewPins(),
	}
	switch pins, err := parity.LoadPins(l.file); {
	case err == nil:
		l.pins = pins
	case !errors.Is(err, fs.ErrNotExist):
		t.Fatal(err)
	}
	return l
}

// check notes what rules explain at a place, and says in words where that is more than is pinned.
func (l *later) check(at parity.Place, counts map[string]parity.Count) []string {
	if l == nil {
		return nil
	}
	l.seen.Set(at, counts)
	if _, played := l.pins.Totals[at.Scenario]; !played || l.write {
		return nil
	}
	return l.pins.AtMost(at, counts)
}

// end says what the rules explained, and how many of the scenarios that are explained have no pins. It writes the pins of these if it is asked to.
func (l *later) end(out io.Writer, scenarios []string) error {
	if l == nil {
		return nil
	}
	var parts []string
	for _, rule := range l.seen.RuleNames() {
		parts = append(parts, rule+" "+l.seen.Rules()[rule].String())
	}
	unpinned := 0
	for _, name := range scenarios {
		if _, played := l.pins.Totals[name]; !played {
			unpinned++
		}
	}
	fmt.Fprintf(out, "rules for later releases: %s; %d of %d scenarios have no pins in %s\n", strings.Join(parts, ", "), unpinned, len(scenarios), filepath.Base(l.file))
	if !l.write {
		return nil
	}
	if pins, err := parity.LoadPins(l.file); err == nil {
		l.pins = pins // runs beside this one write theirs, too
	}
	l.pins.Head = laterHead
	l.pins.Replace(scenarios, l.seen)
	return l.pins.Save(l.file)
}

// showExplained prints the lines that rules explain whose names match EXPLAINED, to narrow them.
func showExplained(out io.Writer, scenario, checkpoint string, d parity.Diff) {
	wanted := os.Getenv("EXPLAINED")
	if wanted == "" {
		return
	}
	re := regexp.MustCompile(wanted)
	for _, x := range d.Differences {
		if x.Accepted != "" && re.MatchString(x.Accepted) {
			fmt.Fprintf(out, "%s: %s/%s %s\n", x.Accepted, scenario, checkpoint, x)
		}
	}
}
