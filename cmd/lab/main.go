// SPDX-License-Identifier: Apache-2.0

// Command lab starts, shows and ends a real cloud on this machine; see docs/how-to/run-the-lab.md.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/release"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1
	}
	return 0
}

// cli is what the commands share.
type cli struct{ dir string }

func root() *cobra.Command {
	c := &cli{}
	cmd := &cobra.Command{
		Use:           "lab",
		Short:         "A real cloud on one machine: RabbitMQ, MariaDB, neutron-server and Open vSwitch hosts",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.PersistentFlags().StringVar(&c.dir, "dir", "", "the lab's directory (default $"+lab.EnvDir+" or "+lab.DefaultDir+")")
	cmd.AddCommand(c.up(), c.down(), c.status(), c.install(), c.host(), c.agent(), c.vm(), c.port(), c.allow(), c.flows(), c.logs(), c.floor(), c.sim(), c.fleet(), c.releases())
	return cmd
}

// withLab is the body of the commands that need a running lab.
func (c *cli) withLab(do func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		l, err := lab.Open(lab.Options{Dir: c.dir})
		if err != nil {
			return err
		}
		return do(cmd.Context(), l, cmd, args)
	}
}

// reporter prints one line for each finished step.
func reporter(w io.Writer) func(lab.Progress) {
	return func(p lab.Progress) {
		mark := "ok  "
		note := p.Note
		if p.Err != nil {
			mark, note = "FAIL", "see below"
		}
		fmt.Fprintf(w, "%s %6.1fs  %-10s %s\n", mark, p.Took.Seconds(), p.Step, note)
	}
}

func (c *cli) up() *cobra.Command {
	o := lab.Options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the lab, or the parts of it that do not run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			o.Dir, o.Report = c.dir, reporter(cmd.OutOrStdout())
			l, err := lab.Up(cmd.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "up in %.1fs: %d hosts, API %s, directory %s\n",
				time.Since(start).Seconds(), len(l.Hosts()), l.Neutron().Endpoint, l.Dir())
			return nil
		},
	}
	cmd.Flags().IntVar(&o.Hosts, "hosts", 2, "least number of hosts")
	cmd.Flags().StringVar((*string)(&o.Server), "server", "", "of a new lab: real, sim (simulated, see lab sim) or none (default $"+lab.EnvServer+" or real)")
	cmd.Flags().StringVar(&o.Release, "release", "", "of a new lab: server and Python agent of release 17, 21, 26, 28 or 29, or of a Debian suite (default $"+lab.EnvRelease+" or the machine's packages)")
	cmd.Flags().StringVar(&o.Broker, "broker", "", "of a new lab: suite of RabbitMQ (default $"+lab.EnvBrokerSuite+" or that of --release)")
	cmd.Flags().StringVar(&o.Switch, "switch", "", "of a new lab: suite of Open vSwitch (default $"+lab.EnvSwitchSuite+" or that of --release)")
	cmd.Flags().StringVar(&o.Releases, "releases", "", "directory of other releases, see lab release; "+lab.NoStore+" keeps them in the lab's directory (default $"+release.EnvDir+" or the user's cache directory)")
	cmd.Flags().BoolVar(&o.SkipInstall, "skip-install", false, "do not look for missing packages")
	return cmd
}

func (c *cli) down() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the lab and remove everything that it created",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			err := lab.Down(cmd.Context(), lab.Options{Dir: c.dir, Report: reporter(cmd.OutOrStdout())})
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "down in %.1fs\n", time.Since(start).Seconds())
			}
			return err
		},
	}
}

func (c *cli) status() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every part, the agents and the ports",
		Args:  cobra.NoArgs,
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, _ []string) error {
			s := l.Status(ctx)
			if !asJSON {
				fmt.Fprint(cmd.OutOrStdout(), s)
				return nil
			}
			return printJSON(cmd.OutOrStdout(), s)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (c *cli) install() *cobra.Command {
	return &cobra.Command{
		Use:   "install [PACKAGE]...",
		Short: "Install the Debian packages that the lab needs, and those named, without starting their services",
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := lab.Install(cmd.Context(), args...)
			if err != nil {
				return err
			}
			if len(names) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "all packages are present")
				return nil
			}
			fmt.Fprintln(cmd.OutOrStdout(), "installed", strings.Join(names, " "))
			return nil
		},
	}
}

func (c *cli) host() *cobra.Command {
	cmd := &cobra.Command{Use: "host", Short: "Hosts of the running lab"}
	cmd.AddCommand(&cobra.Command{
		Use:   "add",
		Short: "Add a host",
		Args:  cobra.NoArgs,
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, _ []string) error {
			_, err := l.AddHost(ctx, reporter(cmd.OutOrStdout()))
			return err
		}),
	})
	return cmd
}

func (c *cli) agent() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "The layer-2 agent of a host"}
	var overrides []string
	var noWait bool
	start := &cobra.Command{
		Use:   "start HOST python|patchbay",
		Short: "Start an agent and wait until neutron-server has received its state report",
		Args:  cobra.ExactArgs(2),
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, args []string) error {
			h, err := l.HostNamed(args[0])
			if err != nil {
				return err
			}
			kind, err := lab.ParseAgentKind(args[1])
			if err != nil {
				return err
			}
			if noWait {
				return h.LaunchAgent(ctx, kind, overrides...)
			}
			began := time.Now()
			if err := h.StartAgent(ctx, kind, overrides...); err != nil {
				return err
			}
			_, pid := h.Agent()
			fmt.Fprintf(cmd.OutOrStdout(), "%s agent alive on %s after %.1fs, pid %d\n", kind, h.Name(), time.Since(began).Seconds(), pid)
			return nil
		}),
	}
	start.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the state report, for a server that does not receive it")
	start.Flags().StringArrayVar(&overrides, "set", nil, "section.option=value, on top of the default configuration; repeatable")
	stop := &cobra.Command{
		Use:   "stop HOST [python|patchbay]",
		Short: "Stop the agent and its helpers",
		Args:  cobra.RangeArgs(1, 2),
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, args []string) error {
			h, err := l.HostNamed(args[0])
			if err != nil {
				return err
			}
			kind, pid := h.Agent()
			if pid == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "no agent runs on %s\n", h.Name())
				return nil
			}
			if len(args) == 2 && args[1] != string(kind) {
				return fmt.Errorf("the agent on %s is %s, not %s", h.Name(), kind, args[1])
			}
			began := time.Now()
			if err := h.StopAgent(ctx); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s agent on %s stopped after %.1fs\n", kind, h.Name(), time.Since(began).Seconds())
			return nil
		}),
	}
	cmd.AddCommand(start, stop)
	return cmd
}

func (c *cli) allow() *cobra.Command {
	return &cobra.Command{
		Use:   "allow PROTOCOL",
		Short: "Let a protocol (icmp, tcp, udp) into all VMs of the default security group",
		Args:  cobra.ExactArgs(1),
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, _ *cobra.Command, args []string) error {
			group, err := l.DefaultGroup(ctx)
			if err != nil {
				return err
			}
			return l.Allow(ctx, group, args[0])
		}),
	}
}

func (c *cli) flows() *cobra.Command {
	return &cobra.Command{
		Use:   "flows HOST BRIDGE",
		Short: "Show the flows of a bridge",
		Args:  cobra.ExactArgs(2),
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, args []string) error {
			h, err := l.HostNamed(args[0])
			if err != nil {
				return err
			}
			out, err := h.Flows(ctx, args[1])
			fmt.Fprint(cmd.OutOrStdout(), out)
			return err
		}),
	}
}
