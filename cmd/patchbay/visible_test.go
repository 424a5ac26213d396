// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
)

// visibleInstead has the test binary hold a connection to the address that it names, as an agent with capabilities of its file does, try
// to read a file of root's with many threads and with a program, and wait until standard input ends.
const visibleInstead = "PATCHBAY_TEST_IS_VISIBLE"

func beVisible() int {
	conn, err := net.Dial("tcp", os.Getenv(visibleInstead))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer conn.Close()
	// Each goroutine keeps a thread busy, so that Go has to make new ones.
	var started, ended sync.WaitGroup
	errs := make(chan error, 8)
	for range cap(errs) {
		started.Add(1)
		ended.Go(func() {
			started.Done()
			started.Wait()
			_, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), "secret"))
			errs <- err
		})
	}
	ended.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	// A program that the daemon runs reads it, too.
	_, err = iptables.Exec{Capabilities: handedDown()}.Run(context.Background(), "", "cat", filepath.Join(filepath.Dir(os.Args[0]), "secret"))
	if err := errors.Join(append(all, err)...); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("connected")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// TestHealthChecksSeeTheConnection looks for the connection of a process with file capabilities as kolla's and TripleO's health checks do:
// as the same user, without capabilities, by the links in /proc/PID/fd. The process works with its capabilities nevertheless.
func TestHealthChecksSeeTheConnection(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file capabilities")
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, effective := range map[string]byte{"effective": 1, "permitted only": 0} {
		t.Run(name, func(t *testing.T) {
			path := copyOfTest(t, daemonName)
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "secret"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			setCapabilities(t, path, effective)
			cmd := asNobody(path)
			cmd.Env = append(os.Environ(), visibleInstead+"="+server.Addr().String())
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, to, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd.Stdout, cmd.Stderr = to, to
			err = cmd.Start()
			_ = to.Close()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = in.Close(); _ = cmd.Wait() }()
			said := ""
			for lines := bufio.NewScanner(out); !strings.HasSuffix(said, "connected\n") && lines.Scan(); {
				said += lines.Text() + "\n"
			}
			if strings.Contains(said, "raising capabilities: operation not supported") {
				t.Skip("built with cgo, which agents are not: Go cannot raise capabilities in all threads")
			}
			if said != "connected\n" {
				t.Fatal(said)
			}
			// As the health check: nobody again, without capabilities.
			fds, err := asNobody("ls", "-l", "/proc/"+strconv.Itoa(cmd.Process.Pid)+"/fd").CombinedOutput()
			if err != nil || !strings.Contains(string(fds), "socket:[") {
				t.Errorf("%v: %s", err, fds)
			}
			limits, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/limits")
			if want := fmt.Sprintf("Max core file size        %-20d %-20d", noCore, noCore); err != nil || !strings.Contains(string(limits), want) {
				t.Errorf("%v: %s lacks %q", err, limits, want)
			}
		})
	}
}
