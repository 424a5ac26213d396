// SPDX-License-Identifier: Apache-2.0

//go:build integration

package vswitch_test

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

func TestLife(t *testing.T) {
	ctx := t.Context()
	sw := vswitch.New(t)
	vsctl := func(args ...string) string {
		t.Helper()
		out, err := sw.Vsctl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	vsctl("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	conn, err := net.Dial("unix", sw.MgmtSocket("br-int"))
	check(err)
	check(conn.Close())
	if out, err := sw.Ofctl(ctx, "dump-flows", "br-int"); err != nil || !strings.Contains(out, "NORMAL") {
		t.Fatalf("dump-flows: %q, %v", out, err)
	}
	if out, err := sw.Command(ctx, "ip", "-o", "link", "show", "br-int").CombinedOutput(); err != nil {
		t.Fatalf("no local port in the namespace: %s, %v", out, err)
	}

	before := sw.Pids()
	again, err := vswitch.Start(ctx, vswitch.Config{Dir: sw.Dir(), Netns: sw.Netns()})
	check(err)
	if after := again.Pids(); len(after) != 2 || after["ovsdb-server"] != before["ovsdb-server"] || after["ovs-vswitchd"] != before["ovs-vswitchd"] {
		t.Fatalf("a second Start changed the daemons: %v, then %v", before, after)
	}

	check(sw.CompactDB(ctx))
	check(sw.KillVswitchd(ctx))
	check(sw.StartVswitchd(ctx))
	check(sw.KillDB(ctx))
	check(sw.StartDB(ctx))
	check(sw.StopDB(ctx))
	check(sw.StartDB(ctx))
	check(sw.StopVswitchd(ctx))
	if pids := sw.Pids(); len(pids) != 1 || pids["ovsdb-server"] == 0 {
		t.Fatalf("pids with vswitchd stopped: %v", pids)
	}
	check(sw.StartVswitchd(ctx))
	if out := vsctl("list-br"); out != "br-int" {
		t.Fatalf("bridges after restarts: %q", out)
	}
	if out, err := sw.Appctl(ctx, "ovs-vswitchd", "version"); err != nil || !strings.Contains(out, "Open vSwitch") {
		t.Fatalf("version: %q, %v", out, err)
	}
	check(sw.Stop(ctx))
	if pids := sw.Pids(); len(pids) != 0 {
		t.Fatalf("pids after Stop: %v", pids)
	}
}

func TestForeignPidIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := os.WriteFile(dir+"/ovs-vswitchd.pid", []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sw := vswitch.Open(vswitch.Config{Dir: dir})
	if pids := sw.Pids(); len(pids) != 0 {
		t.Fatalf("a foreign process was taken for ours: %v", pids)
	}
	if err := sw.KillVswitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("the foreign process was ended: %v", err)
	}
}

func TestStartFailsWithTheLog(t *testing.T) {
	_, err := vswitch.Start(t.Context(), vswitch.Config{Dir: "/tmp/" + strings.Repeat("x", 100)})
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Fatalf("long directory: %v", err)
	}
	sw := vswitch.New(t, func(c *vswitch.Config) { c.DummyDatapath = true })
	if err := sw.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sw.Dir()+"/conf.db", []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = vswitch.Start(t.Context(), vswitch.Config{Dir: sw.Dir()})
	if err == nil || !strings.Contains(err.Error(), "unexpected file format") {
		t.Fatalf("broken database: %v", err)
	}
}
