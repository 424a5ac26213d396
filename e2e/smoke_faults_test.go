// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// agentCookie is that of the agent's flows.
const agentCookie = "0x5061746368626179"

// restarted stops and starts both agents. No packet is lost, and no flow is touched: each goes on counting its time, and a monitor of
// somebody else hears of none.
func (x *smoke) restarted(t *testing.T) {
	x.untouched(t, func() {
		x.startAgents(t, x.agent)
		x.inSync(t)
		x.wait(second)
	})
}

// untouched has something happen during which no packet is lost and no flow is touched.
func (x *smoke) untouched(t *testing.T, happens func()) {
	t.Helper()
	x.inSync(t)
	before, ends := x.allFlows(), x.monitor(t)
	began := time.Now()
	x.during(t, lossless, happens, append(x.trunkLanes(), x.door())...)
	x.row.flows = count(before[0]) + count(before[1])
	x.row.touched = x.youngerThan(t, time.Since(began)) + vanished(before, x.allFlows())
	seen := ends()
	x.row.witnessed = len(seen)
	if x.row.touched > 0 {
		t.Errorf("%d of %d flows were touched", x.row.touched, x.row.flows)
	}
	if len(seen) > 0 {
		t.Errorf("a flow monitor has seen %d changes:\n%s", len(seen), strings.Join(seen[:min(len(seen), 10)], "\n"))
	}
}

// captured has `patchbay capture` show what a VM and a trunk's sub-port send, and what becomes of it: packets that arrive elsewhere, and
// forged ones that do not.
func (x *smoke) captured(t *testing.T) {
	for _, c := range []struct {
		vm   *vm
		host int
		want []string
	}{
		{x.near, x.near.host, []string{"leaves: to ", "dropped: port near sends under 192.168.100.98, which port security does not let it", " dropped: "}},
		{x.sub, x.trunk.vm.host, []string{"from the VM", ", VLAN "}},
	} {
		var out string
		var status int
		x.during(t, lossless, func() {
			out, status = x.runPatchbay(t, c.host, "capture", c.vm.PortID, "--from-vm", "--time", "2s")
		}, append(x.trunkLanes(), x.door())...)
		for _, want := range c.want {
			if status != 0 || !strings.Contains(out, want) {
				t.Errorf("capture of %s: status %d, no %q in\n%s", c.vm.name, status, want, out[:min(len(out), 4000)])
			}
		}
	}
}

// inSync waits until both agents say that all is in place.
func (x *smoke) inSync(t *testing.T) {
	t.Helper()
	for host := range x.l.Hosts() {
		var out string
		if !x.eventually(settled, func() bool {
			text, status := x.runPatchbay(t, host+1, "status")
			out = text
			return status == 0
		}) {
			t.Fatalf("hv%d is not in sync after %v:\n%s", host+1, settled, out)
		}
	}
}

// monitor has ovs-ofctl follow the flows of all bridges. The returned function ends it, and lists what it saw but for what packets
// teach the switch.
func (x *smoke) monitor(t *testing.T) func() []string {
	t.Helper()
	var mu sync.Mutex
	var outs []*bytes.Buffer
	var commands []*exec.Cmd
	protocol := "OpenFlow14"
	if !x.reportsChanges(t) {
		protocol = "OpenFlow10" // with Nicira's monitor, which the agent does not use
	}
	for _, h := range x.l.Hosts() {
		for _, br := range bridges {
			var out bytes.Buffer
			cmd := h.Command(x.ctx, "ovs-ofctl", "-O", protocol, "monitor", br, "watch:!initial")
			cmd.Stdout = locked{&mu, &out}
			cmd.Stderr = cmd.Stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			outs, commands = append(outs, &out), append(commands, cmd)
		}
	}
	ended := false
	ends := func() []string {
		if ended {
			return nil
		}
		ended = true
		for _, cmd := range commands {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		var seen []string
		for i, out := range outs {
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, "event=") && !learnt(line) {
					seen = append(seen, bridges[i%len(bridges)]+strings.TrimRight(line, "\n"))
				}
			}
		}
		return seen
	}
	t.Cleanup(func() { ends() })
	// It listens when it hears of a flow that is nobody's.
	heard := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(outs, func(b *bytes.Buffer) bool { return !strings.Contains(b.String(), "event=DELETED") })
	}
	if !x.eventually(wired, func() bool {
		for _, h := range x.l.Hosts() {
			for _, br := range bridges {
				x.must(t, h, "add-flow", br, "cookie=0x77,table=250,priority=7,actions=drop")
				x.must(t, h, "del-flows", br, "cookie=0x77/-1")
			}
		}
		return x.eventually(silence, heard)
	}) {
		t.Fatal("ovs-ofctl does not see what it is shown: nothing can be said about flows")
	}
	mu.Lock()
	defer mu.Unlock()
	for _, out := range outs {
		out.Reset()
	}
	return ends
}

// reportsChanges returns whether the switch has OpenFlow 1.4's flow monitor: Open vSwitch 3.0 and later. Without it the agent
// compares the flows once a minute.
func (x *smoke) reportsChanges(t *testing.T) bool {
	t.Helper()
	text, err := x.l.Host(1).Command(x.ctx, "ovs-ofctl", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(text), "(Open vSwitch) ")
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		t.Fatalf("ovs-ofctl --version: %q: %v", text, err)
	}
	return n >= 3
}

// locked is a buffer that is written to while it is read.
type locked struct {
	mu  *sync.Mutex
	buf *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// must runs ovs-ofctl on a host.
func (x *smoke) must(t *testing.T, h *lab.Host, args ...string) string {
	t.Helper()
	out, err := h.Switch().Ofctl(x.ctx, append([]string{"-O", "OpenFlow14"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// switchDies kills the switch of the first host. Nothing forbidden passes while it comes back, and all flows do.
func (x *smoke) switchDies(t *testing.T) {
	h := x.l.Host(1)
	before := x.flows(h)
	x.row.flows = count(before)
	var after map[string][]string
	x.during(t, lossy, func() {
		if err := h.Switch().KillVswitchd(x.ctx); err != nil {
			t.Fatal(err)
		}
		if err := h.EnsureSwitch(x.ctx); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if !x.eventually(wired, func() bool { after = x.flows(h); return same(before, after) }) {
			t.Errorf("flows are not back:\n%s", difference(before, after))
		}
		x.says("all flows back after %d ms", time.Since(began).Milliseconds())
		x.wait(second)
	}, x.with()...)
	x.arrives(t, x.door(), true)
	for _, l := range x.trunkLanes() {
		if l.due {
			x.arrives(t, l, true)
		}
	}
	x.traffic(t, lossless, second, append(x.trunkLanes(), x.door())...)
}

// tampered does something to the flows of the open rule, or adds one that opens more, and waits until it is undone.
func (x *smoke) tampered(t *testing.T, what string) {
	h := x.l.Host(1)
	before := x.flows(h)
	x.row.flows = count(before)
	rule := slices.DeleteFunc(x.dump(h, "--no-names")["br-int"], func(l string) bool {
		return !strings.Contains(l, "udp,") || !strings.Contains(l, fmt.Sprintf("tp_dst=%d ", doorPort))
	})
	if len(rule) < 2 {
		t.Fatalf("the rule has %d flows, want one for new connections and one for others: %q", len(rule), rule)
	}
	ends := x.monitor(t)
	match := func(flow string) string { // without cookie and actions
		_, rest, _ := strings.Cut(strings.ReplaceAll(flow, ", ", ","), ",")
		rest, _, _ = strings.Cut(rest, " actions=")
		return strings.TrimSuffix(rest, ",")
	}
	// A flow that is changed twice within a minute is fought over, and repaired more slowly.
	var act []string
	switch what {
	case "deleted":
		act = []string{"--strict", "del-flows", "br-int", match(rule[0])}
	case "changed":
		act = []string{"--strict", "mod-flows", "br-int", match(rule[1]) + ",actions=drop"}
	case "added":
		act = []string{"add-flow", "br-int", "cookie=" + agentCookie + "," + strings.Replace(match(rule[0]), fmt.Sprint(doorPort), fmt.Sprint(shutPort), 1) +
			",actions=" + strings.SplitN(rule[0], "actions=", 2)[1]}
	}
	x.must(t, h, act...)
	began := time.Now()
	var after map[string][]string
	within := wired
	if !x.reportsChanges(t) {
		within += time.Minute
	}
	if !x.eventually(within, func() bool { after = x.flows(h); return same(before, after) }) {
		t.Errorf("not repaired after %v:\n%s", within, difference(before, after))
	}
	took := time.Since(began)
	seen := ends()
	x.row.witnessed = len(seen)
	x.row.touched = 1
	if len(seen) < 2 { // what was done to it, and what undid that
		t.Errorf("a flow monitor has seen %q: this shows nothing", seen)
	}
	x.says("repaired after %d ms, with the time to look", took.Milliseconds())
	x.traffic(t, lossless, second/2, x.with(x.door())...)
}

// foreign adds flows under cookies that are not the agent's: they stay.
func (x *smoke) foreign(t *testing.T) {
	h := x.l.Host(1)
	before := x.flows(h)
	for _, cookie := range []string{"0", "0x1234"} {
		x.must(t, h, "add-flow", "br-int", "cookie="+cookie+",table=70,priority="+fmt.Sprint(len(cookie))+",in_port=65000,actions=drop")
	}
	with := x.flows(h)
	x.row.flows, x.row.touched = count(before), 2
	if count(with) != count(before)+2 {
		t.Fatalf("%d flows, want %d", count(with), count(before)+2)
	}
	x.traffic(t, lossless, 2*second, x.with(x.door())...)
	if after := x.flows(h); !same(with, after) {
		t.Errorf("the agent has changed flows that are not its own:\n%s", difference(with, after))
	}
	x.must(t, h, "del-flows", "br-int", "table=70,in_port=65000")
	if after := x.flows(h); !same(before, after) {
		t.Errorf("flows differ in the end:\n%s", difference(before, after))
	}
}

// brokerAway opens a rule of which the agent misses the news, closes another and plugs a port in while the broker is away. Meanwhile the
// port hears nothing and is not heard, and everything else goes on; when the broker is back all of it is in place.
func (x *smoke) brokerAway(t *testing.T) {
	x.missed(t, func() { x.allow(t, x.group, directed(ranged("udp", laterPort, laterPort), "ingress", 4)) })
	started := false
	start := func() {
		if !started {
			started = true
			x.startBroker(t)
		}
	}
	defer start()
	if err := x.newcomer.Insert(x.ctx, false); err != nil {
		t.Fatal(err)
	}
	ordered := make(chan error, 1)
	// The server may answer only when it has its broker back.
	go func() { ordered <- x.try(http.MethodDelete, "security-group-rules/"+x.rules["udp"], nil, nil) }()
	x.wait(second) // the agent has seen it
	x.traffic(t, lossless, 3*second, x.with(x.waiting()...)...)
	start()
	if !x.eventually(back, x.served) {
		t.Errorf("the server does not listen to its broker after %v", back)
	}
	began := time.Now()
	select {
	case err := <-ordered:
		if err != nil {
			t.Errorf("the server did not do what it was told meanwhile: %v", err)
		}
	case <-time.After(back):
		t.Fatalf("the server has not answered after %v", back)
	}
	later := x.to(x.far, x.near, laterPort, true)
	x.arrives(t, later, true)
	x.arrives(t, x.door(), false)
	x.arrives(t, x.to(x.newcomer, x.far, 7, true), true)
	x.arrives(t, x.to(x.far, x.newcomer, 7, true), true)
	x.says("all in place %.1f s after the server listens to it again", time.Since(began).Seconds())
	x.waitActive(t, x.newcomer.PortID)
	x.inSync(t)
	closed := x.door()
	closed.due = false
	x.traffic(t, lossless, second, x.with(x.to(x.far, x.near, laterPort, true), closed, x.to(x.far, x.newcomer, 7, true), x.to(x.newcomer, x.far, 7, true))...)
}

// missed has something happen of which the first host's agent never hears: it is stopped and has no connection to the broker, so that
// the news wait in its queue, and the broker ends and forgets them.
func (x *smoke) missed(t *testing.T, happens func()) {
	t.Helper()
	h := x.l.Host(1)
	if err := h.SignalAgent(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.SignalAgent(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	if _, err := x.l.Broker().Ctl(x.ctx, "close_all_connections", "test"); err != nil {
		t.Fatal(err)
	}
	if !x.eventually(back, x.served) {
		t.Fatalf("the server is not back at its broker after %v", back)
	}
	happens()
	x.stopBroker(t)
}

// waiting are lanes of a port that is plugged in and not wired: what it would hear of its own network and of another one on its host,
// and what it says.
func (x *smoke) waiting() []*lane {
	w := x.newcomer
	hears := func(name string, from *vm, frame func(k token) []byte) *lane {
		return &lane{name: name + " at a waiting port", from: from, make: frame, ears: []*vm{w}}
	}
	var list []*lane
	for _, v := range []*vm{x.near, x.far, x.reds[0], x.reds[1]} {
		list = append(list,
			hears("broadcast of "+v.name, v, func(k token) []byte {
				return arp(1, broadcast, v.MAC, v.MAC, v.v4, "00:00:00:00:00:00", address4(230), k)
			}),
			hears("packet of "+v.name, v, func(k token) []byte { return bare(w, v.MAC, v.v4, v.v6, 4, k) }))
	}
	everybody := []*vm{x.near, x.far, x.reds[0], x.reds[1]}
	hello := func(k token) []byte { return arp(1, broadcast, w.MAC, w.MAC, w.v4, "00:00:00:00:00:00", x.far.v4, k) }
	return append(list,
		&lane{name: "broadcast of a waiting port", from: w, make: hello, ears: everybody},
		&lane{name: "tagged broadcast of a waiting port", from: w, make: func(k token) []byte { return tagged(hello(k), 1) }, ears: everybody},
		x.to(w, x.far, 7, false), x.to(w, x.near, laterPort, false))
}

// otherBridge has the newcomer's interface move to a bridge that is not the agent's: the server is told that the port is down, though
// the interface is still there.
func (x *smoke) otherBridge(t *testing.T) {
	sw := x.l.Host(1).Switch()
	vsctl := func(args ...string) {
		t.Helper()
		if _, err := sw.Vsctl(x.ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	const other = "br-other"
	v := x.newcomer
	x.waitStatus(t, v, "ACTIVE")
	vsctl("del-port", "br-int", v.Tap, "--", "add-br", other, "--", "set", "Bridge", other, "datapath_type=netdev",
		"--", "add-port", other, v.Tap, "--", "set", "Interface", v.Tap, "external_ids:iface-id="+v.PortID,
		`external_ids:attached-mac="`+v.MAC+`"`, "external_ids:iface-status=active", "external_ids:vm-uuid="+v.PortID)
	began := time.Now()
	x.waitStatus(t, v, "DOWN")
	x.says("DOWN after %d ms", time.Since(began).Milliseconds())
	x.traffic(t, lossless, second/2, x.with(x.to(v, x.far, 7, false), x.to(x.far, v, 7, false))...)
	vsctl("del-br", other)
	if err := v.Insert(x.ctx, false); err != nil {
		t.Fatal(err)
	}
	x.waitStatus(t, v, "ACTIVE")
	x.arrives(t, x.to(v, x.far, 7, true), true)
}

// unplugged takes a VM out: the server knows, and no flow is left of it.
func (x *smoke) unplugged(t *testing.T) {
	h, v := x.l.Host(1), x.newcomer
	if err := v.Remove(x.ctx); err != nil {
		t.Fatal(err)
	}
	x.waitStatus(t, v, "DOWN")
	var left string
	if !x.eventually(wired, func() bool {
		left = x.must(t, h, "--no-stats", "dump-flows", "br-int")
		return !strings.Contains(left, v.MAC)
	}) {
		t.Errorf("flows are left of %s:\n%s", v.MAC, left)
	}
	x.traffic(t, lossless, second/2, x.with(x.to(v, x.far, 7, false))...)
}

// readdressed gives a VM of the other host another address. The agent here answers for the new one, and not for the old one any more.
func (x *smoke) readdressed(t *testing.T) {
	from, to := x.reds[0], x.reds[1]
	x.ask(t, from, to, true, true)
	old := *to
	to.v4 = address4(70)
	x.update(t, to, attributes{"fixed_ips": []map[string]string{{"subnet_id": x.red.SubnetID, "ip_address": to.v4}, {"subnet_id": x.red.v6, "ip_address": to.v6}}})
	began := time.Now()
	flow := func() string { return x.must(t, x.l.Host(1), "--no-stats", "dump-flows", "br-tun", "table=21,arp") }
	if !x.eventually(wired, func() bool { return strings.Contains(flow(), to.v4) }) {
		t.Errorf("nobody answers for the new address after %v:\n%s", wired, flow())
	}
	x.says("answered %d ms after the server's answer", time.Since(began).Milliseconds())
	x.ask(t, from, to, true, true)
	// Its kernel still has the old address and hears the question, but its port may not answer, once the other agent knows.
	guards := func() string { return x.must(t, x.l.Host(2), "--no-stats", "dump-flows", "br-int", "table=71,arp") }
	if !x.eventually(wired, func() bool {
		return !strings.Contains(guards(), "arp_spa="+old.v4+",") && !strings.Contains(guards(), "arp_spa="+old.v4+" ")
	}) {
		t.Errorf("the VM may still answer for its old address after %v:\n%s", wired, guards())
	}
	x.ask(t, from, &vm{VM: from.VM, name: old.name, v4: old.v4, probe: from.probe}, false, false)
	x.traffic(t, lossless, second/2, x.to(from, to, 7, true), x.to(to, from, 7, true), x.to(&old, from, 7, false))
}
