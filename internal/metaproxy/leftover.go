// SPDX-License-Identifier: Apache-2.0

package metaproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What shows that a process is the haproxy of a Python agent's metadata_path: the program, and its configuration file.
const (
	leftoverProgram = "haproxy"
	leftoverConfig  = "host_metadata_proxy.haproxy.conf"
)

// leftoverTime is how long the haproxy has to end by itself.
const leftoverTime = 3 * time.Second

// endLeftover ends the haproxy that a Python agent has left behind, which listens on all addresses. A file that names another process is left alone.
func (p *Proxy) endLeftover(ctx context.Context) error {
	text, err := os.ReadFile(p.leftover)
	if p.leftover == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the Python agent's haproxy: %w", err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 if it names none
	if pid <= 1 || !isLeftover(pid) {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending the Python agent's haproxy, process %d: %w", pid, err)
	}
	for end := time.Now().Add(leftoverTime); isLeftover(pid) && ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			break
		}
	}
	if err := os.Remove(p.leftover); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the Python agent's haproxy: %w", err)
	}
	return nil
}

// isLeftover returns whether a process is such a haproxy.
func isLeftover(pid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(line) == 0 {
		return false
	}
	words := bytes.Split(line, []byte{0})
	return filepath.Base(string(words[0])) == leftoverProgram && bytes.Contains(line, []byte(leftoverConfig))
}
