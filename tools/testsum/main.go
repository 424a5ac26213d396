// SPDX-License-Identifier: Apache-2.0

// Command testsum turns `go test -json` into what a person or a CI log needs: one line a package, the whole output
// of each failed test, each skipped test with its reason, and the counts at the end. A package that failed without a failed test counts
// as one: it did not build, or goroutines were left. It exits 1 when something failed,
// when no test ran at all, or when a package that began did not come to its end (go test was killed): a silent nothing is the
// failure that is easiest to overlook.
//
// Input: the JSON stream on standard input. Output: text on standard output.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

type testID struct{ pkg, test string }

// summary is what has been read so far.
type summary struct {
	out     io.Writer
	output  map[testID][]string
	parents map[testID]bool // tests with subtests; the subtests are counted instead
	result  map[testID]string
	order   []testID
	open    map[string]bool // packages that have begun and not ended
	failed  map[string]bool // packages of which a test failed
	badPkgs int             // packages that failed without a failed test: they did not build, leaked, or ended early
}

func main() {
	s := newSummary(os.Stdout)
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if !s.close() {
		os.Exit(1)
	}
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, output: map[testID][]string{}, parents: map[testID]bool{}, result: map[testID]string{}, open: map[string]bool{}, failed: map[string]bool{}}
}

func (s *summary) read(in io.Reader) error {
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 1<<20), 64<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			// Build errors of older toolchains and `go: downloading` lines are not JSON.
			fmt.Fprintln(s.out, sc.Text())
			continue
		}
		s.add(e)
	}
	return sc.Err()
}

func (s *summary) add(e event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		s.output[id] = append(s.output[id], e.Output)
	case "start":
		s.open[e.Package] = true
	case "run":
		if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
			s.parents[testID{e.Package, e.Test[:i]}] = true
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.closePackage(e)
			return
		}
		s.result[id] = e.Action
		s.order = append(s.order, id)
		if e.Action == "fail" {
			s.failed[e.Package] = true
			fmt.Fprintf(s.out, "--- FAIL %s %s (%.2fs)\n%s", e.Package, e.Test, e.Elapsed, strings.Join(s.output[id], ""))
		}
		if e.Action != "skip" {
			delete(s.output, id)
		}
	case "build-fail":
		fmt.Fprint(s.out, strings.Join(s.output[id], ""))
	}
}

func (s *summary) closePackage(e event) {
	id := testID{pkg: e.Package}
	switch e.Action {
	case "fail":
		if !s.failed[e.Package] {
			s.badPkgs++
		}
		fmt.Fprintf(s.out, "FAIL %s (%.1fs)\n%s", e.Package, e.Elapsed, strings.Join(s.output[id], ""))
	case "pass":
		fmt.Fprintf(s.out, "ok   %s (%.1fs)\n", e.Package, e.Elapsed)
	}
	delete(s.output, id)
	delete(s.open, e.Package)
}

// close prints skips and counts, and says whether the run may be called good.
func (s *summary) close() bool {
	var passed, skipped int
	failed := s.badPkgs
	for _, id := range s.order {
		if s.parents[id] && s.result[id] != "fail" {
			continue
		}
		switch s.result[id] {
		case "pass":
			passed++
		case "fail":
			failed++
		case "skip":
			skipped++
			fmt.Fprintf(s.out, "skip %s %s: %s\n", id.pkg, id.test, skipReason(s.output[id]))
		}
	}
	if passed+failed == 0 {
		fmt.Fprintln(s.out, "no test was executed")
	}
	for _, pkg := range slices.Sorted(maps.Keys(s.open)) {
		fmt.Fprintf(s.out, "FAIL %s: began and did not end\n", pkg)
		failed++
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && passed > 0
}

// skipReason picks the line that t.Skip wrote from between go test's own lines.
func skipReason(lines []string) string {
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "===") && !strings.HasPrefix(l, "---") {
			return l
		}
	}
	return "no reason given"
}
