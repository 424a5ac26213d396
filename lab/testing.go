// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
	"testing"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// New starts a lab for one test, in a directory and with names of its own, so that it runs beside the lab of a person. It
// ends with the test; when the test failed, the ends of the logs are shown first. It costs some 15 s: share it between
// subtests.
func New(t testing.TB, hosts int) *Lab {
	t.Helper()
	// Not t.TempDir: its path contains the name of the test and is too long for sockets.
	dir, err := os.MkdirTemp("/tmp", "pblab")
	if err != nil {
		t.Fatalf("making a directory for the lab: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, dir)
		}
		if err := Down(context.Background(), Options{Dir: dir}); err != nil {
			t.Errorf("ending the lab: %v", err)
		}
	})
	l, err := Up(t.Context(), Options{Dir: dir, Hosts: hosts, SkipInstall: true, Report: func(p Progress) {
		t.Logf("%6.1fs  %s: %s", p.Took.Seconds(), p.Step, p.Note)
	}})
	if err != nil {
		t.Fatalf("starting a lab: %v", err)
	}
	t.Logf("versions: %s", l.Sources().Versions())
	return l
}

func showLogs(t testing.TB, dir string) {
	t.Helper()
	l, err := Open(Options{Dir: dir})
	if err != nil {
		return // Up said why
	}
	of := []string{"server"}
	for _, h := range l.Hosts() {
		of = append(of, h.name)
	}
	for _, name := range of {
		files, err := l.Logs(name)
		if err != nil {
			continue
		}
		for _, f := range files {
			if _, err := os.Stat(f); err == nil {
				t.Log(daemon.Tail(f, 15))
			}
		}
	}
}
