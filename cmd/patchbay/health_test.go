// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

func TestHealthCommand(t *testing.T) {
	src := exampleAgent()
	path := served(t, src, admin.Options{})
	if out, status := run(t, "health", "--socket", path); status != 1 || out != "not healthy: the broker is not connected: connection refused\n" {
		t.Errorf("%d %q", status, out)
	}
	if out, status := run(t, "health", "--live", "--socket", path); status != 0 || out != "alive\n" {
		t.Errorf("%d %q", status, out)
	}
	if out, status := run(t, "health", "--live", "--socket", path+".gone"); status != 1 || !strings.HasPrefix(out, "not healthy: no agent answers") || strings.Count(out, "\n") != 1 {
		t.Errorf("%d %q", status, out)
	}
}

func TestHealthy(t *testing.T) {
	up := inspect.Peer{Up: true}
	bridge := []inspect.Bridge{{Name: "br-int", Connected: true}}
	for want, s := range map[string]inspect.Status{
		"healthy: in sync": {InSync: true, Switch: up, Broker: up, Bridges: bridge},
		"healthy, but not in sync: no neutron-server has answered yet":            {Switch: up, Broker: up, Bridges: bridge, Reasons: []string{"no neutron-server has answered yet"}},
		"not healthy: the switch's database is not connected: refused":            {Switch: inspect.Peer{Error: "refused"}, Broker: up, Bridges: bridge},
		"not healthy: bridge br-int is not connected: no such\u00a0file":          {InSync: true, Switch: up, Broker: up, Bridges: []inspect.Bridge{{Name: "br-int", Error: "no such\u00a0file"}}},
		"not healthy: bridge br-ex is not connected; the broker is not connected": {Switch: up, Bridges: []inspect.Bridge{{Name: "br-ex"}}},
	} {
		ok, why := healthy(&s, false)
		if why != want || ok != strings.HasPrefix(want, "healthy") {
			t.Errorf("%v %q, want %q", ok, why, want)
		}
	}
}

// The commands find the agent that runs here by its command line, whatever files it was started with.
func TestRunningSocket(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.conf")
	if err := os.WriteFile(file, []byte("[DEFAULT]\nstate_path = "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	line := func(words ...string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.Join(words, "\x00") + "\x00")}
	}
	exists := func(path string) bool { return path == dir+"/patchbay.sock" }
	for name, proc := range map[string]fstest.MapFS{
		"kolla":     {"7/cmdline": line("neutron-openvswitch-agent", "--config-file", file), "1/cmdline": line("dumb-init", "--")},
		"a command": {"9/cmdline": line("/usr/bin/patchbay", "agent", "--config-file="+file)},
		"beside one with other files": {"3/cmdline": line("neutron-openvswitch-agent", "--config-file", "/nowhere"),
			"7/cmdline": line("/usr/bin/neutron-openvswitch-agent", "--config-file", file)},
	} {
		if got := runningSocket(proc, nil, exists); got != dir+"/patchbay.sock" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, proc := range map[string]fstest.MapFS{
		"nobody": {"1/cmdline": line("sleep", "1"), "self/cmdline": line("neutron-openvswitch-agent", "--config-file", file)},
		"this":   {"1/cmdline": line("patchbay", "health")},
	} {
		if got := runningSocket(proc, nil, exists); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestChooseSocket(t *testing.T) {
	running := func(path string) func() string { return func() string { return path } }
	has := func(path string) func(string) bool { return func(p string) bool { return p == path } }
	for _, c := range []struct{ got, want string }{
		{chooseSocket("/a", has("/a"), running("/b")), "/a"},
		{chooseSocket("/a", has("/b"), running("/b")), "/b"},
		{chooseSocket("/a", has(""), running("")), "/a"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// An agent says its name and version as the Python agent does.
func TestVersionOfTheAgent(t *testing.T) {
	if out, status := run(t, "agent", "--version"); status != 0 || out != "neutron-openvswitch-agent "+version+"\n" {
		t.Errorf("%d %q", status, out)
	}
}

// A report names what people ask for first, and no secret.
func TestReportText(t *testing.T) {
	o := optionsOf(t, "[DEFAULT]\ntransport_url = rabbit://u:hunter2@127.0.0.1:1/\nhost = hv1\n[profiler]\nhmac_keys = hunter2\n")
	r := &reporter{src: exampleAgent(), options: func() *options.Options { return o }}
	text := string(r.text(t.Context(), noon))
	for _, want := range []string{
		"version = " + version, "\nState\n=====\nhv1  NOT IN SYNC", "broker    DOWN: connection refused", "\nConfiguration\n", "host = hv1", "u:***@", "\nGoroutines\n", "TestReportText",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Contains(text, "hunter2") {
		t.Error("the report has a secret")
	}
	r.src = stuckAgent{exampleAgent()}
	if text := string(r.text(t.Context(), noon)); !strings.Contains(text, "the loop does not answer") || !strings.Contains(text, "\nGoroutines\n") {
		t.Error("no report of a stuck loop")
	}
}

type stuckAgent struct{ *fakeAgent }

func (stuckAgent) Status(context.Context) (inspect.Status, error) {
	return inspect.Status{}, context.DeadlineExceeded
}

// Reports go to the directory of the options, for a signal and for a touched file, and to standard error where there is none.
func TestReportsAreWritten(t *testing.T) {
	dir := t.TempDir()
	asks := filepath.Join(dir, "ask")
	o := optionsOf(t, "[oslo_reports]\nlog_dir = "+dir+"/reports\nfile_event_handler = "+asks+"\nfile_event_handler_interval = 3\n")
	elsewhere := optionsOf(t, "")
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		current := o
		ctx, cancel := context.WithCancel(t.Context())
		signals := make(chan os.Signal, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			(&reporter{exampleAgent(), func() *options.Options { return current }, &stderr, slog.New(slog.DiscardHandler)}).serve(ctx, signals)
		}()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		reports := func() int {
			list, _ := filepath.Glob(dir + "/reports/neutron-openvswitch-agent_gurumeditation_20[0-9]*")
			return len(list)
		}
		pass(10 * time.Second)
		if n := reports(); n != 0 {
			t.Errorf("%d reports that nobody asked for", n)
		}
		signals <- syscall.SIGUSR2
		pass(2 * time.Second)
		if n := reports(); n != 1 {
			t.Errorf("%d reports after a signal", n)
		}
		if err := os.WriteFile(asks, nil, 0o600); err != nil {
			t.Error(err)
		}
		pass(10 * time.Second)
		if n := reports(); n != 2 || stderr.Len() > 0 {
			t.Errorf("%d reports after a touch, and on standard error %q", n, stderr.String())
		}
		current = elsewhere
		signals <- syscall.SIGUSR2
		synctest.Wait()
		if n := reports(); n != 2 || !strings.HasPrefix(stderr.String(), "Report of neutron-openvswitch-agent") {
			t.Errorf("%d reports, and on standard error %.50q", n, stderr.String())
		}
		cancel()
		<-done
	})
}
