// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestSmoke is what CI runs of this package on the real server: two hosts with the openvswitch firewall, filtered VMs on a vxlan and
// on a vlan network, and a VM with a trunk. `make matrix` runs it on the servers of other releases. A rule is opened and closed under packets and under a live connection, the agents are restarted, the switch is
// killed, flows are tampered with, and the broker is away while things change. What may pass is sent beside what must not, in
// every step; the table shows how many packets of each were sent and arrived. It takes less than three minutes on two cores.
func TestSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), smokeTime)
	defer cancel()
	start := time.Now()
	patience(t)
	x := &smoke{filtered: &filtered{agent: lab.Patchbay, cloud: &cloud{ctx: ctx, round: round{name: "smoke"}}}}
	t.Cleanup(func() { x.print(time.Since(start)) })
	x.l = lab.New(t, 2)
	t.Cleanup(x.close)
	x.rows = append(x.rows, &smokeRow{name: "lab starts", took: time.Since(start)})
	if !x.step(t, "agents start", func(t *testing.T) { x.startAgents(t, x.agent) }) || !x.step(t, "VMs and trunk are wired", x.prepare) {
		return
	}
	x.step(t, "no rule yet", func(t *testing.T) { x.traffic(t, lossless, second, x.forbid(x.door(), x.doorTCP())...) })
	x.step(t, "rule opened", x.opens)
	x.step(t, "rule closed under a live TCP connection", x.closes)
	x.step(t, "rule opened again", x.opens)
	x.step(t, "trunk: parent and sub-port", func(t *testing.T) { x.traffic(t, lossless, second, x.trunkLanes()...) })
	x.step(t, "VLAN network: filtered port", func(t *testing.T) { x.traffic(t, lossless, second, x.vlanLanes()...) })
	x.step(t, "packets captured, with what becomes of them", x.captured)
	x.step(t, "agents restarted", x.restarted)
	x.step(t, "ovs-vswitchd killed -9", x.switchDies)
	x.step(t, "flow deleted", func(t *testing.T) { x.tampered(t, "deleted") })
	x.step(t, "flow changed", func(t *testing.T) { x.tampered(t, "changed") })
	x.step(t, "flow added under the agent's cookie", func(t *testing.T) { x.tampered(t, "added") })
	x.step(t, "flow of somebody else", x.foreign)
	x.step(t, "broker away: a rule missed, one closed, a port plugged in", x.brokerAway)
	x.step(t, "port on a bridge of somebody else", x.otherBridge)
	x.step(t, "VM unplugged", x.unplugged)
	x.step(t, "address of a VM elsewhere changed", x.readdressed)
}

const (
	smokeTime = 6 * time.Minute
	second    = time.Second
	// between is how often each lane sends.
	between = 10 * time.Millisecond
	// doorPort and livePort are what the rules are about that are opened and closed, of UDP and of TCP; laterPort is opened while the
	// broker is away; no rule ever allows shutPort.
	doorPort, shutPort, laterPort, livePort = gatePort, gatePort + 1, gatePort + 2, gatePort + 3
)

// smoke is the lab with what TestSmoke needs.
type smoke struct {
	*filtered
	// near and far are the filtered VMs, one on each host; reds are VMs of another tenant, one on each host, and newcomer is plugged
	// in while the broker is away.
	near, far, newcomer *vm
	reds                []*vm
	// greens are on a vlan network: the first has near's group, on the other host, and the second is open.
	greens []*vm
	group  string // of near
	rules  map[string]string
	trunk  *carrier
	sub    *vm // the sub-port as a VM of its own
	own    uint16
	rows   []*smokeRow
	row    *smokeRow
}

// smokeRow is a step: packets that were due and such that were not.
type smokeRow struct {
	name                      string
	took                      time.Duration
	due, came, bad, passed    int
	flows, touched, witnessed int
	note                      []string
	failed                    bool
}

// step runs one step, as a subtest and a row of the table.
func (x *smoke) step(t *testing.T, name string, do func(t *testing.T)) bool {
	t.Helper()
	x.row = &smokeRow{name: name}
	x.rows = append(x.rows, x.row)
	start := time.Now()
	ok := t.Run(name, do)
	x.row.took, x.row.failed = time.Since(start), !ok
	return ok
}

// says adds to the note of the step.
func (x *smoke) says(format string, args ...any) {
	x.row.note = append(x.row.note, fmt.Sprintf(format, args...))
}

// lane is a packet that is sent again and again, and whoever must hear it, or must not.
type lane struct {
	name string
	from *vm
	make func(k token) []byte
	ears []*vm
	due  bool
	k    token
	sent int
	// level is when so many packets, and no more, were last without an answer: the time of the next loss is after it.
	level map[int]time.Time
}

// heard counts the packets of the lane that arrived.
func (l *lane) heard() (n int) {
	for _, v := range l.ears {
		n += v.heard(l.k)
	}
	return n
}

// to is a UDP lane between two VMs, a connection of its own.
func (x *smoke) to(from, to *vm, port uint16, due bool) *lane {
	x.own++
	c := conn{from: from, to: to, version: 4, proto: protoUDP, own: 20000 + x.own, port: port}
	return &lane{name: fmt.Sprintf("%s to %s, UDP %d", from.name, to.name, port), from: from, make: c.first, ears: []*vm{to}, due: due}
}

func (x *smoke) door() *lane { return x.to(x.far, x.near, doorPort, true) }

// doorTCP is the first packet of a connection.
func (x *smoke) doorTCP() *lane {
	x.own++
	c := conn{from: x.far, to: x.near, version: 4, proto: protoTCP, own: 20000 + x.own, port: livePort}
	return &lane{name: "far to near, TCP", from: x.far, make: c.first, ears: []*vm{x.near}, due: true}
}

// forbid makes lanes such that must not arrive, beside those that are always sent.
func (x *smoke) forbid(lanes ...*lane) []*lane {
	for _, l := range lanes {
		l.due = false
	}
	return x.with(lanes...)
}

// with adds what is sent in every step: a packet that nobody's rule changes, one that no rule allows, one from a forged address, and
// one into another tenant's network.
func (x *smoke) with(lanes ...*lane) []*lane {
	forged := func(k token) []byte { return bare(x.far, x.near.MAC, address4(88), "", 4, k) }
	abroad := func(k token) []byte { return plain(x.reds[0].MAC, x.near.MAC, k) }
	return append(lanes,
		x.to(x.near, x.far, 7, true),
		x.to(x.far, x.near, shutPort, false),
		&lane{name: "near from a forged address", from: x.near, make: forged, ears: []*vm{x.far, x.reds[0], x.reds[1]}},
		&lane{name: "near into another network", from: x.near, make: abroad, ears: x.reds},
	)
}

// trunkLanes are what the trunk's VM says and hears: as the parent in the one network, as the sub-port in the other, and under a VLAN
// that no sub-port has.
func (x *smoke) trunkLanes() []*lane {
	parent := &vm{VM: x.trunk.vm.VM, name: "parent", v4: x.trunk.riders[0].ip(), probe: x.trunk.vm.probe}
	says := func(v *vm) func(k token) []byte {
		return func(k token) []byte { return arp(1, broadcast, v.MAC, v.MAC, v.v4, v.MAC, v.v4, k) }
	}
	under := func(vlan uint16, frame func(k token) []byte) func(k token) []byte {
		return func(k token) []byte { return tagged(frame(k), vlan) }
	}
	everybody := []*vm{x.near, x.far, x.reds[0], x.reds[1]}
	return x.with(
		x.to(parent, x.far, 7, true), x.to(x.far, parent, 7, true),
		x.to(x.sub, x.reds[1], 7, true), x.to(x.reds[1], x.sub, 7, true), x.to(x.reds[0], x.sub, 7, true),
		&lane{name: "sub-port under another VLAN", from: parent, make: under(noVLAN, says(x.sub)), ears: everybody},
		&lane{name: "parent under another VLAN", from: parent, make: under(noVLAN, says(parent)), ears: everybody},
		&lane{name: "sub-port without a VLAN", from: parent, make: says(x.sub), ears: everybody},
		&lane{name: "sub-port in the parent's network", from: x.sub, make: says(x.sub), ears: []*vm{x.near, x.far}},
	)
}

// vlanLanes are what the ports of the vlan network say and hear while the rule is open.
func (x *smoke) vlanLanes() []*lane {
	shut, open := x.greens[0], x.greens[1]
	return x.with(
		x.to(shut, open, 7, true), x.to(open, shut, doorPort, true), x.to(open, shut, shutPort, false),
		&lane{name: "vlan network into a vxlan network", from: open, make: func(k token) []byte { return plain(x.near.MAC, open.MAC, k) }, ears: []*vm{x.near, x.far}},
	)
}

// loss is whether packets that are due may be lost.
type loss bool

const (
	lossless loss = false
	lossy    loss = true
)

// traffic sends all lanes for some time, or while something happens, and judges what arrived.
func (x *smoke) traffic(t *testing.T, may loss, d time.Duration, lanes ...*lane) {
	t.Helper()
	x.during(t, may, func() { x.wait(d) }, lanes...)
}

func (x *smoke) during(t *testing.T, may loss, happens func(), lanes ...*lane) {
	t.Helper()
	x.prefer(t)
	drops := x.socketDrops(t)
	for _, l := range lanes {
		l.k, l.level = x.token(), map[int]time.Time{}
	}
	end := every(between, func() {
		for _, l := range lanes {
			if l.due {
				l.level[l.sent-l.heard()] = time.Now()
			}
			if l.from.probe.send(l.make(l.k)) == nil {
				l.sent++
			}
		}
	})
	func() {
		defer end() // also when what happens ends the step
		happens()
	}()
	x.wait(silence)
	drops = x.socketDrops(t) - drops
	var lost []string
	missing := 0
	for _, l := range lanes {
		heard := l.heard()
		switch {
		case l.sent == 0:
			t.Errorf("%s: nothing was sent", l.name)
		case l.due:
			x.row.due, x.row.came = x.row.due+l.sent, x.row.came+heard
			if heard > l.sent {
				t.Errorf("%s: %d of %d packets arrived, each is due once", l.name, heard, l.sent)
			}
			if heard < l.sent {
				missing += l.sent - heard
				lost = append(lost, fmt.Sprintf("%s: %d of %d packets arrived, the last was lost after %s",
					l.name, heard, l.sent, l.level[l.sent-heard-1].UTC().Format("15:04:05.000")))
			}
		default:
			x.row.bad, x.row.passed = x.row.bad+l.sent, x.row.passed+heard
			if heard > 0 {
				t.Errorf("%s: %d of %d packets arrived, none is due", l.name, heard, l.sent)
			}
		}
	}
	if may == lossy || missing == 0 {
		return
	}
	x.says("%d packets came to full sockets of a switch", drops)
	// On a machine that is busy with other things the switches may not get to a packet at all: no flow has seen it.
	if missing > drops {
		t.Errorf("%d packets that are due were lost, and %d came to full sockets:\n%s", missing, drops, strings.Join(lost, "\n"))
	}
}

// arrives waits until a packet of a lane arrives, or does not any more, and says how long that took.
func (x *smoke) arrives(t *testing.T, l *lane, want bool) time.Duration {
	t.Helper()
	start := time.Now()
	if !x.eventually(wired, func() bool {
		l.k = x.token()
		if err := l.from.probe.send(l.make(l.k)); err != nil {
			t.Fatal(err)
		}
		return x.eventually(silence, func() bool { return l.ears[0].heard(l.k) > 0 }) == want
	}) {
		t.Errorf("%s: arrives: %v after %v", l.name, !want, wired)
	}
	return time.Since(start)
}

// prepare makes networks, groups and VMs.
func (x *smoke) prepare(t *testing.T) {
	x.networks(t)
	x.rules = map[string]string{}
	x.open, x.group = x.filtered.group(t, "open"), x.filtered.group(t, "door")
	x.allow(t, x.open, everything()...)
	x.allow(t, x.group, directed(attributes{}, "egress", 4))
	add := func(name string, n *network, number, host int, group string) *vm {
		v := n.add(number, host)
		v.name, v.extra = name, attributes{"security_groups": []string{group}}
		return v
	}
	x.near, x.far = add("near", x.blue, 1, 1, x.group), add("far", x.blue, 2, 2, x.open)
	x.reds = []*vm{add("red1", x.red, 3, 1, x.open), add("red2", x.red, 4, 2, x.open)}
	green := &network{Network: lab.Network{Name: "green", Type: "vlan", PhysicalNetwork: "physnet1"}}
	if err := x.create(green); err != nil {
		t.Fatal(err)
	}
	x.nets = append(x.nets, green)
	x.greens = []*vm{add("green1", green, 5, 2, x.group), add("green2", green, 6, 1, x.open)}
	var ids []string
	for _, v := range []*vm{x.near, x.far, x.reds[0], x.reds[1], x.greens[0], x.greens[1]} {
		if err := x.plug(v, ""); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, v.PortID)
	}
	open := attributes{"security_groups": []string{x.open}}
	parent, sub := x.rider(t, x.blue, address4(50), open), x.rider(t, x.red, address4(51), open)
	sub.vlan = 101
	x.trunk = x.carry(t, 1, parent, sub)
	x.sub = &vm{VM: &lab.VM{PortID: sub.port.ID, MAC: sub.port.MACAddress}, name: "sub-port", v4: sub.ip()}
	var err error
	if x.sub.probe, err = openTagged(x.trunk.vm.Netns, "eth0", sub.vlan); err != nil {
		t.Fatal(err)
	}
	x.newcomer = add("newcomer", x.blue, 60, 1, x.open)
	if err := x.preparePort(x.newcomer); err != nil {
		t.Fatal(err)
	}
	x.waitActive(t, append(ids, parent.port.ID, sub.port.ID)...)
	x.trunk.waitTrunk(t)
	// What has to be told to the other host is there when packets arrive.
	for _, l := range x.trunkLanes() {
		if l.due {
			x.arrives(t, l, true)
		}
	}
	x.arrives(t, x.to(x.greens[0], x.greens[1], 7, true), true)
	x.says("6 VMs, trunk with 1 sub-port")
}

func (x *smoke) close() {
	x.filtered.close()
	if x.sub != nil {
		x.sub.probe.close()
	}
	if x.trunk != nil {
		x.trunk.close()
	}
}

func (x *smoke) opens(t *testing.T) {
	for protocol, port := range map[string]int{"udp": doorPort, "tcp": livePort} {
		x.rules[protocol] = x.allow(t, x.group, directed(ranged(protocol, port, port), "ingress", 4))[0]
	}
	took := max(x.arrives(t, x.door(), true), x.arrives(t, x.doorTCP(), true))
	x.says("first packet %d ms after the answer", took.Milliseconds())
	x.traffic(t, lossless, second, x.with(x.door())...)
}

// closes takes the rules away from under what they allow: a TCP connection of two kernels, and UDP packets that are tracked.
func (x *smoke) closes(t *testing.T) {
	s := &stream{rule: x.rules["tcp"], port: livePort, from: x.far, to: x.near, fromIP: x.far.v4, ip: x.near.v4, name: "from far to near"}
	udp := x.door()
	x.traffic(t, lossless, second/4, udp)
	x.during(t, lossless, func() { x.cut(t, []*stream{s}) }, x.with()...)
	x.request(t, http.MethodDelete, "security-group-rules/"+x.rules["udp"], nil, nil)
	took := x.arrives(t, udp, false) - silence
	x.says("the same UDP packets end %d ms after the answer", max(took, 0).Milliseconds())
	x.traffic(t, lossless, second, x.forbid(udp, x.door(), x.doorTCP())...)
}

// print shows the table.
func (x *smoke) print(took time.Duration) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nstep\tseconds\tdue: sent\tarrived\tforbidden: sent\tarrived\tflows\ttouched\tseen by a flow monitor\tresult\t")
	failed := 0
	for _, r := range x.rows {
		result := "pass"
		if r.failed {
			result = "FAIL"
			failed++
		}
		flows := "\t\t"
		if r.flows > 0 {
			flows = fmt.Sprintf("%d\t%d\t%d", r.flows, r.touched, r.witnessed)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", r.name, r.took.Seconds(), r.due, r.came, r.bad, r.passed, flows, result, strings.Join(r.note, "; "))
	}
	_ = w.Flush()
	fmt.Printf("%d steps, %d failed, %.0f s with the lab's start\n\n", len(x.rows), failed, took.Seconds())
}
