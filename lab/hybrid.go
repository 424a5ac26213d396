// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"slices"
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
