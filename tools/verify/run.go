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
	"sync"
	"syscall"
	"time"
)

// itemLimit ends an item. It is a little more than .ci/run allows itself, which is the longest.
const itemLimit = 47 * time.Minute

// asideLimit ends an item that runs beside others. They share the cores, and its figures are counts: the limit is for what hangs.
const asideLimit = 2 * itemLimit

// guess is how long an item takes that never ran.
const guess = 5 * time.Minute

// plan is what one call of verify is to do.
type plan struct {
	stop   <-chan struct{} // ends it
	slice  time.Duration
	match  *regexp.Regexp
	again  bool
	beside int // so many items at a time, where they may
}

// run takes items that are due until the slice is over or the call is stopped: first those that may run side by side, then the others, one at a time.
func (b *book) run(out io.Writer, c plan) error {
	end := time.Now().Add(c.slice)
	var list, together, alone []item
	for _, it := range b.items {
		if c.match.MatchString(it.name) && (c.again || b.due(it)) {
			list = append(list, it)
		}
	}
	for _, it := range list {
		if c.beside > 1 && countable.MatchString(it.name) {
			together = append(together, it)
		} else {
			alone = append(alone, it)
		}
	}
	fmt.Fprintf(out, "%d of %d items are due, about %s of work; this call takes %s at most\n", len(list), len(b.items), b.work(list), c.slice)
	var mu sync.Mutex // what is said, and the results
	begun, bad, total, rest := 0, 0, len(list), list
	one := func(it item, aside bool) error {
		mu.Lock()
		defer mu.Unlock()
		begun++
		if left := time.Until(end); begun > 1 && b.takes(it) > left {
			fmt.Fprintf(out, "%s waits for the next call: it takes about %s, and %s are left\n", it.name, b.takes(it), left.Round(time.Second))
			return nil
		}
		fmt.Fprintf(out, "[%d/%d] %s  %s: %s (%s; %s of work left, %s of this call)\n", begun, total, time.Now().Format("15:04:05"), it.name, it.command,
			b.before(it), b.work(rest), time.Until(end).Round(time.Second))
		mu.Unlock()
		r, err := b.runItem(it, c.stop, aside)
		mu.Lock()
		if err != nil {
			return err
		}
		if err := b.keep(r); err != nil {
			return err
		}
		rest = slices.DeleteFunc(slices.Clone(rest), func(o item) bool { return o.name == it.name })
		b.say(out, it, r)
		if r.Verdict == failed {
			bad++
		}
		return nil
	}
	err := b.locked(together, func() error {
		restore, err := prepare(b.dir)
		if err != nil {
			return err
		}
		defer restore()
		return sideBySide(together, c.beside, func(it item) error { return one(it, true) })
	})
	for _, it := range alone {
		if err != nil {
			return err
		}
		err = b.locked([]item{it}, func() error { return one(it, false) })
	}
	if err != nil {
		return err
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

// say tells what came of an item.
func (b *book) say(out io.Writer, it item, r *result) {
	fmt.Fprintf(out, "        %s: %s after %s, load %.1f to %.1f%s\n", it.name, strings.ToUpper(r.Verdict), time.Duration(r.Seconds)*time.Second, r.Load[0], r.Load[1], because(r.Reason))
	for _, c := range it.claims {
		text, _ := fill(c.show, r.Figures)
		fmt.Fprintf(out, "          %s: %s\n", c.text, text)
	}
	for _, line := range r.Failed {
		fmt.Fprintf(out, "          %s\n", line)
	}
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

// locked runs what it is given, and no other verification's servers meanwhile if one of the items starts servers.
func (b *book) locked(list []item, do func() error) error {
	if len(list) == 0 {
		return nil
	}
	if slices.ContainsFunc(list, func(it item) bool { return it.servers }) {
		unlock, err := lockServers()
		if err != nil {
			return err
		}
		defer unlock()
	}
	return do()
}

// runItem runs one command, its output in a file beside the binaries, and with aside in namespaces of its own.
func (b *book) runItem(it item, stop <-chan struct{}, aside bool) (*result, error) {
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
	limit := itemLimit
	var printed bytes.Buffer
	cmd := exec.Command("/bin/bash", "-o", "pipefail", "-c", it.command)
	if aside {
		limit = asideLimit
		dir, err := os.MkdirTemp("", "verify")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		cmd = exec.Command("/bin/bash", "-c", apart)
		cmd.Env = within(it.command, dir)
	}
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
	case <-time.After(limit):
		end(cmd, done)
		ended = fmt.Errorf("it took longer than %s", limit)
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
