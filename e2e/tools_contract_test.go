// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// contractCells are what a tool expects of an image, and what it gives to a container of it.
var contractCells = []string{"program", "first process", "user", "capabilities", "files", "read-only root", "probes", "snapshot", "stop"}

// contract tries an image in a container that runs. A cell is "–" where the tool has no such thing.
func (x *tools) contract(t *testing.T, c *container, row *toolRow) {
	checks := map[string]func(t *testing.T, x *tools){
		"program": c.hasProgram, "first process": c.hasFirstProcess, "user": c.hasUser, "capabilities": c.hasCapabilities, "files": c.hasFiles,
		"probes": c.hasProbes, "snapshot": c.keepsSnapshot, "stop": c.stops,
	}
	switch c.tool {
	case "helm":
		checks["read-only root"] = c.hasReadOnlyRoot
		delete(checks, "files") // they are mounted, not copied
	case "tripleo":
		delete(checks, "stop") // a shell is between, which does not pass signals on
	}
	for _, name := range contractCells {
		cell := "–"
		if check := checks[name]; check != nil {
			cell = "**no**"
			if t.Run("contract "+name, func(t *testing.T) { check(t, x) }) {
				cell = "yes"
			}
		}
		row.contract = append(row.contract, cell)
	}
}

func (x *tools) printContracts() {
	fmt.Printf("\n| image | %s |\n%s|\n", strings.Join(contractCells, " | "), strings.Repeat("|---", len(contractCells)+1))
	images, checked, failed := 0, 0, 0
	for _, r := range x.rows {
		if r.image == "" {
			continue
		}
		images++
		for len(r.contract) < len(contractCells) {
			r.contract = append(r.contract, "not run")
		}
		for _, c := range r.contract {
			if c != "–" {
				checked++
			}
			if c != "–" && c != "yes" {
				failed++
			}
		}
		fmt.Printf("| contract %s | %s |\n", r.name, strings.Join(r.contract, " | "))
	}
	fmt.Printf("%d images, %d points of contracts, %d failed\n\n", images, checked, failed)
}

// must runs a program in the container.
func (c *container) must(t *testing.T, user string, argv ...string) string {
	t.Helper()
	out, err := c.run(user, argv...)
	if err != nil {
		t.Fatalf("%q as %s: %v: %s", argv, user, err, out)
	}
	return strings.TrimSpace(out)
}

// programs are where the tools have the Python program, first in PATH.
var programs = map[string]string{
	"kolla": "/var/lib/kolla/venv/bin/neutron-openvswitch-agent", "tripleo": "/usr/bin/neutron-openvswitch-agent", "helm": "/var/lib/openstack/bin/neutron-openvswitch-agent",
}

const daemonFile = "/usr/lib/patchbay/neutron-openvswitch-agent"

// hasProgram: Patchbay is what the tool's command finds; the Python program is beside it, for a way back without another image.
func (c *container) hasProgram(t *testing.T, _ *tools) {
	if got := c.must(t, "neutron", "sh", "-c", "command -v neutron-openvswitch-agent"); got != programs[c.tool] {
		t.Errorf("the command finds %s, want %s", got, programs[c.tool])
	}
	if got := c.must(t, "neutron", "readlink", "-f", programs[c.tool]); got != daemonFile {
		t.Errorf("it leads to %s", got)
	}
	if got := c.must(t, "neutron", programs[c.tool], "--version"); !strings.HasPrefix(got, "neutron-openvswitch-agent ") {
		t.Errorf("--version: %s", got)
	}
	if got := c.must(t, "neutron", "head", "-n", "1", programs[c.tool]+".python"); !strings.Contains(got, "python3") {
		t.Errorf("the Python program begins with %q", got)
	}
}

// hasFirstProcess: the tool's own first process, and below it what the tool's start script leaves.
func (c *container) hasFirstProcess(t *testing.T, _ *tools) {
	first, err := strconv.Atoi(strings.TrimSpace(c.inspect(t, "{{.State.Pid}}")))
	if err != nil {
		t.Fatal(err)
	}
	agent := c.pid()
	want, parent := "dumb-init --single-child -- kolla_start", first
	switch c.tool {
	case "helm": // the agent itself
		want, parent = strings.Join(command(agent), " "), parentOf(first)
	case "tripleo": // a launcher between
		parent = parentOf(agent)
	}
	if got := strings.Join(command(first), " "); got != want {
		t.Errorf("the first process is %q, want %q", got, want)
	}
	if got := parentOf(agent); got != parent {
		t.Errorf("the agent's parent is process %d %q, want %d", got, command(got), parent)
	}
	if argv := command(agent); c.tool == "kolla" && argv[0] != "neutron-openvswitch-agent" {
		t.Errorf("the agent is called %q", argv[0])
	}
}

func (c *container) inspect(t *testing.T, format string) string {
	t.Helper()
	out, err := c.podman("inspect", "--format", format, c.name)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

// command is the command line of a process.
func command(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

func parentOf(pid int) int {
	n, _ := strconv.Atoi(statusOf(fmt.Sprintf("/proc/%d/status", pid), "PPid"))
	return n
}

// statusOf is a line of a file of /proc.
func statusOf(path, name string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return ""
}

// hasUser: the agent is the tool's user, never root, in none of its four user ids.
func (c *container) hasUser(t *testing.T, _ *tools) {
	uid := 42435
	if c.tool == "helm" {
		uid = helmUser
	}
	path := fmt.Sprintf("/proc/%d/status", c.pid())
	if got, want := statusOf(path, "Uid"), strings.TrimSpace(strings.Repeat(strconv.Itoa(uid)+" ", 4)); got != want {
		t.Errorf("user ids are %s, want %s", got, want)
	}
	if groups := strings.Fields(statusOf(path, "Groups")); c.tool != "helm" && !slices.Contains(groups, "42400") {
		t.Errorf("groups are %v, without kolla", groups)
	}
}

// The agent's capabilities: CAP_DAC_OVERRIDE, CAP_NET_ADMIN, CAP_NET_RAW.
const daemonCapabilities = 1<<1 | 1<<12 | 1<<13

// hasCapabilities: the first thread, which health checks look at, has none, the others no more than the agent needs; other programs and other users
// get none.
func (c *container) hasCapabilities(t *testing.T, _ *tools) {
	pid := c.pid()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("threads: %v, %v", threads, err)
	}
	for _, path := range threads {
		got, err := strconv.ParseUint(statusOf(path, "CapPrm"), 16, 64)
		want := uint64(daemonCapabilities)
		if filepath.Base(filepath.Dir(path)) == strconv.Itoa(pid) {
			want = 0
		}
		if err != nil || got != want {
			t.Errorf("%s has the capabilities %x, want %x (%v)", path, got, want, err)
		}
	}
	if got := c.must(t, "root", "getcap", "/usr/bin/patchbay"); got != "" {
		t.Errorf("the commands have capabilities: %s", got)
	}
	if out, err := c.run("nobody", daemonFile, "--version"); err == nil {
		t.Errorf("everybody may run the daemon: %s", out)
	}
}

// hasFiles: set_configs has copied what config.json names, for the agent's user alone, and finds a change where the tool asks for that.
func (c *container) hasFiles(t *testing.T, _ *tools) {
	want := "neutron neutron 600"
	if c.tool == "tripleo" {
		want = ""
	}
	for path, text := range c.given.files {
		if got := c.must(t, "root", "cat", path); got != strings.TrimSpace(text) {
			t.Errorf("%s is another file than was handed over:\n%s", path, got)
		}
		if got := c.must(t, "root", "stat", "-c", "%U %G %a", path); want != "" && got != want {
			t.Errorf("%s: owner and mode are %s, want %s", path, got, want)
		}
	}
	if got := c.must(t, "root", "cat", "/run_command"); !strings.Contains(got, "neutron-openvswitch-agent") && c.tool == "kolla" {
		t.Errorf("the command is %q", got)
	}
	if c.tool == "tripleo" { // it starts containers again by a hash of their configuration, and asks set_configs nothing
		return
	}
	source := filepath.Join(c.dir, "openvswitch_agent.ini")
	check := func() error {
		out, err := c.run("root", "kolla_set_configs", "--check")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	if err := check(); err != nil {
		t.Errorf("set_configs --check: %v", err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	rewrite := func(text string) {
		if err := os.WriteFile(source, []byte(text), 0o660); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(string(text) + "# changed\n")
	if err := check(); err == nil {
		t.Error("set_configs --check does not see a changed file")
	}
	rewrite(string(text))
}

func (c *container) hasReadOnlyRoot(t *testing.T, _ *tools) {
	if got := c.inspect(t, "{{.HostConfig.ReadonlyRootfs}}"); strings.TrimSpace(got) != "true" {
		t.Errorf("the root is read-only: %s", got)
	}
	if _, err := c.run("root", "touch", "/usr/lib/patchbay/new"); err == nil {
		t.Error("a file can be made in it")
	}
}

// hasProbes: the tool's probes, and the examples' in their place.
func (c *container) hasProbes(t *testing.T, x *tools) {
	probes := [][]string{{"sh", "-c", "patchbay health"}, {"patchbay", "health", "--live"}}
	if c.tool == "kolla" {
		probes[0][2] = kollaVars(t).Test[1]
	}
	if c.tool == "helm" {
		probes = append(probes, []string{"/tmp/neutron-openvswitch-agent-readiness.sh"})
	}
	for _, probe := range probes {
		var out string
		var err error
		if !x.eventually(wired, func() bool { out, err = c.run("neutron", probe...); return err == nil }) {
			t.Errorf("%q: %v: %s", probe, err, out)
		}
	}
	if out, err := c.run("neutron", "patchbay", "health", "--socket", "/tmp/nobody.sock"); err == nil {
		t.Errorf("health passes without an agent: %s", out)
	}
}

// keepsSnapshot: a container that is made anew on the same volumes starts from the snapshot of the one before it.
func (c *container) keepsSnapshot(t *testing.T, x *tools) {
	read := func() string { return c.log(t) }
	file := filepath.Join(c.state, "patchbay.snapshot")
	if !x.eventually(2*wired, func() bool { _, err := c.run("root", "test", "-s", file); return err == nil }) { // written once the agent is in sync
		out, _ := c.run("root", "sh", "-c", "patchbay status; ls -ln "+c.state)
		t.Fatalf("there is no %s:\n%s", file, out)
	}
	for _, args := range [][]string{{"stop", "-t", "10", c.name}, {"rm", c.name}} {
		if out, err := c.podman(args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	c.create(t)
	if !x.eventually(2*wired, func() bool { return strings.Contains(read(), "snapshot loaded") }) {
		t.Errorf("the agent of a new container does not find the snapshot:\n%s", read())
	}
	if !x.eventually(2*wired, func() bool { return c.healthy(c.port) == nil }) {
		t.Error("the new container is not healthy")
	}
}

// stops: SIGTERM to the first process ends the agent, long before the tool would kill it.
func (c *container) stops(t *testing.T, _ *tools) {
	began := time.Now()
	if out, err := c.podman("stop", "-t", "20", c.name); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	took := time.Since(began)
	if got := strings.TrimSpace(c.inspect(t, "{{.State.ExitCode}}")); got != "0" || took > 15*time.Second {
		t.Errorf("it ended with status %s after %s", got, took)
	}
}
