// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Fields of /proc/PID/stat, counted from the one after the command name.
const (
	statState   = 0
	statSession = 3
	statStart   = 19
)

// process is what /proc tells of one.
type process struct {
	pid     int
	session int
	home    string
	argv    []string
}

func (p process) String() string {
	name := "?"
	if len(p.argv) > 0 {
		name = filepath.Base(p.argv[0])
	}
	return fmt.Sprintf("%s (pid %d)", name, p.pid)
}

// within tells whether the process was started for dir or something in it.
func (p process) within(dir string) bool {
	if p.home == dir || strings.HasPrefix(p.home, dir+"/") {
		return true
	}
	if len(p.argv) == 0 {
		return false
	}
	// An agent that has written a process title over its environment still shows its configuration files in the title.
	if strings.Contains(strings.Join(p.argv, " "), "--config-file "+dir+"/") {
		return true
	}
	// The switches are started by a package that keeps the caller's HOME. Only the daemons are meant: a person may well
	// have a shell or a pager open on our files.
	switch filepath.Base(p.argv[0]) {
	case "ovsdb-server", "ovs-vswitchd":
		for _, a := range p.argv {
			if strings.HasPrefix(a, "--pidfile="+dir+"/") {
				return true
			}
		}
	}
	return false
}

// processes lists all live processes, zombies and kernel threads excepted.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

func readProcess(pid int) (process, bool) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return process{}, false
	}
	f := statFields(stat)
	if f == nil || f[statState] == "Z" || f[statState] == "X" {
		return process{}, false
	}
	p := process{pid: pid}
	p.session, _ = strconv.Atoi(f[statSession])
	cmdline, err := os.ReadFile(proc + "cmdline")
	if err != nil || len(cmdline) == 0 {
		return process{}, false
	}
	p.argv = strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	if environ, err := os.ReadFile(proc + "environ"); err == nil {
		p.home = homeOf(environ)
	}
	return p, true
}

func homeOf(environ []byte) string {
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if home, ok := bytes.CutPrefix(kv, []byte("HOME=")); ok {
			return string(home)
		}
	}
	return ""
}

// statFields splits a line of /proc/PID/stat after the command name, which may itself hold blanks and parentheses.
func statFields(stat []byte) []string {
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) <= statStart {
		return nil
	}
	return f
}

// started is the kernel's start time of a process in clock ticks since boot, "" when it is gone or only waits to be
// collected by its parent.
func started(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	f := statFields(stat)
	if f == nil || f[statState] == "Z" || f[statState] == "X" {
		return ""
	}
	return f[statStart]
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}
