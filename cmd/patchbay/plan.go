// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/plan"
	"github.com/patchbay-sdn/patchbay/internal/snapshot"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/config"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// planFlags are the flags of the command itself; the rest of its command line is the agent's.
type planFlags struct {
	Output  format
	All     bool
	Offline bool
	Timeout time.Duration
}

const planHelp = `Show which rows of the switch's database and which flows a start of the agent on this host
would change. The command changes nothing, on this host or at the server, and does not
disturb a running agent, Patchbay or neutron-openvswitch-agent.

Give the same arguments as in the agent's unit file. The command reads the switch once
and pulls ports, security groups and their members from neutron-server. It reads tunnels
and forwarding entries from the switch, because neutron-server sends them only to an agent
that registers.

Usage:
  patchbay plan [-o json|yaml|wide] [--offline] [--timeout TIME] [agent options]

A change that is the same for many ports is one line, with the first port and the number
of ports. -o wide prints each row and flow.

Flags of this command:
  -o, --output FORMAT  wide: every row and flow; json or yaml: one document, and --json is
                       the same as -o json
  --all                the same as -o wide
  --offline            do not ask neutron-server: show what a start without it would change, from
                       the snapshot of an earlier run
  --timeout TIME       give up after this time (default 1m)
  -h, --help           this text

Exit status:
  0  nothing would change
  1  something would change
  2  the command line cannot be understood
  4  the plan failed or is incomplete

Options of the agent:
`

func newPlanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:                   "plan [-o json|yaml|wide] [--offline] [--timeout TIME] [agent options]",
		Short:                 "Show what starting the agent would change, and change nothing",
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPlan(cmd, args, os.Environ())
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(cmd.OutOrStdout(), planHelp)
		if schema, err := options.Schema(); err == nil {
			_ = schema.WriteFlags(cmd.OutOrStdout())
		}
	})
	return cmd
}

// splitPlanFlags takes the command's own flags out of the agent's arguments.
func splitPlanFlags(args []string) (planFlags, []string, error) {
	f := planFlags{Timeout: time.Minute}
	args, err := f.Output.take(args, formatWide)
	if err != nil {
		return f, nil, err
	}
	var rest []string
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		switch {
		case args[i] == "--all":
			f.All = true
		case args[i] == "--offline":
			f.Offline = true
		case name == "--timeout":
			if i++; !given && i < len(args) {
				value = args[i]
			} else {
				i--
			}
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return f, nil, fmt.Errorf("--timeout %q is no time such as 90s", value)
			}
			f.Timeout = d
		default:
			rest = append(rest, args[i])
		}
	}
	return f, rest, nil
}

func runPlan(cmd *cobra.Command, args, env []string) error {
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return cmd.Help()
	}
	flags, rest, err := splitPlanFlags(args)
	if err != nil {
		return usage{err}
	}
	o, err := options.Load(rest, env)
	switch {
	case errors.Is(err, config.ErrHelp):
		return cmd.Help()
	case errors.Is(err, config.ErrVersion):
		fmt.Fprintln(cmd.OutOrStdout(), "patchbay", version)
		return nil
	case err != nil:
		if report, _ := options.Check(rest, env); report != nil && usageFault(report) {
			return usage{err}
		}
		return fmt.Errorf("the configuration cannot be used:\n%w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, flags.Timeout)
	defer cancel()
	p, err := makePlan(ctx, o, flags, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if flags.Output.forPrograms() {
		if err := flags.Output.write(cmd.OutOrStdout(), p); err != nil {
			return err
		}
	} else {
		planView{out: cmd.OutOrStdout(), plan: p, all: flags.All || flags.Output.name == formatWide}.write()
	}
	switch {
	case !p.Complete:
		return ended{exitFailed, "the plan is not complete: " + strings.Join(p.Missing, "; ")}
	case !p.Empty():
		return ended{status: exitFinding}
	}
	return nil
}

func makePlan(ctx context.Context, o *options.Options, flags planFlags, errOut io.Writer) (*plan.Plan, error) {
	url, err := usable(o)
	if err != nil {
		return nil, fmt.Errorf("the agent would not start: %w", err)
	}
	database, err := ovsdb.New(databaseConfig(o))
	if err != nil {
		return nil, fmt.Errorf("[ovs] ovsdb_connection: %w", err)
	}
	// The agent's loop has nothing to say that is not in the plan, unless something is wrong.
	level := slog.LevelWarn
	switch {
	case o.Log.Debug:
		level = slog.LevelDebug
	case flags.Offline:
		level = slog.LevelError // that no server answers is no news
	}
	cfg, err := agentConfig(ctx, o, extensionsOf(o))
	if err != nil {
		return nil, fmt.Errorf("the agent would not start: %w", err)
	}
	cfg.Log = observe.NewLogger(errOut, level)
	if cfg.World.Filter {
		cfg.Rules, cfg.RulesConfig = hostRules(o)
	}
	in := plan.Input{
		Look:  metaproxy.Host{}.Look,
		Agent: cfg, Filtered: cfg.World.Filter && !cfg.World.Hybrid, Database: database,
		Dial: func(ctx context.Context, bridge string) (plan.Dumper, error) {
			return openflow.Dial(ctx, openflow.MgmtSocket(bridge), openflow.Config{})
		},
	}
	memory := &world.Memory{}
	switch _, err := snapshot.Peek(cfg.Snapshot, world.MemoryVersion, memory); {
	case err == nil:
		in.Agent.Memory = memory
	case errors.Is(err, fs.ErrNotExist) && flags.Offline:
		return nil, fmt.Errorf("--offline: there is nothing to plan from: %w", err)
	case !errors.Is(err, fs.ErrNotExist):
		cfg.Log.Warn("snapshot not usable, planning without it", "err", err)
	}
	if !flags.Offline {
		in.Open = func(onEvent func(messaging.Event)) (agent.Broker, error) {
			return messaging.Open(commandConfig(o, url, onEvent))
		}
	}
	return plan.Make(ctx, in)
}
