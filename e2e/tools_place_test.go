// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-sdn/patchbay/lab"
)

// place is where a tool runs the agent: in a container, or as a service.
type place interface {
	// start starts the agent with what the tool hands it.
	start(t *testing.T, h *handed)
	stop(t *testing.T)
	// run runs a program beside the agent, as a user.
	run(user string, argv ...string) (string, error)
	// pid is the agent's process, as seen from here.
	pid() int
	// log is what the agent has logged, by the way that the tool reads it.
	log(t *testing.T) string
	// rotate empties the log as the tool's log rotation does; false where nobody rotates it.
	rotate(t *testing.T) bool
	// healthy runs the tool's own check, with a port that the agent is connected to or another one.
	healthy(port int) error
	note() string
}

// container is a container as kolla, TripleO and openstack-helm make it.
type container struct {
	ctx   context.Context //nolint:containedctx // one run, one deadline
	tool  string
	host  *lab.Host
	image string
	env   []string
	name  string
	dir   string // of files that are mounted
	whose string // scripts
	port  int    // of the broker, which the check looks for
	file  string // of the log, in the container
	state string // state_path, in the container
	args  []string
	given *handed
}

func newContainer(t *testing.T, ctx context.Context, tool string, h *lab.Host) *container {
	t.Helper()
	c := &container{ctx: ctx, tool: tool, host: h, name: "patchbay-" + h.Netns()}
	dir, whose := scripts(t, tool)
	c.whose = whose
	binary, err := filepath.Abs("../bin/patchbay")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, "../deploy/test/image", "env").Output()
	if err != nil {
		t.Fatal(err)
	}
	c.env = append(os.Environ(), strings.Fields(string(out))...)
	build := exec.CommandContext(ctx, "../deploy/test/image", tool, binary, dir)
	build.Stderr = os.Stderr
	out, err = build.Output()
	if err != nil {
		t.Fatalf("building the image of %s: %v\n%s", tool, err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	c.image = lines[len(lines)-1]
	c.remove()
	c.dir = t.TempDir()
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.remove()
		// The other tools' switches belong to root.
		for _, pattern := range []string{"db.sock", "ovs-vswitchd.*.ctl"} {
			list, _ := filepath.Glob(filepath.Join(c.switchDir(), pattern))
			for _, path := range list {
				_ = os.Chown(path, 0, 0)
			}
		}
	})
	return c
}

func (c *container) podman(args ...string) (string, error) {
	cmd := exec.CommandContext(context.WithoutCancel(c.ctx), "podman", args...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *container) remove() {
	_, _ = c.podman("rm", "-f", "-t", "0", "-v", c.name)
	_, _ = c.podman("volume", "rm", "-f", c.name+"-log", c.name+"-state")
}

// common are the arguments of all containers: a host's network, privileges, the switch's sockets.
func (c *container) common() []string {
	args := []string{
		"--name", c.name, "--network", "ns:/run/netns/" + c.host.Netns(), "--hostname", c.host.Name(), "--add-host", c.host.Name() + ":" + c.host.MgmtIP(), "--privileged", "-d",
	}
	for _, path := range []string{"/lib/modules", "/etc/localtime"} {
		if _, err := os.Stat(path); err == nil {
			args = append(args, "-v", path+":"+path+":ro")
		}
	}
	return args
}

func (c *container) switchDir() string { return filepath.Join(c.host.Dir(), "ovs") }

func (c *container) start(t *testing.T, h *handed) {
	t.Helper()
	c.file, c.given = h.log, h
	switch c.tool {
	case "kolla":
		c.args = c.kolla(t, h)
	case "tripleo":
		c.args = c.tripleo(t, h)
	case "helm":
		c.args = c.helm(t, h)
	}
	c.create(t)
}

func (c *container) create(t *testing.T) {
	t.Helper()
	if out, err := c.podman(append([]string{"run"}, c.args...)...); err != nil {
		t.Fatalf("podman: %v: %s", err, out)
	}
}

// kolla copies the files of a directory that is mounted, as config.json says.
func (c *container) kolla(t *testing.T, h *handed) []string {
	type file struct {
		Source string `json:"source"`
		Dest   string `json:"dest"`
		Owner  string `json:"owner"`
		Perm   string `json:"perm"`
	}
	config := struct {
		Command     string              `json:"command"`
		Files       []file              `json:"config_files"`
		Permissions []map[string]string `json:"permissions,omitempty"`
	}{Command: "neutron-openvswitch-agent " + strings.Join(h.args, " ")}
	const mounted = "/var/lib/kolla/config_files/"
	vars := kollaExample(t, h)
	for path, text := range h.files {
		writeFile(t, filepath.Join(c.dir, filepath.Base(path)), text, 0o660)
		config.Files = append(config.Files, file{mounted + filepath.Base(path), path, "neutron", "0600"})
	}
	writeFile(t, filepath.Join(c.dir, "config.json"), asJSON(t, config), 0o660)
	check := "healthcheck_port neutron-openvswitch-agent " + strconv.Itoa(c.port)
	return append(append(c.common(), c.volumes(vars.Volumes)...), "-v", c.dir+":"+strings.TrimSuffix(mounted, "/")+":ro", "-v", c.switchDir()+":/run/openvswitch", "-v", c.name+"-log:/var/log/kolla",
		"-e", "KOLLA_CONFIG_STRATEGY=COPY_ALWAYS", "--health-cmd", check, "--health-interval", "disable", "--health-timeout", "30s", c.image)
}

// tripleo has a launcher that runs the agent as a child of a shell, in the host's PID namespace.
func (c *container) tripleo(t *testing.T, h *handed) []string {
	src := filepath.Join(c.dir, "src")
	c.state = "/var/lib/neutron"
	h.write(t, src, 0o644)
	writeFile(t, filepath.Join(c.dir, "launcher.sh"), "#!/bin/bash\nset -xe\n/usr/bin/neutron-openvswitch-agent "+strings.Join(h.args, " ")+"\n", 0o755)
	writeFile(t, filepath.Join(c.dir, "config.json"), asJSON(t, map[string]any{
		"command":      "/neutron_ovs_agent_launcher.sh",
		"config_files": []map[string]any{{"source": "/var/lib/kolla/config_files/src/*", "dest": "/", "merge": true, "preserve_properties": true}},
		"permissions":  []map[string]any{{"path": "/var/log/neutron", "owner": "neutron:neutron", "recurse": true}},
	}), 0o644)
	return append(c.common(), "--pid", "host", "-v", c.dir+"/config.json:/var/lib/kolla/config_files/config.json:ro", "-v", src+":/var/lib/kolla/config_files/src:ro",
		"-v", c.dir+"/launcher.sh:/neutron_ovs_agent_launcher.sh:ro", "-v", c.switchDir()+":/run/openvswitch", "-v", c.name+"-log:/var/log/neutron",
		"-v", c.name+"-state:"+c.state, "-e", "KOLLA_CONFIG_STRATEGY=COPY_ALWAYS", "--health-cmd", "/openstack/healthcheck "+strconv.Itoa(c.port), "--health-interval", "disable", c.image)
}

// helmUser is the user of the agent and of the switch in images of openstack-helm.
const helmUser = 42424

// helm has a root that is read-only, and an init container that finds host and tunnel endpoint.
func (c *container) helm(t *testing.T, h *handed) []string {
	values := helmExample(t, h)
	etc, run, tmp, shared, state := filepath.Join(c.dir, "etc"), filepath.Join(c.dir, "run"), filepath.Join(c.dir, "tmp"), filepath.Join(c.dir, "shared"), filepath.Join(c.dir, "state")
	for _, dir := range []string{etc, filepath.Join(run, "openvswitch"), filepath.Join(run, "lock"), tmp, shared, state} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o777|os.ModeSticky)); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range h.files {
		if rest, ok := strings.CutPrefix(path, "/etc/neutron/"); ok {
			writeFile(t, filepath.Join(etc, rest), text, 0o644)
		}
	}
	writeFile(t, filepath.Join(tmp, "auto_bridge_add"), `{"br-ex":null}`, 0o644)
	mounts := []string{
		"--read-only", "--read-only-tmpfs=false", "-v", etc + ":/etc/neutron:ro", "-v", run + ":/run", "-v", c.switchDir() + ":/run/openvswitch", "-v", tmp + ":/tmp", "-v", shared + ":/tmp/pod-shared",
		"-v", state + ":/var/lib/neutron",
	}
	mounts = append(mounts, c.hostPaths(t, values)...)
	for _, name := range []string{"health-probe.py", "neutron-openvswitch-agent-readiness.sh", "neutron-openvswitch-agent-liveness.sh"} {
		text, err := c.podman("run", "--rm", "--network", "none", "--entrypoint", "cat", c.image, "/usr/local/bin/"+name)
		if err != nil {
			t.Fatal(text)
		}
		writeFile(t, filepath.Join(tmp, name), text, 0o755)
	}
	first := append([]string{"run", "--rm"}, mounts...)
	first = append(first, "--network", "ns:/run/netns/"+c.host.Netns(), "--hostname", c.host.Name(), "--add-host", c.host.Name()+":"+c.host.MgmtIP(), "--privileged", "--user", "root", c.image, "neutron-openvswitch-agent-init.sh")
	if out, err := c.podman(first...); err != nil {
		t.Fatalf("the init container: %v: %s", err, out)
	}
	return append(append(c.common(), mounts...), "--user", strconv.Itoa(helmUser), c.image, "neutron-openvswitch-agent.sh")
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *container) stop(t *testing.T) {
	t.Helper()
	if t.Failed() {
		out, _ := c.podman("logs", "--tail", "20", c.name)
		t.Logf("%s\n%s", out, c.log(t))
	}
	if out, err := c.podman("stop", "-t", "5", c.name); err != nil {
		t.Errorf("stopping: %v: %s", err, out)
	}
	c.remove()
}

func (c *container) run(user string, argv ...string) (string, error) {
	return c.podman(append([]string{"exec", "--user", user, c.name}, argv...)...)
}

func (c *container) pid() int {
	out, err := c.podman("inspect", "--format", "{{.State.Pid}}", c.name)
	first, _ := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || first == 0 {
		return 0
	}
	return daemonBelow(first)
}

// daemonBelow is the agent among a process and its descendants.
func daemonBelow(pid int) int {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if strings.Contains(exe, "patchbay") {
		return pid
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for child := range strings.FieldsSeq(string(text)) {
		n, _ := strconv.Atoi(child)
		if found := daemonBelow(n); found != 0 {
			return found
		}
	}
	return 0
}

func (c *container) log(t *testing.T) string {
	if c.tool == "helm" {
		cmd := exec.CommandContext(c.ctx, "podman", "logs", c.name)
		cmd.Env = c.env
		out, err := cmd.Output() // standard output; the shell's trace is on the other
		if err != nil {
			t.Error(err)
		}
		return string(out)
	}
	out, err := c.run("root", "cat", c.file)
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return out
}

func (c *container) rotate(t *testing.T) bool {
	if c.tool == "helm" {
		return false
	}
	// logrotate's copytruncate.
	if out, err := c.run("root", "sh", "-c", "cp "+c.file+" "+c.file+".1 && : >"+c.file); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return true
}

func (c *container) healthy(port int) error {
	var out string
	var err error
	switch {
	case c.tool == "helm" && port == c.port:
		out, err = c.run("neutron", "/tmp/neutron-openvswitch-agent-liveness.sh")
	case c.tool == "helm": // an agent that nobody is
		out, err = c.podman("exec", "--user", "neutron", "-e", "RPC_PROBE_TIMEOUT=3", c.name, "python", "/tmp/health-probe.py", "--config-file", "/etc/neutron/neutron.conf",
			"--config-file", "/etc/neutron/plugins/ml2/openvswitch_agent.ini", "--agent-queue-name", "q-agent-notifier-nobody", "--use-fqdn", "--liveness-probe")
	case port == c.port:
		out, err = c.podman("healthcheck", "run", c.name)
	case c.tool == "kolla":
		out, err = c.run("neutron", "healthcheck_port", "neutron-openvswitch-agent", strconv.Itoa(port))
	default:
		out, err = c.run("neutron", "/openstack/healthcheck", strconv.Itoa(port))
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (c *container) note() string { return "podman, " + c.whose + " scripts" }

// service is a Debian with a real systemd, in which Patchbay's packages are installed.
type service struct {
	ctx   context.Context //nolint:containedctx // one run, one deadline
	tool  string
	host  *lab.Host
	root  string // of its files
	init  string // pid of its systemd
	port  int
	file  string
	began string // cursor of the journal
}

const agentService = "neutron-openvswitch-agent.service"

// boot boots the host.
func boot(t *testing.T, ctx context.Context, h *lab.Host) *service {
	t.Helper()
	debs, err := filepath.Glob("../bin/dist/*.deb")
	if err != nil || len(debs) != 2 {
		t.Fatalf("packages: %v, %v; run make packages", debs, err)
	}
	args := []string{h.Netns(), filepath.Join(h.Dir(), "ovs"), h.Name()}
	for _, deb := range debs {
		abs, err := filepath.Abs(deb)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, abs)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "../deploy/test/host", args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	s := &service{ctx: ctx, host: h}
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "ready" {
			s.root, s.init = f[1], f[2]
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return s
		}
	}
	t.Fatalf("the host did not boot:\n%s", said)
	return nil
}

func (s *service) run(user string, argv ...string) (string, error) {
	args := []string{
		"--target", s.init, "--mount", "--uts", "--ipc", "--pid", "--net", "--cgroup", "--root", "--wdns=/",
		"/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
	}
	if user != "root" {
		args = append(args, "setpriv", "--reuid", user, "--regid", user, "--init-groups")
	}
	out, err := exec.CommandContext(context.WithoutCancel(s.ctx), "nsenter", append(args, argv...)...).CombinedOutput()
	return string(out), err
}

func (s *service) must(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := s.run("root", argv...)
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return out
}

// units are the services of tools that are not Debian's of the host.
func units(tool string, h *handed) string {
	program := "/usr/bin/neutron-openvswitch-agent"
	lines := map[string]string{
		"osa": "[Unit]\nAfter=syslog.target network-online.target\n[Service]\nType=simple\nTimeoutSec=120\nRestart=on-failure\nRestartSec=2\nExecReload=/bin/kill -HUP $MAINPID\nSlice=neutron.slice\n",
		"rdo": "[Unit]\nAfter=syslog.target network.target\n[Service]\nType=simple\nPrivateTmp=true\nKillMode=process\nRestart=on-failure\n" +
			"PermissionsStartOnly=true\nExecStartPre=/bin/false\n", // its own first step is not run
	}[tool]
	if tool == "osa" {
		program = "/openstack/venvs/neutron-31.0.0/bin/neutron-openvswitch-agent"
	}
	if lines == "" {
		lines = "[Unit]\nAfter=openvswitch-switch.service\n[Service]\nType=simple\nWorkingDirectory=~\nRuntimeDirectory=neutron lock/neutron\nCacheDirectory=neutron\nRestart=on-failure\nLimitNOFILE=65535\nTimeoutStopSec=15\n"
	}
	for _, e := range h.env {
		lines += "Environment=" + e + "\n"
	}
	lines += "User=neutron\nGroup=neutron\nExecStart=" + program + " " + strings.Join(h.args, " ") + "\n"
	for name, value := range h.unit {
		lines = regexp.MustCompile("(?m)^"+name+"=.*\n").ReplaceAllString(lines, "") + name + "=" + value + "\n"
	}
	return lines + "[Install]\nWantedBy=multi-user.target\n"
}

func (s *service) start(t *testing.T, h *handed) {
	t.Helper()
	s.file = h.log
	own := s.tool == "osa-2026.1" // the drop-in, or a unit of the tool's
	if own {
		osaExample(t, h)
	}
	h.write(t, s.root, 0o640)
	for path := range h.files {
		s.must(t, "chgrp", "neutron", path)
	}
	if s.tool != "debian-21" { // which has its own
		writeFile(t, filepath.Join(s.root, "etc/systemd/system", agentService), units(strings.Split(s.tool, "-")[0], h), 0o644)
	}
	switch {
	case own:
		dropIns := filepath.Join(s.root, "etc/systemd/system", agentService+".d")
		if err := errors.Join(os.MkdirAll(dropIns, 0o755), os.Symlink("/dev/null", filepath.Join(dropIns, "50-patchbay.conf"))); err != nil {
			t.Fatal(err)
		}
	case h.hybrid:
		s.must(t, "sh", "-c", "d=/etc/systemd/system/"+agentService+".d; mkdir -p $d && cp /usr/share/doc/patchbay/examples/hybrid.conf $d/60-hybrid.conf")
	}
	s.must(t, "systemctl", "daemon-reload")
	if got, want := strings.TrimSpace(s.must(t, "/usr/lib/patchbay/agent-args")), strings.Join(h.args, " "); got != want {
		t.Errorf("the service starts with %q, want %q", got, want)
	}
	s.began = strings.TrimSpace(strings.TrimPrefix(s.must(t, "sh", "-c", "journalctl -n 0 --show-cursor -q | tail -n 1"), "-- cursor: "))
	s.must(t, "systemctl", "start", agentService)
}

func (s *service) stop(t *testing.T) {
	t.Helper()
	if t.Failed() {
		out, _ := s.run("root", "systemctl", "status", "--no-pager", "--full", "-n", "20", agentService)
		t.Log(out)
		if s.file != "" {
			out, _ = s.run("root", "tail", "-n", "20", s.file)
			t.Log(out)
		}
	}
	s.must(t, "systemctl", "stop", agentService)
	if out := s.must(t, "systemctl", "show", "-p", "Result", "--value", agentService); strings.TrimSpace(out) != "success" {
		t.Errorf("the stop was no clean one: %s", out)
	}
	s.must(t, "sh", "-c", "rm -rf /etc/systemd/system/"+agentService+"* /var/lib/neutron/patchbay.* /var/log/neutron/*agent.log* && systemctl daemon-reload")
}

func (s *service) pid() int {
	out, err := s.run("root", "systemctl", "show", "-p", "MainPID", "--value", agentService)
	inner, _ := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || inner == 0 {
		return 0
	}
	first, _ := strconv.Atoi(s.init)
	return daemonBelow(first)
}

func (s *service) log(t *testing.T) string {
	if s.file == "" {
		return s.must(t, "journalctl", "-u", agentService, "--after-cursor", s.began, "-o", "json", "--no-pager")
	}
	return s.must(t, "cat", s.file)
}

func (s *service) rotate(t *testing.T) bool {
	if s.file == "" {
		return false
	}
	s.must(t, "sh", "-c", "cp "+s.file+" "+s.file+".1 && : >"+s.file)
	return true
}

// healthy asks systemd, which is all that these tools do; the charm also looks for bridges.
func (s *service) healthy(port int) error {
	unit := agentService
	if port != s.port {
		unit = "neutron-nobody.service"
	}
	if out, err := s.run("root", "systemctl", "is-active", unit); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if out, err := s.run("root", "ovs-vsctl", "list-br"); err != nil || !strings.Contains(out, "br-int") {
		return fmt.Errorf("bridges: %w: %s", err, out)
	}
	return nil
}

func (s *service) note() string { return "systemd" }

func reload(t *testing.T, p place) {
	t.Helper()
	pid := p.pid()
	if pid == 0 {
		t.Fatal("no agent runs")
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
