// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A binary with capabilities is the daemon and nothing else, however it is called; one without is every command.
func TestPrivilegedFileIsTheDaemon(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file capabilities")
	}
	path := copyOfTest(t, "patchbay")
	// What happens to a command that only exists beside the daemon: it is an argument that the agent's options do not have.
	run := func() string {
		cmd := asNobody(path, "flows", "--help")
		cmd.Env = append(os.Environ(), agentInstead+"=1", "LC_ALL=C")
		cmd.Dir = filepath.Dir(path)
		out, _ := cmd.CombinedOutput() // how it ends is in what it says
		return string(out)
	}
	if got := run(); !strings.Contains(got, "patchbay flows") {
		t.Errorf("without capabilities flows says:\n%s", got)
	}
	setCapabilities(t, path, 1)
	if got := run(); strings.Contains(got, "patchbay flows") || !strings.Contains(got, "patchbay agent") && !strings.Contains(got, "flows") {
		t.Errorf("with capabilities flows says:\n%s", got)
	}
}

// copyOfTest copies the test binary to a file of this name, in a directory that others may read.
func copyOfTest(t *testing.T, name string) (path string) {
	t.Helper()
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "pbcaps") // not mounted nosuid
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, name)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// setCapabilities gives a file CAP_NET_ADMIN and CAP_DAC_OVERRIDE as permitted. Effective says whether they are effective at once.
func setCapabilities(t *testing.T, path string, effective byte) {
	t.Helper()
	revision2 := byte(2)
	caps := []byte{effective, 0, 0, revision2, 0x02, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(path, "security.capability", caps, 0); err != nil {
		t.Skipf("no capabilities on files here: %v", err)
	}
}

// asNobody is a command of a user without rights.
func asNobody(args ...string) *exec.Cmd {
	return exec.Command("setpriv", append([]string{"--reuid", "65534", "--regid", "65534", "--clear-groups", "--"}, args...)...)
}

func TestNoDumps(t *testing.T) {
	dumpable := func() int {
		n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := dumpable()
	if err := noDumps(); err != nil {
		t.Fatal(err)
	}
	if got := dumpable(); got != 0 {
		t.Errorf("dumpable is %d", got)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}
