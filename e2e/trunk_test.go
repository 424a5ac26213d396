// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestTrunk has a VM reach four networks through one interface: the parent's untagged, and three of sub-ports by VLAN
// sub-interfaces. Other VMs of these networks are on two hosts, and so are those of one more, which it must never reach. It is looked at
// again after everything that may happen to a trunk.
func TestTrunk(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start := time.Now()
	x := &trunked{agent: agentUnderTest(t)}
	x.cloud = &cloud{l: lab.New(t, 2), ctx: ctx, round: round{name: string(x.agent)}}
	t.Cleanup(x.close)
	t.Cleanup(func() { x.table.print(time.Since(start)) })
	if !x.run(t, "agents start", "2", x.start) || !x.run(t, "networks, trunk and VMs are in place", "2", x.prepare) {
		t.FailNow()
	}
	x.look(t, "plugged in")
	if x.agent == lab.Patchbay {
		x.run(t, "the operator's commands know the trunk", "1", x.explained)
	}
	x.run(t, "agents restart", "2", x.restart)
	x.look(t, "after a restart")
	x.run(t, "ovs-vswitchd is killed", "1", x.switchDies)
	x.look(t, "after a crash of the switch")
	x.run(t, "a sub-port goes, and comes back under another VLAN", "1", x.anotherVLAN)
	x.look(t, "under another VLAN")
	x.run(t, "the VM is unplugged with its bridge, and plugged in", "1", func(t *testing.T) { x.replugged(t, true) })
	x.look(t, "plugged in again")
	x.run(t, "the VM is unplugged, the agent takes the bridge away; plugged in", "1", func(t *testing.T) { x.replugged(t, false) })
	x.look(t, "plugged in once more")
}

// trunked is a cloud with a trunk.
type trunked struct {
	*cloud
	agent  lab.AgentKind
	trunk  string
	vm     *vm // with the trunk, on the first host
	links  *vlanLinks
	riders []*rider
	fourth *network // of no sub-port
}

// rider is the VM as a member of one network.
type rider struct {
	net         *network
	port        *ports.Port
	vlan        uint16 // 0 for the parent
	near, other *vm    // of the same network, on both hosts
}

func (r *rider) ip() string { return r.port.FixedIPs[0].IPAddress }

func (r *rider) link() string {
	if r.vlan == 0 {
		return "eth0"
	}
	return "eth0." + strconv.Itoa(int(r.vlan))
}

// spareVLAN is the one to which a sub-port moves, noVLAN one that no sub-port ever has.
const spareVLAN, noVLAN = 104, 105

func (x *trunked) start(t *testing.T) {
	x.eachHost(t, func(h *lab.Host) error { return h.StartAgent(x.ctx, x.agent, filtering) })
}

func (x *trunked) prepare(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var active []string
	peers := func(n *network, first int) (near, other *vm) {
		prefix := strings.TrimSuffix(n.CIDR, "0/24")
		near = x.vm4(t, n, n.Name+"-1", 1, prefix+strconv.Itoa(first))
		other = x.vm4(t, n, n.Name+"-2", 2, prefix+strconv.Itoa(first+1))
		active = append(active, near.PortID, other.PortID)
		return near, other
	}
	for i, n := range []lab.Network{
		{Name: "parent", Type: "vlan", PhysicalNetwork: "physnet1", CIDR: "10.1.0.0/24"}, {Name: "one", Type: "vlan", PhysicalNetwork: "physnet1", CIDR: "10.2.0.0/24"},
		{Name: "two", Type: "geneve", CIDR: "10.3.0.0/24"}, {Name: "three", Type: "vxlan", CIDR: "10.4.0.0/24"},
	} {
		r := &rider{net: x.network4(t, n)}
		r.near, r.other = peers(r.net, 11)
		if i > 0 {
			r.vlan = uint16(100 + i)
		}
		var err error
		r.port, err = x.l.CreatePort(x.ctx, nil, lab.Port{NetworkID: r.net.ID, Name: "trunk-" + n.Name, Extra: attributes{
			"device_owner": "", "fixed_ips": []attributes{{"subnet_id": r.net.SubnetID, "ip_address": strings.TrimSuffix(n.CIDR, "0/24") + "50"}},
		}})
		must(err)
		active = append(active, r.port.ID)
		x.riders = append(x.riders, r)
	}
	// The addresses of the fourth network are those of the third one, so that nothing but the network keeps them apart.
	x.fourth = x.network4(t, lab.Network{Name: "fourth", Type: "vxlan", CIDR: "10.4.0.0/24"})
	peers(x.fourth, 21)

	var made struct{ Trunk struct{ ID string } }
	must(x.try(http.MethodPost, "trunks", attributes{"trunk": attributes{
		"name": "trunk", "tenant_id": lab.Project, "port_id": x.riders[0].port.ID, "sub_ports": x.subPorts(x.riders[1:]...),
	}}, &made))
	x.trunk = made.Trunk.ID
	x.vm = &vm{net: &network{}, name: "trunk", host: 1}
	var err error
	x.vm.VM, err = x.l.Host(1).Plug(x.ctx, lab.Port{ID: x.riders[0].port.ID, Name: "trunk", Bridge: x.bridge()})
	must(err)
	x.links, err = openVLANs(x.vm.Netns, x.riders[1].vlan, x.riders[2].vlan, x.riders[3].vlan, spareVLAN)
	must(err)
	x.vm.probe, err = openProbe(x.vm.Netns, "eth0")
	must(err)
	for _, r := range x.riders[1:] {
		x.address(t, r)
	}
	must(x.l.WaitActive(x.ctx, active...))
	x.waitTrunk(t)
}

func (x *trunked) close() {
	x.cloud.close()
	if x.links != nil {
		x.links.close()
		x.vm.probe.close()
	}
}

func (x *trunked) bridge() string { return ("tbr-" + x.trunk)[:14] }

func (x *trunked) subPorts(list ...*rider) []attributes {
	var out []attributes
	for _, r := range list {
		out = append(out, attributes{"port_id": r.port.ID, "segmentation_type": "vlan", "segmentation_id": r.vlan})
	}
	return out
}

// address gives the VM's link the address of a sub-port.
func (x *trunked) address(t *testing.T, r *rider) {
	t.Helper()
	for _, words := range []string{
		"link set dev " + r.link() + " address " + r.port.MACAddress + " mtu 1300 up",
		"address replace " + r.ip() + "/24 dev " + r.link(),
	} {
		if out, err := x.vm.Command(x.ctx, "ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", words, err, out)
		}
	}
}

// waitTrunk waits until the server takes the trunk for wired.
func (x *trunked) waitTrunk(t *testing.T) {
	t.Helper()
	var answer struct{ Trunk struct{ Status string } }
	if !x.eventually(wired, func() bool {
		return x.try(http.MethodGet, "trunks/"+x.trunk, nil, &answer) == nil && answer.Trunk.Status == "ACTIVE"
	}) {
		t.Errorf("the trunk is %s", answer.Trunk.Status)
	}
}

// look checks that the VM reaches all it may reach, and nothing else.
func (x *trunked) look(t *testing.T, when string) {
	x.run(t, when+": reaches its networks, and is reached", "2", x.reaches)
	x.run(t, when+": is in no other network, nor under another VLAN", "2", x.isolated)
}

func (x *trunked) reaches(t *testing.T) {
	x.waitTrunk(t)
	for _, r := range x.riders {
		for _, peer := range []*vm{r.near, r.other} {
			k := x.token()
			x.marked(t, x.vm, peer.v4, k, 10)
			x.marked(t, peer, r.ip(), k, 10)
			if n := peer.probe.saw(k); n < 20 {
				t.Errorf("%s saw %d packets, want 20 or more: the VM has another way", peer.name, n)
			}
		}
	}
}

func (x *trunked) isolated(t *testing.T) {
	type sent struct {
		what string
		k    token
		at   *network // where it must arrive; nil for nowhere
	}
	var list []sent
	send := func(what string, r *rider, at *network, from *probe, put func([]byte) []byte) {
		k := x.token()
		list = append(list, sent{what, k, at})
		// Every network lets its members say where they are.
		frame := arp(1, broadcast, r.port.MACAddress, r.port.MACAddress, r.ip(), r.port.MACAddress, r.ip(), k)
		if err := from.send(put(frame)); err != nil {
			t.Fatal(err)
		}
	}
	under := func(vlan uint16) func([]byte) []byte {
		return func(f []byte) []byte {
			if vlan == 0 {
				return f
			}
			return tagged(f, vlan)
		}
	}
	local, err := strconv.ParseUint(x.tag(t, x.fourth.vms[0]), 10, 12)
	if err != nil {
		t.Fatal(err)
	}
	taken := []uint16{0}
	for _, r := range x.riders {
		taken = append(taken, r.vlan)
		send("as a member of "+r.net.Name, r, r.net, x.vm.probe, under(r.vlan))
	}
	for _, r := range x.riders {
		for _, vlan := range []uint16{noVLAN, uint16(local)} {
			if !slices.Contains(taken, vlan) {
				send(fmt.Sprintf("as a member of %s under VLAN %d", r.net.Name, vlan), r, nil, x.vm.probe, under(vlan))
			}
		}
	}
	everybody := x.vms()
	x.eventually(wired/4, func() bool {
		for _, s := range list {
			for _, v := range everybody {
				if v.net == s.at && v.probe.saw(s.k) == 0 {
					return false
				}
			}
		}
		return true
	})
	x.eventually(silence, func() bool { return false })
	for _, s := range list {
		for _, v := range everybody {
			want := 0
			if v.net == s.at {
				want = 1
			}
			if got := v.probe.saw(s.k); got != want {
				t.Errorf("a broadcast %s arrived %d times at %s on hv%d, want %d", s.what, got, v.name, v.host, want)
			}
		}
	}
	for _, v := range x.fourth.vms {
		x.mustNotPing(t, x.vm, v.v4)
		k := x.token()
		if err := v.probe.send(arp(1, broadcast, v.MAC, v.MAC, v.v4, v.MAC, v.v4, k)); err != nil {
			t.Fatal(err)
		}
		if x.eventually(silence, func() bool { return x.vm.probe.saw(k) > 0 }) {
			t.Errorf("a broadcast of %s arrived at the VM", v.name)
		}
	}
}

// explained asks about a sub-port, and about a packet to it and from it.
func (x *trunked) explained(t *testing.T) {
	r := x.riders[3]
	for _, q := range []struct {
		args []string
		says string
	}{
		{[]string{"explain", r.port.ID}, fmt.Sprintf("sub-port of trunk %s, whose VM sends it under VLAN %d", x.trunk, r.vlan)},
		{[]string{"explain", x.vm.PortID}, fmt.Sprintf("parent of trunk %s on %s, with 3 sub-ports", x.trunk, x.bridge())},
		{[]string{"trace", r.near.PortID, r.ip()}, "delivered: to port"},
		{[]string{"trace", r.port.ID, r.near.v4}, "delivered: to port"},
		{[]string{"trace", r.port.ID, r.other.v4}, "leaves: to " + x.l.Host(2).LocalIP()},
	} {
		var out string
		if !x.eventually(wired/4, func() bool {
			out, _ = x.runPatchbay(t, 1, q.args...)
			return strings.Contains(out, q.says)
		}) {
			t.Errorf("patchbay %s does not say %q:\n%s", strings.Join(q.args, " "), q.says, out)
		}
	}
}

// rows are what the database has about ports and interfaces, without what the switch counts.
func (x *trunked) rows(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, h := range x.l.Hosts() {
		for table, columns := range map[string]string{
			"Bridge": "_uuid,name,ports,fail_mode,other_config", "Port": "_uuid,name,tag,vlan_mode,other_config", "Interface": "_uuid,name,type,options,external_ids",
		} {
			out, err := h.Switch().Vsctl(x.ctx, "--format=csv", "--columns="+columns, "list", table)
			if err != nil {
				t.Fatal(err)
			}
			all.WriteString(h.Name() + " " + table + "\n" + out)
		}
	}
	lines := strings.Split(all.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// restart starts the agents anew; nothing changes.
func (x *trunked) restart(t *testing.T) {
	rows, began := x.rows(t), time.Now()
	x.eachHost(t, func(h *lab.Host) error { return h.StopAgent(x.ctx) })
	x.start(t)
	x.eventually(5*time.Second, func() bool { return false })
	x.waitTrunk(t)
	if n := x.youngerThan(t, time.Since(began)); n != 0 {
		t.Errorf("%d flows were changed", n)
	}
	if after := x.rows(t); after != rows {
		t.Errorf("rows were changed from\n%s\nto\n%s", rows, after)
	}
}

// switchDies kills the switch of the VM's host; all flows come back.
func (x *trunked) switchDies(t *testing.T) {
	h := x.l.Host(1)
	before := x.flows(h)
	if err := h.Switch().KillVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Switch().StartVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	var after map[string][]string
	if !x.eventually(wired, func() bool { after = x.flows(h); return same(before, after) }) {
		t.Errorf("flows are not back:\n%s", difference(before, after))
	}
}

func (x *trunked) anotherVLAN(t *testing.T) {
	r := x.riders[1]
	path := "trunks/" + x.trunk
	if err := x.try(http.MethodPut, path+"/remove_subports", attributes{"sub_ports": []attributes{{"port_id": r.port.ID}}}, nil); err != nil {
		t.Fatal(err)
	}
	x.waitPort(t, r, "DOWN")
	x.mustNotPing(t, x.vm, r.near.v4, r.other.v4)
	if out, err := x.vm.Command(x.ctx, "ip", "link", "set", "dev", r.link(), "down").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.vlan = spareVLAN
	if err := x.try(http.MethodPut, path+"/add_subports", attributes{"sub_ports": x.subPorts(r)}, nil); err != nil {
		t.Fatal(err)
	}
	x.address(t, r)
	x.waitPort(t, r, "ACTIVE")
}

func (x *trunked) waitPort(t *testing.T, r *rider, want string) {
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

// ofTrunks are the names of what stands for a trunk on the switch.
var ofTrunks = regexp.MustCompile(`\b(tbr|[ts]p[it])-[0-9a-f-]+`)

// replugged unplugs the VM, and plugs it in when nothing of the trunk is left. With bridge whoever unplugs it takes the bridge
// away, as os-vif does since Zed; otherwise the agent has to.
func (x *trunked) replugged(t *testing.T, bridge bool) {
	sw := x.l.Host(1).Switch()
	words := []string{"del-port", x.bridge(), x.vm.Tap}
	if bridge {
		words = append(words, "--", "del-br", x.bridge())
	}
	if _, err := sw.Vsctl(x.ctx, words...); err != nil {
		t.Fatal(err)
	}
	for _, r := range x.riders {
		x.waitPort(t, r, "DOWN")
	}
	var left string
	if !x.eventually(80*time.Second, func() bool {
		all, err := sw.Vsctl(x.ctx, "--columns=name", "--no-headings", "list", "Port")
		left = strings.Join(ofTrunks.FindAllString(all, -1), " ")
		return err == nil && left == ""
	}) {
		t.Errorf("left behind: %s", left)
	}
	if _, err := sw.Vsctl(x.ctx, "add-br", x.bridge(), "--", "set", "Bridge", x.bridge(), "datapath_type=netdev",
		"--", "add-port", x.bridge(), x.vm.Tap, "--", "set", "Interface", x.vm.Tap,
		"external_ids:iface-id="+x.vm.PortID, `external_ids:attached-mac="`+x.vm.MAC+`"`,
		"external_ids:iface-status=active", "external_ids:vm-uuid="+x.vm.PortID); err != nil {
		t.Fatal(err)
	}
	for _, r := range x.riders {
		x.waitPort(t, r, "ACTIVE")
	}
}
