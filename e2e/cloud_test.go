// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/patchbay-sdn/patchbay/lab"
)

const (
	// wired bounds the time in which a change must take effect. On a quiet machine it is a fraction of a second.
	wired = 20 * time.Second
	// settled bounds the time in which a restarted agent has dealt with what it found.
	settled = 3 * time.Minute
	// silence is how long nothing may arrive after all that had to arrive has arrived.
	silence = 300 * time.Millisecond
	// tick is how often a condition is looked at.
	tick = 20 * time.Millisecond
)

func (c *cloud) startAgents(t *testing.T, r round) {
	c.eachHost(t, func(h *lab.Host) error {
		if err := h.StopAgent(c.ctx); err != nil {
			return err
		}
		return h.StartAgent(c.ctx, lab.Patchbay, r.overrides...)
	})
	// What an earlier configuration left goes when the agent has asked and told the server everything, which takes the
	// longer the busier the server is. Until then it may still answer for others.
	const responder = "table=21,"
	c.eachHost(t, func(h *lab.Host) error {
		var err error
		if !c.eventually(settled, func() bool {
			var flows string
			flows, err = h.Flows(c.ctx, "br-tun")
			return err == nil && strings.Contains(flows, responder) == r.answers
		}) {
			return fmt.Errorf("br-tun of %s answers ARP requests: want %v after %v: %w", h.Name(), r.answers, settled, errors.Join(errors.New("not as configured"), err))
		}
		return nil
	})
	// After a restart nothing new is plugged; the ports that are there come to be in the new configuration's order.
	for _, n := range c.nets {
		for _, from := range n.vms {
			for _, to := range n.vms {
				if from.reaches(to) {
					if err := from.WaitPing(c.ctx, to.v4); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}

func (c *cloud) eachHost(t *testing.T, do func(h *lab.Host) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(c.l.Hosts()))
	for i, h := range c.l.Hosts() {
		wg.Go(func() { errs[i] = do(h) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// plugAll makes all networks and VMs and waits until they are ACTIVE.
func (c *cloud) plugAll(t *testing.T) {
	c.nets = plan()
	for _, n := range c.nets {
		if err := c.create(n); err != nil {
			t.Fatal(err)
		}
	}
	c.eachHost(t, func(h *lab.Host) error {
		for _, v := range c.vms() {
			if c.l.Host(v.host).Name() == h.Name() {
				if err := c.plug(v, ""); err != nil {
					return err
				}
			}
		}
		return nil
	})
	var ids []string
	for _, v := range c.vms() {
		ids = append(ids, v.PortID)
	}
	if err := c.l.WaitActive(c.ctx, ids...); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) create(n *network) error {
	made, err := c.l.CreateNetwork(c.ctx, n.Network)
	if err != nil {
		return err
	}
	n.Network = made
	off := false
	sub, err := subnets.Create(c.ctx, c.l.Neutron(), subnets.CreateOpts{
		NetworkID: n.ID, CIDR: "fd00:e2e::/64", IPVersion: gophercloud.IPv6, EnableDHCP: &off, TenantID: lab.Project,
	}).Extract()
	if err != nil {
		return fmt.Errorf("creating the IPv6 subnet of %s: %w", n.Name, err)
	}
	n.v6 = sub.ID
	if n.dhcp {
		on := true
		if err := subnets.Update(c.ctx, c.l.Neutron(), n.SubnetID, subnets.UpdateOpts{EnableDHCP: &on}).Err; err != nil {
			return fmt.Errorf("switching on DHCP of %s: %w", n.Name, err)
		}
	}
	return nil
}

// plug makes the VM, with the given port or a new one.
func (c *cloud) plug(v *vm, port string) error {
	var err error
	v.VM, err = c.l.Host(v.host).Plug(c.ctx, lab.Port{ID: port, NetworkID: v.net.ID, Name: v.name, Hybrid: c.hybrid, Extra: with(v.extra, "fixed_ips",
		[]map[string]string{
			{"subnet_id": v.net.SubnetID, "ip_address": v.v4}, {"subnet_id": v.net.v6, "ip_address": v.v6},
		})})
	if err != nil {
		return err
	}
	v.probe, err = openProbe(v.Netns, "eth0")
	return err
}

// unplug removes the VM and leaves its port in Neutron.
func (c *cloud) unplug(v *vm) error {
	v.probe.close()
	return v.Unplug(c.ctx, false)
}

// update changes a port in Neutron.
func (c *cloud) update(t *testing.T, v *vm, what attributes) {
	t.Helper()
	if err := ports.Update(c.ctx, c.l.Neutron(), v.PortID, change{what}).Err; err != nil {
		t.Fatalf("updating the port of %s: %v", v.name, err)
	}
}

// attributes are those of a port as the API spells them.
type attributes map[string]any

// change makes attributes into options of the client, which have to be a struct.
type change struct{ attributes }

// ToPortUpdateMap implements ports.UpdateOptsBuilder.
func (c change) ToPortUpdateMap() (map[string]any, error) {
	return map[string]any{"port": map[string]any(c.attributes)}, nil
}

// eventually waits until the condition holds.
func (c *cloud) eventually(limit time.Duration, holds func() bool) bool {
	for end := time.Now().Add(limit); ; {
		if holds() {
			return true
		}
		if time.Now().After(end) || c.ctx.Err() != nil {
			return false
		}
		time.Sleep(tick)
	}
}

// carried sends one plain frame, and says whether it arrives before the limit.
func (c *cloud) carried(t *testing.T, from, to *vm, limit time.Duration) bool {
	t.Helper()
	k := c.token()
	if err := from.probe.send(plain(to.MAC, from.MAC, k)); err != nil {
		t.Fatal(err)
	}
	return c.eventually(limit, func() bool { return to.probe.saw(k) > 0 })
}

// waitCarried sends frames until one arrives.
func (c *cloud) waitCarried(t *testing.T, from, to *vm) {
	t.Helper()
	if !c.eventually(wired, func() bool { return c.carried(t, from, to, silence) }) {
		t.Errorf("no frame from %s (hv%d) arrives at %s (hv%d)", from.name, from.host, to.name, to.host)
	}
}

// waitBlocked sends frames until one does not arrive, and then one more.
func (c *cloud) waitBlocked(t *testing.T, from, to *vm) {
	t.Helper()
	blocked := c.eventually(wired, func() bool { return !c.carried(t, from, to, silence) })
	if !blocked || c.carried(t, from, to, silence) {
		t.Errorf("frames from %s (hv%d) still arrive at %s (hv%d)", from.name, from.host, to.name, to.host)
	}
}

// status is what the server says about the port.
func (c *cloud) status(t *testing.T, v *vm) string {
	t.Helper()
	p, err := ports.Get(c.ctx, c.l.Neutron(), v.PortID).Extract()
	if err != nil {
		t.Fatal(err)
	}
	return p.Status
}

func (c *cloud) waitStatus(t *testing.T, v *vm, want string) {
	t.Helper()
	got := ""
	if !c.eventually(wired, func() bool { got = c.status(t, v); return got == want }) {
		t.Errorf("the port of %s is %s, want %s", v.name, got, want)
	}
}
