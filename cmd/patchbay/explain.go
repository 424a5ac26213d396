// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/internal/trace"
)

// explainFlags are the flags of `patchbay explain`.
type explainFlags struct {
	hostFlags
	Bridge string
}

func newExplainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain PORT|FLOW",
		Short: "Explain in sentences the state of a port, or why a flow exists",
		Long: `Explain in sentences the state of a port, or why a flow exists.

PORT is an id, the beginning of it, a name, an interface or an address. FLOW is
a flow as ovs-ofctl prints it; you can paste a whole line.`,
		Example: `  patchbay explain web-1
  patchbay explain 'table=82,priority=77,ct_state=+new-est,tcp,reg5=0x7,tp_dst=22'`,
		Args:              argumentsOf(1, 1),
		ValidArgsFunction: completePorts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExplain(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], f)
		},
	}
	f.hostFlags.add(cmd)
	cmd.Flags().StringVar(&f.Bridge, "bridge", "", "bridge of the flow (default: every bridge that has it)")
	return cmd
}

func runExplain(ctx context.Context, out, errs io.Writer, ref string, f explainFlags) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h, err := f.look(ctx, errs)
	if err != nil {
		return err
	}
	var x trace.Explanation
	if trace.LooksLikeFlow(ref) {
		x, err = h.ExplainFlow(ref, f.Bridge)
	} else {
		x, err = h.ExplainPort(ref)
	}
	if err != nil {
		return ended{exitFinding, err.Error()}
	}
	if f.Output.forPrograms() {
		return f.Output.write(out, x)
	}
	_, err = fmt.Fprint(out, x)
	return err
}
