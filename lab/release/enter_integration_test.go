// SPDX-License-Identifier: Apache-2.0

//go:build integration

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEnter runs a command with the machine's own root directory as the lower layer: it sees the directories that it is given, has the
// process that was started, and changes nothing else.
func TestEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("mounting needs root")
	}
	dir := t.TempDir()
	outside := filepath.Join("/srv", "patchbay-enter-"+strconv.Itoa(os.Getpid()))
	argv := Command("/", []string{dir}, "/bin/sh", "-c", `echo $$ >"$1/pid"; test -d /proc/self && test -c /dev/null && grep -q localhost /etc/hosts && mkdir "$2"; echo $? >"$1/status"`, "sh", dir, outside)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	if got := read("pid"); got != strconv.Itoa(cmd.Process.Pid) {
		t.Errorf("the command is process %s, started was %d", got, cmd.Process.Pid)
	}
	if got := read("status"); got != "0" {
		t.Errorf("status %s", got)
	}
	if _, err := os.Stat(outside); err == nil {
		_ = os.Remove(outside)
		t.Errorf("%s was made in the root directory itself", outside)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), " /mnt/root") {
		t.Errorf("a mount outlives the command: %v", err)
	}
}
