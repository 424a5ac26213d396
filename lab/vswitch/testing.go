// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// New starts a switch for one test. It lives in a short temporary directory and, unless an option names another or asks
// for the dummy datapath, in a network namespace of its own, so that tests running at once may all have a br-int. With the
// test everything goes again; when the test failed, the ends of the logs are shown.
//
//	sw := vswitch.New(t, func(c *vswitch.Config) { c.DummyDatapath = true })
func New(t testing.TB, options ...func(*Config)) *Switch {
	t.Helper()
	// Not t.TempDir: its path contains the name of the test and is too long for sockets.
	dir, err := os.MkdirTemp("/tmp", "vsw")
	if err != nil {
		t.Fatalf("creating a directory for the switch: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := Config{Dir: dir}
	for _, o := range options {
		o(&cfg)
	}
	if cfg.Netns == "" && !cfg.DummyDatapath {
		cfg.Netns = filepath.Base(dir)
		newNetns(t, cfg.Netns)
	}
	s := Open(cfg)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("switch in %s:\n%s%s", dir, s.logTail(dbDaemon, 30), s.logTail(switchDaemon, 30))
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stopping the switch: %v", err)
		}
	})
	if _, err := Start(t.Context(), cfg); err != nil {
		t.Fatalf("starting a switch: %v", err)
	}
	return s
}

func newNetns(t testing.TB, name string) {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(context.Background(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("running ip %v: %v: %s", args, err, out)
		}
	}
	run("netns", "add", name)
	t.Cleanup(func() { run("netns", "del", name) })
	run("-n", name, "link", "set", "lo", "up")
}
