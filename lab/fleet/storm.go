// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// storms are what happens to all agents at once. Each says what it was.
var storms = map[string]func(*Fleet, context.Context) (string, error){
	"broker":  (*Fleet).brokerStorm,
	"restart": (*Fleet).restartStorm,
	"server":  (*Fleet).serverStorm,
	"group":   (*Fleet).groupStorm,
}

// storm has one storm after the other, each until all agents are in sync again.
func (f *Fleet) storm(ctx context.Context, r *Result) (string, error) {
	for _, name := range f.cfg.Storms {
		f.disturb()
		began, before := time.Now(), f.usage.now(&f.counts)
		f.usage.takePeak()
		what, err := storms[name](f, ctx)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		took, err := f.awaitSync(ctx, "storm: "+name, began)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		s := Storm{Name: name, What: what, InSync: took.Seconds(), Cost: f.usage.now(&f.counts).since(before), Busiest: f.busiest(began), Peak: f.usage.takePeak()}
		heap, _ := memory()
		s.Heap = heap / int64(f.cfg.Agents)
		if s.Depth, err = f.depth(ctx); err != nil {
			return "", err
		}
		r.Storms = append(r.Storms, s)
		f.tell("storm: "+name, s.Cost.String(), true, took)
	}
	return "", nil
}

// brokerStorm kills the broker, and changes something while it is away.
func (f *Fleet) brokerStorm(ctx context.Context) (string, error) {
	began := time.Now()
	if err := f.broker.Kill(); err != nil {
		return "", err
	}
	if err := f.brokerBack(ctx); err != nil {
		return "", err
	}
	up := time.Since(began)
	// Nobody hears of these in time: agents come back one after the other, and find them when they ask.
	err := f.rules(ctx, f.common, 1)
	return fmt.Sprintf("broker killed -9, accepts logins again after %.1f s, then a rule for all", up.Seconds()), err
}

// restartTime is the time within which all agents are restarted.
const restartTime = time.Minute

// restartStorm restarts all agents, a third of them by a crash, within a minute.
func (f *Fleet) restartStorm(ctx context.Context) (string, error) {
	pause := min(restartTime/time.Duration(len(f.hosts)), time.Duration(float64(time.Second)/f.cfg.StartRate))
	began := time.Now()
	for i, h := range f.hosts {
		wait, crash := h.end(i%3 == 0), i%3 == 0
		f.work.Go(func() {
			if !crash {
				wait()
			}
			_ = h.start(ctx, f)
		})
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Until(began.Add(time.Duration(i+1) * pause))):
		}
	}
	f.work.Wait()
	return fmt.Sprintf("all agents restarted within %.1f s, a third of them crashed", time.Since(began).Seconds()), nil
}

// hangTime is how long the server of a storm answers nobody. Agents give their calls up and ask again meanwhile.
const hangTime = 75 * time.Second

// serverStorm has the server answer nobody while ports and rules change.
func (f *Fleet) serverStorm(ctx context.Context) (string, error) {
	resume := f.server.Hang()
	defer resume()
	began, n := time.Now(), 0
	for kinds := []string{"plug", "rule", "delete", "move"}; time.Since(began) < hangTime; n++ {
		h := f.hosts[f.rnd.IntN(len(f.hosts))]
		if err := events[kinds[n%len(kinds)]].run(f, ctx, h); err != nil {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Duration(3 * float64(time.Second) / f.cfg.Rate)):
		}
	}
	f.disturb()
	return fmt.Sprintf("server answers nobody for %.0f s, %d changes meanwhile", hangTime.Seconds(), n), nil
}

// groupChanges is how often the group that all ports have is changed.
const groupChanges = 100

// groupStorm changes the group that has a member on every host.
func (f *Fleet) groupStorm(ctx context.Context) (string, error) {
	began := time.Now()
	err := f.rules(ctx, f.common, groupChanges)
	return fmt.Sprintf("a group with ports on all hosts changed %d times in %.1f s", groupChanges, time.Since(began).Seconds()), err
}

// rules changes a group so many times: two rules come, one goes.
func (f *Fleet) rules(ctx context.Context, group string, n int) error {
	var made []string
	for i := range n {
		if i%3 == 2 {
			if err := f.server.DeleteRule(ctx, made[0]); err != nil {
				return err
			}
			made = made[1:]
			continue
		}
		port := 1 + f.rnd.IntN(65534)
		r, err := f.server.CreateRule(ctx, region.RuleSpec{GroupID: group, Direction: "ingress", EtherType: "IPv4", Protocol: "udp", PortMin: &port, PortMax: &port})
		if err != nil {
			return err
		}
		made = append(made, r.ID)
	}
	return nil
}
