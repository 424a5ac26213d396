// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Health checks of kolla and TripleO look for the agent's connection to the broker in /proc/PID/fd, as the agent's own user and without
// capabilities. The kernel lets them if the process is dumpable and its first thread has no capabilities that they lack. So the first
// thread of a file with capabilities gives its own up and does nothing but wait, and all others work.

// The main goroutine stays on the first thread, and Go makes new threads from another one, which keeps its capabilities. It can be had
// before main only.
func init() { //nolint:gochecknoinits // later the main goroutine may be on another thread
	if privilegedFile() {
		runtime.LockOSThread()
	}
}

// openToChecks runs the program beside the first thread, and ends the process with its status.
func openToChecks(run func() int) {
	if err := errors.Join(raise(), showConnections()); err != nil {
		fmt.Fprintln(os.Stderr, "patchbay: health checks may not see the agent's connections:", err)
	}
	done := make(chan int)
	go func() { done <- run() }()
	os.Exit(<-done)
}

// capability is what the kernel takes and gives for a thread.
type capability struct {
	head unix.CapUserHeader
	sets [2]unix.CapUserData
}

func ownCapabilities() (*capability, error) {
	c := &capability{head: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}}
	if err := unix.Capget(&c.head, &c.sets[0]); err != nil {
		return nil, fmt.Errorf("reading capabilities: %w", err)
	}
	return c, nil
}

// raise makes the capabilities that the file permits effective in all threads. A file that makes them effective itself cannot be run at
// all where one of them is not to be had.
func raise() error {
	c, err := ownCapabilities()
	if err != nil {
		return err
	}
	raised := false
	for i := range c.sets {
		raised = raised || c.sets[i].Effective != c.sets[i].Permitted
		c.sets[i].Effective = c.sets[i].Permitted
	}
	if !raised {
		return nil
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.head)), uintptr(unsafe.Pointer(&c.sets[0])), 0); errno != 0 {
		return fmt.Errorf("raising capabilities: %w", errno)
	}
	return nil
}

// noCore is the limit of core dumps that holds for files and, unlike 0, for programs that take them.
const noCore = 1

// showConnections gives up the capabilities of this thread, the first one, and makes the process dumpable, without core dumps.
func showConnections() error {
	c, err := ownCapabilities()
	if err != nil {
		return err
	}
	if unix.Gettid() != os.Getpid() {
		return errors.New("not on the first thread")
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: noCore, Max: noCore}); err != nil {
		return fmt.Errorf("switching core dumps off: %w", err)
	}
	c.sets = [2]unix.CapUserData{}
	if err := unix.Capset(&c.head, &c.sets[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("opening /proc to the agent's user: %w", err)
	}
	return nil
}

// handedDown are the capabilities that programs get which the daemon runs, iptables and ipset. Capabilities of a file end with the program in
// the file unless they are handed down; those from a service manager do not.
func handedDown() []uintptr {
	if !privilegedFile() {
		return nil
	}
	c, err := ownCapabilities()
	if err != nil {
		return nil
	}
	var out []uintptr
	for i := range uintptr(len(c.sets)) * 32 {
		if c.sets[i/32].Permitted&(1<<(i%32)) != 0 {
			out = append(out, i)
		}
	}
	return out
}
