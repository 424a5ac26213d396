// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/snapshot"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// A directory that cannot be written to, as on a full or read-only disk, is named once; nothing else suffers, and the
// snapshot is written as soon as it can be.
func TestAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		file := filepath.Join(dir, "snapshot")
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the directory should be
			t.Fatal(err)
		}
		log := &logBuffer{}
		l, ovs := newLife(0, func() {}), newFakeOVS()
		cfg := world.Config{Host: "hv1", IntegrationBridge: "br-int"}
		region := &region{life: l, truth: newTruth()}
		region.truth.ports["A"] = fake.PluggedPort("A1", 1, "DOWN")
		region.truth.ports["A"]["id"] = "A"
		a, _, cancel, done := startLogged(t, cfg, ovs, region, file, observe.NewLogger(log, slog.LevelInfo))
		wait(time.Minute)
		ovs.plug("A", 0, 1)
		wait(5 * time.Minute)
		if n := strings.Count(log.String(), "snapshot not written"); n != 1 {
			t.Errorf("%d lines, want 1:\n%s", n, log)
		}
		if p := a.view().CopyPort(a.world().Port("A")); p.Document().Reported != "up" {
			t.Errorf("a port plugged in meanwhile is not up:\n%s", log)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		wait(10 * time.Second)
		m := &world.Memory{}
		if _, err := snapshot.Load(file, world.MemoryVersion, m); err != nil || len(m.Ports) != 1 {
			t.Errorf("not written when it could be: %v, %v", m.Ports, err)
		}
		l.crash()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What was written down counts whatever the clock said then: clocks are set back and forth.
func TestASnapshotFromTheFuture(t *testing.T) {
	for _, written := range []time.Time{time.Unix(0, 0), time.Now().Add(20 * 365 * 24 * time.Hour)} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "snapshot")
			m := &world.Memory{Ports: []neutron.Port{{ID: "p0"}}}
			if err := snapshot.Save(file, world.MemoryVersion, m, written); err != nil {
				t.Fatal(err)
			}
			r := start(t, func(cfg *Config, _ *fakeBroker) { cfg.Snapshot = file })
			if r.lines("snapshot loaded") != 1 {
				t.Errorf("written %s:\n%s", written, r.log)
			}
			_ = r.stop()
		})
	}
}

// What an agent left that was killed while it wrote is gone after the next start, and the snapshot before it counts.
func TestAnUnfinishedSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "snapshot")
		m := &world.Memory{Ports: []neutron.Port{{ID: "p0"}}}
		if err := errors.Join(snapshot.Save(file, world.MemoryVersion, m, time.Now()), os.WriteFile(file+".new-123", []byte("half"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r := start(t, func(cfg *Config, _ *fakeBroker) { cfg.Snapshot = file })
		if r.lines("snapshot loaded") != 1 || r.lines("unfinished snapshots removed files=1") != 1 {
			t.Errorf("%s", r.log)
		}
		if _, err := os.Stat(file + ".new-123"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
		_ = r.stop()
	})
}
