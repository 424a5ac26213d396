// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Progress is told once for every finished step.
type Progress struct {
	Step string
	// Took is the time of the step itself, without the wait for others.
	Took time.Duration
	// Note says what was done, or that nothing was needed.
	Note string
	Err  error
}

// step is one thing to bring about. Steps run at once as far as their order allows.
type step struct {
	name  string
	after []string
	run   func(context.Context) (note string, err error)
}

// errSkipped marks steps that were not run because one before them failed.
var errSkipped = errors.New("not run")

// runSteps runs all steps, each after those it names, and waits for all. The first failure ends the waiting of the others;
// the errors of all that failed are returned. Reports are not concurrent.
func runSteps(ctx context.Context, steps []step, report func(Progress)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		done chan struct{}
		err  error
	}
	all := make(map[string]*outcome, len(steps))
	for _, s := range steps {
		all[s.name] = &outcome{done: make(chan struct{})}
	}
	var mu sync.Mutex
	var failed []error
	var wg sync.WaitGroup
	for _, s := range steps {
		wg.Go(func() {
			o := all[s.name]
			defer close(o.done)
			for _, name := range s.after {
				<-all[name].done
				if all[name].err != nil {
					o.err = errSkipped
					return
				}
			}
			if ctx.Err() != nil {
				o.err = errSkipped
				return
			}
			start := time.Now()
			note, err := s.run(ctx)
			o.err = err
			mu.Lock()
			defer mu.Unlock()
			// What fails because something else failed first is not worth a line.
			if err != nil && len(failed) > 0 && ctx.Err() != nil {
				return
			}
			if report != nil {
				report(Progress{Step: s.name, Took: time.Since(start), Note: note, Err: err})
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
				cancel()
			}
		})
	}
	wg.Wait()
	if len(failed) == 0 && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(failed...)
}
