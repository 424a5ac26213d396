// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

var update = flag.Bool("update", false, "write what is found as what is wanted")

// tool is what a deployment tool hands the agent: the command line and the files, as far as the agent reads them.
type tool struct {
	name      string
	args, env []string
	dir       string // of the files
	want      *txtar.File
	archive   *txtar.Archive
	path      string
}

// deploymentTools lays out the files of every tool. Each archive in testdata/tools has the tool's files, its command line behind "args:",
// its environment behind "env:", and as "want" what `config check` has to warn of.
func deploymentTools(t *testing.T) []tool {
	t.Helper()
	paths, err := filepath.Glob("testdata/tools/*.txtar")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%v, %v", paths, err)
	}
	out := make([]tool, 0, len(paths))
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		x := tool{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), dir: t.TempDir(), archive: archive, path: path}
		for i, f := range archive.Files {
			if f.Name == "want" {
				x.want = &archive.Files[i]
				continue
			}
			name := filepath.Join(x.dir, f.Name)
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, bytes.ReplaceAll(f.Data, []byte("DIR"), []byte(x.dir)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for line := range strings.SplitSeq(string(archive.Comment), "\n") {
			if rest, ok := strings.CutPrefix(line, "args: "); ok {
				x.args = strings.Fields(strings.ReplaceAll(rest, "DIR", x.dir))
			}
			if rest, ok := strings.CutPrefix(line, "env: "); ok {
				x.env = append(x.env, rest)
			}
		}
		if !strings.Contains(strings.Join(x.args, " "), "--config-dir") {
			x.args = append(x.args, "--config-dir", t.TempDir()) // the machine's own /etc must not take part
		}
		out = append(out, x)
	}
	return out
}

// TestToolsFiles runs `config check` with what each tool hands the agent: nothing stops the start.
func TestToolsFiles(t *testing.T) {
	for _, x := range deploymentTools(t) {
		t.Run(x.name, func(t *testing.T) {
			report, status := checkTool(t, &x)
			var warnings strings.Builder
			for _, f := range report.Findings {
				switch f.Severity {
				case "error":
					t.Errorf("the agent would not start: %s", f.Message)
				case "warning":
					fmt.Fprintln(&warnings, f.Message)
				}
			}
			if status != 0 {
				t.Errorf("status %d: %+v", status, report.Findings)
			}
			have := strings.ReplaceAll(warnings.String(), x.dir, "DIR")
			if *update {
				x.want.Data = []byte(have)
				if err := os.WriteFile(x.path, txtar.Format(x.archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(x.want.Data), have); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// checkTool returns what `config check --json` prints, and its exit status.
func checkTool(t *testing.T, x *tool) (report struct{ Findings []jsonFinding }, status int) {
	t.Helper()
	cmd := newConfigCheckCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	err := runConfigCheck(cmd, append([]string{"--json"}, x.args...), x.env)
	if jsonErr := json.Unmarshal(out.Bytes(), &report); jsonErr != nil {
		t.Fatal(jsonErr)
	}
	if err != nil {
		status = exitStatus(err)
	}
	return report, status
}

// TestToolsLogs holds where the log of each tool goes.
func TestToolsLogs(t *testing.T) {
	for _, x := range deploymentTools(t) {
		o, err := options.Load(x.args, x.env)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, to := range o.Logging().Outputs {
			got = append(got, strings.TrimSpace(to.To+" "+to.Path))
		}
		family, _, _ := strings.Cut(x.name, "-")
		want := map[string][]string{
			"kolla": {"file /var/log/kolla/neutron/neutron-openvswitch-agent.log"}, "helm": {"stdout"}, "osa": {"journal"},
			"rdo": {"file /var/log/neutron/openvswitch-agent.log"}, "tripleo": {"file /var/log/neutron/openvswitch-agent.log"},
			"charm": {"file /var/log/neutron/neutron-openvswitch-agent.log"}, "debian": {"file /var/log/neutron/neutron-openvswitch-agent.log"},
		}[family]
		if x.name == "debian-26" { // USE_SYSLOG=yes
			want = append(slices.Clone(want), "syslog /dev/log")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the log goes to %q, want %q", x.name, got, want)
		}
	}
}

// TestToolsStart starts an agent with what each tool hands it, as far as an agent comes before its time is over: the log, the broker's
// client, the switch's and the snapshot are made. Only places of this machine are others.
func TestToolsStart(t *testing.T) {
	for _, x := range deploymentTools(t) {
		state := t.TempDir()
		authority := filepath.Join(state, "ca.pem")
		writeAuthority(t, authority)
		env := append(slices.Clone(x.env), "OS_DEFAULT__STATE_PATH="+state, "OS_OVS__OF_LISTEN_PORT=0")
		o, err := options.Load(x.args, env)
		if err != nil {
			t.Fatal(err)
		}
		if o.Rabbit.TLSCAFile != "" {
			o.Rabbit.TLSCAFile = authority
		}
		var out bytes.Buffer
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		err = startAgent(ctx, o, logging{observe.NewLogger(&out, slog.LevelInfo), &slog.LevelVar{}, nil})
		cancel()
		if err != nil || !strings.Contains(out.String(), "] agent starting version=") || !strings.Contains(out.String(), "] agent stopped") {
			t.Errorf("%s: %v\n%s", x.name, err, out.String())
		}
	}
}

// writeAuthority writes the certificate of an authority.
func writeAuthority(t *testing.T, path string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
