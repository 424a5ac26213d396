// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/sim"
	"github.com/patchbay-sdn/patchbay/lab/sim/region"
)

func (c *cli) sim() *cobra.Command {
	var cfg sim.Config
	var pop sim.Population
	var vlan int
	var ip netip.Addr
	var rate float64
	var unkind string
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run a simulated neutron-server, with any number of ports, groups and members",
		Long: `Answer the calls that layer-2 agents make to neutron-server, from memory, over the RabbitMQ of a lab or of --url, until
interrupted. --ports, --groups and --members create objects; with --rate the server changes them all the time. It answers as
the real server does, but has no routers, trunks and QoS policies.

With --unkind the server injects faults: all, or a list of delay=500ms (of messages, calls and replies), reorder (several
server processes send messages about the same objects), duplicate=0.1, fail=0.1 (calls), lose=0.05 (calls and replies) and
devices=0.2 (ports whose status the server does not write). The log names the seed; seed=N repeats the same faults.

lab up --server sim starts a lab with this server. lab up --server none starts a lab without a server.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			var err error
			if cfg.Unkind, err = region.ParseUnkind(unkind); err != nil {
				return err
			}
			cfg.Log = func(format string, args ...any) {
				fmt.Fprintf(out, time.Now().UTC().Format("15:04:05.000 ")+format+"\n", args...)
			}
			if cfg.URL == "" {
				l, err := lab.Open(lab.Options{Dir: c.dir})
				if err != nil {
					return fmt.Errorf("no --url, and no lab to serve: %w", err)
				}
				cfg.URL = l.TransportURL()
				if cfg.API == "" {
					cfg.API = l.APIAddr()
				}
			}
			if vlan != 0 {
				pop.Segment = sim.Segment{NetworkType: "vlan", PhysicalNetwork: "physnet1", SegmentationID: vlan}
			}
			return simulate(cmd.Context(), cfg, pop, ip, rate)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.URL, "url", "", "transport_url of the broker (default: the lab's)")
	f.StringVar(&cfg.API, "api", "", "address to serve the Networking API on, such as 127.0.0.1:9696")
	f.StringVar(&pop.Host, "host", "hv1", "the host of the local ports")
	f.TextVar(&ip, "ip", netip.MustParseAddr("203.0.113.2"), "tunnel endpoint of that host, until its agent reports one")
	f.IntVar(&pop.Ports, "ports", 0, "ports on that host")
	f.IntVar(&pop.Groups, "groups", 0, "security groups of these ports, each with a remote group")
	f.IntVar(&pop.Members, "members", 0, "members of each remote group, on other hosts")
	f.IntVar(&vlan, "vlan", 0, "segmentation id of a vlan network on physnet1 (default: a vxlan network)")
	f.StringVar(&pop.Project, "project", lab.Project, "project that owns all objects")
	f.IntVar(&cfg.Release, "release", 0, "release of the server, from 17 on, with the object versions of that release (default 21)")
	f.StringVar(&unkind, "unkind", "", "faults to inject: all, or a list (see above)")
	f.DurationVar(&cfg.DHCP, "dhcp", 0, "simulate a DHCP agent that takes this time to be ready with a port")
	f.Float64Var(&rate, "rate", 0, "changes a second, of members and rules")
	return cmd
}

func simulate(ctx context.Context, cfg sim.Config, pop sim.Population, ip netip.Addr, rate float64) error {
	s, err := sim.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }()
	cfg.Log("serving agents")
	if pop.Ports+pop.Groups > 0 {
		if pop.Ports > 0 {
			s.AddAgent(pop.Host, ip)
		}
		began := time.Now()
		made, err := s.Populate(ctx, pop)
		if err != nil {
			return err
		}
		cfg.Log("made %d ports, %d groups with %d members each in %v", pop.Ports, pop.Groups, pop.Members, time.Since(began).Round(time.Millisecond))
		for _, p := range made.Local {
			cfg.Log("port %s %s %s", p.ID, p.MAC, p.FixedIPs[0].IP)
		}
		if rate > 0 {
			n, err := s.Churn(ctx, made, rate)
			cfg.Log("pushed %d changes", n)
			return err
		}
	} else if rate > 0 {
		return errors.New("--rate needs --groups: there is nothing to change")
	}
	<-ctx.Done()
	return nil
}
