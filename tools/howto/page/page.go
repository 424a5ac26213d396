// SPDX-License-Identifier: Apache-2.0

// Package page reads a page of docs as a script: its commands, what it shows of their output, and its tables.
package page

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Step is a command of a page.
type Step struct {
	Line    int // of the page
	Command string
	Root    bool     // the command is root's on a host: it stands after "#", not after "$"
	Want    []string // what the page shows below the command; none if it shows nothing
	Status  int      // that the command ends with
	NotRun  string   // why it is shown only
}

var (
	fence    = regexp.MustCompile("^( *)```(\\w*)")
	comment  = regexp.MustCompile(`^\s*<!--\s*(.*?)\s*-->$`)
	hereText = regexp.MustCompile(`<<'?(\w+)'?`)
)

// Steps returns the commands in the console blocks of a page, in order. A line that begins with "# " or "$ " is a command, and goes on in the next
// line after a backslash, or up to the end of a text (<<EOF). What follows is its output.
//
// A comment before a block is about its commands: "not run: REASON" and "recorded by COMMAND" for those that are shown only, "status N" for the last
// one, which does not end with 0.
func Steps(page string) ([]Step, error) {
	var all []Step
	var block *block
	note := ""
	for i, line := range strings.Split(page, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && block == nil:
			block = newBlock(m[1], m[2] == "console", note)
			note = ""
		case m != nil:
			found, err := block.end()
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			all, block = append(all, found...), nil
		case block != nil:
			if err := block.add(i+1, strings.TrimPrefix(line, block.indent)); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		case strings.TrimSpace(line) != "":
			note = ""
			if c := comment.FindStringSubmatch(line); c != nil {
				note = c[1]
			}
		}
	}
	if block != nil {
		return nil, fmt.Errorf("the last block does not end")
	}
	return all, nil
}

// block is a fenced block that is being read.
type block struct {
	indent, note string
	console      bool
	found        []Step
	open         bool   // the last command goes on
	until        string // with this line, if it is a text for the command
}

func newBlock(indent string, console bool, note string) *block {
	return &block{indent: indent, console: console, note: note}
}

func (b *block) add(number int, line string) error {
	if !b.console {
		return nil
	}
	command, root := strings.CutPrefix(line, "# ")
	command, user := strings.CutPrefix(command, "$ ")
	last := len(b.found) - 1
	switch {
	case b.until != "":
		b.found[last].Command += "\n" + line
		if line == b.until {
			b.until = ""
		}
	case b.open:
		b.found[last].Command += "\n" + line
		b.open = strings.HasSuffix(line, `\`)
	case root || user:
		b.found = append(b.found, Step{Line: number, Command: command, Root: root})
		b.open = strings.HasSuffix(command, `\`)
		if m := hereText.FindStringSubmatch(command); m != nil {
			b.until = m[1]
		}
	case last < 0:
		return fmt.Errorf("a console block begins with a command, after # or $: %q", line)
	default:
		b.found[last].Want = append(b.found[last].Want, line)
	}
	return nil
}

func (b *block) end() ([]Step, error) {
	if b.open || b.until != "" {
		return nil, fmt.Errorf("the last command of the block does not end")
	}
	if len(b.found) == 0 {
		return nil, nil
	}
	key, value, _ := strings.Cut(b.note, " ")
	switch {
	case strings.HasPrefix(b.note, "not run: "), strings.HasPrefix(b.note, "recorded by "):
		for i := range b.found {
			b.found[i].NotRun = strings.TrimPrefix(b.note, "not run: ")
		}
	case key == "status":
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("<!-- %s -->: no number", b.note)
		}
		b.found[len(b.found)-1].Status = n
	}
	return b.found, nil
}

// What differs from run to run stands for itself: ids, addresses, numbers, and how far columns are apart. Zero is zero: nothing lost is not something lost.
var (
	ids     = regexp.MustCompile(`\b(?:tap|qvo|vxlan-)?[0-9a-f]{8}(?:-[0-9a-f]{2,12})*\b`)
	numbers = regexp.MustCompile(`\d+(?:[.,]\d+)*`)
	blanks  = regexp.MustCompile(`[ \t]+`)
)

func normal(line string) string {
	line = ids.ReplaceAllString(line, "ID")
	line = numbers.ReplaceAllStringFunc(line, func(n string) string {
		if n == "0" {
			return n
		}
		return "N"
	})
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}

// pattern is what a text of a page matches, in which "…" stands for any text.
func pattern(text string) string {
	parts := strings.Split(text, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return strings.Join(parts, `.*`)
}

// Says returns whether a line of an output has a text of the page in it, ids and numbers included. "…" stands for any text.
func Says(output, text string) bool {
	p := regexp.MustCompile(pattern(blanks.ReplaceAllString(text, " ")))
	return p.MatchString(blanks.ReplaceAllString(output, " "))
}

// Mismatch returns the first line of a page that the output of a command does not have, or that has no place in the output. In the page "…" stands
// for any text, and alone in a line for any lines.
func Mismatch(want, got []string) (line string, ok bool) {
	for len(want) > 0 && strings.TrimSpace(want[len(want)-1]) == "" {
		want = want[:len(want)-1]
	}
	patterns := make([]*regexp.Regexp, len(want))
	for i, w := range want {
		if normal(w) != "…" {
			patterns[i] = regexp.MustCompile(`^` + pattern(normal(w)) + `$`)
		}
	}
	at, skipping := 0, false
	for i, p := range patterns {
		if p == nil {
			skipping = true
			continue
		}
		for skipping && at < len(got) && !p.MatchString(normal(got[at])) {
			at++
		}
		if at == len(got) || !p.MatchString(normal(got[at])) {
			return want[i], false
		}
		at, skipping = at+1, false
	}
	if at < len(got) && !skipping && len(want) > 0 {
		return got[at], false
	}
	return "", true
}

// Table returns the rows of the first table below a heading, as cells, without the head.
func Table(page, heading string) [][]string {
	_, rest, _ := strings.Cut(page, "\n## "+heading+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	_, rest, _ = strings.Cut(rest, "\n|---")
	var rows [][]string
	for line := range strings.Lines(rest[strings.Index(rest, "\n")+1:]) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

var quoted = regexp.MustCompile("`([^`]+)`")

// Quoted returns the texts of a cell that are set as code.
func Quoted(cell string) []string {
	var texts []string
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		texts = append(texts, m[1])
	}
	return texts
}
