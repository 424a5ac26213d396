// SPDX-License-Identifier: Apache-2.0

// Package peer starts programs that a test asks line by line: Python's own code, which says what is right.
package peer

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// Start starts a program that reads questions and writes answers. It ends when its input is closed; the caller waits for it.
func Start(t testing.TB, cmd *exec.Cmd) (io.WriteCloser, io.Reader) {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", cmd, err)
	}
	return in, out
}
