// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"
)

// Boots is how a storm of boots went.
type Boots struct {
	// Carried is the highest rate at which ports became ACTIVE as quickly as they came, in boots a second.
	Carried float64 `json:"highest_rate"`
	Phases  []Phase `json:"phases"`
}

// Phase is a time with boots at one rate.
type Phase struct {
	Cost
	Name     string      `json:"name"`
	Rate     float64     `json:"boots_per_second"`
	Seconds  float64     `json:"seconds_of_boots"`
	Boots    int         `json:"boots"`
	Deletes  int         `json:"deletes"`
	ToActive Percentiles `json:"boot_to_active"`
	// Waiting are ports that are not ACTIVE at the end, Depth what waits in the broker then.
	Waiting int   `json:"waiting"`
	Depth   Depth `json:"queues"`
}

const (
	// stepTime is how long a rate is tried for at least, and stepBoots for how many boots.
	stepTime, stepBoots = 10 * time.Second, 5
	// stepFactor is from one rate that is tried to the next.
	stepFactor = 1.5
	// firstRate is the first that is tried, times the number of agents: each boot is told to all.
	firstRate = 250
	// life is how long a VM is there after its port became ACTIVE.
	life = 3 * time.Second
	// lag is how far agents may be behind at the end of a rate that is carried.
	lag = 2 * time.Second
	// mostSteps bounds the search.
	mostSteps = 16
)

// boot is a VM that was booted.
type boot struct {
	h  *host
	v  *vm
	at time.Time // when it was made; of one that is ACTIVE, when that was
}

// booting boots VMs, and deletes them when they have been there for a while.
type booting struct {
	f           *Fleet
	waiting, up []boot // the oldest first
	took        []time.Duration
}

// bootStorm looks for the highest rate of boots that is carried, keeps it up, and then has twice as many.
func (f *Fleet) bootStorm(ctx context.Context, s *Storm) error {
	b := &booting{f: f}
	s.Boots = &Boots{}
	rate := firstRate / float64(f.cfg.Agents)
	for range mostSteps {
		p, err := b.phase(ctx, "tried", rate, max(stepTime, time.Duration(stepBoots/rate*float64(time.Second))))
		if err != nil {
			return err
		}
		s.Boots.Phases = append(s.Boots.Phases, p)
		if !p.carried(f.cfg.Agents) {
			break
		}
		s.Boots.Carried = rate
		rate *= stepFactor
	}
	if s.Boots.Carried == 0 {
		return fmt.Errorf("%.2f boots a second are not carried, and none fewer were tried", rate)
	}
	for _, next := range []struct {
		name string
		rate float64
		time time.Duration
	}{{"highest", s.Boots.Carried, f.cfg.Boots}, {"twice", 2 * s.Boots.Carried, f.cfg.Boots / 5}} {
		if err := b.catchUp(ctx); err != nil {
			return err
		}
		p, err := b.phase(ctx, next.name, next.rate, next.time)
		if err != nil {
			return err
		}
		s.Boots.Phases = append(s.Boots.Phases, p)
	}
	began := time.Now()
	if err := b.catchUp(ctx); err != nil {
		return err
	}
	s.What = fmt.Sprintf("%.2f boots a second are carried; after twice as many all ports are ACTIVE within %.1f s", s.Boots.Carried, time.Since(began).Seconds())
	return b.clear(ctx)
}

// carried says whether agents kept up with a rate.
func (p *Phase) carried(agents int) bool {
	pushes := float64(p.Deliveries) / float64(agents) / p.Cost.Seconds // a second, to each agent
	// One boot more or less is the moment at which the phase ended.
	return float64(p.Boots+1) >= 0.9*p.Rate*p.Seconds &&
		float64(p.Waiting) <= 1+p.Rate*lag.Seconds() &&
		float64(p.Depth.Messages) <= float64(agents)*(1+pushes*lag.Seconds())
}

// phase boots VMs at a rate for a time.
func (b *booting) phase(ctx context.Context, name string, rate float64, length time.Duration) (Phase, error) {
	p := Phase{Name: name, Rate: rate}
	began, before, told := time.Now(), b.f.usage.now(&b.f.counts), time.Now()
	b.took = nil
	for time.Since(began) < length {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return p, err
		}
		b.look()
		n, err := b.retire(ctx, time.Now().Add(-life))
		if err != nil {
			return p, err
		}
		p.Deletes += n
		// A turn makes few, so that one that takes long does not hold up the look at the others.
		for range min(5, int(rate*time.Since(began).Seconds())-p.Boots) {
			if err := b.boot(ctx); err != nil {
				return p, err
			}
			p.Boots++
		}
		if time.Since(told) > time.Second {
			told = time.Now()
			b.f.tell("storm: boots", fmt.Sprintf("%s: %.2f a second, %d booted, %d not ACTIVE", name, rate, p.Boots, len(b.waiting)), false, time.Since(began))
		}
	}
	b.look()
	p.Seconds, p.Waiting = time.Since(began).Seconds(), len(b.waiting)
	p.Cost, p.ToActive = b.f.usage.now(&b.f.counts).since(before), percentiles(b.took)
	var err error
	p.Depth, err = b.f.depth(ctx)
	return p, err
}

// boot makes a port on a host that is drawn, and plugs it in.
func (b *booting) boot(ctx context.Context) error {
	h := b.f.hosts[b.f.rnd.IntN(len(b.f.hosts))]
	began := time.Now()
	if err := b.f.plug(ctx, h); err != nil {
		return err
	}
	b.waiting = append(b.waiting, boot{h, h.vms[len(h.vms)-1], began})
	return nil
}

// look finds ports that have become ACTIVE.
func (b *booting) look() {
	now := time.Now()
	var left []boot
	for _, one := range b.waiting {
		if b.f.server.Status(one.v.id) != "ACTIVE" {
			left = append(left, one)
			continue
		}
		b.took = append(b.took, now.Sub(one.at))
		one.at = now
		b.up = append(b.up, one)
	}
	b.waiting = left
}

// retire deletes VMs whose port became ACTIVE before a moment, and tells how many.
func (b *booting) retire(ctx context.Context, before time.Time) (n int, err error) {
	for ; len(b.up) > 0 && b.up[0].at.Before(before); b.up = b.up[1:] {
		one := b.up[0]
		b.f.unplug(one.h, one.v)
		if err := b.f.forget(ctx, one.h, one.v); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// catchUp waits until all ports are ACTIVE and no message waits.
func (b *booting) catchUp(ctx context.Context) error {
	for began := time.Now(); ; {
		b.look()
		if len(b.waiting) == 0 {
			break
		}
		if time.Since(began) > b.f.cfg.Settle {
			return fmt.Errorf("%d ports are not ACTIVE after %s, such as %s on %s", len(b.waiting), b.f.cfg.Settle, b.waiting[0].v.id, b.waiting[0].h.name)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	_, err := b.f.held(ctx, "storm: boots")
	return err
}

// clear deletes all VMs that are left.
func (b *booting) clear(ctx context.Context) error {
	_, err := b.retire(ctx, time.Now().Add(time.Hour))
	return err
}
