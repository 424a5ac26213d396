// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/lab/fleet"
)

func (c *cli) fleet() *cobra.Command {
	var cfg fleet.Config
	var asJSON, plain bool
	var file string
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Run many agents on one RabbitMQ, each with a switch in memory, and compare all flows in the end",
		Long: `Start a RabbitMQ node of its own, the simulated server and --n agents in this process: the agent's own code with its own broker
client, each over an Open vSwitch in memory. The command measures the agents at rest. It changes ports and groups for --for, at --rate messages to all
agents a second, and runs the --storms one after the other. At the end it compares the flows of all switches with the flows of new agents, which pull the
final state. If flows differ, or if agents hold more memory, goroutines or queues after a storm than before, the exit status is 1.

Events are plug, delete, move (of ports), rule (of groups), agent (crashes, and starts again after 3 s), switch (loses its flows), server (answers no
call for 3 s) and broker (kill -9). Storms are broker (kill -9), restart (of all agents), server (answers no call for --away, with changes), group (one
that all hosts have, changed 100 times) and boots (for --boots at the highest rate that the fleet sustains, then at twice that rate). The same --seed
makes the same changes on the same hosts. Their timing depends on the machine.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			cfg.Progress = progress(cmd.ErrOrStderr(), isTerminal(os.Stderr) && !plain && os.Getenv("NO_COLOR") == "")
			result, err := runFleet(cmd.Context(), cfg)
			if result == nil {
				return err
			}
			if file != "" {
				err = errors.Join(err, writeJSON(file, result))
			}
			if asJSON {
				err = errors.Join(err, printJSON(out, result))
			} else {
				err = errors.Join(err, result.Write(out))
			}
			return errors.Join(err, result.Faults())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&plain, "no-color", false, "print progress as new lines, without terminal control codes; the environment variable NO_COLOR does the same")
	f.IntVar(&cfg.Agents, "n", 100, "agents")
	f.IntVar(&cfg.Ports, "ports", 1, "ports of each host at the start")
	f.IntVar(&cfg.Span, "span", 10, "hosts that share a network and its group")
	f.StringVar(&cfg.Network, "network", "", "type of the networks: vxlan, with l2population, or vlan (default vxlan up to 300 agents)")
	f.Float64Var(&cfg.StartRate, "start-rate", 100, "agents started a second")
	f.Float64Var(&cfg.Rate, "rate", 5, "messages a second from the server to all agents, as a result of the changes")
	f.DurationVar(&cfg.For, "for", time.Minute, "how long changes happen")
	f.DurationVar(&cfg.Idle, "idle", 30*time.Second, "how long agents are measured at rest, after the start: 30 s have one state report of each")
	f.DurationVar(&cfg.Settle, "settle", 3*time.Minute, "how long agents may take to be in sync")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of the random changes")
	f.StringSliceVar(&cfg.Events, "events", fleet.DefaultEvents(), "kinds of changes")
	f.StringSliceVar(&cfg.Storms, "storms", nil, "storms after the changes")
	f.DurationVar(&cfg.Away, "away", 75*time.Second, "how long the server answers no call in the storm server")
	f.DurationVar(&cfg.Boots, "boots", time.Minute, "how long the storm boots runs at the highest rate that the fleet sustains; it then runs at twice that rate for a fifth of the time")
	f.StringVar(&cfg.Layout, "layout", fleet.Hub, "bindings: hub, classic with two for each topic, or stream with one stream behind the hub")
	f.StringVar(&cfg.Query, "query", "", "options of the transport URL, of agents and server, such as rabbit_quorum_queue=true")
	f.StringVar(&cfg.Root, "broker-root", "", "root directory of another suite's RabbitMQ, see lab release")
	f.StringVar(&cfg.Profile, "profile", "", "directory for profiles: start.pprof of the CPU at the start, heap.pprof after it, rest.pprof of the CPU at rest, the heap before and after each storm")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&file, "out", "", "write JSON to this file, too")
	return cmd
}

func runFleet(ctx context.Context, cfg fleet.Config) (result *fleet.Result, err error) {
	f, err := fleet.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(context.WithoutCancel(ctx))) }()
	return f.Run(ctx)
}

func writeJSON(path string, v any) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(printJSON(file, v), file.Close())
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// plainEvery separates two lines about the same part, where nobody can write over the last one.
const plainEvery = 10 * time.Second

// progress shows how far a fleet is: on a terminal in one line that changes, elsewhere in lines.
func progress(w io.Writer, terminal bool) func(fleet.Progress) {
	var last time.Time
	var part string
	return func(p fleet.Progress) {
		line := fmt.Sprintf("%-14s %6.1f s  %s", p.Part, p.Passed.Seconds(), p.Text)
		switch {
		case terminal && p.Done:
			fmt.Fprintf(w, "\r\x1b[K%s\n", line)
		case terminal:
			fmt.Fprintf(w, "\r\x1b[K%s", line)
		case p.Done || part == p.Part && time.Since(last) > plainEvery:
			fmt.Fprintln(w, line)
			last = time.Now()
		case part != p.Part:
			part, last = p.Part, time.Now()
		}
	}
}
