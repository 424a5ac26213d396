// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-sdn/patchbay/lab"
	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// flood is a VM that sends as fast as it can, from the moment its link exists. Half of what it sends its group allows: that
// shows when the port has been opened. The other half is never allowed.
type flood struct {
	f       *filtered
	v       *vm
	allowed []token
	sent    atomic.Int64
	// fresh makes what iptables must stop, with new tokens, and notes when; nil for none.
	fresh    func() [][]byte
	openings *openings

	mu     sync.Mutex
	never  map[token]string
	sentAt map[token]time.Time // of the fresh ones
	stop   atomic.Bool
	done   chan struct{}
}

// eavesdrop opens sockets where frames may come that no VM hears: on taps of the host's operator, which are in no network,
// and on the other ends of the host's wires, where frames are in tunnels or not.
func (f *filtered) eavesdrop(t *testing.T) {
	h := f.l.Host(1)
	for _, name := range []string{"own0", "own1"} {
		for _, cmd := range [][]string{
			{"ip", "link", "add", name, "type", "veth", "peer", "name", name + "p"},
			{"ip", "link", "set", name, "up"},
			{"ip", "link", "set", name + "p", "up"},
			{"ovs-vsctl", "add-port", "br-int", name},
		} {
			if out, err := h.Command(f.ctx, cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", cmd, err, out)
			}
		}
		f.listen(t, "the operator's "+name, h.Netns(), name+"p")
	}
	fabric := strings.TrimSuffix(h.Netns(), h.Name()) + "fabric"
	f.listen(t, "the wire of tunnels", fabric, "u1")
	f.listen(t, "the wire of physnet1", fabric, "e1")
}

func (f *filtered) listen(t *testing.T, name, netns, link string) {
	t.Helper()
	p, err := openProbe(netns, link)
	if err != nil {
		t.Fatal(err)
	}
	f.ears = append(f.ears, &vm{VM: &lab.VM{}, name: name, host: 1, probe: p})
}

// operator has two taps that are no VMs' talk to each other: they are let through without anybody's rule.
func (f *filtered) operator(t *testing.T) {
	f.eavesdrop(t)
	from, to := f.ears[0], f.ears[1]
	if !f.eventually(wired, func() bool {
		k := f.token()
		if err := from.probe.send(plain(broadcast, strangeMAC, k)); err != nil {
			t.Fatal(err)
		}
		return f.eventually(silence, func() bool { return to.probe.saw(k) > 0 })
	}) {
		t.Error("no frame from one tap of the operator's arrives at the other")
	}
	if f.hybrid { // until the agent's first write a new port is in no VLAN either, unless os-vif isolates it: they hear it
		from.probe.close()
		to.probe.close()
		f.ears = f.ears[2:]
	}
}

// failClosed plugs VMs that send all the time.
func (f *filtered) failClosed(t *testing.T) {
	if !f.run(t, "the operator's own taps are let through", "1", f.operator) {
		return
	}
	group := f.group(t, "flood")
	for _, version := range []int{4, 6} {
		f.allow(t, group, directed(ranged("udp", keeper, keeper), "egress", version))
	}
	v := f.flooder(1, group)
	f.run(t, "a new VM that sends at full speed", "2", func(t *testing.T) {
		x := f.flood(t, v)
		defer x.end()
		f.plugFlooder(t, v)
		x.opened(t, f)
		x.judge(t, f, "while it was plugged")
	})
	f.run(t, "the same, plugged in again five times", "2", func(t *testing.T) {
		x := f.flood(t, v)
		defer x.end()
		for range 5 {
			f.pull(t, v)
			f.insert(t, v)
			x.opened(t, f)
		}
		x.judge(t, f, "while it was plugged")
	})
	f.run(t, "a new VM while the agent is dead", "2", func(t *testing.T) {
		w := f.flooder(2, group)
		f.crash(t, 1)
		x := f.flood(t, w)
		defer x.end()
		f.plugFlooder(t, w)
		f.quiet(t, x, 3*time.Second)
		f.alive(t)
		x.judge(t, f, "while the agent was dead")
		f.revive(t, 1)
		x.opened(t, f)
		x.judge(t, f, "while the agent started")
	})
	f.run(t, "the agent killed just when a VM was plugged", "2", func(t *testing.T) {
		x := f.flood(t, v)
		defer x.end()
		for i := range 4 {
			f.pull(t, v)
			f.insert(t, v)
			f.eventually(time.Duration(i)*25*time.Millisecond, func() bool { return false })
			f.crash(t, 1)
			f.eventually(time.Second, func() bool { return false })
			x.judge(t, f, "while the agent was dead")
			f.revive(t, 1)
			x.opened(t, f)
			x.judge(t, f, "while the agent started")
		}
	})
	f.run(t, "a new group that the server does not tell", "2", func(t *testing.T) {
		x := f.flood(t, v)
		defer x.end()
		fresh := f.group(t, "fresh")
		for _, version := range []int{4, 6} {
			f.allow(t, fresh, directed(ranged("udp", keeper, keeper), "egress", version))
		}
		f.pull(t, v)
		f.update(t, v, attributes{"security_groups": []string{fresh}})
		resume := f.pauseServer(t)
		defer resume()
		f.insert(t, v)
		f.quiet(t, x, 5*time.Second)
		x.judge(t, f, "while the server did not answer")
		f.alive(t)
		resume()
		x.opened(t, f)
		x.judge(t, f, "when the server answered")
	})
}

// flooder plans a VM.
func (f *filtered) flooder(number int, group string) *vm {
	v := f.blue.add(120+number, 1)
	v.extra = attributes{"security_groups": []string{group}}
	return v
}

// flood starts the sender, which waits for the VM's link if need be.
func (f *filtered) flood(t *testing.T, v *vm) *flood {
	t.Helper()
	x := &flood{f: f, v: v, never: map[token]string{}, sentAt: map[token]time.Time{}, done: make(chan struct{})}
	receivers := []*vm{f.rogues[1], f.rogues[2], f.members[1]}
	refused := func(mac string) (list [][]byte) {
		x.mu.Lock()
		defer x.mu.Unlock()
		from, now := &vm{VM: &lab.VM{MAC: mac}, v4: v.v4, v6: v.v6}, time.Now()
		for _, to := range receivers {
			for _, version := range []int{4, 6} {
				c, k := conn{from: from, to: to, version: version, proto: protoUDP, own: 40000, port: keeper + 1}, f.token()
				x.never[k], x.sentAt[k] = fmt.Sprintf("udp over IPv%d to %s", version, to.name), now
				list = append(list, c.first(k))
			}
		}
		return list
	}
	frames := func(mac string) [][]byte {
		var list [][]byte
		from := &vm{VM: &lab.VM{MAC: mac}, v4: v.v4, v6: v.v6}
		for _, to := range receivers {
			for _, version := range []int{4, 6} {
				c := conn{from: from, to: to, version: version, proto: protoUDP, own: 40000, port: keeper}
				k := f.token()
				x.allowed = append(x.allowed, k)
				list = append(list, c.first(k))
			}
			if f.hybrid {
				continue // iptables filters nothing but IP
			}
			k := f.token()
			x.never[k] = "plain frame to " + to.name
			list = append(list, plain(to.MAC, mac, k))
		}
		if !f.hybrid {
			list = append(list, refused(mac)...)
			k := f.token()
			x.never[k] = "broadcast"
			list = append(list, plain(broadcast, mac, k))
		}
		k := f.token()
		x.never[k] = "false ARP request"
		return append(list, arp(1, broadcast, mac, mac, address4(88), mac, v.v4, k))
	}
	netns := strings.TrimSuffix(f.rogues[1].Netns, f.rogues[1].name) + v.name
	if v.VM == nil {
		p, err := f.l.CreatePort(f.ctx, nil, lab.Port{NetworkID: v.net.ID, Name: v.name, Extra: with(v.extra, "fixed_ips", []map[string]string{
			{"subnet_id": v.net.SubnetID, "ip_address": v.v4}, {"subnet_id": v.net.v6, "ip_address": v.v6},
		})})
		if err != nil {
			t.Fatal(err)
		}
		v.VM = &lab.VM{PortID: p.ID, MAC: p.MACAddress, Netns: netns}
	}
	if f.hybrid {
		mac := v.MAC
		x.fresh = func() [][]byte { return refused(mac) }
		x.openings = f.watch(t, v)
	}
	go x.send(netns, frames(v.MAC))
	return x
}

// send sends all frames again and again.
func (x *flood) send(netns string, frames [][]byte) {
	defer close(x.done)
	var p *probe
	for !x.stop.Load() {
		var err error
		if p, err = openSender(netns, "eth0"); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if p == nil {
		return
	}
	defer func() { _ = unix.Close(p.fd) }()
	for !x.stop.Load() {
		list := frames
		if x.fresh != nil {
			list = append(x.fresh(), frames...)
		}
		for _, frame := range list {
			if p.send(frame) == nil {
				x.sent.Add(1)
			}
		}
		if x.f.hybrid { // see openings
			time.Sleep(2 * time.Millisecond)
		}
	}
}

func (x *flood) end() {
	x.stop.Store(true)
	<-x.done
	x.openings.close()
}

// passed counts frames that its group allows, wherever they arrived.
func (x *flood) passed() int {
	n := 0
	for _, k := range x.allowed {
		for _, v := range x.f.vms() {
			n += v.heard(k)
		}
	}
	return n
}

// opened waits until something of what the group allows passes.
func (x *flood) opened(t *testing.T, f *filtered) {
	t.Helper()
	before := x.passed()
	if !f.eventually(3*wired, func() bool { return x.passed() > before }) {
		t.Fatal("nothing that the group allows passes")
	}
	// Some more of it while the filters are there.
	f.eventually(silence, func() bool { return false })
}

// judge fails if anything arrived that is never allowed.
func (x *flood) judge(t *testing.T, f *filtered, when string) {
	t.Helper()
	leaked, waited, where := 0, 0, map[string]int{}
	x.mu.Lock()
	for k, what := range x.never {
		for _, v := range append(f.vms(), f.ears...) {
			switch n := v.heard(k); {
			case n == 0:
			case x.openings.follow(x.sentAt[k]):
				waited += n
			default:
				leaked += n
				where[fmt.Sprintf("%s: arrived at %s on hv%d %s", what, v.name, v.host, when)] += n
			}
		}
	}
	x.mu.Unlock()
	for what, n := range where {
		if f.agent == lab.Patchbay {
			t.Errorf("%d frames: %s", n, what)
		}
	}
	sent := x.sent.Load()
	fmt.Printf("%s: %s: %d frames sent, %d of the allowed and %d of the forbidden arrived\n", f.agent, when, sent, x.passed(), leaked)
	if waited > 0 {
		fmt.Printf("%s: %s: %d had waited in a socket of the switch and are not counted\n", f.agent, when, waited)
	}
	if sent == 0 {
		t.Error("nothing was sent")
	}
}

// heard counts a frame that was sent many times. A VM that is planned has heard nothing.
func (v *vm) heard(k token) int {
	if v.probe == nil {
		return 0
	}
	return v.probe.saw(k)
}

// quiet watches for some time that nothing leaves the VM, not even what its group allows.
func (f *filtered) quiet(t *testing.T, x *flood, limit time.Duration) {
	t.Helper()
	sent, passed := x.sent.Load(), x.passed()
	f.eventually(limit, func() bool { return false })
	if x.sent.Load() == sent {
		t.Error("nothing was sent")
	}
	if n := x.passed() - passed; n > 0 && f.agent == lab.Patchbay {
		t.Errorf("%d frames arrived before anybody knew what the group allows", n)
	}
}

// plugFlooder plugs a VM that is sending already.
func (f *filtered) plugFlooder(t *testing.T, v *vm) {
	t.Helper()
	if err := f.plug(v, v.PortID); err != nil {
		t.Fatal(err)
	}
	if err := f.hush(v); err != nil {
		t.Fatal(err)
	}
}

// pull takes the VM's interface from the switch, which the VM does not notice, and gives the agent time to clear up. An agent
// that has just been started may leave that for later.
func (f *filtered) pull(t *testing.T, v *vm) {
	t.Helper()
	sw := f.l.Host(v.host).Switch()
	number, err := sw.Vsctl(f.ctx, "get", "Interface", v.Device(), "ofport")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sw.Vsctl(f.ctx, "del-port", "br-int", v.Device()); err != nil {
		t.Fatal(err)
	}
	f.eventually(wired/2, func() bool {
		flows, err := sw.Ofctl(f.ctx, "-O", "OpenFlow14", "--no-stats", "--no-names", "dump-flows", "br-int", "in_port="+strings.TrimSpace(number))
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(flows, "table=")
	})
	f.eventually(silence, func() bool { return false })
}

// insert plugs it in again.
func (f *filtered) insert(t *testing.T, v *vm) {
	t.Helper()
	if _, err := f.l.Host(v.host).Switch().Vsctl(f.ctx, "add-port", "br-int", v.Device(), "--", "set", "Interface", v.Device(),
		"external_ids:iface-id="+v.PortID, `external_ids:attached-mac="`+v.MAC+`"`,
		"external_ids:iface-status=active", "external_ids:vm-uuid="+v.PortID); err != nil {
		t.Fatal(err)
	}
}

// crash kills the agent of a host.
func (f *filtered) crash(t *testing.T, host int) {
	t.Helper()
	h := f.l.Host(host)
	if err := h.SignalAgent(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := h.KillAgent(); err != nil { // its helpers, if it has any
		t.Fatal(err)
	}
	if _, pid := h.Agent(); pid != 0 {
		t.Fatalf("the agent lives as pid %d", pid)
	}
}

func (f *filtered) revive(t *testing.T, host int) {
	t.Helper()
	if err := f.l.Host(host).StartAgent(f.ctx, f.agent, f.driver()); err != nil {
		t.Fatal(err)
	}
}

// alive checks that what was wired before goes on: packets between VMs of one host and of two.
func (f *filtered) alive(t *testing.T) {
	t.Helper()
	box := &cell{}
	var list []fired
	for _, version := range []int{4, 6} {
		for _, to := range []*vm{f.members[1], f.members[2]} {
			c := conn{from: f.strangers[1], to: to, version: version, proto: protoUDP, port: 7, own: uint16(f.token())}
			k := f.token()
			list = append(list, fired{box, "packet of " + c.String(), c.from, c.to, c.first(k), k, true})
		}
	}
	f.fire(t, list)
	if len(box.wrong) > 0 {
		t.Errorf("what was wired before does not work: %q", box.wrong)
	}
}

// pauseServer stops neutron-server in the middle of whatever it does, until the returned function is called.
func (c *cloud) pauseServer(t *testing.T) (resume func()) {
	t.Helper()
	main := daemon.Open("neutron-server", filepath.Join(c.l.Dir(), "server")).PID()
	if main == 0 {
		t.Fatal("neutron-server does not run")
	}
	pids := append([]int{main}, children(t, main)...)
	signal := func(s syscall.Signal) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, s)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// children are the processes that a process has started.
func children(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := bytes.Cut(text, []byte(") "))
		fields := strings.Fields(string(rest))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}
