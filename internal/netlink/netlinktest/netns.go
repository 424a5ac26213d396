// SPDX-License-Identifier: Apache-2.0

// Package netlinktest has network namespaces for tests of what talks to the kernel. It needs root and ip(8).
package netlinktest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Run runs a program and returns what it prints. The test fails if the program does.
func Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Namespace makes a network namespace for the time of the test and returns its name, which begins with a word.
func Namespace(t *testing.T, word string) string {
	t.Helper()
	name := fmt.Sprintf("%s-%d", word, os.Getpid())
	Run(t, "ip", "netns", "add", name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second) // the test's own has ended
		defer cancel()
		if out, err := exec.CommandContext(ctx, "ip", "netns", "del", name).CombinedOutput(); err != nil {
			t.Errorf("deleting namespace %s: %v: %s", name, err, out)
		}
	})
	Run(t, "ip", "-n", name, "link", "set", "lo", "up")
	return name
}

// In runs f on a thread in the namespace; sockets that f makes belong to it for ever.
func In(name string, f func()) error {
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine and takes the namespace along.
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open("/run/netns/" + name)
			if err != nil {
				return err
			}
			defer func() { _ = ns.Close() }()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			f()
			return nil
		}()
	}()
	return <-done
}
