// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// EnvAgent names the agent under test. With the Python agent the same cells must hold; what it cannot do is reported as a
// figure instead of a failure.
const envAgent = "PATCHBAY_E2E_AGENT"

// filtering is what makes either agent filter.
const filtering = "securitygroup.firewall_driver=openvswitch"

func agentUnderTest(t *testing.T) lab.AgentKind {
	name := os.Getenv(envAgent)
	if name == "" {
		return lab.Patchbay
	}
	k, err := lab.ParseAgentKind(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestGroups sends real packets through filters of every kind: what a rule allows arrives and what comes near to it does
// not; nobody speaks under another's address; nothing leaves a port before its filters are there; and a rule that is taken
// away ends the connections it had allowed.
func TestGroups(t *testing.T) { testGroups(t, false) }

// TestGroupsHybrid does the same with VMs behind Linux bridges, which rules of iptables filter.
func TestGroupsHybrid(t *testing.T) { testGroups(t, true) }

func testGroups(t *testing.T, hybrid bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start := time.Now()
	agent := agentUnderTest(t)
	f := &filtered{agent: agent, cloud: &cloud{l: lab.New(t, 2), ctx: ctx, hybrid: hybrid, round: round{name: string(agent)}}}
	t.Cleanup(f.close)
	t.Cleanup(func() { f.table.print(time.Since(start)) })
	if !f.run(t, "agents start", "2", func(t *testing.T) { f.startAgents(t, agent) }) {
		t.FailNow()
	}
	if !f.run(t, "groups, rules and ports are in place", "2", f.prepare) {
		t.FailNow()
	}
	f.run(t, "rule kinds, every cell", "2", f.cells)
	f.forgeries(t)
	f.revocation(t)
	f.failClosed(t)
}

// filtered is the lab with groups and their targets.
type filtered struct {
	*cloud
	agent lab.AgentKind
	kind  string // of the networks; the server chooses if it is empty
	// blue is the network of all, red one whose VM nobody of blue may reach.
	blue, red *network
	open      string // the group that allows everything
	club      string // the remote group of rules
	listed    string // the address group of rules
	members   map[int]*vm
	strangers map[int]*vm
	// rogues may send anything, by host.
	rogues  map[int]*vm
	targets []*target
	// ears hear what comes where no VM is.
	ears []*vm
}

// target is a VM for one kind of rule in one direction.
type target struct {
	*vm
	kind      string
	direction string
	group     string
	rules     []string // IDs of what is taken away in the end
}

// driver is what makes agents filter as the VMs are plugged in.
func (f *filtered) driver() string {
	if f.hybrid {
		return "securitygroup.firewall_driver=iptables_hybrid"
	}
	return filtering
}

func (f *filtered) startAgents(t *testing.T, kind lab.AgentKind, overrides ...string) {
	t.Helper()
	f.eachHost(t, func(h *lab.Host) error {
		if err := h.StopAgent(f.ctx); err != nil {
			return err
		}
		return h.StartAgent(f.ctx, kind, append([]string{f.driver()}, overrides...)...)
	})
}

// prepare makes everything before the first cell. Targets are on both hosts by turns.
func (f *filtered) prepare(t *testing.T) {
	f.networks(t)
	f.open, f.club = f.group(t, "open"), f.group(t, "club")
	f.listed = f.addressGroup(t, "listed", memberPrefix[4], memberPrefix[6])
	f.allow(t, f.open, everything()...)
	f.members, f.strangers, f.rogues = map[int]*vm{}, map[int]*vm{}, map[int]*vm{}
	for _, host := range []int{1, 2} {
		f.strangers[host] = f.blue.add(200+host, host)
		f.strangers[host].extra = attributes{"security_groups": []string{f.open}}
		f.rogues[host] = f.blue.add(204+host, host)
		f.rogues[host].extra = attributes{"port_security_enabled": false}
		f.members[host] = f.blue.add(214+host, host)
		f.members[host].extra = attributes{"security_groups": []string{f.open, f.club}}
	}
	f.planTargets(t)
	f.red.add(1, 1).extra = attributes{"port_security_enabled": false}
	f.red.add(2, 2).extra = attributes{"port_security_enabled": false}
	f.plugPlanned(t)
}

// networks makes the two networks, without VMs.
func (f *filtered) networks(t *testing.T) {
	f.blue = &network{Network: lab.Network{Name: "blue"}}
	f.red = &network{Network: lab.Network{Name: "red"}}
	f.nets = []*network{f.blue, f.red}
	for _, n := range f.nets {
		if n.Type = f.kind; n.Type == "vlan" {
			n.PhysicalNetwork = "physnet1"
		}
		if err := f.create(n); err != nil {
			t.Fatal(err)
		}
	}
}

// planTargets makes the groups with one kind of rule each, and plans a VM for each.
func (f *filtered) planTargets(t *testing.T) {
	byName := map[string]map[int]kind{}
	var order []string
	for _, version := range []int{4, 6} {
		for _, k := range kindsOf(version) {
			if byName[k.name] == nil {
				byName[k.name] = map[int]kind{}
				order = append(order, k.name)
			}
			byName[k.name][version] = k
		}
	}
	for i, name := range order {
		for j, direction := range []string{"ingress", "egress"} {
			x := &target{kind: name, direction: direction, group: f.group(t, name+" "+direction)}
			f.allow(t, x.group, directed(ranged("udp", keeper, keeper), direction, 4), directed(ranged("udp", keeper, keeper), direction, 6))
			var rules []attributes
			leave := false
			for version, k := range byName[name] {
				leave = k.leave
				rules = append(rules, directed(f.named(k.rule), direction, version))
			}
			if ids := f.allow(t, x.group, rules...); !leave {
				x.rules = ids
			}
			x.vm = f.blue.add(1+2*i+j, 1+i%2)
			x.extra = attributes{"security_groups": []string{x.group}}
			f.targets = append(f.targets, x)
		}
	}
}

// named puts IDs in the place of names.
func (f *filtered) named(rule attributes) attributes {
	r := attributes{}
	for k, v := range rule {
		switch v {
		case theGroup:
			v = f.club
		case theAddresses:
			v = f.listed
		}
		r[k] = v
	}
	return r
}

// preparePort makes a VM with a port that is bound to its host, and silences it. The switch has no row for it yet.
func (f *filtered) preparePort(v *vm) error {
	var err error
	v.VM, err = f.l.Host(v.host).Prepare(f.ctx, lab.Port{NetworkID: v.net.ID, Name: v.name, Hybrid: f.hybrid, Extra: with(v.extra, "fixed_ips", []map[string]string{
		{"subnet_id": v.net.SubnetID, "ip_address": v.v4}, {"subnet_id": v.net.v6, "ip_address": v.v6},
	})})
	if err == nil {
		err = f.hush(v)
	}
	if err == nil {
		v.probe, err = openProbe(v.Netns, "eth0")
	}
	return err
}

// plugPlanned plugs all VMs that are planned, and waits until they are ACTIVE and everybody knows where they are.
func (f *filtered) plugPlanned(t *testing.T) {
	f.eachHost(t, func(h *lab.Host) error {
		for _, v := range f.vms() {
			if v.VM != nil || f.l.Host(v.host).Name() != h.Name() {
				continue
			}
			if err := f.plug(v, ""); err != nil {
				return err
			}
			if err := f.hush(v); err != nil {
				return err
			}
		}
		return nil
	})
	var ids []string
	for _, v := range f.vms() {
		ids = append(ids, v.PortID)
	}
	f.waitActive(t, ids...)
	for _, v := range f.vms() {
		f.announce(t, v)
	}
}

// waitActive waits for many ports on a machine that is busy with other things: the server is the slowest part of it.
func (f *filtered) waitActive(t *testing.T, ids ...string) {
	t.Helper()
	var err error
	for range 3 {
		if err = f.l.WaitActive(f.ctx, ids...); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// hush takes the VM's addresses from its kernel, which would answer frames that nobody of it has asked for.
func (f *filtered) hush(v *vm) error {
	const script = "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6 && ip address flush dev eth0"
	if out, err := v.Command(f.ctx, "sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("silencing %s: %w: %s", v.name, err, out)
	}
	return nil
}

// announce has switches learn where the VM is, so that frames to it are not flooded.
func (f *filtered) announce(t *testing.T, v *vm) {
	t.Helper()
	if err := v.probe.send(arp(1, broadcast, v.MAC, v.MAC, v.v4, "00:00:00:00:00:00", v.v4, f.token())); err != nil {
		t.Fatal(err)
	}
}

// forget drops everything that the switches know about connections.
func (f *filtered) forget(t *testing.T) {
	t.Helper()
	f.eachHost(t, func(h *lab.Host) error {
		if f.hybrid { // the kernel tracks them
			return h.Command(f.ctx, "conntrack", "-F").Run()
		}
		_, err := h.Switch().Appctl(f.ctx, "ovs-vswitchd", "dpctl/flush-conntrack")
		return err
	})
}

// close closes many sockets at once: each takes a moment.
func (f *filtered) close() {
	var wg sync.WaitGroup
	for _, v := range append(f.vms(), f.ears...) {
		wg.Go(func() { v.probe.close() })
	}
	wg.Wait()
}
