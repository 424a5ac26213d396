// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"
)

// allItems are in the order of docs/verification.md. What is quick stands first in each section, so that a slice shows
// much soon.
func allItems() []item {
	return slices.Concat(foundation(), theSwitch(), wiring(), groups(), isolation(), services(), guests(), nothingLost(), operator(), speed())
}

// unit is a `go test` of packages; the number of tests that passed is its figure.
func unit(name, section, run, packages, text string) item {
	command := "go test -count 1 -v "
	if run != "" {
		command += "-run '" + run + "' "
	}
	paths := []string{"go.mod"}
	for p := range strings.FieldsSeq(packages) {
		paths = append(paths, strings.TrimPrefix(p, "./"))
	}
	return item{
		name: name, section: section, command: command + packages, paths: append(paths, "product"),
		figures: []figure{tests},
		claims:  []claim{{text: text, wanted: "all pass", show: "{tests} tests"}},
	}
}

// real is a `go test` of packages with real servers.
func real(name, section, run, packages, text, show, wanted string, figures ...figure) item {
	it := unit(name, section, run, packages, text)
	it.command = strings.Replace(it.command, "go test ", "go test -tags integration ", 1)
	it.paths, it.servers = append(it.paths, "cloud"), true
	it.figures = append(figures, tests)
	it.claims[0].show, it.claims[0].wanted = show, wanted
	return it
}

// built is an item whose test runs bin/patchbay.
func built(it item) item {
	it.command = "make --no-print-directory build && " + it.command
	return it
}

// live is a target of make that runs on the lab.
func live(name, section, command, dir string, claims []claim, figures ...figure) item {
	return item{name: name, section: section, command: command, paths: []string{"product", "cloud", dir}, servers: true, claims: claims, figures: figures}
}

// tests counts those that passed; none is a failure, since nothing was shown then.
var tests = figure{name: "tests", pattern: `^\s*--- PASS: `, take: count, want: ">= 1"}

// summed are the counts that tools/testsum closes with.
func summed() []figure {
	return []figure{
		{name: "tests", pattern: `^(\d+) passed, \d+ failed`, take: sum, want: ">= 1"},
		{name: "failed", pattern: `^\d+ passed, (\d+) failed`, take: sum, want: "= 0"},
	}
}

// cell is a figure out of a table with | between columns, by the first column.
func cell(name, row string, column int, want string) figure {
	return figure{name: name, pattern: `^\|\s*` + regexp.QuoteMeta(row) + `\s*` + strings.Repeat(`\|[^|\n]*`, column-1) + `\|\s*([^|\n]*?)\s*\|`, want: want}
}

// fault is a figure out of the rows of TestFaults and TestRouters, by the name of the fault; column 0 is its name.
func fault(name, row string, column int, want string) figure {
	return figure{name: name, pattern: `_test\.go:\d+: ` + regexp.QuoteMeta(row) + "\t" + strings.Repeat("[^\t\n]*\t", column-1) + "([^\t\n]*)\t", want: want}
}

// Columns of TestFaults.
const (
	faultSent, faultLost, faultPassed, faultChanged, faultHealed, faultBare, faultCalls = 3, 4, 7, 8, 9, 10, 11
)
