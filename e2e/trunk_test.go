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

// trunked is a cloud with a trunk, whose VM is on the first host.
type trunked struct {
	*cloud
	*carrier
	agent  lab.AgentKind
	fourth *network // of no sub-port
}

// spareVLAN is the one to which a sub-port moves, noVLAN one that no sub-port ever has.
const spareVLAN, noVLAN = 104, 105

func (x *trunked) start(t *testing.T) {
	x.eachHost(t, func(h *lab.Host) error { return h.StartAgent(x.ctx, x.agent, filtering) })
}

func (x *trunked) prepare(t *testing.T) {
	var active []string
	peers := func(n *network, first int) (near, other *vm) {
		prefix := strings.TrimSuffix(n.CIDR, "0/24")
		near = x.vm4(t, n, n.Name+"-1", 1, prefix+strconv.Itoa(first))
		other = x.vm4(t, n, n.Name+"-2", 2, prefix+strconv.Itoa(first+1))
		active = append(active, near.PortID, other.PortID)
		return near, other
	}
	var riders []*rider
	for i, n := range []lab.Network{
		{Name: "parent", Type: "vlan", PhysicalNetwork: "physnet1", CIDR: "10.1.0.0/24"}, {Name: "one", Type: "vlan", PhysicalNetwork: "physnet1", CIDR: "10.2.0.0/24"},
		{Name: "two", Type: "geneve", CIDR: "10.3.0.0/24"}, {Name: "three", Type: "vxlan", CIDR: "10.4.0.0/24"},
	} {
		r := x.rider(t, x.network4(t, n), strings.TrimSuffix(n.CIDR, "0/24")+"50", nil)
		r.near, r.other = peers(r.net, 11)
		if i > 0 {
			r.vlan = uint16(100 + i)
		}
		active = append(active, r.port.ID)
		riders = append(riders, r)
	}
	// The addresses of the fourth network are those of the third one, so that nothing but the network keeps them apart.
	x.fourth = x.network4(t, lab.Network{Name: "fourth", Type: "vxlan", CIDR: "10.4.0.0/24"})
	peers(x.fourth, 21)
	x.carrier = x.carry(t, 1, riders...)
	if err := x.l.WaitActive(x.ctx, active...); err != nil {
		t.Fatal(err)
	}
	x.waitTrunk(t)
}

func (x *trunked) close() {
	x.cloud.close()
	if x.carrier != nil {
		x.carrier.close()
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
		{[]string{"explain", x.vm.PortID}, fmt.Sprintf("parent of trunk %s on %s; sub-ports: 3", x.trunk, x.bridge())},
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
	if after := x.rows(t); !same(rows, after) {
		t.Errorf("rows were changed:\n%s", difference(rows, after))
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
	if err := x.try(http.MethodPut, path+"/add_subports", attributes{"sub_ports": subPorts(r)}, nil); err != nil {
		t.Fatal(err)
	}
	x.address(t, r)
	x.waitPort(t, r, "ACTIVE")
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
