// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"
	"text/tabwriter"
)

// list says of each item what is known of it, and whether the next call runs it.
func (b *book) list(out io.Writer, match *regexp.Regexp) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "item\tverdict\tcommit\tdate\ttook\tload\t\tcommand")
	var due []item
	for _, it := range b.items {
		if !match.MatchString(it.name) {
			continue
		}
		state := ""
		if b.due(it) {
			state, due = "due", append(due, it)
		}
		if b.stale(it) {
			state = "due: older than its code"
		}
		if r := b.results[it.name]; r != nil {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.1f\t%s\t%s\n", it.name, r.Verdict, r.Commit, r.Date.Format("2006-01-02 15:04"), b.takes(it), r.Load[0], state, it.command)
		} else {
			fmt.Fprintf(w, "%s\t–\t–\t–\t–\t–\t%s\t%s\n", it.name, state, it.command)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d due, about %s of work\n", len(due), b.work(due))
	return err
}
