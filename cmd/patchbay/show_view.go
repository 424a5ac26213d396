// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/admin"
)

// view is how a command gets a document from the agent and prints it.
type view[T any] struct {
	ask   func(context.Context, *admin.Client, []string) (T, error)
	print func(io.Writer, T, time.Time)
	wide  func(io.Writer, T, time.Time) // for -o wide; nil: as print, where there are names
	names func(T) []string              // for -o name; nil: the command is about one thing, and has neither
	ends  func(T) error                 // what the document says about the exit status; nil: nothing
}

// each makes the names of a list from that of one of its things.
func each[E any](name func(E) string) func([]E) []string {
	return func(list []E) []string {
		var out []string
		for _, e := range list {
			out = append(out, name(e))
		}
		return out
	}
}

// command completes a command with the flags of a view and what it does.
func (v view[T]) command(cmd *cobra.Command) *cobra.Command {
	var f askFlags
	var watch bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if watch {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return v.watch(ctx, cmd, args, &f)
		}
		doc, err := v.ask(cmd.Context(), f.client(), args)
		if err != nil {
			return err
		}
		if f.Output.forPrograms() {
			err = f.Output.write(cmd.OutOrStdout(), doc)
		} else {
			v.write(cmd.OutOrStdout(), doc, f.Output.name, shownAt(cmd.Context()))
		}
		if err == nil && v.ends != nil {
			err = v.ends(doc)
		}
		return err
	}
	if v.names != nil {
		f.add(cmd, formatWide, formatName)
	} else {
		f.add(cmd)
	}
	addWatch(cmd, &watch, "print the output again whenever it changes")
	return cmd
}

// write prints a document for people, or names.
func (v view[T]) write(out io.Writer, doc T, format string, now time.Time) {
	switch {
	case format == formatName:
		for _, name := range v.names(doc) {
			fmt.Fprintln(out, name)
		}
	case format == formatWide && v.wide != nil:
		v.wide(out, doc, now)
	default:
		v.print(out, doc, now)
	}
}

// watchPause separates two looks at what is watched.
const watchPause = 500 * time.Millisecond

// watch prints the document whenever it has changed, until ctx ends. That no agent answers is said once.
func (v view[T]) watch(ctx context.Context, cmd *cobra.Command, args []string, f *askFlags) error {
	var last bytes.Buffer
	silent := ""
	for began := time.Now(); ctx.Err() == nil; pause(ctx, watchPause) {
		doc, err := v.ask(ctx, f.client(), args)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // that it ends is no failure
		case err != nil:
			if silent != err.Error() {
				silent = err.Error()
				fmt.Fprintln(cmd.ErrOrStderr(), "patchbay:", silent)
			}
			continue
		}
		silent = ""
		// Compared is the text with all ages as of the same moment: that time passes is no change.
		var text bytes.Buffer
		v.write(&text, doc, f.Output.name, began)
		if bytes.Equal(text.Bytes(), last.Bytes()) && last.Len() > 0 {
			continue
		}
		last = text
		if f.Output.forPrograms() {
			if err := f.Output.writeNext(cmd.OutOrStdout(), doc); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "--- %s\n", time.Now().Format(time.TimeOnly))
		v.write(cmd.OutOrStdout(), doc, f.Output.name, time.Now())
	}
	return nil
}

// addWatch declares --watch, and its former name --follow.
func addWatch(cmd *cobra.Command, watch *bool, usage string) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, usage)
	cmd.Flags().BoolVarP(watch, "follow", "f", false, "")
	_ = cmd.Flags().MarkHidden("follow")
}
