// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/fleet"
)

// switchFlags are the flags of `patchbay fleet switch`.
type switchFlags struct {
	fleetFlags
	fleet.Switch
	Record, Log string
	AfterBatch  string
	DryRun      bool
}

func newFleetSwitchCommand() *cobra.Command {
	var f switchFlags
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Move hosts to Patchbay in batches, and move a host back if its check after the move fails",
		Long: `Move hosts to Patchbay in batches. The first batch has --canary hosts, each later batch has --batch hosts.

For each batch, the command runs --check and --plan on every host, and leaves out a host on which one of them fails. It runs --to and --verify
on the other hosts. It then runs --after on this host, for instance to check traffic; $PATCHBAY_HOSTS has the hosts whose --verify passed. If
--after fails, all these hosts count as failed. Last, the command runs --back on each host on which --to, --verify or --after failed. After
--stop-on failures no further batch begins.

The file --record has the state of each host. The same command continues where it stopped, and leaves out switched hosts. The file --log has
every step. --dry-run prints the commands and runs none.

To move hosts back, exchange the commands of --to and --back, and give another --record: see docs/how-to/switch-a-fleet.md.

Exit status:
  0  all hosts are switched
  1  a host is not switched: its state is taken back, refused or needs a look`,
		Example: `  patchbay fleet switch --hosts hosts.txt --canary 1 --batch 10 --pause 5m --dry-run
  patchbay fleet switch --hosts hosts.txt --canary 1 --batch 10 --pause 5m --after './ping-the-canaries'`,
		Args: argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, cmd)
		},
	}
	f.fleetFlags.add(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.Canary, "canary", 1, "number of hosts in the first batch")
	fl.IntVar(&f.Batch, "batch", 10, "number of hosts in each later batch")
	fl.DurationVar(&f.Pause, "pause", time.Minute, "time between batches")
	fl.IntVar(&f.StopOn, "stop-on", 1, "number of failures after which no further batch begins")
	fl.StringVar(&f.Check, "check", remoteCheck, "command on a host that ends with status 0 if the host can be switched")
	fl.StringVar(&f.Plan, "plan", remotePlan, "command on a host that ends with status 0 or 1 if the host can be switched; empty: none")
	fl.StringVar(&f.To, "to", "apt-get install -y patchbay-openvswitch-agent", "command on a host that switches it to Patchbay")
	fl.StringVar(&f.Verify, "verify", remoteVerify, "command on a host that ends with status 0 if the host works")
	fl.StringVar(&f.Back, "back", "apt-get remove -y patchbay-openvswitch-agent", "command on a host that switches it back")
	fl.IntVar(&f.Tries, "tries", 1, "how many times to run --verify on a host until it ends with status 0, a second apart")
	fl.StringVar(&f.AfterBatch, "after", "", "command on this host, after each batch, that ends with status 0 if the batch works")
	fl.StringVar(&f.Record, "record", "patchbay-fleet.json", "file with the state of each host")
	fl.StringVar(&f.Log, "log", "patchbay-fleet.log", "file to which the command appends every step")
	fl.BoolVar(&f.DryRun, "dry-run", false, "print the commands, and run none")
	return cmd
}

func (f *switchFlags) run(ctx context.Context, cmd *cobra.Command) error {
	hosts, err := f.open(cmd.InOrStdin())
	if err != nil {
		return err
	}
	if f.Check == "" || f.To == "" || f.Verify == "" || f.Back == "" {
		return usage{errors.New("--check, --to, --verify and --back are commands: none may be empty")}
	}
	record, err := fleet.Open(f.Record)
	if err != nil {
		return err
	}
	if f.DryRun {
		f.describe(cmd.OutOrStdout(), hosts, record)
		return nil
	}
	log, err := os.OpenFile(f.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close() //nolint:errcheck // each line is written by itself
	s := f.Switch
	s.Now, s.Explain = time.Now, explain
	s.Say = func(host, text string) {
		now := time.Now()
		line := fmt.Sprintf("%-20s %s", host, text)
		if host == "" {
			line = text
		}
		if !f.Output.forPrograms() {
			fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", now.Format(time.TimeOnly), line)
		}
		fmt.Fprintf(log, "%s  %s\n", now.Format(time.RFC3339), line)
	}
	if f.AfterBatch != "" {
		s.After = func(ctx context.Context, batch []string) error { return runLocally(ctx, f.AfterBatch, batch) }
	}
	err = hosts.Switch(ctx, record, &s)
	var stopped fleet.ErrStopped
	if errors.As(err, &stopped) {
		err = ended{exitFinding, stopped.Error()}
	}
	return errors.Join(err, f.result(cmd.OutOrStdout(), hosts, record))
}

// describe prints what would be run.
func (f *switchFlags) describe(out io.Writer, hosts *fleet.Fleet, r *fleet.Record) {
	batches := r.Batches(hosts.Hosts, f.Canary, f.Batch)
	left := 0
	for i, b := range batches {
		fmt.Fprintf(out, "batch %d: %s\n", i+1, strings.Join(b, " "))
		left += len(b)
	}
	fmt.Fprintf(out, "\n%d of %s are to be switched, %s apart. On each host, by %q:\n", left, plural(len(hosts.Hosts), "host"), short(f.Pause), f.Connect)
	for _, c := range []struct{ what, command string }{
		{"check", f.Check}, {"plan", f.Plan}, {"switch", f.To}, {"verify", f.Verify}, {"back, if it is not well", f.Back},
	} {
		if c.command != "" {
			fmt.Fprintf(out, "  %-24s %s\n", c.what, c.command)
		}
	}
	if f.AfterBatch != "" {
		fmt.Fprintf(out, "Here, after each batch:\n  %s\n", f.AfterBatch)
	}
}

// result prints how far all hosts are.
func (f *switchFlags) result(out io.Writer, hosts *fleet.Fleet, r *fleet.Record) error {
	var list []hostLine
	for _, name := range hosts.Hosts {
		h := r.Hosts[name]
		state := string(h.State)
		if state == "" {
			state = "not begun"
		}
		list = append(list, hostLine{Host: name, State: state, Why: h.Why})
	}
	if f.Output.forPrograms() {
		return f.Output.write(out, list)
	}
	fmt.Fprintln(out)
	writeFleet(out, nil, list)
	return nil
}
