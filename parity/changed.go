// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"regexp"
	"strings"
)

// ChangedSection is the heading, in parity/accepted.md, of the table of lines that differ on purpose.
const ChangedSection = "## Flows that differ on purpose"

// A ChangedLine says how a line of the Python agent reads with Patchbay, wherever it stands. Unlike an [AcceptedDifference]
// it explains a missing line only together with the line that takes its place, so that a flow cannot be lost unseen.
type ChangedLine struct {
	ID     string
	Python *regexp.Regexp
	// Patchbay is a regular expression in which $1 to $9 stand for what Python matched there, taken literally. Empty: no line
	// takes its place.
	Patchbay string
	Reason   string
}

// explainChanged marks the differences that the table explains.
func (a *Accepted) explainChanged(all []Difference) {
	if a == nil {
		return
	}
	for i := range all {
		if !all[i].Missing || all[i].Accepted != "" {
			continue
		}
		for _, c := range a.Changed {
			if c.explain(i, all) {
				break
			}
		}
	}
}

// explain looks for the lines that take the place of a missing one, and marks both.
func (c *ChangedLine) explain(missing int, all []Difference) bool {
	m := c.Python.FindStringSubmatch(all[missing].Line)
	if m == nil {
		return false
	}
	found := c.Patchbay == ""
	if !found {
		want := regexp.MustCompile(c.expand(m)) // it was compiled when it was read; literals cannot break it
		for i := range all {
			if !all[i].Missing && want.MatchString(all[i].Line) {
				all[i].Accepted, found = c.ID, true
			}
		}
	}
	if found {
		all[missing].Accepted = c.ID
	}
	return found
}

// expand puts what Python matched into Patchbay's expression.
func (c *ChangedLine) expand(m []string) string {
	text := c.Patchbay
	for i := len(m) - 1; i > 0; i-- {
		text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i), regexp.QuoteMeta(m[i]))
	}
	return "^(?:" + text + ")$"
}

// changedRow reads a row of the table: id, Python, Patchbay (both in backquotes, the latter may be "none"), reason.
func changedRow(cells []string) (*ChangedLine, error) {
	if len(cells) != 4 {
		return nil, fmt.Errorf("a changed line has 4 columns, not %d", len(cells))
	}
	python, err := regexp.Compile("^(?:" + strings.Trim(cells[1], "`") + ")$")
	if err != nil {
		return nil, fmt.Errorf("changed line %q: %w", cells[0], err)
	}
	patchbay := strings.Trim(cells[2], "`")
	if patchbay == "none" {
		patchbay = ""
	}
	c := &ChangedLine{ID: strings.Trim(cells[0], "`"), Python: python, Patchbay: patchbay, Reason: cells[3]}
	if _, err := regexp.Compile(c.expand(make([]string, python.NumSubexp()+1))); err != nil {
		return nil, fmt.Errorf("changed line %q: %w", c.ID, err)
	}
	return c, nil
}
