// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/patchbay-sdn/patchbay/lab/daemon"
)

// A stranger's addresses, which no port of the cloud has.
const (
	strangeMAC = "02:0b:ad:0b:ad:0b"
	strangeV6  = "fd00:e2e::bad"
)

// leases are addresses from a DHCP server that a DHCP agent has plugged into hv2.
func (c *cloud) leases(t *testing.T) {
	server := c.l.Host(2)
	for _, name := range []string{"dhcp-vxlan", "dhcp-vlan"} {
		n := c.network(name)
		for _, v := range n.vms {
			hosts := "1"
			if c.l.Host(v.host).Name() != server.Name() {
				hosts = "2"
			}
			if !c.run(t, name+": lease from dnsmasq", hosts, func(t *testing.T) { c.mustLease(t, v) }) {
				t.Log(daemon.Tail(server.DHCPLog(), 30))
			}
		}
	}
	c.run(t, "no lease on a network without DHCP", "2", func(t *testing.T) {
		if l, err := c.lease(t, c.network("vxlan" + twinned).vms[0], 3*time.Second); err == nil {
			t.Errorf("there is one: %+v", l)
		}
	})
	c.run(t, "no lease while the DHCP port is switched off", "2", func(t *testing.T) {
		n := c.network("dhcp-vxlan")
		p := c.dhcpPort(t, n)
		c.update(t, p, attributes{"admin_state_up": false})
		if !c.eventually(wired, func() bool { _, err := c.lease(t, n.vms[1], 3*time.Second); return err != nil }) {
			t.Error("there still is one")
		}
		c.update(t, p, attributes{"admin_state_up": true})
		c.mustLease(t, n.vms[1])
	})
}

// dhcpPort finds the port of the network's DHCP server.
func (c *cloud) dhcpPort(t *testing.T, n *network) *vm {
	t.Helper()
	pages, err := ports.List(c.l.Neutron(), ports.ListOpts{NetworkID: n.ID, DeviceOwner: "network:dhcp"}).AllPages(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ports.ExtractPorts(pages)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s has %d DHCP ports (%v), want one", n.Name, len(list), err)
	}
	v := *n.vms[0].VM
	v.PortID = list[0].ID
	return &vm{VM: &v, net: n, name: "the DHCP server"}
}

type lease struct{ address, server string }

// mustLease gets a lease, and then talks to the server under the address.
func (c *cloud) mustLease(t *testing.T, v *vm) {
	t.Helper()
	var got lease
	var err error
	if !c.eventually(2*wired, func() bool { got, err = c.lease(t, v, 10*time.Second); return err == nil }) {
		t.Fatal(err)
	}
	if got.address != v.v4 {
		t.Errorf("%s was given %s, want %s", v.name, got.address, v.v4)
	}
	if err := v.WaitPing(c.ctx, got.server); err != nil {
		t.Error(err)
	}
}

// lease takes the VM's address away and asks for one.
func (c *cloud) lease(t *testing.T, v *vm, limit time.Duration) (lease, error) {
	t.Helper()
	dir := t.TempDir()
	file, config := filepath.Join(dir, "leases"), filepath.Join(dir, "conf")
	text := fmt.Sprintf("timeout %d;\ninitial-interval 1;\nbackoff-cutoff 2;\nrequest subnet-mask;\n", int(limit.Seconds()))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := v.Command(c.ctx, "ip", "-4", "address", "flush", "dev", "eth0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() {
		if out, err := v.Command(c.ctx, "ip", "address", "replace", v.v4+"/24", "dev", "eth0").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}()
	// In the foreground: in the background it would stay, to renew the lease.
	var out bytes.Buffer
	cmd := v.Command(c.ctx, "dhclient", "-4", "-1", "-d", "-sf", "/bin/true", "-cf", config, "-lf", file, "-pf", filepath.Join(dir, "pid"), "eth0")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	leased := func() bool { got, err := os.ReadFile(file); return err == nil && bytes.Contains(got, []byte("}")) }
	c.eventually(limit, func() bool { return leased() || len(ended) > 0 })
	_ = cmd.Process.Kill()
	<-ended
	if !leased() {
		return lease{}, fmt.Errorf("%s got no lease: %s", v.name, strings.TrimSpace(out.String()))
	}
	got, err := os.ReadFile(file)
	if err != nil {
		return lease{}, fmt.Errorf("reading the lease: %w", err)
	}
	l := lease{find(got, `fixed-address ([0-9.]+);`), find(got, `dhcp-server-identifier ([0-9.]+);`)}
	if l.address == "" || l.server == "" {
		return l, fmt.Errorf("the lease of %s is incomplete: %s", v.name, got)
	}
	return l, nil
}

func find(text []byte, pattern string) string {
	if m := regexp.MustCompile(pattern).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// spoofing sends under addresses that are not the port's.
func (c *cloud) spoofing(t *testing.T) {
	for _, kind := range kinds() {
		v := c.network(kind).vms
		from := v[0]
		victims := from.peers()
		honest := func(to *vm) map[string]frame { return claims(from, to, from.MAC, from.v4, from.v6) }
		forged := func(to *vm) map[string]frame { return claims(from, to, strangeMAC, address4(88), strangeV6) }
		c.run(t, kind+": own MAC, ARP sender and neighbour advertisement pass", span(kind), func(t *testing.T) {
			c.arrive(t, from, victims, honest, true)
		})
		c.run(t, kind+": wrong MAC, ARP sender and neighbour advertisement are dropped", span(kind), func(t *testing.T) {
			c.arrive(t, from, victims, forged, false)
		})
		if kind != "vxlan" && kind != "vlan" {
			continue
		}
		c.run(t, kind+": wrong ones pass without port security, and are dropped again with it", "3", func(t *testing.T) {
			c.update(t, from, attributes{"port_security_enabled": false, "security_groups": []string{}})
			c.arrive(t, from, victims, forged, true)
			c.update(t, from, attributes{"port_security_enabled": true})
			c.arrive(t, from, victims, forged, false)
			c.arrive(t, from, victims, honest, true)
		})
	}
}

// frame makes a frame with a token.
type frame func(k token) []byte

// claims are frames in which a VM says who it is.
func claims(from, to *vm, mac, v4, v6 string) map[string]frame {
	return map[string]frame{
		"source MAC":             func(k token) []byte { return plain(to.MAC, mac, k) },
		"broadcast's source MAC": func(k token) []byte { return plain(broadcast, mac, k) },
		"ARP answer":             func(k token) []byte { return arp(2, to.MAC, from.MAC, from.MAC, v4, to.MAC, to.v4, k) },
		"neighbour advertisement": func(k token) []byte {
			return advertisement(to.MAC, from.MAC, from.linkLocal(), to.linkLocal(), v6, from.MAC, k)
		},
	}
}

// arrive sends claims to all victims until all arrive, or none does, as wanted.
func (c *cloud) arrive(t *testing.T, from *vm, victims []*vm, frames func(to *vm) map[string]frame, want bool) {
	t.Helper()
	if len(victims) == 0 {
		t.Fatal("there is nobody to whom anything could arrive")
	}
	var wrong []string
	c.eventually(wired/2, func() bool {
		wrong = wrong[:0]
		tokens := map[*vm]map[string]token{}
		for _, to := range victims {
			tokens[to] = map[string]token{}
			for what, f := range frames(to) {
				k := c.token()
				if err := from.probe.send(f(k)); err != nil {
					t.Fatal(err)
				}
				tokens[to][what] = k
			}
		}
		limit := silence
		if want {
			limit = 2 * time.Second
		}
		c.eventually(limit, func() bool {
			for to, of := range tokens {
				for _, k := range of {
					if to.probe.saw(k) == 0 {
						return false
					}
				}
			}
			return true
		})
		for to, of := range tokens {
			for what, k := range of {
				if got := to.probe.saw(k) > 0; got != want {
					wrong = append(wrong, fmt.Sprintf("%s from %s to %s on hv%d: arrived %v, want %v", what, from.name, to.name, to.host, got, want))
				}
			}
		}
		return len(wrong) == 0
	})
	for _, w := range wrong {
		t.Error(w)
	}
}

// peers are the VMs that v talks to.
func (v *vm) peers() []*vm {
	var list []*vm
	for _, w := range v.net.vms {
		if v.reaches(w) {
			list = append(list, w)
		}
	}
	return list
}

// adminState switches a port off and on.
func (c *cloud) adminState(t *testing.T) {
	for _, kind := range kinds() {
		v := c.network(kind).vms[1]
		c.run(t, kind+": port switched off, then on", span(kind), func(t *testing.T) {
			peers := v.peers()
			for _, w := range peers {
				c.waitCarried(t, v, w)
				c.waitCarried(t, w, v)
			}
			c.update(t, v, attributes{"admin_state_up": false})
			for _, w := range peers {
				c.waitBlocked(t, v, w)
				c.waitBlocked(t, w, v)
			}
			c.waitStatus(t, v, "DOWN")
			c.mustNotPing(t, v, peers[0].v4, peers[0].v6)
			c.update(t, v, attributes{"admin_state_up": true})
			for _, w := range peers {
				c.waitCarried(t, v, w)
				c.waitCarried(t, w, v)
			}
			c.waitStatus(t, v, "ACTIVE")
		})
	}
}

// replug takes a VM away and brings it back on the same host.
func (c *cloud) replug(t *testing.T) {
	for _, kind := range kinds() {
		v := c.network(kind).vms[1]
		c.run(t, kind+": unplugged, then plugged in again", span(kind), func(t *testing.T) { c.rehost(t, v, v.host) })
	}
}

// move takes a VM from one host to another.
func (c *cloud) move(t *testing.T, host int) {
	for _, kind := range kinds() {
		v := c.network(kind).vms[1]
		c.run(t, fmt.Sprintf("%s: moved from hv%d to hv%d", kind, v.host, host), "3", func(t *testing.T) { c.rehost(t, v, host) })
	}
}

// rehost unplugs a VM and plugs it in on a host.
func (c *cloud) rehost(t *testing.T, v *vm, host int) {
	before := v.peers()
	for _, w := range before {
		if err := w.WaitPing(c.ctx, v.v4); err != nil {
			t.Error(err)
		}
	}
	if err := c.unplug(v); err != nil {
		t.Fatal(err)
	}
	c.waitStatus(t, v, "DOWN")
	for _, w := range before {
		c.mustNotPing(t, w, v.v4, v.v6)
	}
	moved := v.host != host
	v.host = host
	if err := c.plug(v, v.PortID); err != nil {
		t.Fatal(err)
	}
	c.waitStatus(t, v, "ACTIVE")
	tunnelled := v.net.Type != "flat" && v.net.Type != "vlan"
	if moved && (!tunnelled || !c.round.knows) {
		// As hypervisors do for a VM that has come: switches on the way have learnt where it was.
		if err := v.probe.send(plain(broadcast, v.MAC, c.token())); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range v.net.vms {
		switch {
		case v.reaches(w):
			if err := w.WaitPing(c.ctx, v.v4); err != nil {
				t.Error(err)
			}
			c.waitCarried(t, v, w)
			c.waitCarried(t, w, v)
		case v != w:
			c.mustNotPing(t, w, v.v4)
		}
	}
}
