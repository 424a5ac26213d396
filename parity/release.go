// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// LaterSection is the heading, in parity/accepted.md, of the table of lines that releases after 21 have otherwise.
const LaterSection = "## Lines of Neutron 21 that 29 has otherwise"

// A LaterLine says what has become of a line of the Python agent 21 since: one row of that table.
type LaterLine struct {
	ID string
	// Since is the first release that has it so.
	Since int
	// Old matches the whole line of 21.
	Old *regexp.Regexp
	// New are the lines of 29 in its place, in which $0 to $9 stand for what Old matched.
	New []string
	// Text is for people.
	Text string
}

// modern tells lines of a release that has its packet rate limit in table 58: from 22 on.
var modern = regexp.MustCompile(`^hv\d br-int table=58 `)

// Release29 returns lines of the Python agent 21 as those of 29: each line that a row of the table matches gives way to the row's
// lines, all others stay. With [Accepted.For] they are lines of that release. Lines of 22 or later, of which nobody said the release,
// are returned as they are. Patchbay makes the flows and rows of 29, and the recordings are of 21; so a comparison stays one of
// whole lines, and the lines of 29 are required.
func (a *Accepted) Release29(lines Snapshot) Snapshot {
	if a == nil || len(a.Later) == 0 || a.release <= 21 && slices.ContainsFunc(lines, modern.MatchString) {
		return lines
	}
	return a.Since(max(a.release, 21), lines)
}

// Since returns lines of the Python agent of a release, from 21 on, as those of 29.
func (a *Accepted) Since(release int, lines Snapshot) Snapshot {
	var out []string
	for _, line := range lines {
		if l, now := a.later(line); l != nil && l.Since > release {
			out = append(out, now...)
		} else {
			out = append(out, line)
		}
	}
	return NewSnapshot(out)
}

// later returns the row about a line of 21, and the lines of 29; nil if the line has stayed.
func (a *Accepted) later(line string) (*LaterLine, []string) {
	for _, l := range a.Later {
		m := l.Old.FindStringSubmatchIndex(line)
		if m == nil {
			continue
		}
		var now []string
		for _, template := range l.New {
			now = append(now, string(l.Old.ExpandString(nil, template, line, m)))
		}
		return l, now
	}
	return nil, nil
}

// laterRow reads a row of the table: id, since, 21 (a regular expression in backquotes), 29 (lines in backquotes), text.
func laterRow(cells []string) (*LaterLine, error) {
	if len(cells) != 5 {
		return nil, fmt.Errorf("a line of later releases has 5 columns, not %d", len(cells))
	}
	l := &LaterLine{ID: cells[0], Text: cells[4]}
	var err error
	if l.Since, err = strconv.Atoi(cells[1]); err != nil {
		return nil, fmt.Errorf("line of later releases %q: %w", l.ID, err)
	}
	if l.Old, err = regexp.Compile("^(?:" + strings.Trim(cells[2], "`") + ")$"); err != nil {
		return nil, fmt.Errorf("line of later releases %q: %w", l.ID, err)
	}
	for template := range strings.SplitSeq(strings.Trim(cells[3], "`"), "` `") {
		l.New = append(l.New, template)
	}
	return l, nil
}
