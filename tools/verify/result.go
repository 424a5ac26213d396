// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// resultsDir holds one file an item.
const resultsDir = "verification"

// Verdicts of a result.
const (
	passed  = "pass"
	isShort = "short" // everything ran, and a figure is not what it should be
	failed  = "fail"
)

// outcome is what one run of an item came to.
type outcome struct {
	Commit  string            `json:"commit"`
	Date    time.Time         `json:"date"`
	Seconds int               `json:"seconds"`
	Load    [2]float64        `json:"load"` // of the last minute, before and after
	Figures map[string]string `json:"figures,omitempty"`
	Verdict string            `json:"verdict"`
	Reason  string            `json:"reason,omitempty"`
	// Note tells where a result comes from that no run of this command has left.
	Note string `json:"note,omitempty"`
}

// result is the file of an item: its last run, and those before.
type result struct {
	Item    string `json:"item"`
	Command string `json:"command"`
	outcome
	// Code is a digest of the files that the item depends on, as they were.
	Code     string            `json:"code"`
	Versions map[string]string `json:"versions"`
	// Failed are the tests that failed, and the last lines printed.
	Failed  []string  `json:"failed,omitempty"`
	Tail    []string  `json:"tail,omitempty"`
	Earlier []outcome `json:"earlier,omitempty"`
}

// book is all items with their results.
type book struct {
	dir     string
	kept    string // where results are, in dir
	pages   func(b *book) (map[string]string, error)
	items   []item
	results map[string]*result
	now     map[string]string // digests of the items' files as they are now
}

func openBook(dir string, items []item) (*book, error) {
	return readBook(&book{dir: dir, kept: resultsDir, pages: verificationPages, items: items})
}

func readBook(b *book) (*book, error) {
	b.results, b.now = map[string]*result{}, map[string]string{}
	dir, items := b.dir, b.items
	files, err := listFiles(dir)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		if b.now[it.name], err = files.digest(it.paths); err != nil {
			return nil, fmt.Errorf("item %s: %w", it.name, err)
		}
		text, err := os.ReadFile(b.file(it.name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r := &result{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("%s: %w", b.file(it.name), err)
		}
		b.results[it.name] = r
	}
	return b, nil
}

func (b *book) file(name string) string { return filepath.Join(b.dir, b.kept, name+".json") }

// stale says that the files of an item have changed since its result.
func (b *book) stale(it item) bool {
	r := b.results[it.name]
	return r != nil && r.Code != b.now[it.name]
}

// due says that an item has no result for the code as it is, or one that failed.
func (b *book) due(it item) bool {
	r := b.results[it.name]
	return r == nil || b.stale(it) || r.Verdict == failed || r.Command != it.command
}

// keep writes the result of a run, with those before it.
func (b *book) keep(r *result) error {
	if before := b.results[r.Item]; before != nil {
		r.Earlier = append(slices.Clone(before.Earlier), before.outcome)
	}
	b.results[r.Item] = r
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(b.dir, b.kept), 0o755); err != nil {
		return err
	}
	return os.WriteFile(b.file(r.Item), append(text, '\n'), 0o644)
}

// judge reads the figures out of what an item printed, and gives the verdict.
func (it item) judge(output string, ended error) outcome {
	o := outcome{Figures: map[string]string{}, Verdict: passed}
	for _, f := range it.figures {
		value, ok := f.read(output)
		if !ok {
			if ended == nil {
				o.Verdict, o.Reason = failed, fmt.Sprintf("the output has no figure %q", f.name)
			}
			continue
		}
		o.Figures[f.name] = value
		met, err := f.meets(value)
		switch {
		case err != nil:
			o.Verdict, o.Reason = failed, err.Error()
		case !met && o.Verdict == passed:
			o.Verdict, o.Reason = isShort, fmt.Sprintf("%s is %s, wanted %s", f.name, value, f.want)
		case !met && o.Verdict == isShort:
			o.Reason += fmt.Sprintf("; %s is %s, wanted %s", f.name, value, f.want)
		}
	}
	if ended != nil {
		o.Verdict, o.Reason = failed, ended.Error()
	}
	return o
}
