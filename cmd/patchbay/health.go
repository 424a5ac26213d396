// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
)

func newHealthCommand() *cobra.Command {
	var f askFlags
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Print in one line whether the agent is healthy, for health checks of containers",
		Long: `Print in one line whether the agent is healthy: its loop answers, and ovsdb-server, the bridges and the broker are connected.
The command is for health checks of containers; patchbay status prints the details.

A restart of the agent does not repair a connection. Use --live if a failed check restarts the agent.

Without --socket the command finds the agent that runs on this host, with any configuration files.

Exit status:
  0  healthy
  1  not healthy, or no agent answers`,
		Example: "  patchbay health\n  patchbay health --live",
		Args:    argumentsOf(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			s, err := f.client().Status(ctx)
			if err != nil {
				fmt.Fprintln(cmd.OutOrStdout(), "not healthy:", strings.ReplaceAll(err.Error(), "\n", " "))
				return ended{status: exitFinding}
			}
			ok, why := healthy(&s, live)
			fmt.Fprintln(cmd.OutOrStdout(), why)
			if !ok {
				return ended{status: exitFinding}
			}
			return nil
		},
	}
	f.addSocket(cmd)
	cmd.Flags().BoolVar(&live, "live", false, "check only whether the agent's loop answers")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the answer")
	return cmd
}

// healthy says whether an agent that answers does its work, and why, in one line. With live it is enough that it answers.
func healthy(s *inspect.Status, live bool) (ok bool, why string) {
	if live {
		return true, "alive"
	}
	var bad []string
	peer := func(name string, p inspect.Peer) {
		if !p.Up {
			bad = append(bad, strings.TrimSuffix(name+" is not connected: "+p.Error, ": "))
		}
	}
	peer("the switch's database", s.Switch)
	for _, b := range s.Bridges {
		if !b.Connected {
			bad = append(bad, strings.TrimSuffix("bridge "+b.Name+" is not connected: "+b.Error, ": "))
		}
	}
	peer("the broker", s.Broker)
	switch {
	case len(bad) > 0:
		return false, "not healthy: " + strings.ReplaceAll(strings.Join(bad, "; "), "\n", " ")
	case s.InSync:
		return true, "healthy: in sync"
	}
	return true, "healthy, but not in sync: " + strings.ReplaceAll(strings.Join(s.Reasons, "; "), "\n", " ")
}
