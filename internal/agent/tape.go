// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/snapshot"
	"github.com/patchbay-sdn/patchbay/internal/tape"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Tape is what the agent uses of *tape.Recorder. Its methods must not wait.
type Tape interface {
	Begin(h tape.Header)
	Put(in tape.Input)
}

// beginTape has recorded what the core begins with.
func (a *Agent) beginTape(decisions *core.Config, saved *core.Saved, now time.Time) {
	if a.cfg.Tape == nil {
		return
	}
	h := tape.HeaderOf(decisions, saved, now)
	h.Extensions = a.cfg.ExtensionsMade
	a.cfg.Tape.Begin(h)
}

// recall returns what an earlier run wrote down, or nil.
func (a *Agent) recall() *core.Saved {
	if a.cfg.Snapshot == "" {
		if a.cfg.Memory == nil {
			return nil
		}
		return &core.Saved{Memory: a.cfg.Memory}
	}
	var out *core.Saved
	err := effect.Try(nil, "recalling", func() (err error) {
		out, err = a.readSnapshot()
		return err
	})
	if err != nil {
		a.log.Warn("snapshot not usable, starting without it", "err", err)
	}
	return out
}

// readSnapshot reads what an earlier run wrote down. It returns nothing for the first start.
func (a *Agent) readSnapshot() (*core.Saved, error) {
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
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the first start
	}
	if err != nil {
		return nil, err
	}
	return &core.Saved{Memory: m, Written: written}, nil
}
