// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
)

// Runner runs a program with an input and returns what it printed to its standard output.
type Runner interface {
	Run(ctx context.Context, input, name string, args ...string) (string, error)
}

// Host reads and writes the rules and sets of the host that the agent is on, with the host's own programs: so they are those of the back
// end that the host uses.
type Host struct {
	Runner Runner
	// LockDir is [oslo_concurrency] lock_path, in which all agents of Neutron have their locks; empty for no locks.
	LockDir string
	// NoIPv6: the kernel has no IPv6.
	NoIPv6 bool
	// Sys are the files of /proc/sys; nil: it is not asked whether packets of bridges meet the rules.
	Sys fs.FS
}

const (
	// lockWait is how long iptables waits for the lock of its legacy back end.
	lockWait = "10"
	// lockPause is the pause between attempts at a lock of Neutron's agents.
	lockPause = 50 * time.Millisecond
	// Names of the locks of Neutron's agents.
	rulesLock, setsLock = "neutron-iptables", "neutron-ipset-None"
)

func restoreNames() [2]string { return [2]string{"iptables-restore", "ip6tables-restore"} }
func saveNames() [2]string    { return [2]string{"iptables-save", "ip6tables-save"} }

// Read reads all rules and sets.
func (h *Host) Read(ctx context.Context) (State, error) {
	var s State
	for i, name := range saveNames() {
		if i == 1 && h.NoIPv6 {
			continue
		}
		text, err := h.Runner.Run(ctx, "", name)
		if err == nil {
			s.Rules[i], err = ParseRules(text)
		}
		if err != nil {
			return State{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	text, err := h.Runner.Run(ctx, "", "ipset", "save")
	if err == nil {
		s.Sets, err = ParseSets(text)
	}
	if err != nil {
		return State{}, fmt.Errorf("ipset save: %w", err)
	}
	if h.Sys != nil {
		s.Unbridged = Unbridged(h.Sys, !h.NoIPv6)
	}
	return s, nil
}

// Apply writes changes: sets, then rules, then it deletes unused sets. What comes after a failure is left out.
func (h *Host) Apply(ctx context.Context, c *Changes) error {
	if err := h.restoreSets(ctx, c.Sets); err != nil {
		return err
	}
	if c.Rules != [2]string{} {
		unlock, err := h.lock(ctx, rulesLock)
		if err != nil {
			return err
		}
		defer unlock()
	}
	for i, name := range restoreNames() {
		if c.Rules[i] == "" {
			continue
		}
		if _, err := h.Runner.Run(ctx, c.Rules[i], name, "--noflush", "-w", lockWait); err != nil {
			return fmt.Errorf("%s: %w", name, withLine(err, c.Rules[i]))
		}
	}
	return h.restoreSets(ctx, c.Unused)
}

func (h *Host) restoreSets(ctx context.Context, input string) error {
	if input == "" {
		return nil
	}
	unlock, err := h.lock(ctx, setsLock)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := h.Runner.Run(ctx, input, "ipset", "restore", "-exist"); err != nil {
		return fmt.Errorf("ipset restore: %w", withLine(err, input))
	}
	return nil
}

var lineNumber = regexp.MustCompile(`(?i)line:? (\d+)`)

// withLine adds the line of the input that a program complains about.
func withLine(err error, input string) error {
	found := lineNumber.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	n, _ := strconv.Atoi(found[1])
	all := strings.Split(input, "\n")
	if n < 1 || n > len(all) {
		return err
	}
	return &RefusedError{Err: err, Line: all[n-1], number: n}
}

// RefusedError is the error of a program that names a line of its input.
type RefusedError struct {
	Err    error
	Line   string
	number int
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%v: line %d is %q", e.Err, e.number, e.Line)
}

// Unwrap returns the program's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// lock takes one of the locks that agents of Neutron share, and returns how to give it back. The kernel gives it back when the process ends.
func (h *Host) lock(ctx context.Context, name string) (func(), error) {
	if h.LockDir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(h.LockDir, 0o755); err != nil { //nolint:gosec // see below
		return nil, fmt.Errorf("making the directory of locks of Neutron's agents: %w", err)
	}
	path := filepath.Join(h.LockDir, name)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // other agents, under other users, use the file too
	if err != nil {
		return nil, fmt.Errorf("taking a lock of Neutron's agents: %w", err)
	}
	for {
		err := syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) {
			_ = file.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, ctx.Err())
		case <-time.After(lockPause):
		}
	}
}

// End deletes tracked connections. It returns how many there were.
func (h *Host) End(ctx context.Context, all []Connections) (int, error) {
	zones := map[uint16][]Connections{}
	for _, c := range all {
		zones[c.Zone] = append(zones[c.Zone], c)
	}
	return conntrack.RemoveFromKernel(ctx, slices.Sorted(maps.Keys(zones)), func(zone uint16, t conntrack.Connection) bool {
		return slices.ContainsFunc(zones[zone], func(c Connections) bool { return c.Match(t) })
	})
}

// Exec runs programs of the host.
type Exec struct {
	// Capabilities are those that the programs get. An agent that is root, or has its own from a service manager, hands them down without.
	Capabilities []uintptr
}

// Run implements [Runner]. An error has what the program printed to its standard error.
func (e Exec) Run(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: e.Capabilities}
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return "", fmt.Errorf("%w: %s", err, text)
		}
		return "", err
	}
	return stdout.String(), nil
}

// Other returns the name of the program that shows rules of the agent in the back end that the host's iptables does not use; nothing if
// there are none. The kernel evaluates both: what was left there refuses packets, and sets zones, beside what is written here.
func (h *Host) Other(ctx context.Context) (string, error) {
	version, err := h.Runner.Run(ctx, "", "iptables", "--version")
	if err != nil {
		return "", fmt.Errorf("iptables --version: %w", err)
	}
	other := "iptables-nft-save"
	if strings.Contains(version, "nf_tables") {
		other = "iptables-legacy-save"
	}
	text, err := h.Runner.Run(ctx, "", other)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%s: %w", other, err)
	case strings.Contains(text, prefix):
		return other, nil
	}
	return "", nil
}

// Unbridged returns why the packets of bridges do not meet the rules, a sentence for each reason: then no port is filtered. The files are
// those of /proc/sys, and differ between network namespaces.
func Unbridged(sys fs.FS, ipv6 bool) []string {
	keys := []string{"iptables"}
	if ipv6 {
		keys = append(keys, "ip6tables")
	}
	var out []string
	for _, key := range keys {
		name := "net/bridge/bridge-nf-call-" + key
		value, err := fs.ReadFile(sys, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return []string{"the kernel module br_netfilter is not loaded: load it, and set net.bridge.bridge-nf-call-iptables = 1"}
		case err != nil:
			out = append(out, fmt.Sprintf("sysctl %s cannot be read: %v", strings.ReplaceAll(name, "/", "."), err))
		case strings.TrimSpace(string(value)) != "1":
			out = append(out, fmt.Sprintf("sysctl %s is %s: set it to 1", strings.ReplaceAll(name, "/", "."), strings.TrimSpace(string(value))))
		}
	}
	return out
}
