// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

// A line is written over on a terminal only, and not if somebody says so.
func TestRedraws(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal can be made: %v", err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	redrawn := func(to io.Writer, args ...string) (got bool) {
		t.Helper()
		root := newRootCommand()
		cmd := &cobra.Command{Use: "try", RunE: func(cmd *cobra.Command, _ []string) error {
			got = redraws(cmd, to)
			return nil
		}}
		root.AddCommand(cmd)
		root.SetArgs(append([]string{"try"}, args...))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if !redrawn(terminal) || redrawn(terminal, "--no-color") || redrawn(io.Discard) {
		t.Error("a terminal is not told from other writers, or --no-color is not followed")
	}
	t.Setenv("TERM", "dumb")
	if redrawn(terminal) {
		t.Error("a dumb terminal gets control codes")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	if redrawn(terminal) {
		t.Error("NO_COLOR is not followed")
	}
}

func TestNoColorStandsBetweenTheAgents(t *testing.T) {
	var f format
	if rest, err := f.take([]string{"--no-color", "--debug"}); err != nil || len(rest) != 1 {
		t.Errorf("%v %v", rest, err)
	}
}
