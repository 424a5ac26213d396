// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/snapshot"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// memory is where the written copy of the world stands. It is owned by the loop.
type memory struct {
	stale  bool // the world has changed since it was written
	saving bool
	next   time.Time // not before
}

// saved: the snapshot was written, or not.
type saved struct{ err error }

// savePause separates snapshots: after it a change is on disk, and no burst of changes writes more often.
const savePause = 5 * time.Second

// recall reads what an earlier run wrote down.
func (a *Agent) recall() {
	if a.cfg.Memory != nil {
		a.takeBack(a.cfg.Memory)
	}
	if a.cfg.Snapshot == "" {
		return
	}
	if err := os.MkdirAll(filepath.Dir(a.cfg.Snapshot), 0o755); err != nil {
		a.log.Warn("directory of the snapshot not created", "err", err)
	}
	switch n, err := snapshot.RemoveUnfinished(a.cfg.Snapshot); {
	case err != nil:
		a.log.Warn("unfinished snapshots not removed", "err", err)
	case n > 0:
		a.log.Info("unfinished snapshots removed", "files", n)
	}
	m := &world.Memory{}
	written, err := snapshot.Load(a.cfg.Snapshot, world.MemoryVersion, m)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // the first start
	case err != nil:
		a.log.Warn("snapshot not usable, starting without it", "err", err)
		return
	}
	a.takeBack(m)
	a.log.Info("snapshot loaded", "ports", len(m.Ports), "groups", len(m.Groups), "written", written)
}

// takeBack is the counterpart of memorise.
func (a *Agent) takeBack(m *world.Memory) {
	a.world.Recall(m)
	if err := a.extensions.Load(m.Extensions); err != nil {
		a.log.Warn("snapshot of an extension not usable, starting without it", "err", err)
	}
}

// remember writes the world down once it has changed and is in sync: what is wrong or half known is not worth keeping.
func (a *Agent) remember() {
	if a.cfg.Snapshot == "" || !a.memory.stale || a.memory.saving {
		return
	}
	if now := time.Now(); now.Before(a.memory.next) {
		a.wakeUp(a.memory.next)
		return
	} else if a.memory.next = now.Add(savePause); !a.open(gate.Complete) {
		a.wakeUp(a.memory.next)
		return
	}
	a.memory.stale, a.memory.saving = false, true
	m, now := a.memorise(), time.Now()
	a.work.Go(func() {
		a.inbox.put(saved{a.aside("writing the snapshot", func() error { return snapshot.Save(a.cfg.Snapshot, world.MemoryVersion, m, now) })})
	})
}

// memorise is everything that is worth keeping.
func (a *Agent) memorise() *world.Memory {
	m := a.world.Memory()
	var err error
	if m.Extensions, err = a.extensions.Save(); err != nil {
		a.repeats.log(a.log, slog.LevelWarn, "state of an extension not encoded, snapshot written without it", "err", err)
	}
	return m
}

func (a *Agent) memorySaved(e saved) {
	if e.err != nil {
		a.memory.stale = true
		a.repeats.log(a.log, slog.LevelWarn, "snapshot not written", "err", e.err)
		return
	}
	a.repeats.forget("snapshot not written")
}

// rememberLast writes down what changed shortly before the end.
func (a *Agent) rememberLast() {
	if a.cfg.Snapshot == "" || !a.memory.stale || a.memory.saving || !a.open(gate.Complete) {
		return
	}
	if err := snapshot.Save(a.cfg.Snapshot, world.MemoryVersion, a.memorise(), time.Now()); err != nil {
		a.log.Warn("snapshot not written", "err", err)
	}
}
