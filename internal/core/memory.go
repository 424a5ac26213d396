// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/gate"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// memory is where the written copy of the world stands. It is owned by the loop.
type memory struct {
	stale  bool // the world has changed since it was written
	saving bool
	next   time.Time // not before
}

// savePause separates snapshots: after it a change is on disk, and no burst of changes writes more often.
const savePause = 5 * time.Second

// load takes what an earlier run wrote down, and is the counterpart of memorise.
func (a *Core) load(saved *Saved) {
	m := saved.Memory
	a.world.Recall(m)
	if err := a.extensions.Load(m.Extensions); err != nil {
		a.log.Warn("snapshot of an extension not usable, starting without it", "err", err)
	}
	if !saved.Written.IsZero() {
		a.log.Info("snapshot loaded", "ports", len(m.Ports), "groups", len(m.Groups), "written", saved.Written)
	}
}

// remember writes the world down once it has changed and is in sync: what is wrong or half known is not worth keeping.
func (a *Core) remember() {
	if !a.cfg.Snapshot || !a.memory.stale || a.memory.saving {
		return
	}
	if a.turn.now().Before(a.memory.next) {
		a.turn.wakeUp(a.memory.next)
		return
	}
	if a.memory.next = a.turn.now().Add(savePause); !a.open(gate.Complete) {
		a.turn.wakeUp(a.memory.next)
		return
	}
	a.memory.stale, a.memory.saving = false, true
	a.turn.start(effect.Save{Memory: a.memorise(), At: a.turn.now()})
}

// memorise is everything that is worth keeping.
func (a *Core) memorise() *world.Memory {
	m := a.world.Memory()
	var err error
	if m.Extensions, err = a.extensions.Save(); err != nil {
		a.log.repeat(slog.LevelWarn, "state of an extension not encoded, snapshot written without it", "err", err)
	}
	return m
}

func (a *Core) memorySaved(e effect.Saved) {
	if e.Err != nil {
		a.memory.stale = true
		a.log.repeat(slog.LevelWarn, "snapshot not written", "err", e.Err)
		return
	}
	a.log.forget("snapshot not written")
}

// last returns what changed shortly before the end and is worth writing down, or nil.
func (a *Core) last() *effect.Save {
	if !a.cfg.Snapshot || !a.memory.stale || a.memory.saving || !a.open(gate.Complete) {
		return nil
	}
	return &effect.Save{Memory: a.memorise(), At: a.turn.now()}
}
