// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, dir string, argv ...string) *Daemon {
	t.Helper()
	d, err := Start(t.Context(), Spec{Name: "d", Dir: dir, Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Kill(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: " + what)
		}
		time.Sleep(pollInterval)
	}
}

func TestLife(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "/bin/sh", "-c", `echo "$HOME $PATH"; exec sleep 100`)
	pid := d.PID()
	if pid == 0 || started(pid) == "" {
		t.Fatalf("pid %d", pid)
	}
	if again := Open("d", dir); again.PID() != pid {
		t.Errorf("opened again it has pid %d, not %d", again.PID(), pid)
	}
	if since := time.Since(d.Since()); since < -time.Second || since > time.Minute {
		t.Errorf("started %v ago", since)
	}
	waitFor(t, "output", func() bool { return strings.Contains(d.LogTail(5), dir+" "+Path) })
	if _, err := Start(t.Context(), Spec{Name: "d", Dir: dir, Argv: []string{"true"}}); err == nil {
		t.Error("started twice")
	}
	if err := d.Stop(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if d.PID() != 0 || started(pid) != "" {
		t.Error("it still runs")
	}
	if err := d.Stop(t.Context(), time.Second); err != nil {
		t.Errorf("stopping twice: %v", err)
	}
}

func TestWhatIgnoresSIGTERMIsKilled(t *testing.T) {
	d := start(t, t.TempDir(), "/bin/sh", "-c", `trap "" TERM; while :; do sleep 100; done`)
	pid := d.PID()
	began := time.Now()
	if err := d.Stop(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if started(pid) != "" || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: start time %q", time.Since(began), started(pid))
	}
}

func TestDescendantsGoToo(t *testing.T) {
	dir := t.TempDir()
	// One child in a session of its own, one whose environment does not tell.
	d := start(t, dir, "/bin/sh", "-c", `setsid sleep 101 & env -i sleep 102 & wait`)
	waitFor(t, "children", func() bool {
		n := 0
		for _, p := range processes() {
			if p.session == d.PID() || p.home == dir {
				n++
			}
		}
		return n == 3
	})
	leader := d.PID()
	if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of the leader", func() bool { return d.PID() == 0 })
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range processes() {
		if p.session == leader || p.home == dir {
			t.Errorf("left: %v", p)
		}
	}
}

func TestForeignProcessesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	// Being in the directory, or naming it, makes nothing ours.
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + filepath.Dir(dir), "OVS_RUNDIR=" + dir}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for what, record := range map[string]string{
		"another boot":       "00000000-0000-0000-0000-000000000000 " + string(stat),
		"another start time": bootID() + " " + strings.Replace(string(stat), " "+started(pid)+" ", " 1 ", 1),
		"only a pid":         strconv.Itoa(pid) + "\n",
		"nothing":            "",
	} {
		if err := os.WriteFile(filepath.Join(dir, "d.pid"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
		d := Open("d", dir)
		if d.PID() != 0 {
			t.Errorf("%s: taken for ours", what)
		}
		if err := d.Stop(context.Background(), time.Second); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if ended, err := Sweep(dir); err != nil || len(ended) != 0 {
			t.Errorf("%s: swept %v, %v", what, ended, err)
		}
		if started(pid) == "" {
			t.Fatalf("%s: it was ended", what)
		}
	}
}

func TestWithin(t *testing.T) {
	const dir = "/var/lib/lab"
	for _, c := range []struct {
		name string
		p    process
		want bool
	}{
		{"home", process{home: dir}, true},
		{"home below", process{home: dir + "/hosts/hv1"}, true},
		{"home beside", process{home: dir + "2"}, false},
		{"switch", process{home: "/root", argv: []string{"/usr/sbin/ovs-vswitchd", "--pidfile=" + dir + "/hosts/hv1/ovs/x.pid"}}, true},
		{"another switch", process{home: "/root", argv: []string{"ovs-vswitchd", "--pidfile=/run/openvswitch/x.pid"}}, false},
		{"pager", process{home: "/root", argv: []string{"less", dir + "/server/neutron-server.log"}}, false},
		{"process title", process{argv: []string{"neutron-openvswitch-agent (/usr/bin/python3 x --config-file " + dir + "/a/neutron.conf)"}}, true},
		{"foreign files", process{argv: []string{"neutron-server", "--config-file", "/etc/neutron/neutron.conf"}}, false},
	} {
		if got := c.p.within(dir); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestParseRecord(t *testing.T) {
	const stat = "42 (a b) c) S 1 42 42 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0"
	pid, start, boot := parseRecord("boot " + stat + "\n")
	if pid != 42 || start != "777" || boot != "boot" {
		t.Errorf("got %d %q %q", pid, start, boot)
	}
	for _, bad := range []string{"", "boot", "boot 42", "boot x (a) S", "boot 1 (init) S 1 42 42 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0"} {
		if pid, _, _ := parseRecord(bad); pid != 0 {
			t.Errorf("%q gives pid %d", bad, pid)
		}
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	d := start(t, t.TempDir(), "/bin/sh", "-c", "echo no such luck >&2; exit 3")
	waitFor(t, "the end", func() bool { return d.PID() == 0 })
	if tail := d.LogTail(3); !strings.Contains(tail, "no such luck") {
		t.Errorf("log: %s", tail)
	}
}
