// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "pbcaps") // not mounted nosuid, and open to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "patchbay")
	if err := os.WriteFile(path, self, 0o755); err != nil {
		t.Fatal(err)
	}
	// What happens to a command that only exists beside the daemon: it is an argument that the agent's options do not have.
	run := func() string {
		cmd := exec.Command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--", path, "flows", "--help")
		cmd.Env = append(os.Environ(), agentInstead+"=1", "LC_ALL=C")
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput() // how it ends is in what it says
		return string(out)
	}
	if got := run(); !strings.Contains(got, "patchbay flows") {
		t.Errorf("without capabilities flows says:\n%s", got)
	}
	// VFS_CAP_REVISION_2 | effective; permitted: CAP_NET_ADMIN, CAP_DAC_OVERRIDE.
	caps := []byte{1, 0, 0, 2, 0x02, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(path, "security.capability", caps, 0); err != nil {
		t.Skipf("no capabilities on files here: %v", err)
	}
	if got := run(); strings.Contains(got, "patchbay flows") || !strings.Contains(got, "patchbay agent") && !strings.Contains(got, "flows") {
		t.Errorf("with capabilities flows says:\n%s", got)
	}
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
