// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

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

// begin has recorded what a core begins with.
func begin(t Tape, h tape.Header, made json.RawMessage) {
	if h.Extensions = made; t != nil {
		t.Begin(h)
	}
}

// recall returns what an earlier run wrote down, or nil.
func recall(file string, memory *world.Memory, log *slog.Logger) *core.Saved {
	if file == "" {
		if memory == nil {
			return nil
		}
		return &core.Saved{Memory: memory}
	}
	var out *core.Saved
	err := effect.Try(nil, "recalling", func() (err error) {
		out, err = readSnapshot(file, log)
		return err
	})
	if err != nil {
		log.Warn("snapshot not usable, starting without it", "err", err)
	}
	return out
}

// readSnapshot reads what an earlier run wrote down. It returns nothing for the first start.
func readSnapshot(file string, log *slog.Logger) (*core.Saved, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		log.Warn("directory of the snapshot not created", "err", err)
	}
	switch n, err := snapshot.RemoveUnfinished(file); {
	case err != nil:
		log.Warn("unfinished snapshots not removed", "err", err)
	case n > 0:
		log.Info("unfinished snapshots removed", "files", n)
	}
	m := &world.Memory{}
	written, err := snapshot.Load(file, world.MemoryVersion, m)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the first start
	}
	if err != nil {
		return nil, err
	}
	return &core.Saved{Memory: m, Written: written}, nil
}
