// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// The haproxy of a Python agent is ended, and its file removed. A file that names another process is left alone, and so is the process.
func TestLeftover(t *testing.T) {
	dir := t.TempDir()
	start := func(name string, args ...string) (pid int, ended chan error) {
		t.Helper()
		// The shell's first argument is the program's name, so that it looks like haproxy and is none.
		cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", "exec 2>/dev/null; read x", name}, args...)...)
		cmd.Args[0] = name
		if _, err := cmd.StdinPipe(); err != nil { // which stays open, so that the shell waits
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended = make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd.Process.Pid, ended
	}
	file := filepath.Join(dir, "pid")
	write := func(pid int) {
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &Proxy{leftover: file}
	other, _ := start("haproxy", "-f", "other.conf")
	write(other)
	if err := p.endLeftover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !processExists(other) {
		t.Error("another haproxy was ended")
	}
	ours, ended := start("haproxy", "-f", "/var/lib/neutron/host_metadata_proxy.haproxy.conf")
	write(ours)
	if err := p.endLeftover(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	if err := p.endLeftover(t.Context()); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

func processExists(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return err == nil
}
