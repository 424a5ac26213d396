// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// pings are unicasts with everything that real hosts do for them: address resolution from nothing, question and answer.
func (c *cloud) pings(t *testing.T) {
	for _, kind := range kinds() {
		v := c.network(kind).vms
		for _, group := range []struct {
			hosts string
			vms   []*vm
		}{
			{"1", []*vm{v[0], v[1]}},
			{"2", []*vm{v[0], v[2]}},
			{"3", []*vm{v[0], v[2], v[3]}},
		} {
			c.run(t, kind+": IPv4, IPv6 and link-local ping", group.hosts, func(t *testing.T) { c.pingAll(t, group.vms) })
		}
		c.run(t, kind+": ping to addresses of another network", "2", func(t *testing.T) { c.strangers(t, kind) })
	}
}

// pingAll pings from each to each. Where no packet may come through, no ping may be answered.
func (c *cloud) pingAll(t *testing.T, vms []*vm) {
	var wg sync.WaitGroup
	for _, from := range vms {
		for _, family := range []string{"-4", "-6"} {
			if out, err := from.Command(c.ctx, "ip", family, "neigh", "flush", "dev", "eth0").CombinedOutput(); err != nil {
				t.Fatalf("forgetting neighbours: %v: %s", err, out)
			}
		}
	}
	for _, from := range vms {
		for _, to := range vms {
			if from == to {
				continue
			}
			if !from.reaches(to) {
				wg.Go(func() { c.mustNotPing(t, from, to.v4, to.v6, to.linkLocal()+"%eth0") })
				continue
			}
			c.mustPing(t, from, to, to.v4, to.v4)
			c.mustPing(t, from, to, to.v6, to.v6)
			c.mustPing(t, from, to, to.linkLocal()+"%eth0", to.linkLocal())
		}
	}
	wg.Wait()
}

// mustPing pings, and looks whether the right address was resolved.
func (c *cloud) mustPing(t *testing.T, from, to *vm, target, ip string) {
	t.Helper()
	if err := from.Ping(c.ctx, target); err != nil {
		t.Error(err)
		return
	}
	out, err := from.Command(c.ctx, "ip", "neigh", "show", "to", ip, "dev", "eth0").CombinedOutput()
	if err != nil || !strings.Contains(string(out), to.MAC) {
		t.Errorf("%s takes %s to be at %q (%v), want %s", from.name, ip, out, err, to.MAC)
	}
}

func (c *cloud) mustNotPing(t *testing.T, from *vm, targets ...string) {
	var wg sync.WaitGroup
	for _, ip := range targets {
		wg.Go(func() {
			if err := from.Ping(c.ctx, ip); err == nil {
				t.Errorf("%s on hv%d got an answer from %s", from.name, from.host, ip)
			}
		})
	}
	wg.Wait()
}

// strangers pings addresses of the same subnet that exist on another network only, and then the same kind of address
// on its own network.
func (c *cloud) strangers(t *testing.T, kind string) {
	own, other := c.network(kind), c.network("vlan"+twinned)
	if kind != "flat" {
		other = c.network(kind + twinned)
	}
	c.mustNotPing(t, own.vms[0], other.vms[1].v4, other.vms[1].v6)
	c.mustNotPing(t, other.vms[1], own.vms[2].v4, own.vms[2].v6)
	if kind != "local" && kind != "flat" {
		c.mustPing(t, other.vms[0], other.vms[1], other.vms[1].v4, other.vms[1].v4)
		c.mustPing(t, other.vms[0], other.vms[1], other.vms[1].v6, other.vms[1].v6)
	}
}

// arps are questions for addresses: who answers, and who hears the question.
func (c *cloud) arps(t *testing.T) {
	for _, kind := range kinds() {
		n := c.network(kind)
		tunnelled := kind == "vxlan" || kind == "gre" || kind == "geneve"
		c.run(t, kind+": ARP request and answer", "3", func(t *testing.T) {
			from := n.vms[0]
			for _, to := range n.vms[1:] {
				c.ask(t, from, to, from.reaches(to), tunnelled && c.round.answers && from.host != to.host)
			}
			nobody := &vm{net: n, name: "nobody", v4: address4(89), probe: from.probe, VM: from.VM}
			c.ask(t, from, nobody, false, false)
			if kind != "flat" {
				c.ask(t, from, c.network(kind + twinned).vms[1], false, false)
			}
		})
	}
}

// ask sends one ARP request. Either the owner of the address hears it and answers, or an agent answers for it, or there is
// no answer.
func (c *cloud) ask(t *testing.T, from, to *vm, answered, byAgent bool) {
	t.Helper()
	k, before := c.token(), from.probe.arpCount()
	if err := from.probe.send(arp(1, broadcast, from.MAC, from.MAC, from.v4, "00:00:00:00:00:00", to.v4, k)); err != nil {
		t.Fatal(err)
	}
	limit := silence
	if answered {
		limit = wired / 4
	}
	c.eventually(limit, func() bool { return len(from.probe.arpAnswers(before, to.v4)) > 0 })
	got := from.probe.arpAnswers(before, to.v4)
	switch {
	case !answered && len(got) > 0:
		t.Errorf("%s asked for %s of %s: answered by %v, want no answer", from.name, to.v4, to.name, got)
	case !answered:
	case len(got) != 1 || got[0] != to.MAC:
		t.Errorf("%s asked for %s of %s: answered by %v, want %s once", from.name, to.v4, to.name, got, to.MAC)
	}
	if from.probe == to.probe {
		return
	}
	if heard, want := to.probe.saw(k) > 0, answered && !byAgent; heard != want {
		t.Errorf("the request of %s for %s: heard by %s: %v, want %v", from.name, to.v4, to.name, heard, want)
	}
}

// shot is a frame that was sent by everybody to everybody.
type shot struct {
	from *vm
	to   *vm // nil for a broadcast
	k    token
}

func (s shot) String() string {
	if s.to == nil {
		return fmt.Sprintf("broadcast of %s on hv%d", s.from.name, s.from.host)
	}
	return fmt.Sprintf("frame from %s on hv%d to %s on hv%d", s.from.name, s.from.host, s.to.name, s.to.host)
}

// matrix sends a broadcast from each VM, and a frame from each VM to the MAC of each other one, whatever its network, and
// looks at all VMs for what arrived.
func (c *cloud) matrix(t *testing.T) {
	var shots []shot
	c.run(t, "every VM sends to every VM", "3", func(t *testing.T) { shots = c.volley(t) })
	for _, n := range c.nets {
		c.run(t, n.Name+": broadcasts arrive at all VMs of the network only", "3", func(t *testing.T) {
			c.judge(t, shots, len(n.vms), func(s shot) bool { return s.from.net == n && s.to == nil })
		})
		c.run(t, n.Name+": unicasts arrive, and in no other network", "3", func(t *testing.T) {
			c.judge(t, shots, len(n.vms)*(len(c.vms())-1), func(s shot) bool { return s.from.net == n && s.to != nil })
		})
	}
	c.run(t, "the isolation check notices a leak", "1", c.leak)
}

// volley sends all frames of the matrix, and gives those time that must arrive and those that must not.
func (c *cloud) volley(t *testing.T) []shot {
	var shots []shot
	for _, from := range c.vms() {
		first := len(shots)
		for _, to := range append([]*vm{nil}, c.vms()...) {
			if to == from {
				continue
			}
			s := shot{from, to, c.token()}
			mac := broadcast
			if to != nil {
				mac = to.MAC
			}
			if err := from.probe.send(plain(mac, from.MAC, s.k)); err != nil {
				t.Fatal(err)
			}
			shots = append(shots, s)
		}
		// What is missing in the end is reported by the verdicts.
		c.eventually(wired/4, func() bool {
			for _, s := range shots[first:] {
				for _, v := range c.vms() {
					if s.from.reaches(v) && (s.to == nil || s.to == v) && v.probe.saw(s.k) == 0 {
						return false
					}
				}
			}
			return true
		})
	}
	c.eventually(silence, func() bool { return false })
	return shots
}

// verdicts lists what is wrong about where a frame arrived.
func verdicts(s shot, at []*vm) []string {
	var wrong []string
	for _, v := range at {
		n := v.probe.saw(s.k)
		must := s.from.reaches(v) && (s.to == nil || s.to == v)
		switch {
		case must && n != 1:
			wrong = append(wrong, fmt.Sprintf("%s arrived %d times at %s on hv%d, want once", s, n, v.name, v.host))
		case !s.from.reaches(v) && n > 0:
			wrong = append(wrong, fmt.Sprintf("%s arrived at %s of %s on hv%d", s, v.name, v.net.Name, v.host))
		}
	}
	return wrong
}

// judge reports what is wrong about those of the frames that are meant, of which there must be so many.
func (c *cloud) judge(t *testing.T, shots []shot, count int, meant func(s shot) bool) {
	t.Helper()
	for _, s := range shots {
		if !meant(s) {
			continue
		}
		count--
		for _, wrong := range verdicts(s, c.vms()) {
			t.Error(wrong)
		}
	}
	if count != 0 {
		t.Errorf("%d of the frames were not sent", count)
	}
}

// leak puts a link into the local VLAN of one network and has the isolation check take it for a VM of another one: the
// check must fail then, and only then.
func (c *cloud) leak(t *testing.T) {
	h := c.l.Host(1)
	own, other := c.network("vxlan"), c.network("vxlan"+twinned)
	commands := [][]string{
		{"ip", "link", "add", "spy0", "type", "veth", "peer", "name", "spy1"},
		{"ip", "link", "set", "spy0", "up"},
		{"ip", "link", "set", "spy1", "up"},
		{"ovs-vsctl", "add-port", "br-int", "spy0", "tag=" + c.tag(t, own.vms[0])},
	}
	for _, cmd := range commands {
		if out, err := h.Command(c.ctx, cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", cmd, err, out)
		}
	}
	defer func() {
		_ = h.Command(c.ctx, "ovs-vsctl", "del-port", "br-int", "spy0").Run()
		_ = h.Command(c.ctx, "ip", "link", "del", "spy0").Run()
	}()
	p, err := openProbe(h.Netns(), "spy1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	spy := &vm{net: other, name: "spy", host: 1, probe: p}
	sees := func(from *vm) bool {
		s := shot{from: from, k: c.token()}
		if err := from.probe.send(plain(broadcast, from.MAC, s.k)); err != nil {
			t.Fatal(err)
		}
		c.eventually(silence, func() bool { return p.saw(s.k) > 0 })
		spy.net = other
		if from.net == other {
			spy.net = own
		}
		return len(verdicts(s, []*vm{spy})) > 0
	}
	for _, from := range []*vm{own.vms[0], own.vms[2]} {
		if !c.eventually(wired/4, func() bool { return sees(from) }) {
			t.Errorf("a broadcast of %s leaks to a foreign link, and the check says nothing", from.name)
		}
	}
	if sees(other.vms[0]) || sees(other.vms[1]) {
		t.Error("the check reports a leak where there is none")
	}
	if out, err := h.Command(c.ctx, "ovs-vsctl", "set", "Port", "spy0", "tag="+c.tag(t, other.vms[0])).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !c.eventually(wired/4, func() bool { return sees(other.vms[1]) }) {
		t.Error("a leak of the other network goes unnoticed")
	}
	if sees(own.vms[2]) {
		t.Error("the check reports a leak where there is none any more")
	}
}

// tag is the local VLAN that the agent has given the VM's network.
func (c *cloud) tag(t *testing.T, v *vm) string {
	t.Helper()
	out, err := c.l.Host(v.host).Switch().Vsctl(c.ctx, "get", "Port", v.Device(), "tag")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}
