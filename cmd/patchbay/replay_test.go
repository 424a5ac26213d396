// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// tapesDir has tapes that `patchbay replay --test` wrote: each is a fault that was seen once, or a story worth keeping.
const tapesDir = "testdata/tapes"

// TestTapes: every step of every tape makes the decisions that it says. -update takes those of this version: read the diff of
// `patchbay replay TAPE --steps -v` before and after.
func TestTapes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(tapesDir, "*.tape"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tapes: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := newPlayer(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				var out bytes.Buffer
				if err := errors.Join(p.Restate(&out), os.WriteFile(file, out.Bytes(), 0o644)); err != nil {
					t.Fatal(err)
				}
				return
			}
			for {
				s, err := p.Next()
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if !s.Same {
					then, now := firstDifference(s.Recorded, s.Out)
					t.Fatalf("step %d differs after %q\nthen: %s\nnow:  %s", s.N, s.Events, cut(then), cut(now))
				}
			}
		})
	}
}

// otherStory returns a tape of which a step was recorded with other decisions.
func otherStory(t *testing.T, story []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(story))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(`"out":"dial br-ex(.*)"sum":"....`).ReplaceAll(text, []byte(`"out":"dial br-eth$1"sum":"0000`))
	if bytes.Equal(text, changed) {
		t.Fatal("the tape has no such step")
	}
	return changed
}

// A bundle carries the tapes of the agent and of the one before it, without secrets, and they can be played.
func TestBundleHasTapes(t *testing.T) {
	dir := t.TempDir()
	story, err := os.ReadFile(filepath.Join(tapesDir, "database-away.tape"))
	if err != nil {
		t.Fatal(err)
	}
	plain := otherStory(t, story) // which is not compressed, as a masked one must not have to be
	secrets := []string{"hunter2pw", "ipsecsecret", "aKeptToken"}
	// In the text of an error, in the options of an interface, in an argument of a message, and in JSON inside JSON.
	planted := strings.Replace(string(plain), `"causes":`, `"note":"rabbit://u:hunter2pw@a","options":{"psk":"ipsecsecret"},"auth_token":"aKeptToken","profile":"{\"admin_password\": \"hunter2pw\"}","causes":`, 1)
	if planted == string(plain) {
		t.Fatal("nothing planted")
	}
	conf := filepath.Join(dir, "a.conf")
	text := "[DEFAULT]\nstate_path = " + dir + "\ntransport_url = rabbit://u:hunter2pw@a:5672/\nlog_file = " + filepath.Join(dir, "log") + "\n"
	for name, data := range map[string]string{conf: text, filepath.Join(dir, "log"): "x", filepath.Join(dir, "patchbay.tape"): planted, filepath.Join(dir, "patchbay.tape.old"): string(story)} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, err := options.Load([]string{"--config-file", conf}, nil)
	if err != nil {
		t.Fatal(err)
	}
	socket := served(t, exampleAgent(), admin.Options{Settings: func() ([]byte, error) { return maskedConfig(o) }})
	path := filepath.Join(dir, "b.tar.gz")
	run(t, "support-bundle", "--socket", socket, path) // a machine without Open vSwitch lacks parts
	masked := []byte(unpack(t, path)[bundledTape])
	for _, s := range secrets {
		if bytes.Contains(masked, []byte(s)) {
			t.Errorf("%s is in the tape", s)
		}
	}
	if n := bytes.Count(masked, []byte(hidden)); n != 4 {
		t.Errorf("%d masked", n)
	}
	if out, status := run(t, "replay", path); status != exitFinding || !strings.Contains(out, "then:  dial br-eth") {
		t.Errorf("status %d\n%s", status, out)
	}
	if out, status := run(t, "replay", path, "--previous"); status != 0 || !strings.Contains(out, "every step makes the decisions that were recorded") {
		t.Errorf("status %d\n%s", status, out)
	}
}

// A tape in which a secret was masked makes the decisions that it says: its checksums are of what the archive has. Before, the sums of what was
// decided with the secret differed from what the archive has, and the secret could be guessed by them.
func TestMaskedTapeIsPlayed(t *testing.T) {
	story, err := os.ReadFile(filepath.Join(tapesDir, "database-away.tape"))
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"physnet1", "br-ex"} { // in short decisions, and in those of which a tape has the beginning
		dir := t.TempDir()
		conf, path := filepath.Join(dir, "a.conf"), filepath.Join(dir, "b.tar.gz")
		text := "[DEFAULT]\nstate_path = " + dir + "\ntransport_url = rabbit://u:" + password + "@a:5672/\n"
		if err := errors.Join(os.WriteFile(conf, []byte(text), 0o600), os.WriteFile(filepath.Join(dir, "patchbay.tape"), story, 0o600)); err != nil {
			t.Fatal(err)
		}
		o, err := options.Load([]string{"--config-file", conf}, nil)
		if err != nil {
			t.Fatal(err)
		}
		run(t, "support-bundle", "--socket", served(t, exampleAgent(), admin.Options{Settings: func() ([]byte, error) { return maskedConfig(o) }}), path)
		if masked := unpack(t, path)[bundledTape]; strings.Contains(masked, password) || !strings.Contains(masked, hidden) {
			t.Errorf("%s is in the tape", password)
		}
		if out, status := run(t, "replay", path); status != 0 || !strings.Contains(out, "every step makes the decisions that were recorded") || !strings.Contains(out, "only the beginning") {
			t.Errorf("%s: status %d\n%s", password, status, out)
		}
	}
}

// Commands answer about the moment that is asked for.
func TestReplayAtAMoment(t *testing.T) {
	file := filepath.Join(tapesDir, "database-away.tape")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--at", "2", "status"}, "NOT IN SYNC"},
		{[]string{"status"}, "hv1  in sync"},
		{[]string{"status"}, "up 9.6 s"},
		{[]string{"--at", "1", "ports"}, "no ports"},
		{[]string{"--at", "+1h", "flows", "br-int", "--table", "60"}, "ordinary switching"},
		{[]string{"map"}, "<!doctype html>"},
		{[]string{"--steps"}, "DBConnectionError: Can't connect"},
		{[]string{"--steps", "-o", "json"}, `"decided":`},
		{[]string{"explain", "table=60,priority=1,actions=NORMAL"}, "ordinary switching within a local VLAN"},
		{[]string{"events"}, "DBConnectionError"},
	} {
		if out, status := run(t, append([]string{"replay", file}, c.args...)...); status != 0 && c.want != "NOT IN SYNC" || !strings.Contains(out, c.want) {
			t.Errorf("%v: status %d\n%s", c.args, status, out)
		}
	}
}

// looking calls a function before what is written first.
type looking struct {
	io.Writer
	look func()
}

func (l *looking) Write(b []byte) (int, error) {
	if l.look != nil {
		l.look()
		l.look = nil
	}
	return l.Writer.Write(b)
}

// A command whose output nobody reads ends by SIGPIPE when it writes. Nothing is left of the replay in the directory for temporary files then.
func TestReplayLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var found []os.DirEntry
	var out bytes.Buffer
	var err error
	root := newRootCommand()
	root.SetOut(&looking{&out, func() { found, err = os.ReadDir(dir) }})
	root.SetErr(&out)
	if status := runCommand(root, []string{"replay", filepath.Join(tapesDir, "database-away.tape"), "map"}); status != 0 || !strings.Contains(out.String(), "<!doctype html>") {
		t.Fatalf("status %d\n%s", status, out.String())
	}
	if err != nil || len(found) > 0 {
		t.Errorf("while the command prints there are %v, %v", found, err)
	}
}

// trace asks a switch, which a tape has not. The command says so before it plays the tape.
func TestReplayHasNoTrace(t *testing.T) {
	out, status := run(t, "replay", filepath.Join(tapesDir, "database-away.tape"), "trace", "web", "10.0.0.9")
	if status != exitUsage || !strings.Contains(out, "trace needs the switch") || !strings.Contains(out, "explain PORT") {
		t.Errorf("status %d\n%s", status, out)
	}
	if help, _ := run(t, "replay", "--help"); strings.Contains(help, "trace") {
		t.Errorf("the help names trace:\n%s", help)
	}
}
