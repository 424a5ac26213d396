// SPDX-License-Identifier: Apache-2.0

//go:build integration

package lab

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// TestLab goes through the life of one lab; each part builds on the one before.
func TestLab(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("/tmp", "pblab")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	before := traces(t, dir)
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, dir)
		}
		if err := Down(context.Background(), Options{Dir: dir}); err != nil {
			t.Errorf("ending the lab: %v", err)
		}
	})
	part := func(name string, do func(t *testing.T)) {
		t.Helper()
		if !t.Run(name, do) {
			t.FailNow()
		}
	}
	part("killed up", func(t *testing.T) { killedUps(t, dir) })
	part("up", func(t *testing.T) { upTwice(ctx, t, dir) })
	l, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	part("another host", func(t *testing.T) { addedHost(ctx, t, l) })
	part("agent that cannot start", func(t *testing.T) {
		err := l.Host(3).StartAgent(ctx, Python, "ovs.bridge_mappings=physnet1:br-nowhere")
		if err == nil || !strings.Contains(err.Error(), "br-nowhere") || !strings.Contains(err.Error(), "exited") {
			t.Errorf("the error does not say why: %v", err)
		}
	})
	part("ping over vxlan", func(t *testing.T) { pingOverVXLAN(ctx, t, l) })
	part("many ports", func(t *testing.T) { manyPorts(ctx, t, l) })
	part("agent stop", func(t *testing.T) {
		h := l.Host(1)
		if err := h.StopAgent(ctx); err != nil {
			t.Fatal(err)
		}
		if left := daemon.Within(h.agentDir()); len(left) > 0 {
			t.Errorf("helpers are left: %v", left)
		}
	})
	part("down", func(t *testing.T) {
		for range 2 {
			if err := Down(ctx, Options{Dir: dir}); err != nil {
				t.Fatal(err)
			}
		}
		if left := subtract(traces(t, dir), before); len(left) > 0 {
			t.Errorf("down left:\n%s", strings.Join(left, "\n"))
		}
	})
	part("down without the directory", func(t *testing.T) { lostDirectory(ctx, t, dir, before) })
}

// killedUps kills `up` with SIGKILL at moments at which something is half done.
func killedUps(t *testing.T, dir string) {
	for _, c := range []struct {
		after string // the step whose end is waited for
		then  time.Duration
	}{
		{"fabric", 0},                      // namespaces, data directory and broker
		{"database", 2 * time.Second},      // tables
		{"schema", 500 * time.Millisecond}, // server
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envCrash+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != c.after; {
			t.Log(lines.Text())
		}
		time.Sleep(c.then)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatalf("up was done before it was killed, after %s and %v", c.after, c.then)
		}
		if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrNotUp) {
			t.Errorf("half a lab opens: %v", err)
		}
	}
}

func upTwice(ctx context.Context, t *testing.T, dir string) {
	up := func() (map[string]int, string) {
		began := time.Now()
		l, err := Up(ctx, Options{Dir: dir, Hosts: 2, SkipInstall: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("up took %v", time.Since(began))
		s := l.Status(ctx)
		if len(s.Errors) > 0 {
			t.Error(s.Errors)
		}
		text, err := os.ReadFile(statePath(dir))
		if err != nil {
			t.Fatal(err)
		}
		return s.PIDs(), string(text)
	}
	pids, state := up()
	want := []string{
		"broker", "database", "hv1 ovs-vswitchd", "hv1 ovsdb-server", "hv2 ovs-vswitchd", "hv2 ovsdb-server", "server",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(pids))); diff != "" {
		t.Error(diff)
	}
	pids2, state2 := up()
	if diff := cmp.Diff(pids, pids2); diff != "" {
		t.Errorf("the second up changed processes: %s", diff)
	}
	if diff := cmp.Diff(state, state2); diff != "" {
		t.Errorf("the second up changed the state: %s", diff)
	}
}

func addedHost(ctx context.Context, t *testing.T, l *Lab) {
	before := l.Status(ctx).PIDs()
	h, err := l.AddHost(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h.Name() != "hv3" {
		t.Errorf("it is called %s", h.Name())
	}
	after := l.Status(ctx).PIDs()
	if len(after) != len(before)+2 {
		t.Errorf("processes before %v, after %v", before, after)
	}
	for name, pid := range before {
		if after[name] != pid {
			t.Errorf("%s was pid %d, is %d", name, pid, after[name])
		}
	}
	// The hosts reach each other, and the broker, through the fabric.
	for _, ip := range []string{l.Host(1).LocalIP(), l.brokerAddr()} {
		if out, err := h.Command(ctx, "ping", "-n", "-c", "1", "-W", "2", ip).CombinedOutput(); err != nil {
			t.Errorf("hv3 does not reach %s: %s", ip, out)
		}
	}
}

func pingOverVXLAN(ctx context.Context, t *testing.T, l *Lab) {
	var wg sync.WaitGroup
	for _, h := range []*Host{l.Host(1), l.Host(2)} {
		wg.Go(func() {
			if err := h.StartAgent(ctx, Python, "securitygroup.firewall_driver=openvswitch"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if err := l.Host(1).StartAgent(ctx, Patchbay); err == nil {
		t.Error("two agents start on one host")
	}
	network, err := l.CreateNetwork(ctx, Network{Name: "blue"})
	if err != nil {
		t.Fatal(err)
	}
	group, err := l.CreateGroup(ctx, "closed")
	if err != nil {
		t.Fatal(err)
	}
	plug := func(h *Host, name string) *VM {
		vm, err := h.Plug(ctx, Port{NetworkID: network.ID, Name: name, Extra: map[string]any{"security_groups": []string{group}}})
		if err != nil {
			t.Fatal(err)
		}
		return vm
	}
	a, b := plug(l.Host(1), "a"), plug(l.Host(2), "b")
	if _, err := l.Host(1).Plug(ctx, Port{ID: a.PortID}); err == nil {
		t.Error("one port is plugged twice")
	}
	if err := l.WaitActive(ctx, a.PortID, b.PortID); err != nil {
		t.Fatal(err)
	}
	if err := a.Ping(ctx, b.IPs[0]); err == nil {
		t.Error("the security group lets everything in")
	}
	if err := l.Allow(ctx, group, "icmp"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := a.WaitPing(ctx, b.IPs[0]); err != nil {
		t.Fatal(err)
	}
	t.Logf("ping works %v after the rule", time.Since(began))
	// The switch brings its counters up to date every five seconds.
	for out, deadline := "", time.Now().Add(20*time.Second); statistic(out, "tx_packets") == 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing went through the tunnel: %q", out)
		}
		if out, err = l.Host(1).Switch().Vsctl(ctx, "--bare", "--columns=statistics", "find", "Interface", "type=vxlan"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Unplug(ctx, true); err != nil {
		t.Fatal(err)
	}
	if live, file := isNetns(b.Netns); live || file {
		t.Error("the namespace of an unplugged VM is left")
	}
}

// statistic reads one number of an Interface's statistics as ovs-vsctl prints them.
func statistic(text, name string) int {
	for field := range strings.FieldsSeq(text) {
		if value, ok := strings.CutPrefix(field, name+"="); ok {
			n, _ := strconv.Atoi(value)
			return n
		}
	}
	return 0
}

func manyPorts(ctx context.Context, t *testing.T, l *Lab) {
	network, err := l.NetworkNamed(ctx, Network{Name: "blue"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := l.CreatePorts(ctx, l.Host(2), Port{NetworkID: network.ID}, 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Host(2).PlugMany(ctx, list); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, p := range list {
		ids = append(ids, p.ID)
	}
	if err := l.WaitActive(ctx, ids...); err != nil {
		t.Fatal(err)
	}
	if err := l.Host(2).UnplugMany(ctx, list); err != nil {
		t.Fatal(err)
	}
}

// lostDirectory removes the directory of a half-made lab before Down.
func lostDirectory(ctx context.Context, t *testing.T, dir string, before []string) {
	l := newLab(dir)
	if err := l.makeDir(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.plan(ctx, 1, RealServer); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Host(1).ensure(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := Down(ctx, Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if left := subtract(traces(t, dir), before); len(left) > 0 {
		t.Errorf("down left:\n%s", strings.Join(left, "\n"))
	}
}

// traces lists what a lab could leave behind on the machine: processes, namespaces, links, mounts and files.
func traces(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	for _, p := range daemon.Within(dir) {
		found = append(found, "process "+p)
	}
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range cmdlines {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), dir) {
			found = append(found, "process "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	// Others on the machine may make namespaces meanwhile; ours have our prefix.
	if entries, err := os.ReadDir(netnsDir); err == nil {
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefixFor(dir)) {
				found = append(found, "namespace "+e.Name())
			}
		}
	}
	names, err := links(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(names, linkFor(dir)) {
		found = append(found, "link "+linkFor(dir))
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) || strings.Contains(line, "/"+prefixFor(dir)) {
			found = append(found, "mount "+line)
		}
	}
	return append(found, files(t)...)
}

// files lists where servers and agents write when they are not told otherwise.
func files(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, root := range []string{"/run", "/etc", "/dev/shm", "/var/lib", "/var/log", "/var/cache", "/usr/lib/python3"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil //nolint:nilerr // what vanishes meanwhile is not ours
			case path == netnsDir || path == "/run/lock" || path == "/var/lib/apt" || path == "/var/lib/dpkg":
				return fs.SkipDir
			}
			if _, err := os.Stat(statePath(path)); err == nil {
				return fs.SkipDir // the lab of somebody else
			}
			found = append(found, path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Other tests are at work in /tmp; these are the names that our programs would use.
	for _, pattern := range []string{
		"/root/.*", "/var/tmp/*", "/tmp/tmp*", "/tmp/*.sock", "/tmp/ib*", "/tmp/ML*", "/tmp/erl*", "/tmp/rabbit*",
	} {
		names, _ := filepath.Glob(pattern)
		found = append(found, names...)
	}
	return found
}
