// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// asked is a command of the operator's, and what it has to say.
type asked struct {
	args []string
	says []string
}

// explained asks about ports of all kinds, and about packets through the router, on the host of a and of the trunk. Where the
// first host's trace ends, that of the other one goes on with the command it names.
func (r *routed) explained(t *testing.T) {
	gateway, far := r.interfaceOf(t, r.a.net), r.interfaceOf(t, r.b.net)
	parent, sub := r.carrier.riders[0], r.carrier.riders[1]
	limits := []string{"at most 10000 packets/s from it by meter", "at most 100000 kbit/s to it", "what it sends is marked with DSCP 26"}
	over := []string{"delivered: to port " + gateway.ID[:8], "router " + r.router + " sends it on by port " + far.ID[:8] + ", from " + far.MACAddress + " to " + r.b.MAC}
	leaves := "leaves: to " + r.l.Host(3).LocalIP() + " over vxlan"
	for _, q := range []asked{
		{[]string{"status"}, []string{"in sync"}},
		{[]string{"ports"}, []string{"router interface", "trunk parent", "sub-port", "floating IP gateway"}},
		{[]string{"explain", r.a.PortID}, append(limits, "reach it as from its gateway "+gateway.MACAddress)},
		{[]string{"port", r.a.PortID}, append(limits, "from the VM")},
		{[]string{"explain", parent.port.ID}, []string{"Its role: trunk parent.", "sub-ports: 1", "at most 12000 packets/s from it by meter"}},
		{[]string{"explain", sub.port.ID}, []string{fmt.Sprintf("whose VM sends it under VLAN %d", sub.vlan), "its network's: what it sends is marked with DSCP 10"}},
		{[]string{"explain", gateway.ID}, []string{"It is an interface of router " + r.router, "its packets leave the host as fa:16:3f:"}},
		{[]string{"trace", r.a.PortID, r.b.v4}, append(over, leaves, "with sender fa:16:3f:", "packets beyond that are dropped, which no trace shows")},
		{[]string{"trace", r.a.PortID, r.b.v6}, []string{"delivered: to port", "ip netns exec qrouter-" + r.router + " ip route get " + r.b.v6}},
		{[]string{"trace", r.a.PortID, gateway.FixedIPs[0].IPAddress}, []string{"delivered: to port " + gateway.ID[:8]}},
		{[]string{"trace", r.a.PortID, r.beyond.v4}, []string{"an interface of router " + r.router, "ip netns exec qrouter-"}},
		{[]string{"trace", r.a.PortID, parent.ip()}, []string{"delivered: to port trunk-one"}},
		{[]string{"trace", r.a.PortID, sub.ip()}, []string{"delivered: to port trunk-three"}},
		{[]string{"trace", sub.port.ID, r.b.v4}, []string{fmt.Sprintf("under VLAN %d", sub.vlan), leaves}},
		{[]string{"trace", sub.port.ID, r.a.v4}, []string{"delivered: to port a"}},
		{[]string{"map"}, []string{"router interface", "sub-port", "at most 10000 packets/s"}},
	} {
		r.says(t, 2, q)
	}
	out, _ := r.runPatchbay(t, 2, "trace", r.a.PortID, r.b.v4)
	_, command, ok := strings.Cut(out, "go on there with: patchbay ")
	if !ok {
		t.Fatalf("the trace does not go on:\n%s", out)
	}
	r.says(t, 3, asked{strings.Fields(command), []string{"delivered: to port b"}})
}

// says asks until the answer has all that it must have.
func (r *routed) says(t *testing.T, host int, q asked) {
	t.Helper()
	var out, lacks string
	r.eventually(wired/4, func() bool {
		out, _ = r.runPatchbay(t, host, q.args...)
		lacks = ""
		for _, words := range q.says {
			if !strings.Contains(out, words) {
				lacks = words
			}
		}
		return lacks == ""
	})
	if q.args[0] != "map" {
		t.Logf("patchbay %s\n%s", strings.Join(q.args, " "), out)
	}
	if lacks != "" {
		t.Errorf("patchbay %s does not say %q:\n%s", strings.Join(q.args, " "), lacks, out)
	}
}

// interfaceOf is the router's port on a network's IPv4 subnet.
func (r *routed) interfaceOf(t *testing.T, n *network) ports.Port {
	t.Helper()
	pages, err := ports.List(r.l.Neutron(), ports.ListOpts{NetworkID: n.ID, DeviceOwner: "network:router_interface_distributed"}).AllPages(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ports.ExtractPorts(pages)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.FixedIPs[0].SubnetID == n.SubnetID {
			return p
		}
	}
	t.Fatalf("the router has no interface on %s", n.Name)
	return ports.Port{}
}
