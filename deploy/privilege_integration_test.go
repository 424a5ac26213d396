// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package deploy_test proves what the unit files claim: with which user and capabilities the agent does its work, and
// that it does not without them.
package deploy_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	account = "neutron"
	// helper has the test binary try one thing and say what came of it, as another user.
	helper = "PATCHBAY_PRIVILEGE_HELPER"
)

func TestMain(m *testing.M) {
	if os.Getenv(helper) != "" {
		fmt.Print(askConntrack())
		return
	}
	os.Exit(m.Run())
}

// unit is what matters here of a drop-in.
type unit struct{ user, caps string }

// readUnit reads the last settings of a drop-in; capabilities in setpriv's way, "+net_admin,+dac_override".
func readUnit(t *testing.T, name string) unit {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	var u unit
	var bound, ambient string
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "User":
			u.user = value
		case "CapabilityBoundingSet":
			bound = value
		case "AmbientCapabilities":
			ambient = value
		}
	}
	if bound == "" || bound != ambient {
		t.Fatalf("%s: the bounding set %q is not what the agent gets, %q", name, bound, ambient)
	}
	for _, c := range strings.Fields(bound) {
		u.caps += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	return u
}

// setpriv is the command line before a command that runs as the service's user with these capabilities only.
func setpriv(caps string) []string {
	return []string{
		"setpriv", "--reuid", account, "--regid", account, "--clear-groups", "--no-new-privs",
		"--inh-caps=-all" + caps, "--ambient-caps=-all" + caps, "--bounding-set=-all" + caps, "--",
	}
}

func TestLeastPrivilege(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("only root can give privileges away")
	}
	service, group := readUnit(t, "50-patchbay.conf"), readUnit(t, "group.conf")
	if service.user != account {
		t.Fatalf("the service runs as %q", service.user)
	}
	t.Run("connection tracking needs CAP_NET_ADMIN", conntrack)

	l := lab.New(t, 2)
	h := l.Host(1)
	dir := install(t, l, h)
	run := func(t *testing.T, caps string) {
		t.Helper()
		wrap(t, h, dir, caps)
		if err := h.StartAgent(t.Context(), lab.Patchbay); err != nil {
			t.Fatal(err)
		}
		checkProcess(t, h, caps)
	}
	stop := func(t *testing.T) {
		t.Helper()
		if err := h.StopAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	t.Setenv(lab.EnvBinary, filepath.Join(dir, "patchbay"))
	if err := l.Host(2).StartAgent(t.Context(), lab.Patchbay); err != nil {
		t.Fatal(err)
	}
	network, err := l.CreateNetwork(t.Context(), lab.Network{Name: "privilege"})
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Host(2).Plug(t.Context(), lab.Port{NetworkID: network.ID, Name: "far"})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("as the service", func(t *testing.T) {
		run(t, service.caps)
		reach(t, l, h, lab.Port{NetworkID: network.ID, Name: "one"}, far)
		askAgent(t, h, dir)
		plan(t, h, dir, service.caps, "nothing would change", 0)
		plan(t, h, dir, group.caps, "permission denied", 4)
		stop(t)
	})
	t.Run("without CAP_DAC_OVERRIDE the switch is closed", func(t *testing.T) {
		run(t, group.caps)
		defer stop(t)
		waitForLog(t, h, regexp.MustCompile(`OpenFlow connection to the bridge failed, retrying.*permission denied`))
	})
	t.Run("as the service with group.conf", func(t *testing.T) {
		openSockets(t, h)
		run(t, group.caps)
		reach(t, l, h, lab.Port{NetworkID: network.ID, Name: "two"}, far)
		plan(t, h, dir, group.caps, "nothing would change", 0)
		stop(t)
	})
}

// install puts the binary where everybody may run it, and lets the service's user through to its files.
func install(t *testing.T, l *lab.Lab, h *lab.Host) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pbpriv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	from := os.Getenv(lab.EnvBinary)
	if from == "" {
		from = filepath.Join("..", "bin", "patchbay")
	}
	program, err := os.ReadFile(from)
	if err != nil {
		t.Fatalf("no binary, run make build: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "patchbay"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, l.Dir(), filepath.Dir(h.Dir()), h.Dir(), h.Switch().Dir()} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// wrap has the lab start the agent through a script that does what a package and a service manager do: hand over the
// files, then give up all but the given.
func wrap(t *testing.T, h *lab.Host, dir, caps string) {
	t.Helper()
	agent := filepath.Join(h.Dir(), "agent")
	script := fmt.Sprintf("#!/bin/sh\nset -e\ncd %s\nmkdir -p state lock\nchown %[2]s:%[2]s state lock\nchgrp %[2]s . neutron.conf ovs.ini\nchmod 750 .\nchmod 640 neutron.conf ovs.ini\nexec %s %s \"$@\"\n",
		agent, account, strings.Join(setpriv(caps), " "), filepath.Join(dir, "patchbay"))
	path := filepath.Join(dir, "start")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(lab.EnvBinary, path)
}

// checkProcess reads from the kernel what the agent really has.
func checkProcess(t *testing.T, h *lab.Host, caps string) {
	t.Helper()
	_, pid := h.Agent()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		got[key], _, _ = strings.Cut(strings.TrimSpace(value), "\t")
	}
	id, err := exec.CommandContext(t.Context(), "id", "-u", account).Output()
	if err != nil {
		t.Fatal(err)
	}
	var mask uint64
	for name, bit := range map[string]uint{"dac_override": unix.CAP_DAC_OVERRIDE, "net_admin": unix.CAP_NET_ADMIN} {
		if strings.Contains(caps, "+"+name) {
			mask |= 1 << bit
		}
	}
	if want := strings.Count(caps, "+"); want != popcount(mask) {
		t.Fatalf("%s has a capability that this test does not know", caps)
	}
	want := map[string]string{"Uid": strings.TrimSpace(string(id)), "NoNewPrivs": "1", "Groups": ""}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		want[set] = fmt.Sprintf("%016x", mask)
	}
	for key, w := range want {
		if got[key] != w {
			t.Errorf("the agent's %s is %q, want %q", key, got[key], w)
		}
	}
	t.Logf("pid %d: uid %s, capabilities %s, no new privileges", pid, got["Uid"], got["CapEff"])
}

func popcount(v uint64) (n int) {
	for ; v != 0; v &= v - 1 {
		n++
	}
	return n
}

// reach plugs a VM into the host, waits until it is wired, and pings another host's.
func reach(t *testing.T, l *lab.Lab, h *lab.Host, p lab.Port, far *lab.VM) {
	t.Helper()
	vm, err := h.Plug(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WaitActive(t.Context(), vm.PortID, far.PortID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		out, err := exec.CommandContext(ctx, "ip", "netns", "exec", vm.Netns, "ping", "-n", "-c", "3", "-i", "0.2", "-W", "1", far.IPs[0]).CombinedOutput()
		if err == nil {
			t.Logf("%s is wired and reaches %s", p.Name, far.IPs[0])
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s does not reach %s: %v\n%s", p.Name, far.IPs[0], err, out)
		}
	}
}

// askAgent looks into the agent through its socket, which belongs to its user and is closed to others.
func askAgent(t *testing.T, h *lab.Host, dir string) {
	t.Helper()
	socket := filepath.Join(h.Dir(), "agent", "state", "patchbay.sock")
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Fatalf("the admin socket: %v, %v", info, err)
	}
	var out []byte
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		// Status 0: in sync.
		if out, err = exec.CommandContext(t.Context(), filepath.Join(dir, "patchbay"), "status", "--socket", socket).CombinedOutput(); err == nil {
			t.Logf("%s", out)
			break
		}
	}
	if err != nil {
		t.Errorf("patchbay status: %v\n%s", err, out)
	}
	ports, err := exec.CommandContext(t.Context(), filepath.Join(dir, "patchbay"), "ports", "--socket", socket, "--state", "wired").CombinedOutput()
	if err != nil || !strings.Contains(string(ports), "one") {
		t.Errorf("patchbay ports: %v\n%s", err, ports)
	}
}

// plan asks what a start would change, as the service's user with these capabilities only.
func plan(t *testing.T, h *lab.Host, dir, caps, want string, status int) {
	t.Helper()
	argv := append(setpriv(caps), filepath.Join(dir, "patchbay"), "plan")
	argv = append(argv, h.AgentFiles()...)
	var out []byte
	var cmd *exec.Cmd
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		cmd = h.Command(t.Context(), argv[0], argv[1:]...)
		out, _ = cmd.CombinedOutput() // its status counts
		if cmd.ProcessState.ExitCode() == status && strings.Contains(string(out), want) {
			return
		}
	}
	t.Errorf("patchbay plan with %q: status %d, want %d and %q\n%s", caps, cmd.ProcessState.ExitCode(), status, want, out)
}

func waitForLog(t *testing.T, h *lab.Host, want *regexp.Regexp) {
	t.Helper()
	var text []byte
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var err error
		if text, err = os.ReadFile(h.AgentLog(lab.Patchbay)); err != nil {
			t.Fatal(err)
		}
		if line := want.Find(text); line != nil {
			t.Logf("%s", line)
			return
		}
	}
	t.Fatalf("no line like %s in\n%s", want, text)
}

// openSockets does what an ovs-vswitchd with UMask=0007 and a group of its own does when it makes its sockets.
func openSockets(t *testing.T, h *lab.Host) {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(h.Switch().Dir(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := exec.CommandContext(t.Context(), "id", "-g", account).Output()
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.Atoi(strings.TrimSpace(string(id)))
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	for _, path := range sockets {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Type() != os.ModeSocket {
			continue
		}
		if err := errors.Join(os.Chown(path, 0, gid), os.Chmod(path, 0o770)); err != nil {
			t.Fatal(err)
		}
		opened++
	}
	if opened == 0 {
		t.Fatalf("no sockets in %s", h.Switch().Dir())
	}
}

// conntrack asks the kernel about one connection, with the capability and without.
func conntrack(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(caps string) string {
		argv := append(setpriv(caps), "/proc/self/fd/3")
		f, err := os.Open(self)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), helper+"=conntrack")
		// The binary is in a directory that only root may enter.
		cmd.ExtraFiles = []*os.File{f}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
		return string(out)
	}
	if got := ask(""); got != syscall.EPERM.Error() {
		t.Errorf("without capabilities the answer is %q", got)
	}
	if got := ask(",+net_admin"); got == syscall.EPERM.Error() {
		t.Errorf("with CAP_NET_ADMIN the answer is %q", got)
	} else {
		t.Logf("with CAP_NET_ADMIN the answer is %q", got)
	}
}

// askConntrack sends one question of nfnetlink's connection tracking and returns the kernel's answer as text.
func askConntrack() string {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err.Error()
	}
	const get = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	msg := make([]byte, unix.NLMSG_HDRLEN+4)
	binary.NativeEndian.PutUint32(msg[0:], uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], get)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg[unix.NLMSG_HDRLEN] = unix.AF_INET
	if err := unix.Sendto(s, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err.Error()
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return err.Error()
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return "answered"
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return syscall.Errno(-code).Error()
	}
	return "done"
}
