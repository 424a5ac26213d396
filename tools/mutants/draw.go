// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// draw takes n points by a hash of their names and the seed: a change of one line changes the draw of its points alone, and
// the first 40 of a thousand are those of a draw of 40.
func draw(points []*point, seed uint64, n int, match string) []*point {
	type ranked struct {
		p    *point
		rank uint64
	}
	var all []ranked
	for _, p := range points {
		if match != "" && !strings.Contains(p.String(), match) {
			continue
		}
		h := sha256.Sum256(fmt.Appendf(nil, "%d|%s", seed, p.key()))
		all = append(all, ranked{p, binary.BigEndian.Uint64(h[:])})
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.p.ID, b.p.ID)) })
	var drawn []*point
	for _, r := range all[:min(n, len(all))] {
		drawn = append(drawn, r.p)
	}
	return drawn
}

// entry is one line of survivors.txt with its reason.
type entry struct {
	file, kind, text, reason string
	line                     int
	nth                      int // 0: all on such a line
}

func (e *entry) String() string {
	return fmt.Sprintf("survivors.txt:%d: %s: %s: %s", e.line, e.file, e.kind, e.text)
}

func (e *entry) covers(p *point) bool {
	return e.file == p.File && e.kind == p.Kind && e.text == p.Text && (e.nth == 0 || e.nth == p.Nth)
}

// readEntries reads survivors.txt. A file that is not there has none.
func readEntries(path string) ([]*entry, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseEntries(bytes.NewReader(text))
}

// parseEntries: a line "FILE: KIND: TEXT" or "FILE: KIND#2: TEXT", and below it, indented, the reason. "#" begins a comment.
func parseEntries(r io.Reader) ([]*entry, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var all []*entry
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t"):
			if len(all) == 0 {
				return nil, fmt.Errorf("survivors.txt:%d: a reason without a mutant", i+1)
			}
			last := all[len(all)-1]
			last.reason = strings.TrimSpace(last.reason + " " + strings.TrimSpace(line))
		default:
			file, rest, ok := strings.Cut(line, ": ")
			kind, text, ok2 := strings.Cut(rest, ": ")
			if !ok || !ok2 {
				return nil, fmt.Errorf("survivors.txt:%d: want FILE: KIND: TEXT", i+1)
			}
			e := &entry{file: file, text: text, line: i + 1}
			var nth string
			e.kind, nth, _ = strings.Cut(kind, "#")
			if nth != "" {
				if _, err := fmt.Sscan(nth, &e.nth); err != nil {
					return nil, fmt.Errorf("survivors.txt:%d: %q is no number", i+1, nth)
				}
			}
			all = append(all, e)
		}
	}
	for _, e := range all {
		if e.reason == "" {
			return nil, fmt.Errorf("%v: without a reason", e)
		}
	}
	return all, nil
}

// match returns what is wrong with the entries: each must name a mutant of the sources as they are.
func match(entries []*entry, points []*point) []string {
	var problems []string
	for _, e := range entries {
		if !slices.ContainsFunc(points, e.covers) {
			problems = append(problems, fmt.Sprintf("%v: there is no such mutant any more; remove it", e))
		}
	}
	return problems
}

func listedBy(entries []*entry, p *point) *entry {
	for _, e := range entries {
		if e.covers(p) {
			return e
		}
	}
	return nil
}
