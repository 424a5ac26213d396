// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-sdn/patchbay/internal/admin"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// commandsFile has what every command says, and how it ends, when it is used well and when it is used wrongly.
const commandsFile = "testdata/commands.txt"

// words are the arguments that a command needs.
var words = map[string][]string{
	"agent": {"--config-file", "empty.conf"}, "config check": {"--config-file", "empty.conf"}, "plan": {"--config-file", "empty.conf"},
	"capture": {"web"}, "explain": {"web"}, "flows": {"br-int"}, "group": {"default"}, "port": {"web"}, "trace": {"web", "10.0.0.9"}, "support-bundle": {"bundle.tar.gz"},
	"replay":      {"story.tape"},
	"fleet check": fleetWords, "fleet plan": fleetWords, "fleet status": fleetWords, "fleet switch": fleetWords,
}

// fleetWords are hosts that cannot be reached.
var fleetWords = []string{"--hosts", "hosts.txt", "--connect", "/nowhere/connect {host}"}

// columns of the table, each with a reason for commands that have no such thing.
var columns = []struct {
	name   string
	hasNot map[string]string
}{
	{name: "help"}, {name: "json"}, {name: "yaml"}, {name: "wrong flag"}, {name: "wrong value"},
	{"no agent", map[string]string{
		"agent": "it is the agent", "config check": "it reads files", "plan": "it asks the switch and the server", "replay": "it reads a bundle", "version": "it is the binary's own",
		"fleet check": "it asks hosts", "fleet plan": "it asks hosts", "fleet status": "it asks hosts", "fleet switch": "it asks hosts",
	}},
	{"no permission", map[string]string{"version": "it reads nothing"}},
}

// closedFile has the flag for a file that only root may read, of commands that need no agent.
var closedFile = map[string][]string{
	"agent": {"--config-file", "closed.conf"}, "config check": {"--config-file", "closed.conf"}, "plan": {"--config-file", "closed.conf"}, "replay": {"closed.conf"},
	"fleet check": {"--hosts", "closed.conf"}, "fleet plan": {"--hosts", "closed.conf"}, "fleet status": {"--hosts", "closed.conf"}, "fleet switch": {"--hosts", "closed.conf"},
}

// wrong are values that a command does not take, besides -o xml.
var wrong = map[string][][]string{
	"agent":        {{"--config-file", "none.conf"}},
	"capture":      {{"web", "tpc"}, {"--host", "x"}, {"--from-vm", "--to-vm"}, {"nobody"}},
	"config check": {{"--config-file", "none.conf"}},
	"events":       {{"--last", "x"}, {"extra"}},
	"explain":      {{"nobody"}, {"table=0,prioriti=2,actions=drop"}},
	"fleet check":  {{"--parallel", "some"}},
	"fleet plan":   {{"--timeout", "soon"}},
	"fleet status": {{"--group", "nobody"}},
	"fleet switch": {{"--hosts", "empty.conf"}, {"--hosts", "none.conf"}, {"--hosts", "empty.conf", "--connect", "ssh"}, {"--canary", "one"}},
	"flows":        {{"--kind", "it"}, {"--table", "TRANSIENTE", "--owner"}, {"br-in"}},
	"group":        {{"nobody"}},
	"health":       {{"--timeout", "soon"}},
	"map":          {{"--fil", "x"}},
	"plan":         {{"--timeout", "soon"}, {"--config-file", "none.conf"}, {"-o", "xml"}},
	"port":         {{"nobody"}},
	"ports":        {{"--state", "wird"}, {"--state", "x"}, {"--watc"}},
	"replay": {
		{"none.tar.gz"}, {"empty.conf"}, {"story.tape", "--at", "soon"}, {"story.tape", "--at", "0"}, {"story.tape", "--at", "100000"}, {"story.tape", "--previous"},
		{"story.tape", "flow", "br-int"}, {"story.tape", "flows", "br-in"}, {"story.tape", "flows", "--no-such-flag"}, {"story.tape", "explain", "nobody"}, {"story.tape", "trace", "web", "10.0.0.9"},
		{"story.tape", "--steps", "ports"}, {"story.tape", "--at", "30", "ports"}, {"story.tape", "--test", "tests"}, {"story.tape", "--test", "tests"}, {"other.tape"},
	},
	"spans":          {{"--to", "nowhere"}},
	"status":         {{"--wait", "soon"}},
	"support-bundle": {{"none/bundle.tar.gz"}},
	"trace":          {{"web", "10.0.0.9", "tpc"}, {"web", "nobody"}, {"web"}},
}

// leaves lists the commands that do something, with their whole names.
func leaves(cmd *cobra.Command, name string) map[string]*cobra.Command {
	out := map[string]*cobra.Command{}
	for _, c := range cmd.Commands() {
		full := strings.TrimSpace(name + " " + c.Name())
		switch sub := leaves(c, full); {
		case c.Hidden || c.Name() == "help" || c.Name() == "completion":
		case len(sub) > 0:
			maps.Copy(out, sub)
		default:
			out[full] = c
		}
	}
	return out
}

// TestEveryCommandUsedWrongly uses every command well, with the wrong flags and values, without an agent and without permission.
func TestEveryCommandUsedWrongly(t *testing.T) {
	src := exampleAgent()
	src.flows = []inspect.Flow{{Bridge: "br-int", Table: 60, Text: "table=60,priority=3,actions=drop", State: "foreign"}}
	socket := served(t, src, admin.Options{Settings: func() ([]byte, error) { return []byte(`{"files":[],"options":[]}`), nil }})
	dir := t.TempDir()
	file, err := filepath.Abs(commandsFile)
	if err != nil {
		t.Fatal(err)
	}
	story, err := os.ReadFile(filepath.Join(tapesDir, "database-away.tape"))
	if err != nil {
		t.Fatal(err)
	}
	table := commandTable{t: t, dir: dir, statuses: map[string]map[string]int{}}
	table.closedSocket()
	t.Chdir(dir)
	t.Setenv("OVS_RUNDIR", dir)
	t.Setenv("PATH", "") // no program of the switch
	if err := os.WriteFile("empty.conf", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile("hosts.txt", []byte("hv1\nhv2\n"), 0o644), os.WriteFile("story.tape", story, 0o644), os.WriteFile("other.tape", otherStory(t, story), 0o644)); err != nil {
		t.Fatal(err)
	}
	cmds := leaves(newRootCommand(), "")
	for name := range wrong {
		if cmds[name] == nil {
			t.Errorf("there is no command %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cmds)) {
		table.command(name, cmds[name], socket)
	}
	table.section("no such command")
	table.row("staus")
	table.row("--versio")
	got := table.summary(slices.Sorted(maps.Keys(cmds))) + table.out.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !table.canBeOthers() {
		t.Log("only root, with setpriv, can be somebody else: those rows are left out")
		want = lastColumn.ReplaceAll(asSomebodyElse.ReplaceAll(want, nil), []byte("$1 –\n"))
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("commands say something else than before (-update writes it):\n%s", diff)
	}
}

// commandTable collects what commands say.
type commandTable struct {
	t   *testing.T
	dir string // in which they run
	out bytes.Buffer
	// statuses are exit statuses by command and column.
	statuses map[string]map[string]int

	setpriv, binary, closed string // see closedSocket
}

func (c *commandTable) section(name string) { fmt.Fprintf(&c.out, "\n== %s\n", name) }

// row runs a command line, and writes it with its exit status and the beginning of what it prints.
func (c *commandTable) row(args ...string) (string, int) {
	text, status := run(c.t, args...)
	c.write(strings.Join(args, " "), text, status)
	return text, status
}

func (c *commandTable) write(line, text string, status int) {
	text = strings.ReplaceAll(text, c.dir, "DIR")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > 4 {
		lines = append(lines[:4], "…")
	}
	fmt.Fprintf(&c.out, "$ patchbay %s\n", strings.ReplaceAll(line, c.dir, "DIR"))
	for _, l := range lines {
		fmt.Fprintln(&c.out, strings.TrimRight("   "+l, " "))
	}
	fmt.Fprintf(&c.out, "   exit status %d\n", status)
}

func (c *commandTable) command(name string, cmd *cobra.Command, socket string) {
	c.section(name)
	full := append(strings.Fields(name), words[name]...)
	with := func(more ...string) []string { return append(append([]string{}, full...), more...) }
	ended := map[string]int{}
	c.statuses[name] = ended
	help, status := run(c.t, append(strings.Fields(name), "--help")...)
	c.write(name+" --help", strings.SplitN(help, "\n", 2)[0], status)
	ended["help"] = status
	asks := cmd.Flags().Lookup("socket") != nil
	ended["json"], ended["yaml"] = c.formats(with, socket)
	if cmd.Flags().Lookup("output") != nil || name == "config check" { // whose flags are among the agent's
		_, ended["wrong value"] = c.row(with("-o", "jsno")...)
	}
	_, ended["wrong flag"] = c.row(with("--no-such-flag")...)
	if name == "flows" { // beside the socket of a bridge
		if err := os.WriteFile("br-int.mgmt", nil, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	for i, value := range wrong[name] {
		args := append(strings.Fields(name), value...)
		if strings.HasPrefix(value[0], "-") {
			args = with(value...)
		}
		c.t.Setenv(socketVariable, socket)
		if _, status := c.row(args...); i == 0 {
			ended["wrong value"] = status
		}
	}
	if asks {
		_ = os.Remove("br-int.mgmt")
		c.t.Setenv(socketVariable, filepath.Join(c.dir, "none"))
		_, ended["no agent"] = c.row(with()...)
		_ = os.Remove("bundle.tar.gz")
		c.forbidden(name, with())
	} else if closed := closedFile[name]; closed != nil {
		c.forbidden(name, append(strings.Fields(name), closed...))
	}
}

// summary is the table itself: how a command ends in each column. It holds that there is no gap without a reason.
func (c *commandTable) summary(names []string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-16s", "exit statuses")
	for _, col := range columns {
		fmt.Fprintf(&out, " | %s", col.name)
	}
	out.WriteString("\n")
	for _, name := range names {
		fmt.Fprintf(&out, "%-16s", name)
		for _, col := range columns {
			status, tried := c.statuses[name][col.name]
			text := fmt.Sprint(status)
			switch reason := col.hasNot[name]; {
			case tried && reason != "":
				c.t.Errorf("%s, %s: it was tried, although %s", name, col.name, reason)
			case !tried && reason == "" && (col.name != "no permission" || c.canBeOthers()):
				c.t.Errorf("%s, %s: nobody tries it", name, col.name)
			}
			if !tried {
				text = "–"
			}
			fmt.Fprintf(&out, " | %s", text)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// formats compares the documents that a command prints in JSON and in YAML, and returns how it ends.
func (c *commandTable) formats(with func(...string) []string, socket string) (inJSON, inYAML int) {
	c.t.Helper()
	c.t.Setenv(socketVariable, socket)
	var more []string
	if with()[0] == "flows" {
		more = []string{"--owner"} // without it the switch is asked, and there is none
	}
	document := func(format string) (string, int) {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(io.Discard)
		status := runCommand(root, with(append(more, "-o", format)...))
		return out.String(), status
	}
	text, status := document("json")
	if status != 0 && status != exitFinding || len(text) == 0 {
		_, inJSON = c.row(with("-o", "json")...)
		_, inYAML = c.row(with("-o", "yaml")...)
		return inJSON, inYAML
	}
	second, yamlStatus := document("yaml")
	a, b := documents(c.t, text), []any(nil)
	for doc := range strings.SplitSeq(strings.TrimPrefix(second, "---\n"), "\n---\n") {
		converted, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			c.t.Errorf("%v: %v in\n%s", with("-o", "yaml"), err, doc)
		}
		b = append(b, documents(c.t, string(converted))...)
	}
	if diff := cmp.Diff(a, b); diff != "" || status != yamlStatus || len(a) == 0 {
		c.t.Errorf("%v: no documents, or not the same:\n%s", with(more...), diff)
	}
	c.write(strings.Join(with(append(more, "-o", "json|yaml")...), " "), "(a document)", status)
	return status, yamlStatus
}

// documents reads JSON, one document after the other.
func documents(t *testing.T, text string) (out []any) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var doc any
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			t.Errorf("%v in\n%s", err, text)
			return out
		}
		out = append(out, doc)
	}
}

// lastColumn is what only root can try.
var lastColumn = regexp.MustCompile(`(?m)^([^\n|]+(?: \| [^\n|]+){6} \|) [\d–]+\n`)

// asSomebodyElse are the rows of commands that another user runs.
var asSomebodyElse = regexp.MustCompile(`(?m)^\$ patchbay [^\n]*# as somebody else\n(   [^\n]*\n|\n)*?   exit status \d+\n`)

func (c *commandTable) canBeOthers() bool { return os.Getuid() == 0 && c.setpriv != "" }

// forbidden runs a command as a user who may not use the agent's socket.
func (c *commandTable) forbidden(name string, args []string) {
	c.t.Helper()
	if !c.canBeOthers() {
		return
	}
	cmd := exec.Command(c.setpriv, append([]string{"--reuid", "65534", "--regid", "65534", "--clear-groups", "--", c.binary}, args...)...)
	cmd.Env = append(os.Environ(), agentInstead+"=1", socketVariable+"="+c.closed)
	cmd.Dir = filepath.Dir(c.binary)
	out, _ := cmd.CombinedOutput() // how it ends is in the status
	text := strings.ReplaceAll(string(out), cmd.Dir, "DIR")
	c.statuses[name]["no permission"] = cmd.ProcessState.ExitCode()
	c.write(strings.Join(args, " ")+"  # as somebody else", text, cmd.ProcessState.ExitCode())
}

// closedSocket makes a socket that only root may use, and a copy of this binary beside it that all may run.
func (c *commandTable) closedSocket() {
	c.t.Helper()
	c.setpriv, _ = exec.LookPath("setpriv") // looked at later
	dir, err := os.MkdirTemp("/var/tmp", "pbcommands")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.ReadFile(os.Args[0])
	c.binary, c.closed = filepath.Join(dir, "patchbay"), filepath.Join(dir, "closed")
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(c.binary, self, 0o755), os.WriteFile(filepath.Join(dir, "closed.conf"), nil, 0o600)); err != nil {
		c.t.Fatal(err)
	}
	l, err := net.Listen("unix", c.closed)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(c.closed, 0o600); err != nil {
		c.t.Fatal(err)
	}
}
