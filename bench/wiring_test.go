// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/floor"
	"github.com/patchbay-sdn/patchbay/lab/sim"
)

const (
	singles = 5   // ports one after the other; the median counts
	small   = 20  // ports at once, for the cost of a port on a small host
	large   = 500 // and on a large one
	filled  = 125 // ports when memory is looked at
)

// Names of what the bench creates.
const network, pooled = "bench-wiring", "bench-pool"

func asserting() bool { return os.Getenv("PATCHBAY_BENCH") == "1" }

// runs is how often what is compared by medians is done.
func runs(otherwise int) int { return number("PATCHBAY_BENCH_RUNS", otherwise) }

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// bench is one run.
type bench struct {
	lab   *lab.Lab
	host  *lab.Host
	net   lab.Network
	watch *floor.Watch
	table table
	many  int          // ports at once
	floor *floor.Floor // while it runs
	// batches is how the next floor asks.
	batches floor.Batches
	pool    []ports.Port // bound to the host and DOWN
	// overrides are options of the agents.
	overrides []string
}

func TestWiring(t *testing.T) {
	b, about := newBench(t)
	b.table.beside = "floor"
	b.batches = floor.FewFirst
	began, before := time.Now(), loadAverage()
	defer func() {
		b.table.print(os.Stdout, fmt.Sprintf("%s; load average before %s, after %s; took %s", about, before, loadAverage(), time.Since(began).Round(time.Second)))
	}()
	b.prepare(t)
	t.Run("same", b.same)
	t.Run("push", b.pushes)
	t.Run("plug", b.plugging)
	t.Run("bad", b.badNeighbours)
	t.Run("size", b.size)
	t.Run("scale", b.scale)
}

// newBench starts a lab, or opens one, and says which server it has.
func newBench(t *testing.T) (b *bench, about string) {
	b = &bench{many: number("PATCHBAY_BENCH_PORTS", 100)}
	about = "neutron-server"
	switch dir := os.Getenv("PATCHBAY_BENCH_LAB"); {
	case os.Getenv("PATCHBAY_BENCH_SERVER") == "sim":
		about = "the simulated server"
		b.lab = simulated(t)
	case dir != "":
		l, err := lab.Open(lab.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		b.lab = l
	default:
		b.lab = lab.New(t, 2)
	}
	b.host = b.lab.Host(1)
	return b, about
}

// simulated is a lab whose server answers at once: agents are then compared with what the switch and the broker take.
func simulated(t *testing.T) *lab.Lab {
	t.Setenv(lab.EnvServer, string(lab.NoServer))
	l := lab.New(t, 2)
	s, err := sim.Start(t.Context(), sim.Config{URL: l.TransportURL(), API: l.APIAddr(), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return l
}

// prepare makes the network known on both hosts.
func (b *bench) prepare(t *testing.T) {
	ctx := t.Context()
	for _, h := range b.lab.Hosts() {
		if err := h.StopAgent(ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.StartAgent(ctx, lab.Patchbay, b.overrides...); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.net, err = b.lab.NetworkNamed(ctx, lab.Network{Name: network, CIDR: "10.96.0.0/20"}); err != nil {
		t.Fatal(err)
	}
	// A lab that is used again has ports of an earlier run.
	pages, err := ports.List(b.lab.Neutron(), ports.ListOpts{NetworkID: b.net.ID, Name: pooled, Status: "DOWN"}).AllPages(ctx)
	if err == nil {
		b.pool, err = ports.ExtractPorts(pages)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.watch, err = floor.NewWatch(ctx, b.lab); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.watch.Close)
	for _, h := range []*lab.Host{b.lab.Host(2), b.host} {
		anchor, err := b.lab.CreatePorts(ctx, h, lab.Port{NetworkID: b.net.ID}, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.UnplugMany(context.Background(), anchor) })
		if err := h.PlugMany(ctx, anchor); err != nil {
			t.Fatal(err)
		}
		b.wait(t, "ACTIVE", anchor)
	}
	b.fill(t, b.many)
}

// fill makes sure that the pool has so many ports.
func (b *bench) fill(t *testing.T, n int) []ports.Port {
	t.Helper()
	for len(b.pool) < n {
		// Few at a time: on a busy machine a request for many takes longer than clients wait.
		more, err := b.lab.CreatePorts(t.Context(), b.host, lab.Port{NetworkID: b.net.ID, Name: pooled}, min(n-len(b.pool), 10))
		if err != nil {
			t.Fatal(err)
		}
		b.pool = append(b.pool, more...)
	}
	return b.pool[:n]
}

func (b *bench) wait(t *testing.T, status string, list []ports.Port) (first, last time.Time) {
	t.Helper()
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.ID
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(len(list))*time.Second)
	defer cancel()
	first, last, err := b.watch.Wait(ctx, status, ids...)
	if err != nil {
		var of error
		if b.floor != nil {
			of = b.floor.Err()
		}
		t.Fatal(errors.Join(err, of))
	}
	return first, last
}

// outcome is what plugging some ports at once led to.
type outcome struct{ first, all, cpu time.Duration }

// plug plugs ports, and takes them off again.
func (b *bench) plug(t *testing.T, list []ports.Port) outcome {
	t.Helper()
	used, began := cpu(t, b.host), time.Now()
	if err := b.host.PlugMany(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	first, last := b.wait(t, "ACTIVE", list)
	b.settle(t)
	o := outcome{first.Sub(began), last.Sub(began), cpu(t, b.host) - used}
	b.unplug(t, list)
	return o
}

// settle lets the agent finish what follows the last report: what the server sends to everyone about the ports.
func (b *bench) settle(t *testing.T) {
	t.Helper()
	if b.floor == nil {
		time.Sleep(time.Second)
	}
}

func (b *bench) unplug(t *testing.T, list []ports.Port) {
	t.Helper()
	if err := b.host.UnplugMany(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "DOWN", list)
}

// use has the host wired by an agent, or by the floor for an empty kind.
func (b *bench) use(t *testing.T, kind lab.AgentKind) {
	t.Helper()
	if running, pid := b.host.Agent(); pid != 0 && running == kind {
		return
	}
	if b.floor != nil {
		if err := b.floor.Close(); err != nil {
			t.Fatal(err)
		}
		b.floor = nil
	}
	if err := b.host.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kind == "" {
		f, err := floor.Start(t.Context(), b.lab, b.host, b.batches)
		if err != nil {
			t.Fatal(err)
		}
		b.floor = f
		return
	}
	if err := b.host.StartAgent(t.Context(), kind, b.overrides...); err != nil {
		t.Fatal(err)
	}
	b.plug(t, b.fill(t, 1)) // in sync when it answers to this
}

// plugging compares one port and many at once. The Python agent takes one turn, after the others: it is not what times are
// compared with, and its CPU is far from the limit.
func (b *bench) plugging(t *testing.T) {
	const fewFirst, allAtOnce lab.AgentKind = "floor, few first", "floor, all at once"
	var one, first, all, used = map[lab.AgentKind][]time.Duration{}, map[lab.AgentKind][]time.Duration{}, map[lab.AgentKind][]time.Duration{}, map[lab.AgentKind][]time.Duration{}
	measure := func(name, kind lab.AgentKind) {
		b.use(t, kind)
		for range singles {
			one[name] = append(one[name], b.plug(t, b.fill(t, 1)).all)
		}
		o := b.plug(t, b.fill(t, b.many))
		t.Logf("%s: one %v, %d ports: first %v, all %v, CPU %v", name, one[name], b.many, o.first, o.all, o.cpu)
		first[name], all[name], used[name] = append(first[name], o.first), append(all[name], o.all), append(used[name], o.cpu)
	}
	for range runs(3) {
		measure(lab.Patchbay, lab.Patchbay)
		b.batches = floor.FewFirst
		measure(fewFirst, "")
		measure(lab.Patchbay, lab.Patchbay)
		b.batches = floor.AllAtOnce
		measure(allAtOnce, "")
	}
	measure(lab.Python, lab.Python)
	b.use(t, lab.Patchbay)

	// The floor is the better of the two.
	best := func(of map[lab.AgentKind][]time.Duration) time.Duration {
		return min(median(of[fewFirst]), median(of[allAtOnce]))
	}
	compare := func(what string, of map[lab.AgentKind][]time.Duration, to time.Duration, limit float64, target string) {
		patchbay := median(of[lab.Patchbay])
		text, ratio := times(patchbay, to)
		b.table.add(t, row{
			what: what, python: ms(median(of[lab.Python])), beside: ms(best(of)), patchbay: ms(patchbay),
			ratio: text, target: target, met: ratio <= limit,
		})
	}
	compare("one port, plug → ACTIVE", one, best(one), 1.5, "≤ 1.5 × floor")
	compare(fmt.Sprintf("%d ports at once, first ACTIVE", b.many), first, best(one), 2, "≤ 2 × floor's one port")
	compare(fmt.Sprintf("%d ports at once, all ACTIVE", b.many), all, best(all), 1.3, "≤ 1.3 × floor")
	python, patchbay := median(used[lab.Python]), median(used[lab.Patchbay])
	text, ratio := times(python, patchbay)
	b.table.add(t, row{
		what: fmt.Sprintf("%d ports at once, agent CPU", b.many), python: ms(python), patchbay: ms(patchbay),
		ratio: "1/" + text, target: "≤ 1/40 of Python", met: ratio >= 40,
	})
}

// scale compares what a port costs when many come with what it costs when few do.
func (b *bench) scale(t *testing.T) {
	b.use(t, lab.Patchbay)
	var few []time.Duration
	for range runs(3) {
		few = append(few, b.plug(t, b.fill(t, small)).cpu/small)
	}
	o := b.plug(t, b.fill(t, large))
	t.Logf("%d ports: first %v, all %v, CPU %v", large, o.first, o.all, o.cpu)
	text, ratio := times(o.cpu/large, median(few))
	b.table.add(t, row{
		what: fmt.Sprintf("agent CPU a port, %d at once; ratio to %d (%s)", large, small, ms(median(few))), patchbay: ms(o.cpu / large),
		ratio: text, target: "≤ 1.5", met: ratio <= 1.5,
	})
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
