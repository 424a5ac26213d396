// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/spf13/cobra"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// netFlags name the network of a new port.
type netFlags struct{ name, cidr, kind, physnet string }

func (f *netFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "network", "lab", "network of a new port, created when missing")
	cmd.Flags().StringVar(&f.cidr, "cidr", lab.DefaultCIDR, "subnet of a new network")
	cmd.Flags().StringVar(&f.kind, "type", "", "type of a new network: vxlan, gre, geneve, vlan, flat or local")
	cmd.Flags().StringVar(&f.physnet, "physnet", "", "physical network of a new vlan or flat network")
}

func (f *netFlags) find(ctx context.Context, l *lab.Lab) (lab.Network, error) {
	return l.NetworkNamed(ctx, lab.Network{Name: f.name, CIDR: f.cidr, Type: f.kind, PhysicalNetwork: f.physnet})
}

func (c *cli) port() *cobra.Command {
	cmd := &cobra.Command{Use: "port", Short: "Ports of the Networking API"}
	var f netFlags
	var name, host string
	create := &cobra.Command{
		Use:   "create",
		Short: "Create a port without plugging it, and print its ID",
		Args:  cobra.NoArgs,
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, _ []string) error {
			var h *lab.Host
			if host != "" {
				var err error
				if h, err = l.HostNamed(host); err != nil {
					return err
				}
			}
			n, err := f.find(ctx, l)
			if err != nil {
				return err
			}
			p, err := l.CreatePort(ctx, h, lab.Port{NetworkID: n.ID, Name: name})
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), p.ID)
			return nil
		}),
	}
	f.add(create)
	create.Flags().StringVar(&name, "name", "", "name of the port")
	create.Flags().StringVar(&host, "host", "", "host to bind it to")
	cmd.AddCommand(create)
	return cmd
}

func (c *cli) vm() *cobra.Command {
	cmd := &cobra.Command{Use: "vm", Short: "VMs: namespaces plugged into a host's br-int"}
	cmd.AddCommand(c.plug(), c.unplug())
	return cmd
}

func (c *cli) plug() *cobra.Command {
	var f netFlags
	var p lab.Port
	var wait, open bool
	var count int
	cmd := &cobra.Command{
		Use:   "plug HOST",
		Short: "Plug a VM, creating its port unless --port names one",
		Args:  cobra.ExactArgs(1),
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, cmd *cobra.Command, args []string) error {
			h, err := l.HostNamed(args[0])
			if err != nil {
				return err
			}
			if p.ID == "" {
				n, err := f.find(ctx, l)
				if err != nil {
					return err
				}
				p.NetworkID = n.ID
			}
			if count > 0 {
				return plugMany(ctx, l, h, p, count, wait, cmd.OutOrStdout())
			}
			p.Isolate = !open
			vm, err := h.Plug(ctx, p)
			if err != nil {
				return err
			}
			began := time.Now()
			fmt.Fprintf(cmd.OutOrStdout(), "%s on %s: %s, port %s, namespace %s\n", vm.Name, vm.Host, strings.Join(vm.IPs, " "), vm.PortID, vm.Netns)
			if !wait {
				return nil
			}
			if err := l.WaitActive(ctx, vm.PortID); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ACTIVE after %.1fs\n", time.Since(began).Seconds())
			return nil
		}),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&p.ID, "port", "", "ID of an existing port")
	cmd.Flags().StringVar(&p.Name, "name", "", "name of the VM and of a new port")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the port is ACTIVE")
	cmd.Flags().BoolVar(&open, "open", false, "plug it in without isolation, as Nova does unless isolate_vif is set in [os_vif_ovs]: Patchbay warns of that")
	cmd.Flags().BoolVar(&p.Hybrid, "hybrid", false, "plug it in through a Linux bridge of its own, as Nova does for firewall_driver = iptables_hybrid")
	cmd.Flags().IntVar(&count, "count", 0, "plug that many ports as internal interfaces, without VMs, in one transaction")
	return cmd
}

func plugMany(ctx context.Context, l *lab.Lab, h *lab.Host, p lab.Port, count int, wait bool, w io.Writer) error {
	list, err := l.CreatePorts(ctx, h, p, count)
	if err != nil {
		return err
	}
	if err := h.PlugMany(ctx, list); err != nil {
		return err
	}
	began := time.Now()
	fmt.Fprintf(w, "%d ports plugged into %s\n", len(list), h.Name())
	if !wait {
		return nil
	}
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.ID
	}
	if err := l.WaitActive(ctx, ids...); err != nil {
		return err
	}
	fmt.Fprintf(w, "ACTIVE after %.1fs\n", time.Since(began).Seconds())
	return nil
}

func (c *cli) unplug() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "unplug NAME|PORT",
		Short: "Remove a VM and its port; PORT may also be one plugged with --count",
		Args:  cobra.ExactArgs(1),
		RunE: c.withLab(func(ctx context.Context, l *lab.Lab, _ *cobra.Command, args []string) error {
			vm, err := l.VMNamed(args[0])
			if err == nil {
				return vm.Unplug(ctx, !keep)
			}
			port, getErr := ports.Get(ctx, l.Neutron(), args[0]).Extract()
			if getErr != nil {
				return err
			}
			for _, h := range l.Hosts() {
				if err := h.UnplugMany(ctx, []ports.Port{*port}); err != nil {
					return err
				}
			}
			if keep {
				return nil
			}
			return ports.Delete(ctx, l.Neutron(), port.ID).ExtractErr()
		}),
	}
	cmd.Flags().BoolVar(&keep, "keep-port", false, "leave the port in the API")
	return cmd
}

func (c *cli) logs() *cobra.Command {
	var lines int
	var what string
	cmd := &cobra.Command{
		Use:   "logs HOST|server|broker|database",
		Short: "Show the end of the logs of a host or of a server",
		Args:  cobra.ExactArgs(1),
		RunE: c.withLab(func(_ context.Context, l *lab.Lab, cmd *cobra.Command, args []string) error {
			files, err := l.Logs(args[0])
			if err != nil {
				return err
			}
			for _, file := range files {
				if what != "" && !strings.Contains(file, what) {
					continue
				}
				if _, err := os.Stat(file); err != nil {
					continue
				}
				fmt.Fprintln(cmd.OutOrStdout(), daemon.Tail(file, lines))
			}
			return nil
		}),
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 20, "lines of each file")
	cmd.Flags().StringVar(&what, "only", "", "only files whose path contains this, such as python or vswitchd")
	return cmd
}
