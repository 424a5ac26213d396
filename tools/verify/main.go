// SPDX-License-Identifier: Apache-2.0

// Command verify runs everything that is too long for CI and keeps what came of it.
//
// An item is one command with the claims that it shows (items_*.go). Running it leaves verification/NAME.json: commit, date,
// duration, load, versions of the real parts, figures, verdict. A call goes on where the last one stopped: it takes the items
// that have no result for the code as it is now, as many as fit into a slice of time. docs/verification.md and the table of
// README.md are generated from the results, so a claim without a result cannot stand in them.
//
//	verify run [-slice 40m] [-items REGEXP] [-again] [-beside N]   run what is due, N items at a time where their figures are counts
//	verify list                                        what there is, what is due, and how long it took
//	verify page [-check]                               write docs/verification.md and README.md, or say that they differ
//
// matrix, matrix-list and matrix-page do the same with the cells of the matrix of releases (matrix.go), whose results are in
// verification/matrix and whose page is docs/reference/releases.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	command := "run"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("verify "+command, flag.ContinueOnError)
	slice := flags.Duration("slice", 40*time.Minute, "how long this call may take; an item that took longer than what is left waits for the next call")
	pattern := flags.String("items", "", "only items whose names match")
	again := flags.Bool("again", false, "run items that are not due, too")
	beside := flags.Int("beside", 1, "how many items run at a time, each in namespaces of its own, where their figures are counts")
	check := flags.Bool("check", false, "write nothing; fail if a page is not what the results say")
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	open := openBook
	items := allItems()
	if rest, ok := strings.CutPrefix(command, "matrix"); ok {
		open, items, command = openMatrix, allCells(), cmp.Or(strings.TrimPrefix(rest, "-"), "run")
	}
	book, err := open(".", items)
	if err != nil {
		return err
	}
	switch command {
	case "run":
		stopped, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer cancel()
		err := book.run(out, plan{stop: stopped.Done(), slice: *slice, match: match, again: *again, beside: *beside})
		return errors.Join(err, book.writePages())
	case "list":
		return book.list(out, match)
	case "page":
		if *check {
			return book.checkPages()
		}
		return book.writePages()
	}
	return fmt.Errorf("unknown command %q: run, list or page", command)
}
