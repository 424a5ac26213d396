// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/lab/sim/region"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
	"github.com/patchbay-sdn/patchbay/parity"
)

// check stops all agents and compares what they left in their switches with what fresh ones make of the same region.
func (f *Fleet) check(ctx context.Context, r *Result) (string, error) {
	for _, h := range f.hosts {
		h.end(true)
	}
	// From here on nobody is told what a fresh agent's questions lead to, but that agent.
	leaving, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_ = f.server.Leave(leaving) // queues that stay behind go with the broker
	began := time.Now()
	out, err := compare(ctx, f.server.Region, f.hosts, func(done int) {
		f.tell("flows", fmt.Sprintf("%d of %d hosts compared", done, len(f.hosts)), false, time.Since(began))
	})
	out.Seconds = time.Since(began).Seconds()
	r.Flows = out
	return fmt.Sprintf("%d flows on %d hosts, %d wrong", out.Flows, out.Hosts, out.Wrong), err
}

// atOnce is how many fresh agents there are at a time. They wait more than they work.
const atOnce = 48

// samples is how many wrong flows are named.
const samples = 20

// compare compares the flows of hosts with those of a fresh start.
func compare(ctx context.Context, of *region.Region, hosts []*host, progress func(done int)) (Flows, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		mu   sync.Mutex
		out  Flows
		errs []error
		wg   sync.WaitGroup
	)
	work := make(chan *host)
	for range atOnce {
		wg.Go(func() {
			for h := range work {
				n, wrong, err := h.differences(ctx, of)
				mu.Lock()
				out.Hosts, out.Flows, out.Wrong = out.Hosts+1, out.Flows+n, out.Wrong+len(wrong)
				if len(wrong) > 0 {
					out.Where++
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("the fresh agent of %s: %w", h.name, err))
					cancel()
				}
				out.Samples = append(out.Samples, wrong[:min(len(wrong), max(0, samples-len(out.Samples)))]...)
				if out.Hosts%100 == 0 {
					progress(out.Hosts)
				}
				mu.Unlock()
			}
		})
	}
feeding:
	for _, h := range hosts {
		select {
		case work <- h:
		case <-ctx.Done():
			break feeding
		}
	}
	close(work)
	wg.Wait()
	slices.Sort(out.Samples)
	return out, errors.Join(errs...)
}

const (
	// freshTime bounds how long the fresh agents of a host take.
	freshTime = 2 * time.Minute
	// freshRest is for how long a fresh agent has to be complete. It is for a moment between the rows of a tunnel and the number that the
	// switch gives to its port, upon which there are flows.
	freshRest = time.Second
)

// differences are how many flows a host has, and those that it has and a fresh start has not, or the other way round.
func (h *host) differences(ctx context.Context, of *region.Region) (n int, wrong []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	have, err := lines(ctx, h.ovs)
	if err != nil {
		return 0, nil, err
	}
	// An agent takes messages in a little later than answers. So the first one, which hardly waits for forwarding entries, may have missed some, and
	// what differs from its flows is looked at again.
	for _, grace := range []time.Duration{20 * time.Millisecond, 5 * time.Second} {
		fresh := h.ovs.Clone()
		if err := h.fresh(ctx, of, fresh, grace); err != nil {
			return 0, nil, err
		}
		want, err := lines(ctx, fresh)
		if err != nil {
			return 0, nil, err
		}
		if wrong = h.wrong(have, want); len(wrong) == 0 {
			break
		}
	}
	return len(have), wrong, nil
}

// wrong are the lines that only one of them has.
func (h *host) wrong(have, want map[string]bool) (wrong []string) {
	for line := range have {
		if !want[line] {
			wrong = append(wrong, h.name+" has, fresh has not: "+line)
		}
	}
	for line := range want {
		if !have[line] {
			wrong = append(wrong, h.name+" has not, fresh has: "+line)
		}
	}
	return wrong
}

// fresh runs an agent over a switch without flows until it has everything, with no broker between it and the region. Grace is how long it
// waits for forwarding entries.
func (h *host) fresh(ctx context.Context, of *region.Region, ovs *fake.OVS, grace time.Duration) error {
	var mu sync.Mutex
	var since time.Time // complete
	var missing []string
	cfg := h.config(ovs, slog.New(slog.DiscardHandler))
	cfg.FDBGrace = grace
	cfg.Progress = func(p agent.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if missing = p.Missing; !p.Complete || !p.Idle {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
	}
	r, err := run(ctx, cfg, ovs, func(onEvent func(messaging.Event)) (agent.Broker, error) {
		link := of.Join(h.name, onEvent)
		onEvent(messaging.Connected{Addr: "region"})
		return link, nil
	})
	if err != nil {
		return err
	}
	defer func() { r.cancel(); <-r.done; ovs.Close() }()
	for tick := time.Tick(freshRest / 10); ; {
		select {
		case <-ctx.Done():
			mu.Lock()
			defer mu.Unlock()
			return fmt.Errorf("not complete, %q: %w", missing, ctx.Err())
		case <-tick:
		}
		mu.Lock()
		complete := !since.IsZero() && time.Since(since) >= freshRest
		mu.Unlock()
		if complete {
			return nil
		}
	}
}

// lines are the flows of a switch, without the numbers of a run.
func lines(ctx context.Context, ovs *fake.OVS) (map[string]bool, error) {
	view, err := viewOf(ctx, ovs)
	if err != nil {
		return nil, err
	}
	names := parity.NewNames()
	names.Learn(view)
	out := map[string]bool{}
	for bridge, s := range ovs.Switches() {
		var flows []openflow.Flow
		for _, e := range s.Flows() {
			flow, err := e.Flow()
			if err != nil {
				return nil, err
			}
			flows = append(flows, flow)
		}
		for _, line := range names.Flows(bridge, flows) {
			out[line] = true
		}
	}
	return out, nil
}

// viewOf is the database as somebody sees it who connects now.
func viewOf(ctx context.Context, ovs *fake.OVS) (*ovsdb.View, error) {
	c, err := ovsdb.New(ovsdb.Config{Dial: ovs.Dial, InactivityProbe: -1})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { c.Run(ctx) })
	defer done.Wait()
	defer cancel()
	v := ovsdb.NewView()
	select {
	case b := <-c.Changes():
		v.Apply(b)
		return v, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
