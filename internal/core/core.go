// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
)

// Core makes the agent's decisions: it hands events to its parts, and has each of them take its consequences in turn. It has one owner. Make it
// with [New].
type Core struct {
	room
	dataplane  *dataplane.Dataplane
	contained  containment
	resyncing  resyncing
	server     server
	bridges    bridges
	extensions extensions
	pulls      pulls
	reports    reports
	filters
	memory memory
	seen   seen
}

// New returns a core that begins at a time, with what an earlier run wrote down, or nothing.
func New(cfg Config, saved *Saved, now time.Time) *Core {
	cfg.FDBGrace = cmp.Or(cfg.FDBGrace, fdbGrace)
	r := newRoom(&cfg, now)
	rnd := rand.New(rand.NewPCG(cfg.Seed, 0)) //nolint:gosec // no secret
	c := &Core{
		room: r, dataplane: dataplane.New(r.world.Bridges()), contained: newContainment(r), seen: newSeen(r), memory: memory{room: r},
		resyncing: resyncing{room: r, rnd: rnd, losses: pace.Backoff[struct{}]{}}, server: server{room: r, rnd: rnd, report: reporting{start: true}},
		filters: filters{
			zones: tracking{room: r, Zones: zones.New(), limits: zones.NewLimits(cfg.ConntrackLimit, cfg.DropFragments)}, rules: newRules(r),
		},
	}
	c.world.Time, c.world.Contain, c.world.Mend = now, c.contained.inWorld, c.contained.mend
	c.dataplane.Contain = func(o world.Object, work func()) bool {
		done, mended := c.contained.inRows(o, work)
		if id, ok := world.PortID(o); ok && mended {
			c.reports.Changed(id) // it may be reported now
		}
		return done
	}
	c.bridges = bridges{room: r, dataplane: c.dataplane, links: map[string]effect.Conn{}}
	c.extensions = newExtensions(&c.contained, &c.resyncing)
	c.reports = newReports(r, &c.resyncing.bucket)
	c.pulls = pulls{room: r, Ledger: pull.New(pullRules(), &c.resyncing.bucket), contained: &c.contained, lines: &c.reports.timelines}
	if saved != nil {
		c.contained.contain(culprit{name: "recalling"}, func() {
			c.world.Recall(saved.Memory)
			c.extensions.load(saved.Memory)
			if m := saved.Memory; !saved.Written.IsZero() {
				c.log.Info("snapshot loaded", "ports", len(m.Ports), "groups", len(m.Groups), "written", saved.Written)
			}
		})
	}
	return c
}
