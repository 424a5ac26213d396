// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// TestIsolation looks at a port in every state in which it can be, while another tenant's network and its own are full of
// frames and its VM sends what it must not: it hears nothing of the other tenant's network, nothing of its own before it is
// allowed to, and nothing of what it sends arrives where it must not. Under both firewall drivers. All counts are in one table.
//
// PATCHBAY_E2E_AGENT=patchbay,python runs both agents, one after the other; what the Python agent does is shown and not judged.
func TestIsolation(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	start := time.Now()
	x := &isolation{filtered: &filtered{cloud: &cloud{l: lab.New(t, 2), ctx: ctx}}}
	t.Cleanup(x.close)
	t.Cleanup(func() { x.print(time.Since(start)) })
	for _, agent := range strings.Split(or(os.Getenv(envAgent), string(lab.Patchbay)), ",") {
		kind, err := lab.ParseAgentKind(agent)
		if err != nil {
			t.Fatal(err)
		}
		for _, driver := range []string{"openvswitch", "noop"} {
			x.agent, x.driver = kind, driver
			x.round.name = agent + " " + driver
			x.overrides = []string{"securitygroup.firewall_driver=" + driver}
			if !x.run(t, "agents start", "2", x.start) || x.talkers == nil && !x.run(t, "VMs are wired", "2", x.prepare) {
				return
			}
			if !x.run(t, "a port that nobody knows is plugged in", "1", x.bystand) {
				return
			}
			for _, s := range x.states() {
				x.state(t, s)
			}
			x.run(t, "what is heard before the agent's first write", "1", x.gap)
			x.run(t, "the port that nobody knows is taken out", "1", func(t *testing.T) { x.drop(t, x.bystander); x.bystander = nil })
			if x.simulated() {
				continue // it has no routers
			}
			x.state(t, portState{"router present", x.routerPresent})
		}
	}
}

// isolation is a cloud of two networks whose VMs talk all the time: blue is the network of the ports that are looked at, red
// another tenant's.
type isolation struct {
	*filtered
	driver    string
	overrides []string
	talkers   []*vm
	bystander *vm // a port that waits for ever
	number    int
	rows      []*isolationRow
	gaps      []string
	// routerMAC is the MAC under which the first host's routers are known to others, gatewayMAC that of the router's interface.
	routerMAC, gatewayMAC string
	router                *vm // who hears what comes to the router's interface
}

// portState is a state of a port: what brings it about and looks.
type portState struct {
	name string
	look func(t *testing.T)
}

// column is what a port hears or sends.
type column int

const (
	otherBroadcast column = iota
	otherMulticast
	otherFlooded
	otherClaimed
	ownBroadcast
	ownMulticast
	ownFlooded
	ownClaimed
	sentUntagged
	sentTagged
	sentForged
	waiting // frames that arrived at another port that waits
	control
	columns
)

func (c column) String() string {
	return [...]string{
		"other: broadcast", "multicast", "flooded", "to a MAC it claims", "own: broadcast", "multicast", "flooded", "to its MAC",
		"sent: untagged", "tagged", "forged", "a waiting port", "control",
	}[c]
}

// tally is a box of the table.
type tally struct {
	offered, arrived int
	due              bool // frames are due
	shown            bool // not judged
}

func (c tally) String() string {
	switch {
	case c.offered == 0:
		return "–"
	case c.due:
		return fmt.Sprintf("%d/%d due", c.arrived, c.offered)
	case c.shown:
		return fmt.Sprintf("(%d/%d)", c.arrived, c.offered)
	}
	return fmt.Sprintf("%d/%d", c.arrived, c.offered)
}

// isolationRow is a port in a state.
type isolationRow struct {
	agent, driver, state string
	counts               [columns]tally
	stray                []string // of the switch's table of addresses
	result               string
	took                 time.Duration
}

func (x *isolation) simulated() bool {
	return lab.ServerKind(os.Getenv(lab.EnvServer)) == lab.Simulated
}

// state runs one state.
func (x *isolation) state(t *testing.T, s portState) {
	start := time.Now()
	first := len(x.rows)
	x.run(t, s.name, "2", func(t *testing.T) {
		s.look(t)
		if t.Skipped() {
			return
		}
		if len(x.rows) == first {
			t.Error("nothing was looked at")
		}
	})
	if len(x.rows) > first {
		x.rows[first].took = time.Since(start)
	}
}

// verdict fails with the boxes that are not as they must be.
func (x *isolation) verdict(t *testing.T, r *isolationRow) {
	t.Helper()
	bad := len(r.stray) > 0
	for i, c := range r.counts {
		what := column(i).String()
		switch {
		case i < int(ownBroadcast) && i > int(otherBroadcast):
			what = "other: " + what
		case i > int(ownBroadcast) && i < int(sentUntagged):
			what = "own: " + what
		}
		if !c.due && !c.shown {
			bad = bad || c.arrived > 0
			x.blame(t, c.arrived, "%s: %s: %d of %d frames arrived, 0 are due", r.state, what, c.arrived, c.offered)
		}
		if c.due && c.offered > 0 && c.arrived < c.offered*8/10 {
			bad = true
			x.blame(t, 1, "%s: %s: %d of %d frames arrived that are due", r.state, what, c.arrived, c.offered)
		}
	}
	r.result = "pass"
	if bad {
		r.result = "FAIL"
	}
	if x.agent != lab.Patchbay {
		r.result = map[bool]string{true: "leaks", false: "holds"}[bad]
	}
	x.blame(t, len(r.stray), "%s: a switch has a MAC on a port that does not own it: %q", r.state, r.stray)
}

func (x *isolation) start(t *testing.T) {
	x.eachHost(t, func(h *lab.Host) error {
		if err := h.StopAgent(x.ctx); err != nil {
			return err
		}
		return h.StartAgent(x.ctx, x.agent, x.overrides...)
	})
	for _, v := range x.talkers {
		x.waitActive(t, v.PortID)
	}
}

// prepare wires those that talk, one on the first host and two on the second of each network.
func (x *isolation) prepare(t *testing.T) {
	x.networks(t)
	x.open = x.group(t, "open")
	x.allow(t, x.open, everything()...)
	for _, n := range []*network{x.blue, x.red} {
		for i, host := range []int{1, 2, 2} {
			v := n.add(1+i, host)
			v.extra = attributes{"port_security_enabled": false}
			x.talkers = append(x.talkers, v)
		}
	}
	x.plugPlanned(t)
	x.number = 10
	x.eavesdrop(t)
	for _, e := range x.ears[1:] { // the wires are full of what the networks say
		e.probe.close()
	}
	x.ears = x.ears[:1]
}

// subject plans a VM with a port of a network, which is bound to the first host. The switch has no row for it yet.
func (x *isolation) subject(t *testing.T, n *network, extra attributes) *vm {
	t.Helper()
	x.number = 10 + (x.number-9)%220 // those of earlier states are free again
	v := n.add(x.number, 1)
	v.extra = with(extra, "security_groups", []string{x.open})
	if err := x.preparePort(v); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if v != x.bystander {
			x.drop(t, v)
		}
	})
	return v
}

// drop takes a VM away, with its port.
func (x *isolation) drop(t *testing.T, v *vm) {
	if v == nil {
		return
	}
	v.probe.close()
	if err := v.Unplug(x.ctx, true); err != nil {
		t.Error(err)
	}
	v.VM, v.probe = nil, nil
	x.flushMACs(t)
	for i, w := range v.net.vms {
		if w == v {
			v.net.vms = append(v.net.vms[:i], v.net.vms[i+1:]...)
			break
		}
	}
}

// insert gives a VM its row, which with isolate is in no VLAN, and the agent a second to do what it does: what is heard before is
// measured by gap.
func (x *isolation) insertNow(t *testing.T, v *vm, isolate bool) {
	t.Helper()
	if err := v.Insert(x.ctx, isolate); err != nil {
		t.Fatal(err)
	}
	x.wait(time.Second)
}

// bystand plugs in a port that the server does not know: it waits for ever.
func (x *isolation) bystand(t *testing.T) {
	x.bystander = x.subject(t, x.blue, nil)
	x.request(t, http.MethodDelete, "ports/"+x.bystander.PortID, nil, nil)
	x.insertNow(t, x.bystander, false)
}

// opened waits until a VM is wired: it hears what its neighbour on its host sends, and is heard.
func (x *isolation) opened(t *testing.T, v *vm) {
	t.Helper()
	peer := v.net.vms[0]
	if peer == v {
		peer = v.net.vms[1]
	}
	if !x.eventually(settled, func() bool {
		out, in := x.token(), x.token()
		for _, s := range []struct {
			from, to *vm
			k        token
		}{{v, peer, out}, {peer, v, in}} {
			if err := s.from.probe.send(bare(s.to, s.from.MAC, s.from.v4, s.from.v6, 4, s.k)); err != nil {
				return false
			}
		}
		return x.eventually(silence, func() bool { return peer.probe.saw(out) > 0 && v.probe.saw(in) > 0 })
	}) {
		t.Fatalf("%s is not wired after %v", v.name, settled)
	}
}

// offer is a frame that is sent again and again, and who must not hear it, or must.
type offer struct {
	column column
	from   *probe
	frame  []byte
	k      token
	ears   []*vm
	sent   atomic.Int64
}

// terms are what is due while a port is looked at.
type terms struct {
	allowed bool // it is a member of its network
	loose   bool // it may forge in its own network: nothing checks what it says
	shown   bool // nothing is judged
	ownAny  bool // whether it hears its own network is not judged
	closed  bool // the whole first host is shut
}

// look sends all streams while something happens, and makes a row of what arrived.
func (x *isolation) look(t *testing.T, name string, v *vm, due terms, happens func()) {
	t.Helper()
	r := &isolationRow{agent: string(x.agent), driver: x.driver, state: name}
	x.rows = append(x.rows, r)
	streams := x.streams(t, v, due)
	end := every(8*time.Millisecond, func() {
		for _, s := range streams {
			if s.from.send(s.frame) == nil {
				s.sent.Add(1)
			}
		}
	})
	happens()
	end()
	x.wait(silence)
	for _, s := range streams {
		c := &r.counts[s.column]
		c.offered += int(s.sent.Load())
		for _, w := range s.ears {
			c.arrived += w.heard(s.k)
		}
		if w := x.bystander; w != nil && w.probe != nil {
			r.counts[waiting].offered += int(s.sent.Load())
			r.counts[waiting].arrived += w.heard(s.k)
		}
	}
	for i := range r.counts {
		c, own := &r.counts[i], column(i) >= ownBroadcast && column(i) <= ownClaimed || column(i) == sentUntagged
		c.due = column(i) == control || own && due.allowed && !due.ownAny
		c.shown = due.shown || own && due.ownAny
		if column(i) == control {
			c.shown = false
		}
	}
	x.strays(t, r, v, due)
	x.verdict(t, r)
}

// hold looks for some time at a port that stays as it is.
func (x *isolation) hold(t *testing.T, name string, v *vm, due terms) {
	t.Helper()
	x.look(t, name, v, due, func() { x.wait(1200 * time.Millisecond) })
}

// strays looks at what the switches have learned.
func (x *isolation) strays(t *testing.T, r *isolationRow, v *vm, due terms) {
	t.Helper()
	for _, h := range x.l.Hosts() {
		list, err := x.macTable(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			wrong := x.strayMAC(h, e, func(w *vm) []string { return []string{w.MAC} })
			if x.router != nil && e.port == x.router.Tap && e.mac == x.gatewayMAC {
				continue // it is on every host
			}
			if wrong != "" && !strings.HasPrefix(e.port, "own") && !due.loose && !due.shown {
				r.stray = append(r.stray, wrong)
			}
		}
	}
	x.flushMACs(t)
	if due.loose || due.shown { // a switch counts what has passed some time later, and learns from it once more
		x.wait(time.Second)
		x.flushMACs(t)
	}
	if due.allowed && v.VM != nil {
		x.announce(t, v)
	}
}

// flushMACs has the switches forget all addresses, and those that talk say where they are.
func (x *isolation) flushMACs(t *testing.T) {
	t.Helper()
	for _, h := range x.l.Hosts() {
		if _, err := h.Switch().Appctl(x.ctx, "ovs-vswitchd", "fdb/flush", "br-int"); err != nil {
			t.Error(err)
		}
	}
	for _, w := range x.talkers {
		x.announce(t, w)
	}
}

// streams are all frames that are sent while a port is looked at.
func (x *isolation) streams(t *testing.T, v *vm, due terms) []*offer {
	t.Helper()
	var list []*offer
	add := func(c column, from *vm, make func(k token) []byte, ears ...*vm) {
		k := x.token()
		list = append(list, &offer{column: c, from: from.probe, frame: make(k), k: k, ears: ears})
	}
	const unknownMAC, group = "02:0b:ad:00:00:99", "01:00:5e:00:00:fb"
	blue, red := x.talkers[:3], x.talkers[3:]
	own, other := blue, red
	if v.net == x.red {
		own, other = red, blue
	}
	for i, talk := range [][]*vm{other, own} {
		first := otherBroadcast
		if i == 1 {
			first = ownBroadcast
		}
		for j, from := range talk[:2] {
			add(first, from, func(k token) []byte {
				return arp(1, broadcast, from.MAC, from.MAC, from.v4, "00:00:00:00:00:00", address4(230), k)
			}, v)
			// What a filtered port hears of its own network besides is what its rules say.
			if i == 1 && due.allowed {
				add(ownClaimed, from, func(k token) []byte { return bare(v, from.MAC, from.v4, from.v6, 4, k) }, v)
				continue
			}
			add(first+1, from, func(k token) []byte { return plain(group, from.MAC, k) }, v)
			add(first+2, from, func(k token) []byte { return plain(unknownMAC, from.MAC, k) }, v)
			add(first+3, from, func(k token) []byte { return plain(v.MAC, from.MAC, k) }, v)
			if i == 0 { // which it claims by what it sends
				add(first+3, from, func(k token) []byte { return plain(talk[2-j].MAC, from.MAC, k) }, v)
			}
		}
		for _, pair := range [][2]*vm{{talk[1], talk[2]}, {talk[2], talk[1]}, {talk[0], talk[2]}, {talk[2], talk[0]}} {
			if due.closed && (pair[0] == talk[0] || pair[1] == talk[0]) {
				continue
			}
			if due.loose && i == 1 && pair[1] == talk[2] { // whose MAC the VM claims, see sends
				continue
			}
			add(control, pair[0], func(k token) []byte { return bare(pair[1], pair[0].MAC, pair[0].v4, pair[0].v6, 4, k) }, pair[1])
		}
	}
	x.sends(t, v, due, own, other, add)
	if x.bystander != nil && x.bystander != v && x.bystander.probe != nil { // two that wait do not hear each other either
		w := x.bystander
		add(otherFlooded, w, func(k token) []byte { return tagged(plain(broadcast, w.MAC, k), 4095) }, v, x.ears[0])
		add(otherBroadcast, w, func(k token) []byte { return plain(broadcast, w.MAC, k) }, v, x.ears[0])
	}
	return list
}

// sends are the frames of the VM itself.
func (x *isolation) sends(t *testing.T, v *vm, due terms, own, other []*vm, add func(c column, from *vm, make func(k token) []byte, ears ...*vm)) {
	t.Helper()
	everybody := append(append([]*vm{x.ears[0]}, own...), other...)
	hello := func(k token) []byte { return arp(1, broadcast, v.MAC, v.MAC, v.v4, "00:00:00:00:00:00", own[0].v4, k) }
	if due.allowed {
		add(sentUntagged, v, func(k token) []byte { return bare(own[0], v.MAC, v.v4, v.v6, 4, k) }, own[0])
		add(sentForged, v, hello, other...) // its own name in the other network
	} else {
		add(sentUntagged, v, hello, everybody...)
		add(sentUntagged, v, func(k token) []byte { return plain(other[0].MAC, v.MAC, k) }, everybody...)
		add(sentUntagged, v, func(k token) []byte { return bare(own[0], v.MAC, v.v4, v.v6, 4, k) }, everybody...)
		add(sentUntagged, v, func(k token) []byte { return tagged(hello(k), 0) }, everybody...)
	}
	vlans := []uint16{4095, 4094}
	for _, w := range []*vm{own[0], other[0]} {
		if n, err := strconv.ParseUint(x.tag(t, w), 10, 12); err == nil {
			vlans = append(vlans, uint16(n))
		}
	}
	for _, vlan := range vlans {
		add(sentTagged, v, func(k token) []byte { return tagged(hello(k), vlan) }, everybody...)
		add(sentTagged, v, func(k token) []byte { return tagged(plain(other[0].MAC, v.MAC, k), vlan) }, everybody...)
		add(sentTagged, v, func(k token) []byte { return tagged(plain(broadcast, other[2].MAC, k), vlan) }, everybody...) // claims its MAC
	}
	if due.loose {
		everybody = other
	}
	nobody := &vm{VM: &lab.VM{MAC: strangeMAC}, v4: address4(88)}
	for _, liar := range []*vm{own[2], other[2], nobody} {
		add(sentForged, v, func(k token) []byte { return plain(broadcast, liar.MAC, k) }, everybody...)
		add(sentForged, v, func(k token) []byte { return arp(2, broadcast, v.MAC, v.MAC, liar.v4, v.MAC, v.v4, k) }, everybody...)
		add(sentForged, v, func(k token) []byte {
			return advertisement(own[0].MAC, liar.MAC, v.linkLocal(), own[0].linkLocal(), v.linkLocal(), v.MAC, k)
		}, everybody...)
		add(sentForged, v, func(k token) []byte {
			return advertisement(own[0].MAC, v.MAC, v.linkLocal(), own[0].linkLocal(), liar.linkLocal(), v.MAC, k)
		}, everybody...)
		if x.routerMAC != "" {
			add(sentForged, v, func(k token) []byte {
				return arp(2, x.routerMAC, liar.MAC, liar.MAC, liar.v4, x.gatewayMAC, "192.168.100.1", k)
			}, append(everybody, x.router)...)
		}
	}
	if x.driver != "noop" || !due.allowed { // without the firewall nobody looks at IP addresses
		add(sentForged, v, func(k token) []byte { return bare(own[0], v.MAC, own[2].v4, own[2].v6, 4, k) }, everybody...)
		add(sentForged, v, func(k token) []byte { return bare(own[0], v.MAC, own[2].v4, own[2].v6, 6, k) }, everybody...)
	}
}

// print shows the table.
func (x *isolation) print(took time.Duration) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nagent\tfirewall\tstate of the port")
	for c := range columns {
		fmt.Fprint(w, "\t"+c.String())
	}
	fmt.Fprintln(w, "\tfdb\tresult\tseconds")
	offered, arrived, failed := 0, 0, 0
	for _, r := range x.rows {
		fmt.Fprintf(w, "%s\t%s\t%s", r.agent, r.driver, r.state)
		for _, c := range r.counts {
			fmt.Fprint(w, "\t"+c.String())
			if !c.due && !c.shown && r.agent == string(lab.Patchbay) {
				offered, arrived = offered+c.offered, arrived+c.arrived
			}
		}
		if r.result == "FAIL" {
			failed++
		}
		fmt.Fprintf(w, "\t%d\t%s\t%.0f\n", len(r.stray), r.result, r.took.Seconds())
	}
	_ = w.Flush()
	fmt.Printf("arrived/offered, where what is sent counts at everyone who receives it; (shown) is not judged. Patchbay: %d frames arrived of %d where 0 are due; %d states failed; %.0f s with the lab's start\n", arrived, offered, failed, took.Seconds())
	for _, line := range x.gaps {
		fmt.Println(line)
	}
}
