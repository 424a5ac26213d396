// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// storms are what happens to all agents at once. Each notes what it was.
var storms = map[string]func(*Fleet, context.Context, *Storm) error{
	"broker":  (*Fleet).brokerStorm,
	"restart": (*Fleet).restartStorm,
	"server":  (*Fleet).serverStorm,
	"group":   (*Fleet).groupStorm,
	"boots":   (*Fleet).bootStorm,
}

// storm has one storm after the other, each until all agents are in sync again and no message waits.
func (f *Fleet) storm(ctx context.Context, r *Result) (string, error) {
	for _, name := range f.cfg.Storms {
		s, err := f.oneStorm(ctx, name)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		r.Storms = append(r.Storms, *s)
		text := s.Cost.String()
		if len(s.Grown) > 0 {
			text += "; grown: " + strings.Join(s.Grown, ", ")
		}
		f.tell("storm: "+name, text, true, time.Duration(s.InSync*float64(time.Second)))
	}
	return "", nil
}

func (f *Fleet) oneStorm(ctx context.Context, name string) (*Storm, error) {
	part := "storm: " + name
	s := &Storm{Name: name}
	var err error
	if s.Before, err = f.held(ctx, part); err != nil {
		return nil, err
	}
	if err := f.heapProfile(name + "-before"); err != nil {
		return nil, err
	}
	f.disturb()
	began, before := time.Now(), f.usage.now(&f.counts)
	methods, failed := f.counts.methods()
	f.usage.takePeak()
	if err := storms[name](f, ctx, s); err != nil {
		return nil, err
	}
	f.work.Wait()
	s.Lasted = time.Since(began).Seconds()
	took, err := f.awaitSync(ctx, part, began)
	if err != nil {
		return nil, err
	}
	s.InSync, s.Cost = took.Seconds(), f.usage.now(&f.counts).since(before)
	if s.After, err = f.held(ctx, part); err != nil {
		return nil, err
	}
	if err := f.heapProfile(name + "-after"); err != nil {
		return nil, err
	}
	s.Peak, s.Series = f.usage.takePeak(), f.seriesSince(began)
	s.Busiest, s.Grown = busiest(s.Series), grown(s.Before, s.After)
	all, bad := f.counts.methods()
	s.Methods, s.Failed = more(all, methods), more(bad, failed)
	return s, nil
}

// brokerStorm kills the broker, and changes something while it is away.
func (f *Fleet) brokerStorm(ctx context.Context, s *Storm) error {
	began := time.Now()
	if err := f.broker.Kill(); err != nil {
		return err
	}
	if err := f.brokerBack(ctx); err != nil {
		return err
	}
	s.What = fmt.Sprintf("broker killed -9, accepts logins again after %.1f s, then a rule for all", time.Since(began).Seconds())
	// Nobody hears of it in time: agents come back one after the other, and find it when they ask.
	return f.rules(ctx, f.common, 1)
}

// restartTime is the time within which all agents are restarted.
const restartTime = time.Minute

// restartStorm restarts all agents, a third of them by a crash, within a minute.
func (f *Fleet) restartStorm(ctx context.Context, s *Storm) error {
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
			return ctx.Err()
		case <-time.After(time.Until(began.Add(time.Duration(i+1) * pause))):
		}
	}
	f.work.Wait()
	s.What = fmt.Sprintf("all agents restarted within %.1f s, a third of them crashed", time.Since(began).Seconds())
	return nil
}

// serverStorm has the server answer nobody while ports and rules change. Agents give their calls up and ask again meanwhile.
func (f *Fleet) serverStorm(ctx context.Context, s *Storm) error {
	resume := f.server.Hang()
	defer resume()
	began, n := time.Now(), 0
	for kinds := []string{"plug", "rule", "delete", "move"}; time.Since(began) < f.cfg.Away; n++ {
		h := f.hosts[f.rnd.IntN(len(f.hosts))]
		if err := events[kinds[n%len(kinds)]].run(f, ctx, h); err != nil {
			return err
		}
		if err := pause(ctx, time.Duration(3*float64(time.Second)/f.cfg.Rate)); err != nil {
			return err
		}
	}
	f.disturb()
	s.What = fmt.Sprintf("server answers nobody for %.0f s, %d changes meanwhile", f.cfg.Away.Seconds(), n)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// groupChanges is how often the group that all ports have is changed.
const groupChanges = 100

// groupStorm changes the group that has a member on every host.
func (f *Fleet) groupStorm(ctx context.Context, s *Storm) error {
	began := time.Now()
	err := f.rules(ctx, f.common, groupChanges)
	s.What = fmt.Sprintf("a group with ports on all hosts changed %d times in %.1f s", groupChanges, time.Since(began).Seconds())
	return err
}

// rules changes a group so many times: rules come and go, and two stay, so that it has as many flows in the end as at the start, nearly.
func (f *Fleet) rules(ctx context.Context, group string, n int) error {
	var made []string
	for range n {
		if len(made) > 2 {
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
