// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	killed    = "killed"
	timeout   = "timeout"
	alive     = "alive"
	unreached = "unreached"
	left      = "left" // alive after the tests of its own package; those of others have still to run
)

// result is what became of a mutant.
type result struct {
	Key, Verdict, By string
}

// program is the test program of a package, with every mutant in it.
type program struct {
	pkg, dir, path string
	Tests          []*test
}

// test is one test of a program, as it ran without a mutant.
type test struct {
	Name    string
	Seconds float64
	Reaches []int // mutants
	Broken  bool  // fails without a mutant, so that it cannot judge one
}

const (
	memoryKB   = 8 << 20 // of address space; a mutant that allocates without end must not take the machine with it
	chunk      = 1.0     // seconds of tests in one process: what hangs is found soon
	alone      = 2 * time.Minute
	controlOf  = 25 // of so many killed mutants one is checked: the same tests without it
	maxOutput  = 1 << 18
	falseKills = 0.05 // of the controls may fail
)

// ensure builds and traces the test programs that are not yet there.
func (m *mutants) ensure(ctx context.Context, pkgs []string, out io.Writer) error {
	dir := filepath.Join(m.dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // build output
		return err
	}
	var build []string
	var bins []*program
	for _, p := range m.all {
		if !slices.Contains(pkgs, p.ImportPath) || m.bins[p.ImportPath] != nil {
			continue
		}
		b := &program{pkg: p.ImportPath, dir: p.Dir, path: filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(p.Dir, m.root+"/"), "/", "_")+".test")}
		m.bins[p.ImportPath] = b
		bins = append(bins, b)
		if _, err := os.Stat(b.path); err != nil {
			build = append(build, p.ImportPath)
		}
	}
	begin := time.Now()
	if err := m.build(ctx, build); err != nil {
		return err
	}
	built := time.Since(begin)
	if err := m.trace(ctx, bins); err != nil {
		return err
	}
	tests, seconds := 0, 0.0
	for _, b := range bins {
		for _, t := range b.Tests {
			tests++
			seconds += t.Seconds
			if t.Broken {
				fmt.Fprintf(out, "%s: %s fails without a mutant and is not used\n", b.pkg, t.Name)
			}
		}
	}
	fmt.Fprintf(out, "%d test programs built in %.0f s; %d tests, %.0f s one after the other\n", len(build), built.Seconds(), tests, seconds)
	return nil
}

// build compiles and links test programs. One call of go builds all whose last names differ: two calls at a time would
// compile the packages below twice. What only a debugger reads is not linked.
func (m *mutants) build(ctx context.Context, pkgs []string) error {
	for len(pkgs) > 0 {
		dir, err := os.MkdirTemp(m.dir, "build")
		if err != nil {
			return err
		}
		args := []string{"test", "-c", "-overlay", m.overlay, "-ldflags", "-s -w", "-o", dir + "/"}
		named := map[string]string{}
		var later []string
		for _, pkg := range pkgs {
			name := path.Base(pkg) + ".test"
			if _, taken := named[name]; taken {
				later = append(later, pkg)
				continue
			}
			named[name] = pkg
			args = append(args, pkg)
		}
		if _, err := goCommand(ctx, m.root, args...); err != nil {
			return err
		}
		for name, pkg := range named {
			if err := os.Rename(filepath.Join(dir, name), m.bins[pkg].path); err != nil {
				return err
			}
		}
		if err := os.Remove(dir); err != nil {
			return err
		}
		pkgs = later
	}
	return nil
}

// trace runs each test by itself to know which mutants it reaches.
func (m *mutants) trace(ctx context.Context, bins []*program) error {
	type job struct {
		b *program
		t *test
	}
	var jobs []job
	var fresh []*program
	for _, b := range bins {
		if text, err := os.ReadFile(b.path + ".json"); err == nil && json.Unmarshal(text, b) == nil {
			continue
		}
		cmd := exec.CommandContext(ctx, b.path, "-test.list", "^(Test|Example|Fuzz)")
		cmd.Dir = b.dir
		names, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s -test.list: %w", b.path, err)
		}
		fresh = append(fresh, b)
		for name := range strings.FieldsSeq(string(names)) {
			t := &test{Name: name}
			b.Tests = append(b.Tests, t)
			jobs = append(jobs, job{b, t})
		}
	}
	err := parallel(ctx, m.o.workers, len(jobs), func(i int) error { return m.traceOne(ctx, jobs[i].b, jobs[i].t) })
	if err != nil {
		return err
	}
	for _, b := range fresh {
		text, err := json.Marshal(b)
		if err != nil {
			return err
		}
		if err := os.WriteFile(b.path+".json", text, 0o644); err != nil { //nolint:gosec // build output
			return err
		}
	}
	return nil
}

func (m *mutants) traceOne(ctx context.Context, b *program, t *test) error {
	for range 2 {
		file := b.path + "." + t.Name + ".trace"
		begin := time.Now()
		o, err := m.execute(ctx, b, []string{t.Name}, alone, "MUTANTS_TRACE="+file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		_ = os.Remove(file)
		t.Seconds, t.Broken, t.Reaches = time.Since(begin).Seconds(), o.verdict != alive, nil
		seen := map[int]bool{}
		for line := range strings.FieldsSeq(string(text)) {
			if id, err := strconv.Atoi(line); err == nil && !seen[id] {
				seen[id] = true
				t.Reaches = append(t.Reaches, id)
			}
		}
		if !t.Broken {
			return nil
		}
	}
	return nil
}

// parallel does n jobs with so many workers; the first error ends it.
func parallel(ctx context.Context, workers, n int, do func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// outcome of a process; alive is that its tests passed.
type outcome struct{ verdict, by string }

var failLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// execute runs tests of a program in a process group of its own, so that nothing of it stays.
func (m *mutants) execute(ctx context.Context, b *program, names []string, limit time.Duration, env ...string) (outcome, error) {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(within, "/bin/sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, memoryKB), "sh",
		b.path, "-test.run", "^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.timeout", "0", "-test.paniconexit0")
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	output := &bounded{}
	cmd.Stdout, cmd.Stderr = output, output
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return outcome{}, context.Cause(ctx)
	case within.Err() != nil:
		return outcome{timeout, strings.Join(names, "|")}, nil
	case err == nil:
		return outcome{verdict: alive}, nil
	case errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay):
		by := strings.Join(names, "|")
		if f := failLine.FindSubmatch(output.Bytes()); f != nil {
			by = string(f[1])
		}
		return outcome{killed, by}, nil
	}
	return outcome{}, err
}

// bounded keeps the beginning of what a process says.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
