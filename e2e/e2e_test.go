// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e sends real packets between VMs that Patchbay has wired and filters: real neutron-server, Open vSwitch and DHCP
// agent. It needs root and the lab's packages. Run it with `make e2e`; a table of all cases is printed at the end.
//
// TestGroups is about security groups: every kind of rule on a VM of its own, each in cells of IP version, place and state of
// the connection, each cell with frames that must pass and frames that must not. TestBlink changes groups under traffic.
//
// TestWiring is about wiring: three hosts and every type of network. There are two rounds in one lab, which differ in the
// agents' configuration:
//
//   - l2pop: the server tells where each address is, and the agents answer ARP requests for remote VMs themselves;
//   - mesh: the hosts know only each other, and learn addresses from packets.
//
// A packet is known by a token at its end, and each VM holds a raw socket that sees every frame on its link, for whomever
// it is meant. So "arrives nowhere else" is checked for all VMs of all networks at once, among them networks with the same
// addresses and the same segmentation id. The networks share one subnet.
//
// Each check has a counterpart that must come out the other way: a spoofed frame passes when port security is off, a socket
// that listens on a foreign network's VLAN makes the isolation check fail, an address that nobody has gets no answer.
package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// timeout bounds the run, on a machine that is busy with other things as well.
const timeout = 25 * time.Minute

// round is one configuration of all agents.
type round struct {
	name      string
	overrides []string
	// answers: agents answer ARP requests for VMs behind a tunnel.
	answers bool
	// knows: a VM that was moved is found although it has not sent anything.
	knows bool
}

func rounds() []round {
	return []round{
		{name: "l2pop", answers: true, knows: true},
		{name: "mesh", overrides: []string{"agent.l2_population=false", "agent.arp_responder=false"}},
	}
}

func TestWiring(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start := time.Now()
	c := &cloud{l: lab.New(t, 3), ctx: ctx}
	t.Cleanup(c.close)
	t.Cleanup(func() { c.table.print(time.Since(start)) })
	var dhcp sync.WaitGroup
	var dhcpErr error
	dhcp.Go(func() { dhcpErr = c.l.Host(2).StartDHCP(ctx) })
	for i, r := range rounds() {
		c.round = r
		if !c.run(t, "agents start", "3", func(t *testing.T) { c.startAgents(t, r) }) {
			t.FailNow()
		}
		if i == 0 && !c.run(t, "VMs are wired", "3", c.plugAll) {
			t.FailNow()
		}
		dhcp.Wait()
		if dhcpErr != nil {
			t.Fatal(dhcpErr)
		}
		c.pings(t)
		c.arps(t)
		c.matrix(t)
		c.leases(t)
		c.spoofing(t)
		c.adminState(t)
		c.replug(t)
		c.move(t, 3)
		c.matrix(t)
		c.move(t, 1)
	}
}

// cloud is the lab with all networks and VMs.
type cloud struct {
	l     *lab.Lab
	ctx   context.Context //nolint:containedctx // one run, one deadline
	round round
	nets  []*network
	table table
	last  atomic.Uint64
	// hybrid: VMs are plugged in through Linux bridges.
	hybrid bool
}

// network is a network and the VMs on it.
type network struct {
	lab.Network
	v6   string // subnet
	dhcp bool
	vms  []*vm
}

// vm is a VM, its socket and its addresses.
type vm struct {
	*lab.VM
	net    *network
	name   string
	host   int
	v4, v6 string
	extra  attributes // of its port, besides addresses
	probe  *probe
}

func (v *vm) linkLocal() string {
	m := hw(v.MAC)
	return fmt.Sprintf("fe80::%02x%02x:%02xff:fe%02x:%02x%02x", m[0]^2, m[1], m[2], m[3], m[4], m[5])
}

// reaches says whether a packet of v can come to w.
func (v *vm) reaches(w *vm) bool {
	return v != w && v.net == w.net && (v.net.Type != "local" || v.host == w.host)
}

// twinned is the name of the network that has the same type and addresses as another one.
const twinned = "-twin"

// plan is all networks. Tunnelled ones have the same segmentation id in each type.
func plan() []*network {
	var all []*network
	for _, kind := range kinds() {
		n := &network{Network: lab.Network{Name: kind, Type: kind}}
		twin := &network{Network: lab.Network{Name: kind + twinned, Type: kind}}
		switch kind {
		case "flat":
			n.PhysicalNetwork, twin = "physnet1", nil // a physical network has one of these
		case "vlan":
			n.PhysicalNetwork, twin.PhysicalNetwork = "physnet1", "physnet1"
			n.Segment, twin.Segment = 177, 178
		case "local":
		default:
			n.Segment, twin.Segment = 177, 178
		}
		for i, host := range []int{1, 1, 2, 3} {
			n.add(i+1, host)
		}
		all = append(all, n)
		if twin != nil {
			twin.add(1, 1) // has the addresses of another VM on the same host
			twin.add(5, 2) // has addresses that are unique
			all = append(all, twin)
		}
	}
	for _, kind := range []string{"vxlan", "vlan"} {
		n := &network{Network: lab.Network{Name: "dhcp-" + kind, Type: kind}, dhcp: true}
		if kind == "vlan" {
			n.PhysicalNetwork = "physnet1"
		}
		n.add(6, 2)
		n.add(7, 1)
		all = append(all, n)
	}
	return all
}

func kinds() []string { return []string{"flat", "vlan", "vxlan", "gre", "geneve", "local"} }

// add plans a VM: its number makes its addresses.
func (n *network) add(number, host int) *vm {
	v := &vm{
		net: n, name: n.Name + strconv.Itoa(number), host: host,
		v4: address4(number), v6: "fd00:e2e::" + strconv.Itoa(10+number),
	}
	n.vms = append(n.vms, v)
	return v
}

func address4(number int) string { return "192.168.100." + strconv.Itoa(10+number) }

// span is how many hosts the VMs that talk to each other are on.
func span(kind string) string {
	if kind == "local" {
		return "1"
	}
	return "3"
}

func (c *cloud) network(name string) *network {
	for _, n := range c.nets {
		if n.Name == name {
			return n
		}
	}
	panic("there is no network " + name)
}

// vms are the VMs of all networks.
func (c *cloud) vms() []*vm {
	var all []*vm
	for _, n := range c.nets {
		all = append(all, n.vms...)
	}
	return all
}

func (c *cloud) token() token { return token(c.last.Add(1)) }

func (c *cloud) close() {
	for _, v := range c.vms() {
		v.probe.close()
	}
}

// table is the result of the run.
type table struct{ rows []row }

type row struct {
	round, name, hosts, result string
	took                       time.Duration
}

// run runs one case, as a subtest and a row of the table.
func (c *cloud) run(t *testing.T, name, hosts string, do func(t *testing.T)) bool {
	t.Helper()
	start := time.Now()
	result := "not run" // left out by -run
	ok := t.Run(c.round.name+"/"+name+"/"+hosts, func(t *testing.T) {
		result = "pass"
		do(t)
	})
	if !ok {
		result = "FAIL"
	}
	c.table.rows = append(c.table.rows, row{c.round.name, name, hosts, result, time.Since(start)})
	return ok
}

// print goes to standard output, so that nothing stands before the lines.
func (t *table) print(took time.Duration) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nround\tcase\thosts\tresult\tseconds")
	failed := 0
	for _, r := range t.rows {
		if r.result == "FAIL" {
			failed++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\n", r.round, r.name, r.hosts, r.result, r.took.Seconds())
	}
	_ = w.Flush()
	fmt.Printf("%d cases, %d failed, %.0f s with the lab's start\n\n", len(t.rows), failed, took.Seconds())
}
