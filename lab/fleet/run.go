// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/broker"
)

// start starts all agents at the rate that is wanted, and waits until all are in sync.
func (f *Fleet) start(ctx context.Context, r *Result) (string, error) {
	stop, err := f.cpuProfile("start")
	if err != nil {
		return "", err
	}
	defer stop()
	heap, resident := memory()
	before, goroutines := f.usage.now(&f.counts), runtime.NumGoroutine()
	began := time.Now()
	if err := f.startAll(ctx); err != nil {
		return "", err
	}
	took, err := f.awaitSync(ctx, "start", began)
	if err != nil {
		return "", err
	}
	stop()
	s, n := &r.Start, float64(f.cfg.Agents)
	now := f.usage.now(&f.counts)
	s.Cost, s.InSync = now.since(before), took.Seconds()
	s.BrokerCPUPerAgent, s.FleetCPUPerAgent = 1000*s.BrokerSeconds/n, 1000*s.FleetSeconds/n
	s.BrokerBytes = (now.brokerBytes - before.brokerBytes) / int64(f.cfg.Agents)
	heapNow, residentNow := memory()
	s.HeapPerAgent, s.ResidentPerAgent = (heapNow-heap)/int64(f.cfg.Agents), (residentNow-resident)/int64(f.cfg.Agents)
	s.Methods, _ = f.counts.methods()
	s.GoroutinesPerAgent = float64(runtime.NumGoroutine()-goroutines) / n
	if err := f.topology(ctx, s); err != nil {
		return "", err
	}
	if err := f.heapProfile("heap"); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d agents in sync, broker %.1f ms of CPU and %.1f bindings each", f.cfg.Agents, s.BrokerCPUPerAgent, s.Bindings), nil
}

// startAll starts the agents that do not run.
func (f *Fleet) startAll(ctx context.Context) error {
	began := time.Now()
	for i, h := range f.hosts {
		due := began.Add(time.Duration(float64(i) / f.cfg.StartRate * float64(time.Second)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(due)):
		}
		if err := h.start(ctx, f); err != nil {
			return fmt.Errorf("starting the agent of %s: %w", h.name, err)
		}
	}
	return nil
}

// topology counts bindings and channels.
func (f *Fleet) topology(ctx context.Context, s *Start) error {
	n := float64(f.cfg.Agents)
	bindings, err := f.broker.Bindings(ctx)
	if err != nil {
		return err
	}
	connections, err := f.broker.Connections(ctx)
	if err != nil {
		return err
	}
	channels := 0
	for _, c := range connections {
		channels += c.Channels
	}
	s.Bindings, s.Channels = float64(len(bindings))/n, float64(channels)/n
	return nil
}

// awaitSync waits until all agents are in sync, and returns how long after a moment the last one was.
func (f *Fleet) awaitSync(ctx context.Context, part string, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Settle)
	defer cancel()
	waiting := f.hosts
	why := ""
	for {
		var left []*host
		asked := time.Now()
		for _, h := range waiting {
			if ok, reason := h.inSync(ctx); !ok {
				left, why = append(left, h), h.name+": "+reason
			}
		}
		took := time.Since(since)
		if len(left) == 0 {
			if len(waiting) == len(f.hosts) {
				return took, nil
			}
			left = f.hosts // those of before may have gone out of sync since
		} else {
			f.tell(part, fmt.Sprintf("%d of %d in sync", len(f.hosts)-len(left), len(f.hosts)), false, took)
		}
		waiting = left
		select {
		case <-ctx.Done():
			return took, fmt.Errorf("%d agents are not in sync after %.0f s, such as %s: %w", len(left), took.Seconds(), why, ctx.Err())
		case <-time.After(askAgain(time.Since(asked))):
		}
	}
}

// askAgain is the pause before agents are asked again, of whom all were asked in the time that is given: being asked must not cost them much.
func askAgain(took time.Duration) time.Duration {
	return min(max(200*time.Millisecond, 10*took), 2*time.Second)
}

// rest measures agents that have nothing to do.
func (f *Fleet) rest(ctx context.Context, r *Result) (string, error) {
	if f.cfg.Idle <= 0 {
		return "", nil
	}
	stop, err := f.cpuProfile("rest")
	if err != nil {
		return "", err
	}
	before := f.usage.now(&f.counts)
	for left := f.cfg.Idle; left > 0; left -= time.Second {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(min(left, time.Second)):
		}
		f.tell("rest", "", false, f.cfg.Idle-left)
	}
	c := f.usage.now(&f.counts).since(before)
	stop()
	per := 1000 / c.Seconds / float64(f.cfg.Agents)
	r.Rest = Rest{Cost: c, FleetCPUPerAgent: c.FleetSeconds * per, BrokerCPUPerAgent: c.BrokerSeconds * per}
	return fmt.Sprintf("%.3f ms of CPU a second and agent", r.Rest.FleetCPUPerAgent), nil
}

// settle waits until all agents are in sync and stay so, and nothing is on its way any more.
func (f *Fleet) settle(ctx context.Context, r *Result) (string, error) {
	f.work.Wait()
	began := time.Now()
	for end := began.Add(f.cfg.Settle); ; {
		if _, err := f.awaitSync(ctx, "settle", began); err != nil {
			return "", err
		}
		r.Settled = time.Since(began).Seconds()
		depth, err := f.depth(ctx)
		if err != nil {
			return "", err
		}
		delivered := f.counts.deliveries.Load()
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(3 * time.Second):
		}
		if depth.Sent == 0 && f.counts.deliveries.Load() == delivered {
			break
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("%d messages to agents wait in the broker's queues after %s", depth.Sent, f.cfg.Settle)
		}
	}
	if _, err := f.awaitSync(ctx, "settle", began); err != nil {
		return "", err
	}
	for _, h := range f.hosts {
		r.Changes.Unseen += h.unseen()
	}
	f.times.mu.Lock()
	defer f.times.mu.Unlock()
	r.Changes.Times = map[string]Percentiles{}
	var all []time.Duration
	for kind, list := range f.times.calm {
		r.Changes.Times[kind] = percentiles(list)
		all = append(all, list...)
	}
	r.Changes.All, r.Changes.Disturbed = percentiles(all), percentiles(f.times.disturbed)
	return fmt.Sprintf("all in sync, change to flow %s", r.Changes.All), nil
}

// brokerBack starts the broker again.
func (f *Fleet) brokerBack(ctx context.Context) error {
	if _, err := broker.Start(ctx, f.broker.Config()); err != nil {
		return err
	}
	f.usage.follow(f.broker.PID())
	return nil
}

func (f *Fleet) heapProfile(name string) error {
	if f.cfg.Profile == "" {
		return nil
	}
	file, err := os.Create(filepath.Join(f.cfg.Profile, name+".pprof"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return pprof.Lookup("heap").WriteTo(file, 0)
}

func (f *Fleet) cpuProfile(name string) (stop func(), err error) {
	if f.cfg.Profile == "" {
		return func() {}, nil
	}
	file, err := os.Create(filepath.Join(f.cfg.Profile, name+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { pprof.StopCPUProfile(); _ = file.Close() }), nil
}
