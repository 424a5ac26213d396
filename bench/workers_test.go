// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/floor"
)

// older is a Patchbay of before.
const older = "patchbay before"

// workersRun is what one way to wire ports took on a server with some workers. Times of one port are medians.
type workersRun struct {
	workers int
	who     string
	one     time.Duration
	outcome
}

// TestWorkers plugs PATCHBAY_BENCH_PORTS ports (100) at once, on servers with 1, 2 and 4 workers for calls of agents: this Patchbay, the one whose binary
// PATCHBAY_BENCH_BEFORE names, the Python agent, and bare calls in the windows that are best for such a server.
func TestWorkers(t *testing.T) {
	began, load := time.Now(), loadAverage()
	var runs []workersRun
	for _, workers := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) { runs = append(runs, measureWorkers(t, workers)...) })
	}
	fmt.Printf("\n%d ports at once, rpc_workers of the server; load average before %s, after %s; took %s\n\n",
		number("PATCHBAY_BENCH_PORTS", 100), load, loadAverage(), time.Since(began).Round(time.Second))
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	cells := func(c ...string) { fmt.Fprintln(out, "| "+strings.Join(c, "\t| ")+"\t|") }
	cells("workers", "who", "one port", "first ACTIVE", "first / one", "all ACTIVE", "times Python", "times before", "CPU")
	cells("---", "---", "---", "---", "---", "---", "---", "---", "---")
	for _, r := range runs {
		first, _ := times(r.first, r.one)
		faster := map[string]string{}
		for _, other := range runs {
			if other.workers == r.workers {
				faster[other.who], _ = times(other.all, r.all)
			}
		}
		cells(fmt.Sprint(r.workers), r.who, ms(r.one), ms(r.first), first, ms(r.all), or(faster[string(lab.Python)]), or(faster[older]), or(ms(r.cpu)))
	}
	_ = out.Flush()
}

// measureWorkers measures everybody on a server with some workers.
func measureWorkers(t *testing.T, workers int) (runs []workersRun) {
	t.Setenv(lab.EnvWorkers, fmt.Sprint(workers))
	b := &bench{many: number("PATCHBAY_BENCH_PORTS", 100), lab: lab.New(t, 2)}
	b.host = b.lab.Host(1)
	b.prepare(t)
	measure := func(who string, kind lab.AgentKind) {
		if err := b.host.StopAgent(t.Context()); err != nil { // what runs may be another binary
			t.Fatal(err)
		}
		b.use(t, kind)
		r := workersRun{workers: workers, who: who}
		var ones []time.Duration
		for range singles {
			ones = append(ones, b.plug(t, b.fill(t, 1)).all)
		}
		r.one, r.outcome = median(ones), b.plug(t, b.fill(t, b.many))
		if kind == "" {
			r.cpu = 0 // of this process
		}
		t.Logf("%d workers, %s: one %v, first %v, all %v, CPU %v", workers, who, r.one, r.first, r.all, r.cpu)
		runs = append(runs, r)
	}
	measure("patchbay", lab.Patchbay)
	for _, size := range []int{1, 5, 20} {
		b.batches = floor.SideBySide(workers, size)
		measure(fmt.Sprintf("bare, %d at a time of %d", workers, size), "")
	}
	b.use(t, lab.Patchbay) // the floor ends
	if before := os.Getenv("PATCHBAY_BENCH_BEFORE"); before != "" {
		t.Setenv(lab.EnvBinary, before)
		measure(older, lab.Patchbay)
		t.Setenv(lab.EnvBinary, "")
	}
	measure(string(lab.Python), lab.Python)
	measure("patchbay", lab.Patchbay)
	return runs
}
