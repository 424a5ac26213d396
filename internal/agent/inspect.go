// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/core"
	"github.com/patchbay-sdn/patchbay/internal/delta"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

// The agent answers questions about itself: see [inspect.Source]. The loop copies, the asker formats. Of what there may be
// many, the loop copies a few at a time, so that no question holds it up for longer than an event does.
var _ inspect.Source = (*Agent)(nil)

var errEnded = errors.New("the agent has stopped")

// How many things the loop copies before it looks at its events again: some hundred microseconds' worth.
const (
	flowsPerStep    = 500
	portsPerStep    = 100
	segmentsPerStep = 10
	groupsPerStep   = 20
)

// ask has the loop run a function that looks and changes nothing.
func (a *Agent) ask(ctx context.Context, look func(core.View)) error {
	done := make(chan error, 1)
	question := func(v core.View) {
		// A mistake in an answer is no reason to stop wiring ports.
		err := effect.Try(nil, "answering a question", func() error { look(v); return nil })
		if err != nil {
			a.inbox.put(effect.AnswerFailed{Err: err})
			err = fmt.Errorf("answering failed: %w", err)
		}
		done <- err
	}
	select {
	case a.asked <- question:
		return <-done
	case <-a.ended:
		return errEnded
	case <-ctx.Done():
		return fmt.Errorf("the agent's loop does not answer: %w", ctx.Err())
	}
}

// Alive says whether the loop goes round.
func (a *Agent) Alive(ctx context.Context) error { return a.ask(ctx, func(core.View) {}) }

// Status implements [inspect.Source].
func (a *Agent) Status(ctx context.Context) (inspect.Status, error) {
	var s inspect.Status
	if err := a.ask(ctx, func(v core.View) { s = v.AgentStatus(); a.turns.add(&s.Totals) }); err != nil {
		return inspect.Status{}, err
	}
	if s.Errors = a.recorder.LastWarnings(); a.runner != nil { // else its process is none that runs
		s.PID = os.Getpid()
	}
	s.Totals.Warnings, s.Totals.Errors = a.recorder.Lines()
	return s, nil
}

// Bridges implements [inspect.Source].
func (a *Agent) Bridges(ctx context.Context) (list []inspect.Bridge, err error) {
	err = a.ask(ctx, func(v core.View) { list = v.AllBridges() })
	return list, err
}

// inSteps has the loop look at items, some at a time.
func inSteps[T any](ctx context.Context, a *Agent, items []T, step int, look func(core.View, T)) error {
	for chunk := range slices.Chunk(items, step) {
		err := a.ask(ctx, func(v core.View) {
			for _, item := range chunk {
				look(v, item)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Flows implements [inspect.Source].
func (a *Agent) Flows(ctx context.Context, bridge string) ([]inspect.Flow, error) {
	var names []string
	if err := a.ask(ctx, func(v core.View) { names = v.World.Bridges() }); err != nil {
		return nil, err
	}
	out := []inspect.Flow{}
	for _, name := range names {
		if bridge != "" && bridge != name {
			continue
		}
		found, err := a.flowsOf(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			out = append(out, core.FlowDocument(name, k))
		}
	}
	if bridge != "" && !slices.Contains(names, bridge) {
		return nil, fmt.Errorf("%w: bridge %s is none of this agent's", inspect.ErrNotFound, bridge)
	}
	return out, nil
}

// flowsOf copies what is known of a bridge, in the order of its tables.
func (a *Agent) flowsOf(ctx context.Context, name string) ([]delta.Known, error) {
	var next func() (delta.Known, bool)
	var stop func()
	if err := a.ask(ctx, func(v core.View) { next, stop = iter.Pull(v.Dataplane.Known(name)) }); err != nil {
		return nil, err
	}
	// A range that has not been finished is ended between questions, never beside one: ask has returned.
	defer stop()
	var all []delta.Known
	for more := true; more; {
		chunk := make([]delta.Known, 0, flowsPerStep)
		err := a.ask(ctx, func(core.View) {
			for len(chunk) < flowsPerStep {
				k, ok := next()
				if !ok {
					more = false
					return
				}
				chunk = append(chunk, k)
			}
		})
		if err != nil {
			return nil, err
		}
		all = append(all, chunk...)
	}
	// One that changed meanwhile may have come twice: what was seen last counts.
	slices.SortStableFunc(all, func(x, y delta.Known) int { return x.Key.Compare(y.Key) })
	slices.Reverse(all)
	all = slices.CompactFunc(all, func(x, y delta.Known) bool { return x.Key == y.Key })
	slices.Reverse(all)
	return all, nil
}

// Events implements [inspect.Source]. It does not need the loop.
func (a *Agent) Events(context.Context) ([]inspect.Event, error) { return a.recorder.Events(), nil }

// Ports implements [inspect.Source].
func (a *Agent) Ports(ctx context.Context) ([]inspect.Port, error) {
	var ids []string
	if err := a.ask(ctx, func(v core.View) { ids = v.World.PortIDs() }); err != nil {
		return nil, err
	}
	copies := make([]core.PortCopy, 0, len(ids))
	err := inSteps(ctx, a, ids, portsPerStep, func(v core.View, id string) {
		if p := v.World.Port(id); p != nil {
			copies = append(copies, v.CopyPort(p))
		}
	})
	if err != nil {
		return nil, err
	}
	counters := readCounters(ctx, a.cfg.Statistics)
	out := make([]inspect.Port, len(copies))
	for i := range copies {
		out[i] = copies[i].Document()
		out[i].Counters = counters(out[i].Interface)
	}
	return out, nil
}
