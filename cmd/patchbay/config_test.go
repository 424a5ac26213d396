// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// check runs `config check` and gives its output and exit status.
func check(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := newConfigCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"check"}, args...))
	err := cmd.Execute()
	if err == nil {
		return out.String(), 0
	}
	return out.String(), exitStatus(err)
}

func writeConfig(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config-file", path, "--config-dir", t.TempDir()}
}

func TestConfigCheckText(t *testing.T) {
	args := writeConfig(t, `[DEFAULT]
host = compute-1
transport_url = rabbit://neutron:hunter2@broker:5672/
core_plugin = ml2
[ovs]
locl_ip = 192.0.2.1
[agent]
extensions = sfc
root_helper = sudo
`)
	out, status := check(t, append(args, "--changed", "--debug")...)
	want := `Files, a later one wins:
  FILE

1 error: the agent would not start:
  FILE:8
    [agent] extensions names sfc, an extension that Patchbay does not know; set [patchbay] unknown_extensions = ignore to go on without it.

2 warnings: look at this too:
  [securitygroup] firewall_driver is noop: nothing filters the ports of this host, although enable_security_group is true.
  FILE:6
    There is no option [ovs] locl_ip, so it is ignored; did you mean local_ip?

[DEFAULT]
host = compute-1                                      # FILE:2
transport_url = rabbit://neutron:***@broker:5672/     # FILE:3
debug = true                                          # command line --debug
[agent]
extensions = sfc                                  # FILE:8
root_helper = sudo                                    # FILE:9

1 error, 2 warnings (and 2 notes, shown with --verbose)
`
	out = strings.ReplaceAll(out, args[1], "FILE")
	trim := func(s string) string {
		lines := strings.Split(s, "\n")
		for i, l := range lines {
			lines[i] = strings.Join(strings.Fields(l), " ")
		}
		return strings.Join(lines, "\n")
	}
	if diff := cmp.Diff(trim(want), trim(out)); diff != "" || status != 1 {
		t.Errorf("status %d\n%s", status, diff)
	}
}

func TestConfigCheckStatus(t *testing.T) {
	fine := "[securitygroup]\nenable_security_group = false\n"
	for _, test := range []struct {
		name, text string
		args       []string
		want       int
	}{
		{"fine", fine, nil, 0},
		{"fine and strict", fine, []string{"--strict"}, 0},
		{"warnings", fine + "[ovs]\nlocl_ip = ::1\n", nil, 0},
		{"warnings and strict", fine + "[ovs]\nlocl_ip = ::1\n", []string{"--strict"}, exitFinding},
		{"old name and strict", fine + "[DEFAULT]\nlogdir = /x\n", []string{"--strict"}, exitFinding},
		{"notes and strict", fine + "[agent]\nroot_helper = x\n[database]\nconnection = x\n", []string{"--strict"}, 0},
		{"error", fine + "[ovs]\nlocal_ip = x\n", nil, 1},
		{"error and strict", fine + "[ovs]\nlocal_ip = x\nlocl_ip = x\n", []string{"--strict", "--json"}, 1},
		{"unsupported", fine + "[agent]\nextensions = sfc\n", nil, 1},
		{"bad transport_url", fine + "[DEFAULT]\ntransport_url = amqp://h\n", nil, 1},
		{"bad query", fine + "[DEFAULT]\ntransport_url = rabbit://h/?sll=1\n", nil, 1},
		{"good query", fine + "[DEFAULT]\ntransport_url = rabbit://h/?ssl=1\n", nil, 0},
		{"options of the broker that exclude each other", fine + "[oslo_messaging_rabbit]\nrabbit_transient_quorum_queue = true\nrabbit_stream_fanout = true\n", nil, exitFinding},
		{"and with what they need", fine + "[oslo_messaging_rabbit]\nrabbit_transient_quorum_queue = true\nrabbit_stream_fanout = true\nrabbit_qos_prefetch_count = 1\n", nil, 0},
		{"or in the query", fine + "[DEFAULT]\ntransport_url = rabbit://h/?rabbit_transient_quorum_queue=1&rabbit_stream_fanout=1\n", nil, exitFinding},
		{"usage", fine, []string{"--no-such-option"}, 2},
		{"no such format", fine, []string{"-o", "xml"}, 2},
		{"help", "broken", []string{"--help"}, 0},
	} {
		args := append(test.args, writeConfig(t, test.text)...)
		if out, status := check(t, args...); status != test.want {
			t.Errorf("%s: status %d, want %d\n%s", test.name, status, test.want, out)
		}
	}
}

// TestConfigCheckStreams is about options on which the agent ends at its start: the sentence names the option, and the line where it is set.
func TestConfigCheckStreams(t *testing.T) {
	args := writeConfig(t, "[oslo_messaging_rabbit]\nrabbit_transient_quorum_queue = true\nrabbit_stream_fanout = true\n")
	out, _ := check(t, args...)
	if want := args[1] + ":3\n    [oslo_messaging_rabbit] rabbit_stream_fanout needs rabbit_qos_prefetch_count.\n"; !strings.Contains(out, want) {
		t.Errorf("wanted %q in:\n%s", want, out)
	}
}

func TestConfigCheckJSON(t *testing.T) {
	args := writeConfig(t, "[DEFAULT]\ntransport_url = rabbit://u:hunter2@h/\n[ovs]\nof_listen_port = 70000\n[agent]\ntunnel_types = gre,vxlan\n")
	out, status := check(t, append(args, "--json", "--changed")...)
	var report jsonReportIn
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if status != 1 || report.Errors != 1 || len(report.Files) != 1 || strings.Contains(out, "hunter2") {
		t.Errorf("status %d: %s", status, out)
	}
	if f := report.Findings[0]; f.Severity != "error" || f.Kind != "value" || f.Section != "ovs" || f.Option != "of_listen_port" ||
		f.Origin != (jsonOrigin{Kind: "file", File: args[1], Line: 4}) {
		t.Errorf("%+v", f)
	}
	if len(report.Options) != 2 || cmp.Diff(report.Options[1].Value, []any{"gre", "vxlan"}) != "" {
		t.Errorf("%+v", report.Options)
	}
}

// jsonReportIn reads what jsonReport writes.
type jsonReportIn struct {
	Files    []string
	Errors   int
	Findings []jsonFinding
	Options  []struct {
		Section, Option string
		Value           any
		Origin          jsonOrigin
	}
}

func TestConfigCheckHelp(t *testing.T) {
	out, status := check(t, "--help")
	for _, part := range []string{"Exit status:", "--strict", "--config-dir DIR", "-d, --debug, --nodebug"} {
		if !strings.Contains(out, part) {
			t.Errorf("the help text lacks %q:\n%s", part, out)
		}
	}
	if status != 0 {
		t.Error(status)
	}
}

func TestConfigCheckCompletion(t *testing.T) {
	for _, test := range []struct {
		args      []string
		text      string
		count     int
		directive cobra.ShellCompDirective
	}{
		{nil, "", 8, cobra.ShellCompDirectiveNoFileComp},
		{nil, "--config", 2, cobra.ShellCompDirectiveNoFileComp},
		{[]string{"--config-file"}, "/etc", 0, cobra.ShellCompDirectiveDefault},
		{[]string{"--config-dir"}, "/etc", 0, cobra.ShellCompDirectiveFilterDirs},
		{nil, "--config-file=/etc", 0, cobra.ShellCompDirectiveDefault},
	} {
		have, directive := completeConfigCheck(nil, test.args, test.text)
		if len(have) != test.count || directive != test.directive {
			t.Errorf("%v %q: %v %v", test.args, test.text, have, directive)
		}
	}
}
