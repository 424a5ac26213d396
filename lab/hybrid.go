// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// A VM may be plugged in through a Linux bridge of its own, as os-vif does for firewall_driver = iptables_hybrid: the tap is in the bridge, and
// so is one end of a pair of interfaces, whose other end is in the switch.

// linuxBridge, inner and outer are the names of the bridge and of the ends of the pair.
func (vm *VM) linuxBridge() string { return "qbr" + vm.Tap[len("tap"):] }
func (vm *VM) inner() string       { return "qvb" + vm.Tap[len("tap"):] }
func (vm *VM) outer() string       { return "qvo" + vm.Tap[len("tap"):] }

// Device is the interface of the VM that is in the switch.
func (vm *VM) Device() string {
	if vm.Hybrid {
		return vm.outer()
	}
	return vm.Tap
}

// makeBridge puts the tap into a Linux bridge, and makes what leads from there to the switch.
func (vm *VM) makeBridge(ctx context.Context, h *Host) error {
	bridge, inner, outer := vm.linuxBridge(), vm.inner(), vm.outer()
	if _, err := run(ctx, "", "ip", "netns", "exec", h.netns, "ip", "link", "add", bridge, "type", "bridge",
		"forward_delay", "0", "stp_state", "0", "ageing_time", "0", "mcast_snooping", "0"); err != nil {
		return err
	}
	if _, err := run(ctx, "", "ip", "netns", "exec", h.netns, "sysctl", "-qw", "net.ipv6.conf."+bridge+".disable_ipv6=1",
		"net.ipv4.conf."+bridge+".arp_ignore=1", "net.ipv4.conf."+bridge+".arp_announce=2"); err != nil {
		return err
	}
	if err := batch(ctx, h.netns,
		"link add "+inner+" type veth peer name "+outer,
		"link set dev "+inner+" mtu "+vmMTU+" promisc on master "+bridge+" up",
		"link set dev "+outer+" mtu "+vmMTU+" promisc on up",
		"link set dev "+vm.Tap+" master "+bridge,
		"link set dev "+bridge+" up",
	); err != nil {
		return err
	}
	for _, dev := range []string{inner, outer} {
		if err := checksumsOff(ctx, h.netns, dev); err != nil {
			return err
		}
	}
	return nil
}

// deviceNames are the interfaces that the VM has on its host; each takes its other end along.
func (vm *VM) deviceNames(have []string) []string {
	return slices.DeleteFunc([]string{vm.linuxBridge(), vm.inner(), vm.Tap}, func(name string) bool { return !slices.Contains(have, name) })
}

// PlugManyHybrid plugs ports that nobody will send packets through into the switch, each through a Linux bridge of its own. They must be bound to
// the host.
func (h *Host) PlugManyHybrid(ctx context.Context, list []ports.Port) error {
	args := ensureBridge(integration)
	var ids []string
	for _, p := range list {
		vm := VM{Tap: tapName(p.ID), Hybrid: true}
		ids = append(ids, p.ID)
		args = append(args, addPort(integration, vm.outer(), p.ID, p.MACAddress)...)
	}
	if err := h.MakeLinuxBridges(ctx, ids...); err != nil {
		return fmt.Errorf("plugging %d ports through Linux bridges: %w", len(list), err)
	}
	if _, err := h.Switch().Vsctl(ctx, args...); err != nil {
		return fmt.Errorf("plugging %d ports: %w", len(list), err)
	}
	return nil
}

// UnplugManyHybrid undoes PlugManyHybrid.
func (h *Host) UnplugManyHybrid(ctx context.Context, list []ports.Port) error {
	var args, ids []string
	for _, p := range list {
		vm := VM{Tap: tapName(p.ID), Hybrid: true}
		ids = append(ids, p.ID)
		args = append(args, "--", "--if-exists", "del-port", integration, vm.outer())
	}
	if _, err := h.Switch().Vsctl(ctx, args...); err != nil {
		return fmt.Errorf("unplugging %d ports: %w", len(list), err)
	}
	return h.DeleteLinuxBridges(ctx, ids...)
}

// MakeLinuxBridges makes the Linux bridge, the tap and the pair of interfaces of each port. The switch is left alone: the outer end, qvo…, is for it.
func (h *Host) MakeLinuxBridges(ctx context.Context, portIDs ...string) error {
	var commands []string
	for _, id := range portIDs {
		vm := VM{Tap: tapName(id), Hybrid: true}
		commands = append(commands,
			"link add "+vm.linuxBridge()+" type bridge forward_delay 0 stp_state 0 ageing_time 0 mcast_snooping 0",
			"tuntap add dev "+vm.Tap+" mode tap",
			"link set dev "+vm.Tap+" master "+vm.linuxBridge(),
			"link add "+vm.inner()+" master "+vm.linuxBridge()+" type veth peer name "+vm.outer(),
		)
	}
	return batch(ctx, h.netns, commands...)
}

// DeleteLinuxBridges undoes MakeLinuxBridges.
func (h *Host) DeleteLinuxBridges(ctx context.Context, portIDs ...string) error {
	var commands []string
	for _, id := range portIDs {
		vm := VM{Tap: tapName(id), Hybrid: true}
		commands = append(commands, "link del "+vm.inner(), "link del "+vm.Tap, "link del "+vm.linuxBridge())
	}
	return batch(ctx, h.netns, commands...)
}
