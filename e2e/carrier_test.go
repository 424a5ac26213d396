// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
)

// carrier is a VM with a trunk.
type carrier struct {
	*cloud
	trunk  string
	vm     *vm
	links  *vlanLinks
	riders []*rider // the parent first
}

// rider is such a VM as a member of one network.
type rider struct {
	net         *network
	port        *ports.Port
	vlan        uint16 // 0 for the parent
	near, other *vm    // of the same network, on two hosts, where a test has such
}

func (r *rider) ip() string { return r.port.FixedIPs[0].IPAddress }

func (r *rider) link() string {
	if r.vlan == 0 {
		return "eth0"
	}
	return "eth0." + strconv.Itoa(int(r.vlan))
}

// rider makes a port for a trunk, of which it is no part yet.
func (c *cloud) rider(t *testing.T, n *network, ip string, extra attributes) *rider {
	t.Helper()
	p, err := c.l.CreatePort(c.ctx, nil, lab.Port{NetworkID: n.ID, Name: "trunk-" + n.Name, Extra: with(with(extra, "device_owner", ""),
		"fixed_ips", []attributes{{"subnet_id": n.SubnetID, "ip_address": ip}})})
	if err != nil {
		t.Fatal(err)
	}
	return &rider{net: n, port: p}
}

// carry makes a trunk of ports, the parent first, and plugs in the VM, with a link for each sub-port and a spare one.
func (c *cloud) carry(t *testing.T, host int, riders ...*rider) *carrier {
	t.Helper()
	x := &carrier{cloud: c, riders: riders, vm: &vm{net: &network{}, name: "trunk", host: host}}
	var made struct{ Trunk identified }
	c.post(t, "trunks", attributes{"trunk": attributes{
		"name": "trunk", "tenant_id": lab.Project, "port_id": riders[0].port.ID, "sub_ports": subPorts(riders[1:]...),
	}}, &made)
	x.trunk = made.Trunk.ID
	var err error
	if x.vm.VM, err = c.l.Host(host).Plug(c.ctx, lab.Port{ID: riders[0].port.ID, Name: "trunk", Bridge: x.bridge()}); err != nil {
		t.Fatal(err)
	}
	vlans := []uint16{spareVLAN}
	for _, r := range riders[1:] {
		vlans = append(vlans, r.vlan)
	}
	if x.links, err = openVLANs(x.vm.Netns, vlans...); err != nil {
		t.Fatal(err)
	}
	if x.vm.probe, err = openProbe(x.vm.Netns, "eth0"); err != nil {
		t.Fatal(err)
	}
	for _, r := range riders[1:] {
		x.address(t, r)
	}
	return x
}

func (x *carrier) close() {
	x.links.close()
	x.vm.probe.close()
}

func (x *carrier) bridge() string { return ("tbr-" + x.trunk)[:14] }

func subPorts(list ...*rider) []attributes {
	var out []attributes
	for _, r := range list {
		out = append(out, attributes{"port_id": r.port.ID, "segmentation_type": "vlan", "segmentation_id": r.vlan})
	}
	return out
}

// address gives the VM's link the address of a sub-port.
func (x *carrier) address(t *testing.T, r *rider) {
	t.Helper()
	x.inVM(t, "ip", "link", "set", "dev", r.link(), "address", r.port.MACAddress, "mtu", "1300", "up")
	x.inVM(t, "ip", "address", "replace", r.ip()+"/24", "dev", r.link())
}

// inVM runs a command in the VM, which must succeed.
func (x *carrier) inVM(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := x.vm.Command(x.ctx, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// waitTrunk waits until the server takes the trunk for wired.
func (x *carrier) waitTrunk(t *testing.T) {
	t.Helper()
	var answer struct{ Trunk struct{ Status string } }
	if !x.eventually(wired, func() bool {
		return x.try(http.MethodGet, "trunks/"+x.trunk, nil, &answer) == nil && answer.Trunk.Status == "ACTIVE"
	}) {
		t.Errorf("the trunk is %s", answer.Trunk.Status)
	}
}

func (x *carrier) waitPort(t *testing.T, r *rider, want string) {
	t.Helper()
	got := ""
	if !x.eventually(wired, func() bool {
		p, err := ports.Get(x.ctx, x.l.Neutron(), r.port.ID).Extract()
		if err == nil {
			got = p.Status
		}
		return got == want
	}) {
		t.Errorf("the port on %s is %s, want %s", r.net.Name, got, want)
	}
}
