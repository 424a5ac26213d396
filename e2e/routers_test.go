// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
)

// extended is what makes either agent serve distributed routers, limit what VMs send, and filter. Trunks it serves without.
func extended() []string {
	return []string{"agent.enable_distributed_routing=true", "agent.extensions=qos", filtering}
}

// A host's links to the others: the one over which its tunnels go, and that of its physical network.
const (
	underlay = "under0"
	physical = "ext0"
)

// TestRouters sends packets through a distributed router, with Debian's layer-3 agent on three hosts: between networks
// without a detour over the network node, to the outside through it, in and out by a floating address, and to a VM that has
// moved; IPv4 and IPv6. One of the VMs has a trunk and sends as parent and as sub-port; most have marks, limits of packets and of
// bandwidth; all are filtered. In between agents and switches are restarted and killed, the broker goes away, and the other
// agent takes over and gives back, while packets go all these ways.
func TestRouters(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	start := time.Now()
	agent := agentUnderTest(t)
	r := &routed{agent: agent, cloud: &cloud{l: lab.New(t, 3), ctx: ctx, round: round{name: string(agent)}}}
	t.Cleanup(r.end)
	t.Cleanup(func() { r.table.print(time.Since(start)); r.printStreams() })
	if err := r.calls.watch(ctx, r.l.Broker()); err != nil {
		t.Fatal(err)
	}
	if !r.run(t, "agents start", "3", r.start) || !r.run(t, "networks, router and VMs are in place", "3", r.prepare) {
		t.FailNow()
	}
	r.run(t, "between networks, without the network node", "2", r.eastWest)
	r.run(t, "to the outside", "3", func(t *testing.T) { r.northSouth(t, r.beyond.v4, underlay) })
	// Out the layer-3 agent may send such packets straight from the VM's host; back they come through the router's gateway.
	r.run(t, "to the outside, IPv6 without translation", "3", func(t *testing.T) { r.northSouth(t, r.beyond.v6, physical) })
	r.run(t, "floating address, in and out", "3", r.floating)
	r.run(t, "marks of a VM and of a sub-port, behind the router", "2", r.marks)
	if r.agent == lab.Patchbay {
		r.run(t, "the operator's commands know router, trunk and limits", "1", r.explained)
	}
	r.run(t, "agents stopped and started", "3", func(t *testing.T) { r.restart(t, false) })
	r.run(t, "agents killed -9 and started", "3", func(t *testing.T) { r.restart(t, true) })
	r.run(t, "ovs-vswitchd of a VM's host killed -9", "1", func(t *testing.T) { r.switchDies(t, 2) })
	r.run(t, "ovs-vswitchd of the network node killed -9", "1", func(t *testing.T) { r.switchDies(t, 1) })
	r.run(t, "broker down", "3", r.brokerDown)
	r.run(t, "broker down, agents stopped and started", "3", r.restartAlone)
	r.run(t, "broker down, ovs-vswitchd of a VM's host killed -9", "1", func(t *testing.T) { r.alone(t, func() { r.switchDies(t, 2) }) })
	r.run(t, "broker down, agent and ovs-vswitchd of a VM's host killed -9", "1", func(t *testing.T) {
		r.alone(t, func() {
			if err := r.l.Host(2).KillAgent(); err != nil {
				t.Fatal(err)
			}
			r.switchDies(t, 2)
		})
	})
	r.handOver(t)
	r.run(t, "between networks, after all that", "2", r.eastWest)
	r.run(t, "marks, after all that", "2", r.marks)
	r.run(t, "a VM moves to another host", "3", r.moves)
}

// routed is a cloud with a router between two networks and the outside. Host 1 is the network node.
type routed struct {
	*cloud
	agent        lab.AgentKind
	calls        calls
	router       string
	outside      string     // network
	floats       string     // address of b outside
	a, b, beyond *vm        // of the first network on host 2, of the second on host 3, and outside on host 3
	carrier      *carrier   // on host 2, a member of the first network and by its trunk of the third
	mark, rate   *qosRule   // of the policy of a and b
	inherited    *qosRule   // of the policy of the sub-port's network
	dscp, subs   uint8      // the marks of these policies
	spare        *rider     // a port that is no part of the trunk
	unplugged    ports.Port // of host 2, which has an interface that is not known to be its
	streams      []*streamRow
}

func (r *routed) end() {
	r.close()
	if r.carrier != nil {
		r.carrier.close()
	}
}

func (r *routed) start(t *testing.T) {
	r.eachHost(t, func(h *lab.Host) error { return h.StartAgent(r.ctx, r.agent, extended()...) })
	r.eachHost(t, func(h *lab.Host) error {
		if h.Name() == r.l.Host(1).Name() {
			return h.StartL3(r.ctx, "dvr_snat")
		}
		return h.StartL3(r.ctx, "dvr")
	})
}

func (r *routed) prepare(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one := r.dual(t, lab.Network{Name: "one", CIDR: "10.1.0.0/24"}, "fd00:1::/64")
	two := r.dual(t, lab.Network{Name: "two", CIDR: "10.2.0.0/24"}, "fd00:2::/64")
	three := r.network4(t, lab.Network{Name: "three", Type: "geneve", CIDR: "10.3.0.0/24"})
	out := r.dual(t, lab.Network{Name: "outside", CIDR: "10.9.0.0/24", Type: "vlan", PhysicalNetwork: "physnet1", Segment: 99}, "fd00:9::/64")
	r.outside = out.ID
	must(networks.Update(r.ctx, r.l.Neutron(), out.ID, external{}).Err)
	yes := true
	made, err := routers.Create(r.ctx, r.l.Neutron(), routers.CreateOpts{
		Name: "r", Distributed: &yes, TenantID: lab.Project, GatewayInfo: &routers.GatewayInfo{NetworkID: out.ID},
	}).Extract()
	must(err)
	r.router = made.ID
	for _, subnet := range []string{one.SubnetID, one.v6, two.SubnetID, two.v6, three.SubnetID} {
		_, err := routers.AddInterface(r.ctx, r.l.Neutron(), r.router, routers.AddInterfaceOpts{SubnetID: subnet}).Extract()
		must(err)
	}
	group := r.group(t, "open")
	r.allow(t, group, everything()...)
	open := attributes{"security_groups": []string{group}}
	r.a = r.dualVM(t, one, "a", 2, "10.1.0.11", "fd00:1::11", open)
	r.b = r.dualVM(t, two, "b", 3, "10.2.0.12", "fd00:2::12", open)
	r.beyond = r.dualVM(t, out, "beyond", 3, "10.9.0.200", "fd00:9::200", open)
	parent, sub := r.rider(t, one, "10.1.0.50", open), r.rider(t, three, "10.3.0.50", open)
	sub.vlan = 101
	r.carrier = r.carry(t, 2, parent, sub)
	r.noRedirects(t, r.carrier.vm, "eth0", sub.link())
	r.carrier.inVM(t, "ip", "route", "replace", two.CIDR, "via", "10.3.0.1", "dev", sub.link())
	r.spare = r.rider(t, two, "10.2.0.51", open)
	r.spare.vlan = spareVLAN
	r.limit(t, parent, three)
	list, err := r.l.CreatePorts(r.ctx, r.l.Host(2), lab.Port{NetworkID: two.ID}, 1)
	must(err)
	r.unplugged = list[0]
	_, err = r.l.Host(2).Switch().Vsctl(r.ctx, "add-port", "br-int", tap(r.unplugged), "--", "set", "Interface", tap(r.unplugged), "type=internal",
		`mac="`+r.unplugged.MACAddress+`"`)
	must(err)
	must(r.l.WaitActive(r.ctx, r.a.PortID, r.b.PortID, r.beyond.PortID, parent.port.ID, sub.port.ID))
	r.carrier.waitTrunk(t)
	// IPv6 is not translated: the outside has to know the way back.
	for _, ip := range made.GatewayInfo.ExternalFixedIPs {
		if !netip.MustParseAddr(ip.IPAddress).Is6() {
			continue
		}
		for _, to := range []string{"fd00:1::/64", "fd00:2::/64"} {
			if text, err := r.beyond.Command(r.ctx, "ip", "-6", "route", "replace", to, "via", ip.IPAddress).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
		}
	}
}

// limit gives a and b all that a policy can ask for, more than the streams of packets take; the trunk's parent a limit of
// packets, and the network of its sub-port a mark.
func (r *routed) limit(t *testing.T, parent *rider, n *network) {
	t.Helper()
	r.dscp, r.subs = 26, 10
	r.mark = r.policy(t, "dscp_marking_rule", attributes{"dscp_mark": r.dscp})
	r.rate = r.addRule(t, r.mark.policy, "packet_rate_limit_rule", attributes{"max_kpps": 10, "direction": "egress"})
	r.addRule(t, r.mark.policy, "packet_rate_limit_rule", attributes{"max_kpps": 11, "direction": "ingress"})
	for _, direction := range []string{"egress", "ingress"} {
		r.addRule(t, r.mark.policy, "bandwidth_limit_rule", attributes{"max_kbps": 100_000, "max_burst_kbps": 80_000, "direction": direction})
	}
	r.give(t, r.a.PortID, r.mark)
	r.give(t, r.b.PortID, r.mark)
	r.give(t, parent.port.ID, r.policy(t, "packet_rate_limit_rule", attributes{"max_kpps": 12, "direction": "egress"}))
	r.inherited = r.policy(t, "dscp_marking_rule", attributes{"dscp_mark": r.subs})
	r.request(t, http.MethodPut, "networks/"+n.ID, attributes{"network": attributes{"qos_policy_id": r.inherited.policy}}, nil)
}

// external makes a network one that routers lead out to.
type external struct{}

// ToNetworkUpdateMap implements networks.UpdateOptsBuilder.
func (external) ToNetworkUpdateMap() (map[string]any, error) {
	return map[string]any{"network": map[string]any{"router:external": true}}, nil
}

// dual creates a network with a subnet of each IP version.
func (r *routed) dual(t *testing.T, n lab.Network, cidr6 string) *network {
	t.Helper()
	out := r.network4(t, n)
	off := false
	sub, err := subnets.Create(r.ctx, r.l.Neutron(), subnets.CreateOpts{
		NetworkID: out.ID, CIDR: cidr6, IPVersion: gophercloud.IPv6, EnableDHCP: &off, TenantID: lab.Project,
	}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	out.v6 = sub.ID
	return out
}

// dualVM plugs in a VM with an address of each IP version. It takes no redirects: a router that does not have all its interfaces
// yet sends packets to the network node, and would have the VM send them there from then on.
func (r *routed) dualVM(t *testing.T, n *network, name string, host int, ip4, ip6 string, extra attributes) *vm {
	t.Helper()
	v := &vm{net: n, name: name, host: host, v4: ip4, v6: ip6, extra: extra}
	n.vms = append(n.vms, v)
	if err := r.plug(v, ""); err != nil {
		t.Fatal(err)
	}
	r.noRedirects(t, v, "eth0")
	return v
}

func (r *routed) noRedirects(t *testing.T, v *vm, links ...string) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, where := range append([]string{"all"}, links...) {
			name := fmt.Sprintf("net/%s/conf/%s/accept_redirects=0", family, where)
			if text, err := v.Command(r.ctx, "sysctl", "-qw", name).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", name, err, text)
			}
		}
	}
}

func (c *cloud) network4(t *testing.T, n lab.Network) *network {
	t.Helper()
	made, err := c.l.CreateNetwork(c.ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	out := &network{Network: made}
	c.nets = append(c.nets, out)
	return out
}

func (c *cloud) vm4(t *testing.T, n *network, name string, host int, ip string) *vm {
	t.Helper()
	v := &vm{net: n, name: name, host: host, v4: ip}
	var err error
	v.VM, err = c.l.Host(host).Plug(c.ctx, lab.Port{NetworkID: n.ID, Name: name, Extra: map[string]any{
		"fixed_ips": []map[string]string{{"subnet_id": n.SubnetID, "ip_address": ip}},
	}})
	if err == nil {
		v.probe, err = openProbe(v.Netns, "eth0")
	}
	if err != nil {
		t.Fatal(err)
	}
	n.vms = append(n.vms, v)
	return v
}

// marked pings with a token in the packets, until there is an answer, then count times more. All of them must come back.
func (c *cloud) marked(t *testing.T, from *vm, to string, k token, count int) {
	t.Helper()
	var out []byte
	var err error
	if !c.eventually(settled, func() bool { out, err = c.ping(from, to, k, 1); return err == nil }) {
		t.Fatalf("no answer from %s to %s: %v\n%s", to, from.name, err, out)
	}
	if out, err = c.ping(from, to, k, count); err != nil {
		t.Errorf("%s to %s: %v\n%s", from.name, to, err, out)
	}
}

func (c *cloud) ping(from *vm, to string, k token, count int) ([]byte, error) {
	return from.Command(c.ctx, "ping", "-c", fmt.Sprint(count), "-i", "0.02", "-W", "1", "-s", "64", "-p", hex.EncodeToString(k.bytes()), to).CombinedOutput()
}

// eastWest goes from one network to the other and back. Its packets must not be seen on the wire of the network node.
func (r *routed) eastWest(t *testing.T) {
	wire, err := openProbe(r.l.Host(1).Netns(), underlay)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.close()
	ways := []struct {
		from *vm
		to   string
	}{{r.a, r.b.v4}, {r.b, r.a.v4}, {r.a, r.b.v6}, {r.b, r.a.v6}, {r.carrier.vm, r.b.v4}, {r.b, r.carrier.riders[1].ip()}}
	// The layer-3 agents make the router's interfaces one after the other; the server tells of VMs after they are up.
	if !r.eventually(settled, func() bool {
		k := r.token()
		for _, way := range ways {
			if _, err := r.ping(way.from, way.to, k, 1); err != nil {
				return false
			}
		}
		return wire.saw(k) == 0
	}) {
		t.Errorf("packets still take the way over the network node after %v", settled)
	}
	k := r.token()
	for _, way := range ways {
		r.marked(t, way.from, way.to, k, 20)
	}
	if n := wire.saw(k); n > 0 {
		t.Errorf("%d packets were seen at the network node", n)
	}
	if n := r.b.probe.saw(k); n < 120 {
		t.Errorf("%s saw %d packets, want 120 or more: the probe does not work", r.b.name, n)
	}
}

// northSouth goes to the outside, which knows nothing of the IPv4 networks inside, so that the router must give its own
// address. The way there, or the way back, leads over the network node, where packets are seen on a link.
func (r *routed) northSouth(t *testing.T, to, link string) {
	wire, err := openProbe(r.l.Host(1).Netns(), link)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.close()
	k := r.token()
	r.marked(t, r.a, to, k, 20)
	if wire.saw(k) == 0 {
		t.Error("no packet was seen at the network node")
	}
}

// marks looks at what a and the sub-port send to b, where it arrives.
func (r *routed) marks(t *testing.T) {
	p, err := openSocket(r.b.Netns, "eth0", unix.ETH_P_IP>>8|unix.ETH_P_IP<<8&0xff00)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[uint8]int{r.a.v4: {}, r.carrier.riders[1].ip(): {}}
	go func() {
		defer close(p.done)
		buf := make([]byte, 2048)
		for !p.stop.Load() {
			if n, _, err := unix.Recvfrom(p.fd, buf, 0); err == nil && n >= 34 {
				if by := got[netip.AddrFrom4([4]byte(buf[26:30])).String()]; by != nil {
					by[buf[15]>>2]++
				}
			}
		}
	}()
	for _, from := range []*vm{r.a, r.carrier.vm} {
		r.marked(t, from, r.b.v4, r.token(), 20)
	}
	p.close()
	for sender, want := range map[string]uint8{r.a.v4: r.dscp, r.carrier.riders[1].ip(): r.subs} {
		if by := got[sender]; len(by) != 1 || by[want] < 20 {
			t.Errorf("packets of %s by their marks: %v, want %d", sender, by, want)
		}
	}
}

func (r *routed) floating(t *testing.T) {
	fip, err := floatingips.Create(r.ctx, r.l.Neutron(), floatingips.CreateOpts{
		FloatingNetworkID: r.outside, PortID: r.b.PortID, FloatingIP: "10.9.0.50", TenantID: lab.Project,
	}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	r.floats = fip.FloatingIP
	r.marked(t, r.beyond, r.floats, r.token(), 20)
	r.marked(t, r.b, r.beyond.v4, r.token(), 20)
}

// moves takes a VM to the host of the other one.
func (r *routed) moves(t *testing.T) {
	if err := r.unplug(r.a); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.a.VM, err = r.l.Host(3).Plug(r.ctx, lab.Port{ID: r.a.PortID, Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if r.a.probe, err = openProbe(r.a.Netns, "eth0"); err != nil {
		t.Fatal(err)
	}
	r.a.host = 3
	r.noRedirects(t, r.a, "eth0")
	k := r.token()
	for _, to := range []string{r.a.v4, r.a.v6} {
		r.marked(t, r.b, to, k, 20)
	}
	for _, to := range []string{r.beyond.v4, r.beyond.v6} {
		r.marked(t, r.a, to, k, 20)
	}
}
