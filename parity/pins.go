// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Pins are how many lines each accepted difference explains, by place: scenario, checkpoint and host. A rule that explains
// another number of lines has become wider or narrower than what was reviewed.
type Pins struct {
	// Totals are figures about all recordings, by what they count; in pins of a later release, how many lines are explained, by scenario.
	Totals map[string]int
	// Head is the comment before them in a file; "": that of [PinsFile].
	Head   string
	file   string
	byRule map[Place]map[string]Count
}

// A Place is where lines were compared.
type Place struct{ Scenario, Checkpoint, Host string }

func (p Place) String() string { return p.Scenario + "/" + p.Checkpoint + " " + p.Host }

// Count is how many lines only the Python agent has, and how many only Patchbay.
type Count struct{ Missing, Added int }

func (c Count) String() string {
	var parts []string
	if c.Missing > 0 {
		parts = append(parts, "-"+strconv.Itoa(c.Missing))
	}
	if c.Added > 0 {
		parts = append(parts, "+"+strconv.Itoa(c.Added))
	}
	return strings.Join(parts, " ")
}

// NewPins returns pins of nothing.
func NewPins() *Pins {
	return &Pins{Totals: map[string]int{}, file: PinsFile, byRule: map[Place]map[string]Count{}}
}

// Counts returns how many lines each rule explains in a comparison.
func (d Diff) Counts() map[string]Count {
	counts := map[string]Count{}
	for _, x := range d.Differences {
		if x.Accepted == "" {
			continue
		}
		c := counts[x.Accepted]
		if x.Missing {
			c.Missing++
		} else {
			c.Added++
		}
		counts[x.Accepted] = c
	}
	return counts
}

// Set pins what a comparison showed.
func (p *Pins) Set(at Place, counts map[string]Count) {
	if delete(p.byRule, at); len(counts) > 0 {
		p.byRule[at] = counts
	}
}

// Replace pins scenarios anew, with the counts of other pins and their total. What these have of other scenarios is left out.
func (p *Pins) Replace(scenarios []string, by *Pins) {
	for _, name := range scenarios {
		p.Totals[name] = 0
	}
	maps.DeleteFunc(p.byRule, func(at Place, _ map[string]Count) bool { return slices.Contains(scenarios, at.Scenario) })
	for at, counts := range by.byRule {
		if !slices.Contains(scenarios, at.Scenario) {
			continue
		}
		p.byRule[at] = counts
		for _, c := range counts {
			p.Totals[at.Scenario] += c.Missing + c.Added
		}
	}
}

// At returns what is pinned at a place.
func (p *Pins) At(at Place) map[string]Count { return p.byRule[at] }

// Rules returns how many lines each rule explains in all places.
func (p *Pins) Rules() map[string]Count {
	sum := map[string]Count{}
	for _, counts := range p.byRule {
		for rule, c := range counts {
			sum[rule] = Count{sum[rule].Missing + c.Missing, sum[rule].Added + c.Added}
		}
	}
	return sum
}

// RuleNames returns the rules that explain something, sorted.
func (p *Pins) RuleNames() []string { return slices.Sorted(maps.Keys(p.Rules())) }

// Places returns all places with pins, sorted.
func (p *Pins) Places() []Place {
	return slices.SortedFunc(maps.Keys(p.byRule), func(a, b Place) int { return strings.Compare(a.String(), b.String()) })
}

// Exactly says in words where counts are not those that are pinned.
func (p *Pins) Exactly(at Place, counts map[string]Count) []string {
	return p.check(at, counts, func(c, pinned Count) bool { return c == pinned })
}

// AtMost says in words where counts are more than is pinned. It is for comparisons that see only some of the lines, and for
// live agents, which may have been quicker or slower than in the replay.
func (p *Pins) AtMost(at Place, counts map[string]Count) []string {
	return p.check(at, counts, func(c, pinned Count) bool { return c.Missing <= pinned.Missing && c.Added <= pinned.Added })
}

func (p *Pins) check(at Place, counts map[string]Count, fits func(c, pinned Count) bool) []string {
	rules := map[string]bool{}
	for rule := range counts {
		rules[rule] = true
	}
	for rule := range p.byRule[at] {
		rules[rule] = true
	}
	var wrong []string
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		if c, pinned := counts[rule], p.byRule[at][rule]; !fits(c, pinned) {
			wrong = append(wrong, fmt.Sprintf("%s: the accepted difference %s explains %d lines that only the Python agent has and %d that only Patchbay has; %d and %d are pinned in %s",
				at, rule, c.Missing, c.Added, pinned.Missing, pinned.Added, p.file))
		}
	}
	return wrong
}

// PinsFile is the name of the file with the pins, beside the recordings.
const PinsFile = "accepted.txt"

const pinsHead = `# How many lines each accepted difference explains, by scenario, checkpoint and host: - those that only the Python agent has,
# + those that only Patchbay has. The rules are in parity/accepted.md. Written by go test ./internal/agent -run TestReplay -update
# and read in review: a number that grows is a difference that was not there before.
`

// Save writes the pins.
func (p *Pins) Save(path string) error {
	var b strings.Builder
	b.WriteString(cmp.Or(p.Head, pinsHead))
	for _, what := range slices.Sorted(maps.Keys(p.Totals)) {
		fmt.Fprintf(&b, "total %s: %d\n", what, p.Totals[what])
	}
	for _, at := range p.Places() {
		var parts []string
		for _, rule := range slices.Sorted(maps.Keys(p.byRule[at])) {
			parts = append(parts, rule+" "+p.byRule[at][rule].String())
		}
		fmt.Fprintf(&b, "%s: %s\n", at, strings.Join(parts, ", "))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("writing pins: %w", err)
	}
	return nil
}

// LoadPins reads a file that [Pins.Save] wrote.
func LoadPins(path string) (*Pins, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading pins: %w", err)
	}
	defer func() { _ = f.Close() }()
	p := NewPins()
	p.file = filepath.Base(path)
	sc := bufio.NewScanner(f)
	for number := 1; sc.Scan(); number++ {
		if err := p.line(sc.Text()); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("reading pins: %w", err)
	}
	return p, nil
}

func (p *Pins) line(line string) error {
	if line == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	head, rest, found := strings.Cut(line, ": ")
	if !found {
		return fmt.Errorf("no colon")
	}
	if what, ok := strings.CutPrefix(head, "total "); ok {
		n, err := strconv.Atoi(rest)
		p.Totals[what] = n
		return err
	}
	scenario, place, found := strings.Cut(head, "/")
	space := strings.LastIndexByte(place, ' ')
	if !found || space < 0 {
		return fmt.Errorf("%q is not scenario/checkpoint and host", head)
	}
	at := Place{scenario, place[:space], place[space+1:]}
	if p.byRule[at] != nil {
		return fmt.Errorf("%s stands here twice", at)
	}
	counts := map[string]Count{}
	for part := range strings.SplitSeq(rest, ", ") {
		words := strings.Fields(part)
		if len(words) < 2 {
			return fmt.Errorf("%q is not a rule and its counts", part)
		}
		var c Count
		for _, w := range words[1:] {
			n, err := strconv.Atoi(w)
			switch {
			case err != nil:
				return err
			case n < 0:
				c.Missing = -n
			default:
				c.Added = n
			}
		}
		counts[words[0]] = c
	}
	p.byRule[at] = counts
	return nil
}
