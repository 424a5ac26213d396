// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// clockTick is the unit of times in /proc/PID/stat on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// cpu is the time that the host's agent and its helpers have spent on a processor.
func cpu(t *testing.T, h *lab.Host) time.Duration { t.Helper(); return cpuOf(t, h, "agent") }

// cpuOf is the same of a service of the host, by the name of its directory.
func cpuOf(t *testing.T, h *lab.Host, service string) (total time.Duration) {
	t.Helper()
	for _, proc := range processes(t, h, service) {
		total += spent(proc)
	}
	return total
}

// processes returns the directories in /proc of a service of the host and its helpers. They are found as the lab finds them: by their HOME, or by their
// configuration files where a process title has replaced the environment.
func processes(t *testing.T, h *lab.Host, service string) (found []string) {
	t.Helper()
	dir := filepath.Join(h.Dir(), service)
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, proc := range pids {
		environ, _ := os.ReadFile(proc + "/environ")
		cmdline, _ := os.ReadFile(proc + "/cmdline")
		if bytes.Contains(environ, []byte("HOME="+dir+"\x00")) || bytes.Contains(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}), []byte("--config-file "+dir+"/")) {
			found = append(found, proc)
		}
	}
	return found
}

// spent is what a live process has used, from the scheduler's exact count of its threads, and what its children had used
// when it collected them.
func spent(proc string) time.Duration {
	var total time.Duration
	threads, _ := filepath.Glob(proc + "/task/[0-9]*/schedstat")
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // ended
		}
		ns, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		total += time.Duration(n)
	}
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, i := range []int{13, 14} { // cutime and cstime
		n, _ := strconv.ParseInt(f[i], 10, 64)
		total += time.Duration(n) * clockTick
	}
	return total
}

// rss is the resident set of the agent's process in bytes, peak the largest that it has had.
func rss(t *testing.T, h *lab.Host) int64  { t.Helper(); return ofAgent(t, h, "VmRSS:") }
func peak(t *testing.T, h *lab.Host) int64 { t.Helper(); return ofAgent(t, h, "VmHWM:") }

func ofAgent(t *testing.T, h *lab.Host, field string) int64 {
	t.Helper()
	_, pid := h.Agent()
	return resident(t, pid, field)
}

func resident(t *testing.T, pid int, field string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb * 1024
		}
	}
	t.Fatalf("no %s in the process's status", field)
	return 0
}

// lines counts the lines of the agent's log.
func lines(t *testing.T, h *lab.Host) int {
	t.Helper()
	text, err := os.ReadFile(h.AgentLog(lab.Patchbay))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(text))
	return strings.Join(f[:min(3, len(f))], " ")
}
