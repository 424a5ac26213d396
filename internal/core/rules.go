// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/hybrid"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// filters are what filters ports besides flows: the zones of connection tracking, and rules of iptables.
type filters struct {
	zones tracking
	rules rules
}

// rules has iptables filter ports, as package hybrid decides.
type rules struct {
	room
	*hybrid.Room // nil: it filters none
}

func newRules(r room) rules {
	if r.cfg.Rules == nil {
		return rules{room: r}
	}
	return rules{r, hybrid.New(*r.cfg.Rules, !r.cfg.World.Hybrid)}
}

// compiled tells of an object that was compiled.
func (r *rules) compiled(o world.Object) {
	if r.Room == nil {
		return
	}
	switch o := o.(type) {
	case world.PortObject:
		r.Port(r.world, string(o))
	case world.PeerObject:
		r.Peer()
	}
}

// startJob starts the job that is due. Open says whether everything is known that could want a rule.
func (r *rules) startJob(d *dataplane.Dataplane, open func() bool) {
	if r.Room == nil || !d.Bridge(r.cfg.World.IntegrationBridge).Known && !r.Seen() {
		return // whether flows filter is not known yet
	}
	now := r.now()
	job, due := r.Next(r.world, now, open, func(id string) bool {
		return d.Status(r.world.View, world.PortObject(id)) == dataplane.Applied
	})
	if due {
		r.act(hybrid.Out{Job: &job})
	}
	if r.wakeUp(r.WakeAt(now)); r.world.HasChanges() {
		r.wakeUp(now)
	}
}

// flowsRead takes what is on a bridge: ports that flows filter, of an earlier driver, need no rules yet.
func (r *rules) flowsRead(e dataplane.Reading) {
	if r.Room == nil || e.Err != nil || e.Bridge != r.cfg.World.IntegrationBridge {
		return
	}
	led, filtered := ledToFilters(e.Flows), map[string]bool{}
	for _, id := range r.world.PortIDs() {
		if vif := r.world.Port(id).VIF; vif != nil && led[uint64(vif.OFPort)] {
			filtered[id] = true
		}
	}
	r.Inherit(r.world, filtered)
}

// ended takes the outcome of a job, the last kind of events.
func (r *rules) ended(e effect.Event) {
	switch e := e.(type) {
	case effect.RulesRead:
		r.act(r.Read(r.world, e.State, e.Other, e.Asked, e.Err, r.now()))
	case effect.RulesApplied:
		r.act(r.Applied(r.world, e.Changes, e.Err, r.now()))
	case effect.ConnectionsEnded:
		r.act(r.Ended(e.N, e.Err, r.now()))
	default:
		panic(fmt.Sprintf("event %T has no place in the loop", e))
	}
}

// act does what an input leads to.
func (r *rules) act(out hybrid.Out) {
	for _, l := range out.Logs {
		if l.Level == slog.LevelWarn {
			r.log.repeat(l.Level, l.Message, l.Args...)
		} else {
			r.log.Log(context.Background(), l.Level, l.Message, l.Args...) //nolint:sloglint // the messages of package hybrid are constants
		}
	}
	switch job := out.Job; {
	case job == nil:
	case job.Read:
		r.start(effect.ReadRules{Other: job.Other})
	case job.Apply != nil:
		r.start(effect.ApplyRules{Changes: job.Apply})
	default:
		r.start(effect.EndConnections{Connections: job.End})
	}
}

// inherits returns how many ports flows filter, because they have no rules yet.
func (r *rules) inherits() int {
	if r.Room == nil {
		return 0
	}
	return r.Inherited(r.world)
}

// lines are the rules of a port, for people.
func (r *rules) lines(id string) (out []string) {
	if r.Room == nil {
		return nil
	}
	for _, l := range r.Lines(id) {
		out = append(out, l.String())
	}
	return out
}

// blocking returns whether rules may not be as wanted yet, and why they do not filter as they should.
func (r *rules) blocking() (busy bool, faults []string) {
	if r.Room == nil {
		return false, nil
	}
	return r.Busy(r.world), r.Faults()
}

// filterPriority is that of the flows that lead packets of ports to filters.
const filterPriority = 100

// ledToFilters returns the numbers of the ports whose packets flows lead to filters.
func ledToFilters(entries []openflow.Entry) map[uint64]bool {
	out := map[uint64]bool{}
	for _, e := range entries {
		if e.Table() != pipeline.TableTransient || e.Priority() != filterPriority {
			continue
		}
		if f, err := e.Flow(); err == nil {
			if from, ok := f.Match.Lookup(openflow.InPort); ok {
				out[from.Value.Lo] = true
			}
		}
	}
	return out
}
