// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"context"
	"strings"
)

// Port is a logical port: its name is the iface-id of the interface to plug.
type Port struct {
	Name, MAC string
	IPs       []string
}

// AddGroup makes a logical switch with ports, and gives them what Neutron's OVN driver makes of a default security group:
// everything is dropped, what a port sends is allowed with its answers, and so is what comes from members of the group.
// Senders are held to their addresses. It returns when ovn-controller has taken it in.
func (n *Node) AddGroup(ctx context.Context, name string, ports []Port) error {
	args := []string{"--wait=hv", "ls-add", name}
	also := func(more ...string) { args = append(append(args, "--"), more...) }
	var names []string
	for _, p := range ports {
		addresses := strings.Join(append([]string{p.MAC}, p.IPs...), " ")
		also("lsp-add", name, p.Name)
		also("lsp-set-addresses", p.Name, addresses)
		also("lsp-set-port-security", p.Name, addresses)
		names = append(names, p.Name)
	}
	also(append([]string{"pg-add", "drop"}, names...)...)
	also("acl-add", "drop", "to-lport", "1001", "outport == @drop && ip", "drop")
	also("acl-add", "drop", "from-lport", "1001", "inport == @drop && ip", "drop")
	also(append([]string{"pg-add", "members"}, names...)...)
	for _, v := range []string{"4", "6"} {
		also("acl-add", "members", "from-lport", "1002", "inport == @members && ip"+v, "allow-related")
		also("acl-add", "members", "to-lport", "1002", "outport == @members && ip"+v+" && ip"+v+".src == $members_ip"+v, "allow-related")
	}
	_, err := n.Nbctl(ctx, args...)
	return err
}
