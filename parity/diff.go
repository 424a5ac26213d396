// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Snapshot is what a checkpoint saw: sorted lines without repetition. A line begins with the host, or "api".
type Snapshot []string

// NewSnapshot sorts lines into a Snapshot.
func NewSnapshot(lines []string) Snapshot {
	s := slices.Clone(lines)
	slices.Sort(s)
	return slices.Compact(s)
}

// Of returns the lines of one host, without its name.
func (s Snapshot) Of(host string) Snapshot {
	var own Snapshot
	for _, line := range s {
		if rest, ok := strings.CutPrefix(line, host+" "); ok {
			own = append(own, rest)
		}
	}
	return own
}

// Select returns the lines that match.
func (s Snapshot) Select(keep func(line string) bool) Snapshot {
	var kept Snapshot
	for _, line := range s {
		if keep(line) {
			kept = append(kept, line)
		}
	}
	return kept
}

// Minus returns the lines of s that o does not have.
func (s Snapshot) Minus(o Snapshot) Snapshot {
	return s.Select(func(line string) bool {
		_, found := slices.BinarySearch(o, line)
		return !found
	})
}

// Plus returns the lines of both.
func (s Snapshot) Plus(o Snapshot) Snapshot { return NewSnapshot(slices.Concat(s, o)) }

// A Difference is a line that only one side has.
type Difference struct {
	Line string
	// Missing is true when only the wanted side has it.
	Missing bool
	// Accepted is the id of the accepted difference that explains it; empty when nothing does.
	Accepted string
}

func (d Difference) String() string {
	sign := "+"
	if d.Missing {
		sign = "-"
	}
	return sign + " " + d.Line
}

// Diff is the result of one comparison.
type Diff struct {
	Compared    int // lines of the union
	Differences []Difference
}

// Compare finds the lines that only one of two snapshots has. Accepted may be nil: then the two are of the same agent, and
// compared as they are. With it the wanted lines of Neutron 21 are turned into those of 29 first, see [Accepted.Release29].
func Compare(want, have Snapshot, accepted *Accepted) Diff {
	want = accepted.Release29(want)
	d := Diff{Compared: len(want.Plus(have))}
	for _, line := range want.Minus(have) {
		d.Differences = append(d.Differences, Difference{Line: line, Missing: true})
	}
	for _, line := range have.Minus(want) {
		d.Differences = append(d.Differences, Difference{Line: line})
	}
	accepted.explainChanged(d.Differences)
	for i := range d.Differences {
		if d.Differences[i].Accepted == "" {
			d.Differences[i].Accepted = accepted.explain(d.Differences[i])
		}
	}
	slices.SortStableFunc(d.Differences, func(a, b Difference) int { return cmp.Compare(key(a.Line), key(b.Line)) })
	return d
}

// key is what two lines about the same thing have in common.
func key(line string) string {
	line, _, _ = strings.Cut(line, " actions=")
	return line
}

// Unexplained returns the differences that nothing accepts.
func (d Diff) Unexplained() []Difference {
	var all []Difference
	for _, x := range d.Differences {
		if x.Accepted == "" {
			all = append(all, x)
		}
	}
	return all
}

// Write prints the unexplained differences for people, under a heading for each host and bridge or row.
func (d Diff) Write(w io.Writer) {
	heading := ""
	for _, x := range d.Unexplained() {
		f := strings.Fields(x.Line)
		h := strings.Join(f[:min(2, len(f))], " ")
		if h != heading {
			heading = h
			fmt.Fprintln(w, "   ", h)
		}
		fmt.Fprintln(w, "     ", x)
	}
}

// AcceptedSection is the heading, in parity/accepted.md, of the table that [ParseAccepted] reads.
const AcceptedSection = "## Accepted differences in flows and rows"

// ReleaseSection is the heading, in parity/accepted.md, of the table of differences to later releases only. Its rows have the
// column since after the id, and are read as those of [AcceptedSection].
const ReleaseSection = "## Accepted differences to later releases"

// An AcceptedDifference is one row of these tables.
type AcceptedDifference struct {
	ID string
	// Since is the first release of the Python agent from which Patchbay differs so; 0 in the table for all releases.
	Since int
	// Where matches what the difference explains: "scenario/checkpoint - line" for a line that only the Python agent has,
	// with + for one that only Patchbay has. So a difference is accepted in the places that are meant, and nowhere else.
	Where *regexp.Regexp
	// Python, Patchbay and Reason are for people.
	Python, Patchbay, Reason string
}

// Accepted is the list of accepted differences.
type Accepted struct {
	List    []*AcceptedDifference
	Changed []*ChangedLine
	// Later are the lines that releases after 21 have otherwise.
	Later []*LaterLine
	// release is that of the Python agent, 0 for 21.
	release int
	at      string
}

// For returns the list as it applies to the Python agent of a release, from 21 on.
func (a *Accepted) For(release int) *Accepted {
	own := *a
	own.release = release
	return &own
}

// Recorded says whether the recordings have the lines that a rule explains: they are of 21, so those of later releases they have not.
func (a *Accepted) Recorded(id string) bool {
	return !slices.ContainsFunc(a.List, func(d *AcceptedDifference) bool { return d.ID == id && d.Since > 0 })
}

// At returns the list as it applies at a checkpoint of a scenario.
func (a *Accepted) At(scenario, checkpoint string) *Accepted {
	if a == nil {
		return nil
	}
	own := *a
	own.at = scenario + "/" + checkpoint
	return &own
}

func (a *Accepted) explain(d Difference) string {
	if a == nil {
		return ""
	}
	id := ""
	for _, known := range a.List {
		if known.Since > a.release || id != "" && known.Since == 0 || !known.Where.MatchString(a.at+" "+d.String()) {
			continue
		}
		if id = known.ID; known.Since > 0 { // it knows better than one for all releases
			break
		}
	}
	return id
}

// IDs returns the ids of all accepted differences to the Python agent of 21.
func (a *Accepted) IDs() []string {
	var ids []string
	for _, d := range a.List {
		if d.Since == 0 {
			ids = append(ids, d.ID)
		}
	}
	for _, c := range a.Changed {
		ids = append(ids, c.ID)
	}
	return ids
}

// LoadAccepted reads the tables of accepted differences from a file; see [ParseAccepted].
func LoadAccepted(path string) (*Accepted, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading accepted differences: %w", err)
	}
	defer func() { _ = f.Close() }()
	a, err := ParseAccepted(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// ParseAccepted reads the tables of accepted differences from a Markdown text. Under [AcceptedSection] the columns are id,
// where (a regular expression in backquotes, with \| for |), Python, Patchbay, reason; for [ReleaseSection] see there, for
// [ChangedSection] [ChangedLine], for [LaterSection] [LaterLine]. A text without the sections accepts nothing.
func ParseAccepted(r io.Reader) (*Accepted, error) {
	a := &Accepted{}
	section := ""
	sections := []string{AcceptedSection, ReleaseSection, ChangedSection, LaterSection}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for number := 1; sc.Scan(); number++ {
		line := strings.TrimSpace(sc.Text())
		if strings.HasPrefix(line, "#") {
			section = line
			continue
		}
		if !slices.Contains(sections, section) || !strings.HasPrefix(line, "|") {
			continue
		}
		cells := cells(line)
		if cells[0] == "id" || strings.Trim(cells[0], "-: ") == "" {
			continue
		}
		if err := a.row(section, cells); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("reading accepted differences: %w", err)
	}
	return a, nil
}

// row takes a row of one of the tables.
func (a *Accepted) row(section string, cells []string) error {
	switch section {
	case ChangedSection:
		c, err := changedRow(cells)
		a.Changed = append(a.Changed, c)
		return err
	case LaterSection:
		l, err := laterRow(cells)
		a.Later = append(a.Later, l)
		return err
	}
	since := 0
	if section == ReleaseSection && len(cells) > 1 {
		var err error
		if since, err = strconv.Atoi(cells[1]); err != nil {
			return fmt.Errorf("accepted difference %q: %w", cells[0], err)
		}
		cells = slices.Delete(cells, 1, 2)
	}
	if len(cells) != 5 {
		return fmt.Errorf("an accepted difference has 5 columns, not %d", len(cells))
	}
	where, err := regexp.Compile(strings.Trim(cells[1], "`"))
	if err != nil {
		return fmt.Errorf("accepted difference %q: %w", cells[0], err)
	}
	a.List = append(a.List, &AcceptedDifference{
		ID: strings.Trim(cells[0], "`"), Since: since, Where: where, Python: cells[2], Patchbay: cells[3], Reason: cells[4],
	})
	return nil
}

// cells splits a row of a Markdown table.
func cells(row string) []string {
	const bar = "\x00"
	row = strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(row, "|"), "|"), `\|`, bar)
	var all []string
	for c := range strings.SplitSeq(row, "|") {
		all = append(all, strings.TrimSpace(strings.ReplaceAll(c, bar, "|")))
	}
	return all
}
