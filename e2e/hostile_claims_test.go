// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/lab"
)

// forged sends frames of the VM under another MAC, and looks that nobody receives them and no switch learns that MAC. Each is sent
// with the VM's own MAC first, which must arrive.
func (x *hostileVM) forged(t *testing.T, make func(mac string, to *vm, k token) []byte) {
	t.Helper()
	const count = 20
	for _, to := range []*vm{x.rogues[1], x.rogues[2]} {
		if !x.eventually(wired, func() bool {
			k := x.token()
			if err := x.self.probe.send(make(x.self.MAC, to, k)); err != nil {
				t.Fatal(err)
			}
			return x.eventually(silence, func() bool { return to.probe.saw(k) > 0 })
		}) {
			t.Fatalf("the same under its own MAC does not arrive at %s: there is nothing to see here", to.name)
		}
		var lies []token
		for _, mac := range []string{strangeMAC, x.rogues[2].MAC, x.red.vms[0].MAC} {
			for range count {
				k := x.token()
				lies = append(lies, k)
				if err := x.self.probe.send(make(mac, to, k)); err != nil {
					t.Fatal(err)
				}
			}
		}
		x.wait(silence)
		arrived := x.heardBy(lies)
		x.blame(t, arrived, "%d of %d frames under other MACs arrived", arrived, len(lies))
	}
	for _, h := range x.l.Hosts() {
		list, err := x.macTable(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if wrong := x.strayMAC(h, e, x.macs); wrong != "" {
				x.blame(t, 1, "fdb: %s", wrong)
			}
		}
		if _, err := h.Switch().Appctl(x.ctx, "ovs-vswitchd", "fdb/flush", "br-int"); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range x.vms() {
		x.announce(t, v)
	}
}

// blame fails when something was counted that must not be; the Python agent is only reported.
func (f *filtered) blame(t *testing.T, count int, format string, args ...any) {
	t.Helper()
	switch {
	case count == 0:
	case f.agent == lab.Patchbay:
		t.Errorf(format, args...)
	default:
		t.Logf(format, args...)
	}
}

// forgedAdvertisement is what drew traffic to whoever said it: the address in it is the VM's own, and the MAC it comes from is not.
func (x *hostileVM) forgedAdvertisement(t *testing.T) {
	x.forged(t, func(mac string, to *vm, k token) []byte {
		own := x.self.linkLocal()
		return advertisement(to.MAC, mac, own, to.linkLocal(), own, x.self.MAC, k)
	})
}

// forgedType is a frame of an Ethernet type that the operator permits.
func (x *hostileVM) forgedType(t *testing.T) {
	x.forged(t, func(mac string, to *vm, k token) []byte { return ethernet(to.MAC, mac, permitted, make([]byte, 46), k) })
}

// otherVLANs are honest ARP frames, but for a tag: the local VLAN of another network, to VMs of which they are sent.
func (x *hostileVM) otherVLANs(t *testing.T) {
	vlan := x.localVLAN(t, x.red.vms[0])
	sent := []token{}
	for range 20 {
		for _, to := range x.red.vms {
			k := x.token()
			sent = append(sent, k)
			f := arp(1, to.MAC, x.self.MAC, x.self.MAC, x.self.v4, to.MAC, to.v4, k)
			if err := x.self.probe.send(tagged(f, vlan)); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.wait(silence)
	arrived := x.heardBy(sent)
	x.blame(t, arrived, "%d of %d frames under the VLAN of another network arrived", arrived, len(sent))
}

// heardBy counts how often frames arrived, at any VM.
func (x *hostileVM) heardBy(frames []token) (count int) {
	for _, k := range frames {
		for _, v := range x.vms() {
			count += v.heard(k)
		}
	}
	return count
}

// localVLAN is the VLAN of a VM's network on its host.
func (x *hostileVM) localVLAN(t *testing.T, v *vm) (vlan uint16) {
	t.Helper()
	if _, err := fmt.Sscan(x.tag(t, v), &vlan); err != nil {
		t.Fatal(err)
	}
	return vlan
}

// twin makes a filtered VM on the first host that has the MAC of another and is on another network. Where two claims are equal the lower
// ID wins: the new one's is the lower if it can be had, which for a very low one takes too long.
func (x *hostileVM) twin(t *testing.T, n *network, victim *vm, number int) *vm {
	t.Helper()
	v := n.add(number, 1)
	v.extra = attributes{"security_groups": []string{x.open}, "mac_address": victim.MAC}
	var id string
	for tries := 0; id == ""; tries++ {
		p, err := x.l.CreatePort(x.ctx, nil, lab.Port{NetworkID: n.ID, Name: v.name, Extra: with(v.extra, "fixed_ips", []map[string]string{
			{"subnet_id": n.SubnetID, "ip_address": v.v4}, {"subnet_id": n.v6, "ip_address": v.v6},
		})})
		if err != nil {
			t.Fatal(err)
		}
		if p.ID < victim.PortID || tries == 60 {
			id = p.ID
			t.Logf("%s has the ID %s, %s the ID %s", v.name, id, victim.name, victim.PortID)
		} else {
			x.request(t, http.MethodDelete, "ports/"+p.ID, nil, nil)
		}
	}
	if err := x.plug(v, id); err != nil {
		t.Fatal(err)
	}
	if err := x.hush(v); err != nil {
		t.Fatal(err)
	}
	x.waitActive(t, v.PortID)
	return v
}

// sameVLAN has a tenant own a network on the physical VLAN whose number is the local VLAN of another tenant's network on the host, and in it
// VMs with the MACs of the other's. What is for one of two such VMs must not arrive at the other.
func (x *hostileVM) sameVLAN(t *testing.T) {
	local := int(x.localVLAN(t, x.red.vms[0]))
	grey := &network{Network: lab.Network{Name: "grey", Type: "vlan", PhysicalNetwork: "physnet1", Segment: local}}
	if err := x.create(grey); err != nil {
		t.Fatal(err)
	}
	x.nets = append(x.nets, grey)
	far := grey.add(9, 2)
	far.extra = attributes{"port_security_enabled": false}
	if err := x.plug(far, ""); err != nil {
		t.Fatal(err)
	}
	if err := x.hush(far); err != nil {
		t.Fatal(err)
	}
	x.waitActive(t, far.PortID)
	defer func() {
		for _, v := range grey.vms {
			if v.VM == nil {
				continue
			}
			v.probe.close()
			if err := v.Unplug(x.ctx, true); err != nil {
				t.Error(err)
			}
		}
		x.nets = slices.DeleteFunc(x.nets, func(n *network) bool { return n == grey })
	}()
	red := x.red.vms[1]
	for i, victim := range []*vm{x.red.vms[0], x.red.vms[2]} { // one is filtered, the other is not
		v := x.twin(t, grey, victim, 10+i)
		x.mustPass(t, far, v)
		x.mustPass(t, red, victim)
		x.apart(t, red, victim, v)
		x.apart(t, far, v, victim)
	}
}

// apart sends packets to one of two VMs that have the same MAC, and looks that the other hears none.
func (x *hostileVM) apart(t *testing.T, from, to, other *vm) {
	t.Helper()
	const count = 50
	var list []token
	for range count {
		k := x.token()
		list = append(list, k)
		if err := from.probe.send(bare(to, from.MAC, from.v4, from.v6, 4, k)); err != nil {
			t.Fatal(err)
		}
	}
	x.wait(silence)
	arrived, drawn := 0, 0
	for _, k := range list {
		arrived += to.probe.saw(k)
		drawn += other.probe.saw(k)
	}
	fmt.Printf("%s: %d of %d packets from %s arrived at %s, %d at %s\n", x.agent, arrived, count, from.name, to.name, drawn, other.name)
	x.blame(t, drawn+count-arrived, "%d of %d packets from %s arrived at %s, and %d at %s, which has the same MAC in another network or says so", arrived, count, from.name, to.name, drawn, other.name)
}

// pairedMAC gives a VM an address pair with the MAC of a neighbour, who has it as its own. Of the two filtered VMs the one with the lower ID is
// the attacker: where two claims are equal it wins.
func (x *hostileVM) pairedMAC(t *testing.T) {
	attacker, victim := x.self, x.friend
	if victim.PortID < attacker.PortID {
		attacker, victim = victim, attacker
	}
	x.update(t, attacker, attributes{"allowed_address_pairs": []pair{{victim.MAC, "192.168.100.99"}}})
	x.mustPass(t, &vm{VM: &lab.VM{MAC: victim.MAC}, name: "the pair", v4: "192.168.100.99", probe: attacker.probe}, x.rogues[2])
	// What it has just said is legitimate, and switches have learned it; the owner says it again.
	x.announce(t, victim)
	x.wait(silence)
	for _, from := range []*vm{x.rogues[1], x.rogues[2]} {
		x.apart(t, from, victim, attacker)
	}
	x.update(t, attacker, attributes{"allowed_address_pairs": []pair{}})
	x.mustPass(t, x.rogues[2], victim)
}
