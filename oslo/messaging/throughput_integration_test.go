// SPDX-License-Identifier: Apache-2.0

//go:build integration

package messaging_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestThroughputBesidePython: the same calls to the same echo server from a Go and from a Python client.
func TestThroughputBesidePython(t *testing.T) {
	const workers, want = 16, 5.0
	bench := filepath.Join(t.TempDir(), "bench")
	if out, err := exec.Command("go", "build", "-o", bench, "./testdata/bench").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server := exec.Command(bench, "server", shared.URL(), "bench")
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = server.Wait()
	}()
	eventually(t, 20*time.Second, "server ready", func() bool {
		for _, q := range queuesOf(t, shared, "bench") {
			if q.Name == "bench" && q.Consumers == 1 {
				return true
			}
		}
		return false
	})

	measure := func(name string, n int, argv ...string) float64 {
		t.Helper()
		cmd := exec.CommandContext(within(t, time.Minute), argv[0], append(argv[1:], shared.URL(), "bench", fmt.Sprint(n), fmt.Sprint(workers))...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		var r struct{ Seconds, CPU float64 }
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		perCPU := float64(n) / r.CPU
		t.Logf("%-6s %6d calls, %d at a time: %7.0f calls/s, %7.3f ms CPU per call, %7.0f calls per CPU-second",
			name, n, workers, float64(n)/r.Seconds, 1000*r.CPU/float64(n), perCPU)
		return perCPU
	}
	py := measure("Python", 1500, "/usr/bin/python3", "testdata/peer.py", "bench")
	gone := measure("Go", 10_000, bench, "client")
	t.Logf("Go makes %.1f times as many calls per CPU-second", gone/py)
	if gone < want*py {
		t.Errorf("want at least %.0f times as many", want)
	}
}
