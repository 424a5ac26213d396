// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// itemLimit ends an item. It is a little more than .ci/run allows itself, which is the longest.
const itemLimit = 47 * time.Minute

// guess is how long an item takes that never ran.
const guess = 5 * time.Minute

// run takes items that are due until the slice is over or a signal comes.
func (b *book) run(out io.Writer, stop <-chan os.Signal, slice time.Duration, match *regexp.Regexp, again bool) error {
	end := time.Now().Add(slice)
	var list []item
	for _, it := range b.items {
		if match.MatchString(it.name) && (again || b.due(it)) {
			list = append(list, it)
		}
	}
	fmt.Fprintf(out, "%d of %d items are due, about %s of work; this call takes %s at most\n", len(list), len(b.items), b.work(list), slice)
	bad := 0
	for i, it := range list {
		if left := time.Until(end); i > 0 && b.takes(it) > left {
			fmt.Fprintf(out, "%s waits for the next call: it takes about %s, and %s are left\n", it.name, b.takes(it), left.Round(time.Second))
			continue
		}
		fmt.Fprintf(out, "[%d/%d] %s  %s: %s (%s; %s of work left, %s of this call)\n", i+1, len(list), time.Now().Format("15:04:05"), it.name, it.command,
			b.before(it), b.work(list[i:]), time.Until(end).Round(time.Second))
		r, err := b.runItem(it, stop)
		if err != nil {
			return err
		}
		if err := b.keep(r); err != nil {
			return err
		}
		fmt.Fprintf(out, "        %s after %s, load %.1f to %.1f%s\n", strings.ToUpper(r.Verdict), time.Duration(r.Seconds)*time.Second, r.Load[0], r.Load[1], because(r.Reason))
		for _, c := range it.claims {
			text, _ := fill(c.show, r.Figures)
			fmt.Fprintf(out, "          %s: %s\n", c.text, text)
		}
		for _, line := range r.Failed {
			fmt.Fprintf(out, "          %s\n", line)
		}
		if r.Verdict == failed {
			bad++
		}
	}
	var left []item
	for _, it := range b.items {
		if b.due(it) {
			left = append(left, it)
		}
	}
	fmt.Fprintf(out, "%d items are due still, about %s of work\n", len(left), b.work(left))
	if bad > 0 {
		return fmt.Errorf("%d items failed; their output is in %s", bad, b.logs())
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func (b *book) logs() string { return filepath.Join(b.dir, "bin", "verify") }

func (b *book) takes(it item) time.Duration {
	if r := b.results[it.name]; r != nil && r.Seconds > 0 {
		return time.Duration(r.Seconds) * time.Second
	}
	return guess
}

func (b *book) before(it item) string {
	if r := b.results[it.name]; r != nil {
		return "took " + b.takes(it).String() + " last time"
	}
	return "never ran"
}

func (b *book) work(list []item) time.Duration {
	total := time.Duration(0)
	for _, it := range list {
		total += b.takes(it)
	}
	return total.Round(time.Minute)
}

var errSignal = errors.New("stopped by a signal; what ran so far is kept")

// runItem runs one command, its output in a file beside the binaries.
func (b *book) runItem(it item, stop <-chan os.Signal) (*result, error) {
	if it.servers {
		unlock, err := lockServers()
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	if err := os.MkdirAll(b.logs(), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(b.logs(), it.name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	r := &result{Item: it.name, Command: it.command, Code: b.now[it.name], Versions: versions()}
	commit, err := b.commit()
	if err != nil {
		return nil, err
	}
	var printed bytes.Buffer
	cmd := exec.Command("/bin/bash", "-o", "pipefail", "-c", it.command)
	cmd.Dir, cmd.Stdout = b.dir, io.MultiWriter(&printed, log)
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began, before := time.Now(), load()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var ended error
	select {
	case ended = <-done:
	case <-stop:
		end(cmd, done)
		return nil, errSignal
	case <-time.After(itemLimit):
		end(cmd, done)
		ended = fmt.Errorf("it took longer than %s", itemLimit)
	}
	r.outcome = it.judge(printed.String(), ended)
	if it.cell {
		r.Versions = cellVersions(r.Versions, printed.String())
	}
	r.Commit, r.Date, r.Seconds, r.Load = commit, began.UTC().Truncate(time.Second), int(time.Since(began).Seconds()+0.5), [2]float64{before, load()}
	if r.Verdict == failed {
		r.Failed, r.Tail = failures(printed.String()), tail(printed.String(), 15)
	}
	return r, nil
}

// end stops a command and what it started: first so that it can clean up.
func end(cmd *exec.Cmd, done <-chan error) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(time.Minute):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
}

// lockServers waits until no other verification runs servers on this machine: two labs at once spoil both.
func lockServers() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), "patchbay-lab.lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

// failures are the tests that failed, innermost last.
func failures(output string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindAllStringSubmatch(output, 20) {
		if !slices.Contains(list, m[1]) {
			list = append(list, m[1])
		}
	}
	return list
}

func tail(output string, n int) []string {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		lines[i] = l[:min(len(l), 300)]
	}
	return lines
}

// commit is the checkout's, with a mark if files differ that a result may depend on.
func (b *book) commit() (string, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = b.dir
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	hash, err := git("rev-parse", "--short=7", "HEAD")
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	changed, err := git("status", "--porcelain", "--", ".", ":!"+resultsDir, ":!docs", ":!README.md")
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if changed != "" {
		hash += "-dirty"
	}
	return hash, nil
}

func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseFloat(first, 64)
	return n
}

// versions are those of the real parts on this machine.
func versions() map[string]string {
	list := map[string]string{}
	say := func(name string, command ...string) {
		if out, err := exec.Command(command[0], command[1:]...).Output(); err == nil {
			if text := strings.TrimSpace(string(out)); text != "" {
				list[name] = text
			}
		}
	}
	for name, pkg := range map[string]string{
		"neutron": "neutron-common", "openvswitch": "openvswitch-switch", "rabbitmq": "rabbitmq-server", "mariadb": "mariadb-server",
		"oslo.messaging": "python3-oslo.messaging", "ovn": "ovn-host", "qemu": "qemu-system-x86", "prometheus": "prometheus",
	} {
		say(name, "dpkg-query", "-W", "-f=${Version}", pkg)
	}
	say("go", "go", "env", "GOVERSION")
	say("kernel", "uname", "-r")
	return list
}
