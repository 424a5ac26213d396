// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Answer is what a command on a host printed, and how it ended.
type Answer struct {
	Host   string
	Out    []byte
	Errs   string // the error output, in one line
	Status int    // exit status; Unreachable when the command did not run
	Took   time.Duration
}

// Unreachable is the status of a host that cannot be reached: ssh's own.
const Unreachable = 255

// Runner runs a command line on a host, in a shell.
type Runner func(ctx context.Context, host, command string) Answer

// maxOut is how much of a host's answer is kept.
const maxOut = 64 << 20

// Connect returns a runner that starts a program for each command: the words, with {host} replaced, and the command as the last one.
func Connect(words []string) (Runner, error) {
	if len(words) == 0 || !strings.Contains(strings.Join(words, " "), "{host}") {
		return nil, errors.New("the way to a host has to have {host} in it, such as: ssh -o BatchMode=yes {host}")
	}
	return func(ctx context.Context, host, command string) Answer {
		args := make([]string, 0, len(words)+1)
		for _, w := range words {
			args = append(args, strings.ReplaceAll(w, "{host}", host))
		}
		began := time.Now()
		cmd := exec.CommandContext(ctx, args[0], append(args[1:], command)...)
		cmd.WaitDelay = time.Second
		out, errs := &limited{most: maxOut}, &limited{most: 1 << 16}
		cmd.Stdout, cmd.Stderr = out, errs
		err := cmd.Run()
		a := Answer{Host: host, Out: out.Bytes(), Errs: strings.Join(strings.Fields(errs.String()), " "), Took: time.Since(began)}
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			a.Status, a.Errs = Unreachable, "no answer in time"
		case errors.As(err, &exit) && exit.ExitCode() >= 0:
			a.Status = exit.ExitCode()
		case err != nil:
			a.Status, a.Errs = Unreachable, err.Error()
		}
		return a
	}, nil
}

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	most int
}

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	room := max(l.most-l.Len(), 0)
	l.Buffer.Write(b[:min(len(b), room)])
	return len(b), nil
}

// Fleet is hosts and the way to them.
type Fleet struct {
	Hosts    []string
	Run      Runner
	Parallel int           // how many hosts are asked at a time
	Timeout  time.Duration // of one command on one host
}

// Ask runs a command on hosts, and hands over each answer as it comes, one at a time.
func (f *Fleet) Ask(ctx context.Context, hosts []string, command string, each func(Answer)) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(f.Parallel, 1))
	for _, host := range hosts {
		select {
		case <-ctx.Done():
			wg.Wait()
			return fmt.Errorf("not all hosts were asked: %w", ctx.Err())
		case slots <- struct{}{}:
		}
		wg.Go(func() {
			defer func() { <-slots }()
			one, cancel := context.WithTimeout(ctx, f.Timeout)
			defer cancel()
			a := f.Run(one, host, command)
			mu.Lock()
			defer mu.Unlock()
			each(a)
		})
	}
	wg.Wait()
	return nil
}
