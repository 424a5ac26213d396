// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// event is a kind of change, and how often it is drawn beside the others.
type event struct {
	weight int
	run    func(*Fleet, context.Context, *host) error
}

var events = map[string]event{
	"plug":   {4, (*Fleet).plug},
	"delete": {4, (*Fleet).delete},
	"move":   {3, (*Fleet).move},
	"rule":   {6, (*Fleet).rule},
	"agent":  {1, (*Fleet).loseAgent},
	"switch": {1, (*Fleet).loseSwitch},
	"server": {1, (*Fleet).loseServer},
	"broker": {1, (*Fleet).loseBroker},
}

// DefaultEvents are the changes that happen unless others are named: of ports and groups, and agents and switches that are lost.
func DefaultEvents() []string { return []string{"plug", "delete", "move", "rule", "agent", "switch"} }

func sortedNames[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// draw draws a kind of change and a host.
func (f *Fleet) draw() (string, *host) {
	total := 0
	for _, name := range f.cfg.Events {
		total += events[name].weight
	}
	n, h := f.rnd.IntN(total), f.hosts[f.rnd.IntN(len(f.hosts))]
	for _, name := range f.cfg.Events {
		if n -= events[name].weight; n < 0 {
			return name, h
		}
	}
	return f.cfg.Events[0], h // never
}

// churn changes ports and groups, as often as the rate of messages allows.
func (f *Fleet) churn(ctx context.Context, r *Result) (string, error) {
	if f.cfg.For <= 0 {
		return "", nil
	}
	began, before := time.Now(), f.usage.now(&f.counts)
	tick := time.NewTicker(min(100*time.Millisecond, time.Duration(float64(time.Second)/f.cfg.Rate)))
	defer tick.Stop()
	f.counts.takeConfirms() // those of the start
	sent := f.server.SentToAll()
	counted, told := map[string]int{}, began
	c := &r.Changes
	for time.Since(began) < f.cfg.For {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
		if c.Pushes = f.server.SentToAll() - sent; float64(c.Pushes) > f.cfg.Rate*time.Since(began).Seconds() {
			continue
		}
		name, h := f.draw()
		if err := events[name].run(f, ctx, h); err != nil {
			return "", fmt.Errorf("%s on %s: %w", name, h.name, err)
		}
		counted[name]++
		c.Count++
		if time.Since(told) > time.Second {
			told = time.Now()
			f.tell("changes", fmt.Sprintf("%d changes, %d deliveries", c.Count, f.counts.deliveries.Load()), false, time.Since(began))
		}
	}
	c.By = counted
	c.Cost = f.usage.now(&f.counts).since(before)
	depth, err := f.depth(ctx)
	if err != nil {
		return "", err
	}
	c.Depth = depth
	f.work.Wait()
	c.Confirm = percentiles(f.counts.takeConfirms())
	return fmt.Sprintf("%d changes, %d messages to all: %s", c.Count, c.Pushes, c.Cost), nil
}

// plug makes a port and plugs it in. Every host of the project gets to know a member.
func (f *Fleet) plug(ctx context.Context, h *host) error {
	began, ip := time.Now(), h.of.free()
	for _, other := range h.of.hosts {
		if other != h && len(other.vms) > 0 {
			other.watch(watch{kind: "member", since: began, field: "nw_src=" + ip.String(), times: f.times})
		}
	}
	v, err := f.create(ctx, h, ip)
	if err != nil {
		return err
	}
	f.arrive(h, v)
	return nil
}

// arrive plugs a VM in.
func (f *Fleet) arrive(h *host, v *vm) {
	h.number(v)
	h.watch(watch{kind: "plug", since: time.Now(), field: fmt.Sprintf("in_port=%d", v.ofport), times: f.times})
	h.plug(v)
	h.vms = append(h.vms, v)
}

// leave unplugs a VM that is drawn. One stays.
func (f *Fleet) leave(h *host) *vm {
	if len(h.vms) < 2 {
		return nil
	}
	v := h.vms[f.rnd.IntN(len(h.vms))]
	f.unplug(h, v)
	return v
}

// unplug unplugs a VM.
func (f *Fleet) unplug(h *host, v *vm) {
	h.vms = slices.DeleteFunc(h.vms, func(other *vm) bool { return other == v })
	field := fmt.Sprintf("in_port=%d", v.ofport)
	h.overtaken(field)
	h.watch(watch{kind: "unplug", since: time.Now(), field: field, gone: true, times: f.times})
	h.unplug(v)
}

// delete unplugs a VM and deletes its port.
func (f *Fleet) delete(ctx context.Context, h *host) error {
	v := f.leave(h)
	if v == nil {
		return f.plug(ctx, h)
	}
	return f.forget(ctx, h, v)
}

// forget deletes the port of a VM that was unplugged.
func (f *Fleet) forget(ctx context.Context, h *host, v *vm) error {
	field := "nw_src=" + v.ip.String()
	delete(h.of.used, v.ip)
	for _, other := range h.of.hosts {
		other.overtaken(field)
		if other != h && len(other.vms) > 0 {
			other.watch(watch{kind: "member", since: time.Now(), field: field, gone: true, times: f.times})
		}
	}
	return f.server.DeletePort(ctx, v.id)
}

// move has a VM migrate to another host of the project.
func (f *Fleet) move(ctx context.Context, h *host) error {
	to := h.of.hosts[f.rnd.IntN(len(h.of.hosts))]
	v := f.leave(h)
	if v == nil || to == h {
		if v != nil {
			f.arrive(h, v)
			return nil
		}
		return f.plug(ctx, h)
	}
	if _, err := f.server.UpdatePort(ctx, v.id, region.PortSpec{Host: &to.name}); err != nil {
		return err
	}
	f.arrive(to, v)
	return nil
}

// rulesEach is how many rules of the churn a project's group has at most.
const rulesEach = 4

// rule adds a rule to the group of a project, or takes one away.
func (f *Fleet) rule(ctx context.Context, h *host) error {
	p := h.of
	if len(p.rules) >= rulesEach {
		gone := p.rules[0]
		p.rules = p.rules[1:]
		p.watch(f.times, gone.port, true)
		return f.server.DeleteRule(ctx, gone.id)
	}
	port := 1024 + f.rnd.IntN(60000)
	if slices.ContainsFunc(p.rules, func(r rule) bool { return r.port == port }) {
		return nil
	}
	p.watch(f.times, port, false)
	r, err := f.server.CreateRule(ctx, region.RuleSpec{GroupID: p.group, Direction: "ingress", EtherType: "IPv4", Protocol: "tcp", PortMin: &port, PortMax: &port})
	if err != nil {
		return err
	}
	p.rules = append(p.rules, rule{r.ID, port})
	return nil
}

// watch waits on all hosts of the project for a rule about a port.
func (p *project) watch(t *times, port int, gone bool) {
	field := fmt.Sprintf("tp_dst=%d", port)
	for _, h := range p.hosts {
		h.overtaken(field)
		if len(h.vms) > 0 {
			h.watch(watch{kind: "rule", since: time.Now(), field: field, gone: gone, times: t})
		}
	}
}

// away is how long an agent or a server is away, in the churn.
const away = 3 * time.Second

// loseAgent has the agent of a host crash, and another one start after a while.
func (f *Fleet) loseAgent(ctx context.Context, h *host) error {
	wait := h.end(true)
	f.work.Go(func() {
		wait()
		select {
		case <-ctx.Done():
			return
		case <-time.After(away):
		}
		_ = h.start(ctx, f) // what it was started with before
	})
	return nil
}

// loseSwitch has the switch of a host lose all flows.
func (f *Fleet) loseSwitch(_ context.Context, h *host) error {
	h.disturb()
	h.ovs.Restart()
	return nil
}

// loseServer has the server answer nobody for a while.
func (f *Fleet) loseServer(ctx context.Context, _ *host) error {
	f.disturb()
	resume := f.server.Hang()
	f.work.Go(func() {
		defer resume()
		select {
		case <-ctx.Done():
		case <-time.After(away):
		}
	})
	return nil
}

// loseBroker kills the broker and starts it again.
func (f *Fleet) loseBroker(ctx context.Context, _ *host) error {
	f.disturb()
	if err := f.broker.Kill(); err != nil {
		return err
	}
	return f.brokerBack(ctx)
}

func (f *Fleet) disturb() {
	for _, h := range f.hosts {
		h.disturb()
	}
}

// counted writes counts by name.
func counted(by map[string]int) string {
	var parts []string
	for _, name := range sortedNames(by) {
		parts = append(parts, fmt.Sprintf("%s %d", name, by[name]))
	}
	return strings.Join(parts, ", ")
}
