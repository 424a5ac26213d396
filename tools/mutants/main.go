// SPDX-License-Identifier: Apache-2.0

// Command mutants says how many small faults in the agent's packages the unit tests find. It rewrites the packages once, in
// an overlay, so that every fault ("mutant") is in the program and switched on by a number in the environment; so a mutant
// costs the run of the tests that reach it and no compilation. Which tests reach which mutant is found by running each
// test once. A mutant is killed when a test fails, crashes or takes far longer than without it.
//
// Input: the module around the working directory, and survivors.txt beside this file, which names mutants that change
// nothing a test could see, each with its reason. Output: text; with -json a summary for programs. Its state is in
// bin/mutants: a run that was stopped goes on where it was, for as long as the sources are the same.
//
// Exit status: 0 when enough are killed, 1 when not or when survivors.txt is wrong, 2 when something else failed,
// 3 when the time given with -for is over; call it again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const defaultPackages = "internal/world,internal/delta,internal/pace,internal/zones,internal/dataplane,internal/core,internal/runner,internal/agent,internal/ovsdb,internal/trunk,internal/qos,internal/dvr,internal/neutron,oslo/messaging"

// errUnfinished: the time is over.
var errUnfinished = errors.New("the time is over; call again to go on")

type options struct {
	n         int
	seed      uint64
	packages  string
	state     string
	json      string
	survivors string
	workers   int
	limit     time.Duration
	want      float64
	keep      bool
	match     string
	list      bool
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 40, "number of mutants")
	flag.Uint64Var(&o.seed, "seed", 1, "which are drawn; 0 takes a new one and prints it")
	flag.StringVar(&o.packages, "packages", defaultPackages, "packages that are mutated, from the root of the module")
	flag.StringVar(&o.state, "state", "bin/mutants", "directory for the state")
	flag.StringVar(&o.json, "json", "", "file for the summary")
	flag.StringVar(&o.survivors, "survivors", "tools/mutants/survivors.txt", "mutants that no test can see, with the reason")
	flag.IntVar(&o.workers, "j", runtime.NumCPU(), "mutants at a time")
	flag.DurationVar(&o.limit, "for", 0, "stop after this time; the next call goes on")
	flag.Float64Var(&o.want, "want", 90, "per cent that have to be killed")
	flag.BoolVar(&o.keep, "keep-killed", false, "after a change: take over which were killed before it. For work on tests; not for a figure")
	flag.StringVar(&o.match, "match", "", "only mutants whose line of output contains this text")
	flag.BoolVar(&o.list, "list", false, "show the mutants that would be tried, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	good, err := run(ctx, o, os.Stdout)
	stop()
	switch {
	case errors.Is(err, errUnfinished):
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case !good:
		os.Exit(1)
	}
}

// run does everything; it is false when too few were killed or survivors.txt is wrong.
func run(ctx context.Context, o options, out io.Writer) (bool, error) {
	begin := time.Now()
	if o.seed == 0 {
		o.seed = uint64(begin.UnixNano())
	}
	if o.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.limit, errUnfinished)
		defer cancel()
	}
	m, err := load(ctx, o)
	if err != nil {
		return false, err
	}
	entries, err := readEntries(o.survivors)
	if err != nil {
		return false, err
	}
	points := m.points()
	problems := match(entries, points)
	drawn := draw(points, o.seed, o.n, o.match)
	fmt.Fprintf(out, "%d mutants of %d, seed %d; left out: %s\n", len(drawn), len(points), o.seed, counts(m.leftOut))
	if o.list {
		for _, p := range drawn {
			fmt.Fprintln(out, p)
		}
		return true, nil
	}
	fmt.Fprintf(out, "survivors.txt lists %d\n", len(entries))
	results, err := m.runAll(ctx, drawn, out)
	sum := summarize(o, drawn, results, entries, problems)
	sum.Seconds = time.Since(begin).Seconds()
	sum.Controls, sum.ControlsFailed = m.controls, m.controlsFailed
	sum.Unfinished = err != nil
	if m.controlsFailed > int(falseKills*float64(m.controls)) {
		sum.Problems = append(sum.Problems, "tests fail without a mutant: the machine is too slow, or a test is flaky")
	}
	sum.Good = sum.Good && !sum.Unfinished && len(sum.Problems) == 0
	sum.print(out)
	if o.json != "" {
		text, jerr := json.MarshalIndent(sum, "", "  ")
		if jerr == nil {
			jerr = os.WriteFile(o.json, append(text, '\n'), 0o644) //nolint:gosec // a report for everybody
		}
		err = errors.Join(err, jerr)
	}
	return sum.Good, err
}

func counts(m map[string]int) string {
	var s []string
	for k, n := range m {
		s = append(s, fmt.Sprintf("%d %s", n, k))
	}
	slices.Sort(s)
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}
