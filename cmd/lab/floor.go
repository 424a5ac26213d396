// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/floor"
)

// singles is how often the time of one port is taken; the median counts.
const singles = 5

func (c *cli) floor() *cobra.Command {
	var f netFlags
	var count int
	batches := floor.FewFirst
	cmd := &cobra.Command{
		Use:   "floor HOST",
		Short: "Measure the fastest possible wiring: one port, and many at once",
		Long: `Plug ports into a host and wire them with a minimal program instead of an agent. The program makes only the calls, rows and
flows of the agent. The command prints the time from plug to ACTIVE. Before you run it, start an agent, which sets up the host's
bridges, and stop the agent. The command removes the ports at the end.`,
		Args: cobra.ExactArgs(1),
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, args []string) error {
			h, err := l.HostNamed(args[0])
			if err != nil {
				return err
			}
			n, err := f.find(ctx, l)
			if err != nil {
				return err
			}
			return measureFloor(ctx, l, h, n, count, batches, func(format string, args ...any) { fmt.Fprintf(cmd.OutOrStdout(), format, args...) })
		}),
	}
	f.add(cmd)
	cmd.Flags().IntVar(&count, "count", 100, "how many ports at once")
	cmd.Flags().IntVar(&batches.First, "ask", batches.First, "ports in the first bulk_pull; each further one has twice as many")
	cmd.Flags().IntVar(&batches.Asking, "asking", batches.Asking, "calls in flight at a time")
	return cmd
}

func measureFloor(ctx context.Context, l *lab.Lab, h *lab.Host, n lab.Network, count int, batches floor.Batches, print func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	fl, err := floor.Start(ctx, l, h, batches)
	if err != nil {
		return err
	}
	defer func() { _ = fl.Close() }()
	watch, err := floor.NewWatch(ctx, l)
	if err != nil {
		return err
	}
	defer watch.Close()
	list, err := l.CreatePorts(ctx, h, lab.Port{NetworkID: n.ID}, singles+count)
	if err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		_ = h.UnplugMany(ctx, list)
		for _, p := range list {
			_ = ports.Delete(ctx, l.Neutron(), p.ID).ExtractErr()
		}
	}()
	plug := func(list []ports.Port) (first, all time.Duration, err error) {
		ids := make([]string, len(list))
		for i, p := range list {
			ids[i] = p.ID
		}
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second+time.Duration(len(list))*time.Second/2)
		defer cancel()
		began := time.Now()
		if err := h.PlugMany(ctx, list); err != nil {
			return 0, 0, err
		}
		a, b, err := watch.Wait(ctx, "ACTIVE", ids...)
		if err != nil {
			return 0, 0, errors.Join(err, fl.Err())
		}
		return a.Sub(began), b.Sub(began), nil
	}
	var one []time.Duration
	for i := range singles {
		_, took, err := plug(list[i : i+1])
		if err != nil {
			return err
		}
		one = append(one, took)
	}
	slices.Sort(one)
	print("one port, plug to ACTIVE: %v (median of %d: %v to %v)\n", one[singles/2], singles, one[0], one[singles-1])
	first, all, err := plug(list[singles:])
	if err != nil {
		return err
	}
	print("%d ports at once: first ACTIVE after %v, all after %v\n", count, first, all)
	return fl.Err()
}
