// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// beforeRun is what one binary took for one round.
type beforeRun struct {
	sync, syncCPU   time.Duration // on a switch without traces
	add, remove     memberChange
	again, againCPU time.Duration // a start on the switch as it left it
	touched         int           // flows that changed by that
	rss             int64
}

// TestBefore measures this Patchbay and an earlier one, whose binary PATCHBAY_BENCH_BEFORE names, in turns on one host with a simulated server:
// PATCHBAY_BENCH_PORTS ports (100) of a group that lets in PATCHBAY_BENCH_MEMBERS (1000). Medians of PATCHBAY_BENCH_RUNS rounds (5) are shown.
func TestBefore(t *testing.T) {
	before := os.Getenv("PATCHBAY_BENCH_BEFORE")
	if before == "" {
		t.Skip("PATCHBAY_BENCH_BEFORE names no binary")
	}
	host, s := simulatedHost(t)
	members, rounds := number("PATCHBAY_BENCH_MEMBERS", 1000), number("PATCHBAY_BENCH_RUNS", 5)
	began, load := time.Now(), loadAverage()
	n := number("PATCHBAY_BENCH_PORTS", 100)
	made := populate(t, s, host, n, members, 200)
	var runs [2][]beforeRun
	for round := range 2 * rounds {
		which := (round + round/2) % 2 // each begins as often as the other
		t.Setenv(lab.EnvBinary, map[int]string{0: before, 1: ""}[which])
		b := &beforeBench{groupBench: groupBench{server: s, host: host, made: made, run: groupRun{kind: lab.Patchbay}}}
		if !t.Run(fmt.Sprintf("%s/%d", [2]string{"before", "now"}[which], round/2+1), b.measure) {
			return
		}
		runs[which] = append(runs[which], b.found)
	}
	printBefore(t, runs, fmt.Sprintf("%d ports, a remote group of %d, %d rounds; load average before %s, after %s; took %s",
		n, members, rounds, load, loadAverage(), time.Since(began).Round(time.Second)))
}

type beforeBench struct {
	groupBench
	found beforeRun
}

func (b *beforeBench) measure(t *testing.T) {
	ctx := t.Context()
	b.reset(t, b.host.PlugMany)
	// Each begins without memory: the other's snapshot may be of a format that it does not read.
	if err := os.Remove(filepath.Join(b.host.Dir(), "agent", "state", "patchbay.snapshot")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.host.StopAgent(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b.found.sync, b.found.syncCPU = b.start(t)
	b.watch(t)
	b.changes(t)
	b.found.add, b.found.remove = b.run.add, b.run.remove
	if b.run.note != "" {
		t.Fatal(b.run.note)
	}
	b.found.rss = rss(t, b.host)
	if err := b.host.StopAgent(ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range b.made.Local {
		if err := b.server.SetStatus(ctx, p.ID, "DOWN"); err != nil {
			t.Fatal(err)
		}
	}
	b.flows.begin()
	b.found.again, b.found.againCPU = b.start(t)
	b.found.touched, _ = b.flows.end()
}

// start starts the agent and waits until all ports are ACTIVE and the agent has come to rest.
func (b *beforeBench) start(t *testing.T) (took, used time.Duration) {
	t.Helper()
	began := time.Now()
	if err := b.host.StartAgent(t.Context(), lab.Patchbay, "securitygroup.firewall_driver=openvswitch", "securitygroup.enable_security_group=true",
		"agent.l2_population=false", "agent.arp_responder=false", "agent.tunnel_types=vxlan"); err != nil {
		t.Fatal(err)
	}
	if !b.active(t.Context(), began.Add(syncLimit)) {
		t.Fatalf("not in sync within %v", syncLimit)
	}
	took = time.Since(began)
	b.quiet(t, syncLimit)
	return took, cpu(t, b.host)
}

// notSlower is how much more than before a figure may be.
const notSlower = 1.05

func printBefore(t *testing.T, runs [2][]beforeRun, about string) {
	fmt.Printf("\n%s\n\n", about)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	cells := func(c ...string) { fmt.Fprintln(out, "| "+strings.Join(c, "\t| ")+"\t|") }
	cells("what", "before", "now", "ratio", "met")
	cells("---", "---", "---", "---", "---")
	for _, r := range []struct {
		what string
		of   func(beforeRun) int64
		text func(int64) string
	}{
		{"start: all ACTIVE", func(r beforeRun) int64 { return int64(r.sync) }, millis},
		{"start: CPU", func(r beforeRun) int64 { return int64(r.syncCPU) }, millis},
		{"member added: applied after", func(r beforeRun) int64 { return int64(r.add.last) }, millis},
		{"member added: CPU", func(r beforeRun) int64 { return int64(r.add.cpu) }, millis},
		{"member removed: applied after", func(r beforeRun) int64 { return int64(r.remove.last) }, millis},
		{"member removed: CPU", func(r beforeRun) int64 { return int64(r.remove.cpu) }, millis},
		{"restart: all ACTIVE", func(r beforeRun) int64 { return int64(r.again) }, millis},
		{"restart: CPU", func(r beforeRun) int64 { return int64(r.againCPU) }, millis},
		{"restart: flows touched", func(r beforeRun) int64 { return int64(r.touched) }, func(n int64) string { return fmt.Sprint(n) }},
		{"RSS", func(r beforeRun) int64 { return r.rss }, mib},
	} {
		var at [2]int64
		for i, list := range runs {
			var all []int64
			for _, one := range list {
				all = append(all, r.of(one))
			}
			slices.Sort(all)
			at[i] = all[len(all)/2]
		}
		met, ratio := float64(at[1]) <= notSlower*float64(at[0]), "–"
		if at[0] > 0 {
			ratio = fmt.Sprintf("%.2f", float64(at[1])/float64(at[0]))
		}
		cells(r.what, r.text(at[0]), r.text(at[1]), ratio, map[bool]string{true: "yes", false: "no"}[met])
		if !met && asserting() {
			t.Errorf("%s: %s, before %s", r.what, r.text(at[1]), r.text(at[0]))
		}
	}
	_ = out.Flush()
}

func millis(n int64) string { return ms(time.Duration(n)) }
