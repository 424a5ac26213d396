// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTime is how long a shell may wait for names.
const completionTime = time.Second

// completePorts offers the ids, names and interfaces of ports; without an agent to ask nothing is offered.
func completePorts(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	ports, err := completionFlags(cmd).client().Ports(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, p := range ports {
		about := strings.TrimSpace(p.State + " " + p.Name + " " + strings.Join(p.Addresses, " "))
		for _, name := range []string{p.ID, p.Name, p.Interface} {
			if name != "" && strings.HasPrefix(name, begin) {
				out = append(out, cobra.CompletionWithDesc(name, about))
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeGroups offers the ids and names of groups.
func completeGroups(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	groups, err := completionFlags(cmd).client().Groups(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, g := range groups {
		for _, name := range []string{g.ID, g.Name} {
			if name != "" && strings.HasPrefix(name, begin) {
				out = append(out, cobra.CompletionWithDesc(name, g.Name))
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func completionFlags(cmd *cobra.Command) *askFlags {
	socket, _ := cmd.Flags().GetString("socket") // a command without the flag has the default
	return &askFlags{Socket: socket}
}
