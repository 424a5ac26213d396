// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
)

// memory is where the written copy of the world stands.
type memory struct {
	room
	stale  bool // the world has changed since it was written
	saving bool
	next   time.Time // not before
}

// savePause separates snapshots: after it a change is on disk, and no burst of changes writes more often.
const savePause = 5 * time.Second

// changed takes that the world is not as it was written any more.
func (m *memory) changed() { m.stale = true }

// unsaved returns whether the written copy is not what is known now, or is being written.
func (m *memory) unsaved() bool { return m.cfg.Snapshot && (m.stale || m.saving) }

// worth returns whether there is something to write, and nothing is being written.
func (m *memory) worth() bool { return m.cfg.Snapshot && m.stale && !m.saving }

// due returns whether the world is to be written down now, if it is in sync: what is wrong or half known is not worth keeping.
func (m *memory) due() bool {
	if !m.worth() {
		return false
	}
	if m.now().Before(m.next) {
		m.wakeUp(m.next)
		return false
	}
	m.next = m.now().Add(savePause)
	return true
}

// keep takes that the world is written down now, if it is in sync, and returns whether it is.
func (m *memory) keep(inSync bool) bool {
	if inSync {
		m.stale, m.saving = false, true
	} else {
		m.wakeUp(m.next)
	}
	return inSync
}

// saved takes the outcome.
func (m *memory) saved(e effect.Saved) {
	if e.Err != nil {
		m.stale = true
		m.log.repeat(slog.LevelWarn, "snapshot not written", "err", e.Err)
		return
	}
	m.log.forget("snapshot not written")
}
