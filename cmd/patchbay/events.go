// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

func newEventsCommand() *cobra.Command {
	var f askFlags
	var watch bool
	var about string
	var last int
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the flight recorder: the last inputs and decisions of the agent",
		Long: `Print the flight recorder: the last inputs and decisions of the agent, oldest first. The command works even while
the agent's loop is stuck.`,
		Example: "  patchbay events --last 50\n  patchbay events --watch\n  patchbay events --about 4f1c",
		Args:    argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			selects := func(e inspect.Event) bool {
				return about == "" || strings.Contains(e.Subject, about) || strings.Contains(e.Text, about)
			}
			return printEvents(ctx, cmd.OutOrStdout(), f.client(), eventsFlags{selects, watch, last, f.Output})
		},
	}
	f.add(cmd)
	addWatch(cmd, &watch, "print new events as they happen")
	cmd.Flags().StringVar(&about, "about", "", "only events that contain this text: an id or a part of an id, a bridge, a word")
	cmd.Flags().IntVarP(&last, "last", "n", 0, "only the last events, this number of them")
	return cmd
}

type eventsFlags struct {
	selects func(inspect.Event) bool
	watch   bool
	last    int
	output  format
}

func printEvents(ctx context.Context, out io.Writer, c *admin.Client, f eventsFlags) error {
	seen := uint64(0)
	for {
		events, err := c.EventsAfter(ctx, seen)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if n := len(events); n > 0 {
			seen = events[n-1].Seq
		}
		events = slices.DeleteFunc(events, func(e inspect.Event) bool { return !f.selects(e) })
		if f.last > 0 && len(events) > f.last {
			events = events[len(events)-f.last:]
		}
		f.last = 0 // of those before
		for _, e := range events {
			if f.output.forPrograms() {
				if err := f.output.writeNext(out, e); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(out, "%s  %-9s  %s\n", stamp(e.Time, shownAt(ctx)), e.Kind, describe(e))
		}
		if !f.watch {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

// describe is an event in one line.
func describe(e inspect.Event) string {
	text := strings.ReplaceAll(e.Text, "\n", " ")
	if e.Level == "warning" || e.Level == "error" {
		text = strings.ToUpper(e.Level) + " " + text
	}
	if e.Count > 1 {
		text += fmt.Sprintf("  (%d times in %s)", e.Count, short(e.Until.Sub(e.Time)))
	}
	return text
}
