// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab"
)

// states are all in which a port can be, but for routers.
func (x *isolation) states() []portState {
	list := []portState{
		{"plugged and unknown", x.unknown},
		{"server silent", x.serverSilent},
		{"broker away", x.brokerAway},
		{"group unresolved", x.groupUnresolved},
		{"down", x.adminDown},
		{"dead: deleted", x.deleted},
		{"dead: bound elsewhere", x.boundElsewhere},
		{"moved to another network", x.moved},
		{"re-plugged under the same number", x.sameNumber},
		{"port security toggled", x.toggled},
		{"switch restarted", x.switchRestarted},
		{"switch restarted, port waits", x.switchRestartedWaiting},
		{"agent dead at plug, isolate_vif", func(t *testing.T) { x.agentDead(t, true) }},
		{"agent dead at plug, no isolate_vif", func(t *testing.T) { x.agentDead(t, false) }},
		{"snapshot lost", x.snapshotLost},
	}
	if !x.simulated() {
		list = append(list, portState{"sub-port waiting", x.subPortWaiting})
	}
	return list
}

// wiredSubject is a VM that is a member of its network.
func (x *isolation) wiredSubject(t *testing.T, n *network, extra attributes) *vm {
	t.Helper()
	v := x.subject(t, n, extra)
	if err := v.Insert(x.ctx, false); err != nil {
		t.Fatal(err)
	}
	x.opened(t, v)
	return v
}

func (x *isolation) unknown(t *testing.T) {
	v := x.subject(t, x.blue, nil)
	x.request(t, http.MethodDelete, "ports/"+v.PortID, nil, nil)
	x.insertNow(t, v, false)
	x.hold(t, "plugged and unknown", v, terms{})
}

func (x *isolation) serverSilent(t *testing.T) {
	v := x.subject(t, x.blue, nil)
	resume := x.pauseServer(t)
	defer resume()
	x.insertNow(t, v, false)
	x.hold(t, "server silent", v, terms{})
	resume()
	x.opened(t, v)
	x.hold(t, "… then it answers", v, terms{allowed: true})
}

func (x *isolation) brokerAway(t *testing.T) {
	v := x.subject(t, x.blue, nil)
	x.stopBroker(t)
	back := false
	defer func() {
		if !back {
			x.startBroker(t)
		}
	}()
	x.insertNow(t, v, false)
	x.hold(t, "broker away", v, terms{})
	x.startBroker(t)
	back = true
	x.opened(t, v)
}

// groupUnresolved gives a port that the agent knows a group that it does not, and has the server not tell it.
func (x *isolation) groupUnresolved(t *testing.T) {
	if x.driver != "openvswitch" {
		t.Skip("without the firewall no port waits for a group")
	}
	v := x.wiredSubject(t, x.blue, nil)
	if err := v.Remove(x.ctx); err != nil {
		t.Fatal(err)
	}
	x.wait(time.Second)
	fresh := x.group(t, "fresh")
	x.allow(t, fresh, everything()...)
	x.update(t, v, attributes{"security_groups": []string{fresh}})
	x.wait(time.Second)
	resume := x.pauseServer(t)
	defer resume()
	x.insertNow(t, v, false)
	x.hold(t, "group unresolved", v, terms{})
	resume()
	x.opened(t, v)
}

func (x *isolation) adminDown(t *testing.T) {
	v := x.wiredSubject(t, x.blue, nil)
	x.update(t, v, attributes{"admin_state_up": false})
	x.waitShut(t, v)
	x.hold(t, "down", v, terms{})
	x.update(t, v, attributes{"admin_state_up": true})
	x.opened(t, v)
}

// waitShut waits until a port that was wired is not any more.
func (x *isolation) waitShut(t *testing.T, v *vm) {
	t.Helper()
	if !x.eventually(settled, func() bool { return x.tag(t, v) == "4095" }) {
		x.blame(t, 1, "%s is still on VLAN %s after %v", v.name, x.tag(t, v), settled)
	}
	x.wait(silence)
}

func (x *isolation) deleted(t *testing.T) {
	v := x.wiredSubject(t, x.blue, nil)
	x.request(t, http.MethodDelete, "ports/"+v.PortID, nil, nil)
	x.waitShut(t, v)
	x.hold(t, "dead: deleted", v, terms{})
}

// boundElsewhere binds a port to the other host while it is plugged in here.
func (x *isolation) boundElsewhere(t *testing.T) {
	v := x.wiredSubject(t, x.blue, nil)
	x.update(t, v, attributes{"binding:host_id": x.l.Host(2).Name()})
	x.waitShut(t, v)
	x.hold(t, "dead: bound elsewhere", v, terms{})
}

// moved plugs the VM's interface in again for a port of another network, in one transaction.
func (x *isolation) moved(t *testing.T) {
	v := x.wiredSubject(t, x.red, nil)
	w := x.subject(t, x.blue, attributes{"mac_address": v.MAC})
	if _, err := x.l.Host(1).Switch().Vsctl(x.ctx, "del-port", "br-int", v.Tap, "--", "add-port", "br-int", v.Tap, "--", "set", "Interface", v.Tap,
		"external_ids:iface-id="+w.PortID, `external_ids:attached-mac="`+w.MAC+`"`, "external_ids:iface-status=active", "external_ids:vm-uuid="+w.PortID); err != nil {
		t.Fatal(err)
	}
	// It is one VM: what the switch gives to the interface is for the port of the new network.
	now := *w
	now.VM, now.probe = v.VM, v.probe
	x.replace(w, &now)
	x.opened(t, &now)
	x.hold(t, "moved to another network", &now, terms{allowed: true})
	x.replace(&now, w)
}

// replace puts a VM in the place of another, among those of its network.
func (x *isolation) replace(old, v *vm) {
	for i, w := range old.net.vms {
		if w == old {
			old.net.vms[i] = v
		}
	}
}

// sameNumber plugs in another port in the moment in which one goes, under its number: flows of the one would serve the other.
func (x *isolation) sameNumber(t *testing.T) {
	v, w := x.wiredSubject(t, x.blue, nil), x.subject(t, x.blue, nil)
	sw := x.l.Host(1).Switch()
	number, err := sw.Vsctl(x.ctx, "get", "Interface", v.Tap, "ofport")
	if err != nil {
		t.Fatal(err)
	}
	number = strings.TrimSpace(number)
	resume := x.pauseServer(t)
	defer resume()
	if _, err := sw.Vsctl(x.ctx, "del-port", "br-int", v.Tap, "--", "add-port", "br-int", w.Tap, "--", "set", "Interface", w.Tap, "ofport_request="+number,
		"external_ids:iface-id="+w.PortID, `external_ids:attached-mac="`+w.MAC+`"`, "external_ids:iface-status=active", "external_ids:vm-uuid="+w.PortID); err != nil {
		t.Fatal(err)
	}
	x.wait(time.Second)
	if got, err := sw.Vsctl(x.ctx, "get", "Interface", w.Tap, "ofport"); err != nil || strings.TrimSpace(got) != number {
		t.Errorf("the port has number %s, want %s (%v)", strings.TrimSpace(got), number, err)
	}
	x.hold(t, "re-plugged under the same number", w, terms{})
	resume()
	x.opened(t, w)
}

func (x *isolation) toggled(t *testing.T) {
	v := x.wiredSubject(t, x.blue, nil)
	lie := func() bool {
		k := x.token()
		to := x.blue.vms[0]
		if err := v.probe.send(arp(2, to.MAC, v.MAC, v.MAC, address4(88), to.MAC, to.v4, k)); err != nil {
			t.Fatal(err)
		}
		return x.eventually(silence, func() bool { return to.probe.saw(k) > 0 })
	}
	x.update(t, v, attributes{"port_security_enabled": false, "security_groups": []string{}})
	if !x.eventually(settled, lie) {
		t.Fatal("without port security nothing can be forged: there is nothing to see here")
	}
	x.hold(t, "port security off", v, terms{allowed: true, loose: true})
	x.update(t, v, attributes{"port_security_enabled": true, "security_groups": []string{x.open}})
	if !x.eventually(settled, func() bool { return !lie() }) {
		t.Fatal("with port security things can be forged")
	}
	x.opened(t, v)
	x.hold(t, "port security on again", v, terms{allowed: true})
}

// dieAndRise kills the switch of the first host and starts it.
func (x *isolation) dieAndRise(t *testing.T) {
	t.Helper()
	h := x.l.Host(1)
	if err := h.Switch().KillVswitchd(x.ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.EnsureSwitch(x.ctx); err != nil {
		t.Fatal(err)
	}
}

func (x *isolation) switchRestarted(t *testing.T) {
	v := x.wiredSubject(t, x.blue, nil)
	x.look(t, "while the switch is restarted", v, terms{allowed: true, ownAny: true, closed: true}, func() {
		x.wait(silence)
		x.dieAndRise(t)
		x.wait(2 * time.Second)
	})
	x.opened(t, v)
	x.hold(t, "switch restarted", v, terms{allowed: true})
}

func (x *isolation) switchRestartedWaiting(t *testing.T) {
	v := x.subject(t, x.blue, nil)
	resume := x.pauseServer(t)
	defer resume()
	x.insertNow(t, v, false)
	x.look(t, "switch restarted, port waits", v, terms{closed: true}, func() {
		x.dieAndRise(t)
		x.wait(2 * time.Second)
	})
	resume()
	x.opened(t, v)
}

// agentDead plugs a VM in while no agent runs. What keeps it apart then is whoever plugs it in, by isolate_vif; without that it is
// shown what it hears, and the agent closes it when it starts.
func (x *isolation) agentDead(t *testing.T, isolate bool) {
	v := x.subject(t, x.blue, nil)
	name := "agent dead at plug, no isolate_vif"
	if isolate {
		name = "agent dead at plug, isolate_vif"
	}
	x.crash(t, 1)
	x.insertNow(t, v, isolate)
	x.hold(t, name, v, terms{shown: !isolate})
	resume := x.pauseServer(t)
	defer resume()
	if err := x.l.Host(1).LaunchAgent(x.ctx, x.agent, x.overrides...); err != nil {
		t.Fatal(err)
	}
	x.wait(2 * time.Second)
	x.hold(t, "… then the agent starts, the server is silent", v, terms{})
	resume()
	x.opened(t, v)
	for _, w := range []*vm{x.blue.vms[0], x.red.vms[0]} {
		x.waitActive(t, w.PortID)
	}
}

// snapshotLost takes from the agent all that it knows, and from the switch all flows, while the server does not answer. Without the
// firewall a port that was wired stays in its network, which its row tells; which addresses are its own nobody can say then.
func (x *isolation) snapshotLost(t *testing.T) {
	v := x.wiredSubject(t, x.blue, nil)
	resume := x.pauseServer(t)
	defer resume()
	x.crash(t, 1)
	if err := os.Remove(snapshotOf(x.l.Host(1))); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	x.dieAndRise(t)
	if err := x.l.Host(1).LaunchAgent(x.ctx, x.agent, x.overrides...); err != nil {
		t.Fatal(err)
	}
	x.wait(2 * time.Second)
	x.hold(t, "snapshot lost", v, terms{closed: true, ownAny: x.driver == "noop", loose: x.driver == "noop"})
	resume()
	x.opened(t, v)
	for _, w := range []*vm{x.blue.vms[0], x.red.vms[0]} {
		x.waitActive(t, w.PortID)
		x.opened(t, w)
	}
}

// subPortWaiting has a VM with a trunk whose sub-port has its interface on the bridge and no network yet: the agent knows nothing, the
// server does not answer, and the row is as whoever made it left it.
func (x *isolation) subPortWaiting(t *testing.T) {
	other := x.network4(t, lab.Network{Name: "carrier", CIDR: "10.77.0.0/24"})
	open := attributes{"security_groups": []string{x.open}}
	parent, sub := x.rider(t, other, "10.77.0.50", open), x.rider(t, x.blue, address4(231), open)
	sub.vlan = 101
	c := x.carry(t, 1, parent, sub)
	tap := "spi-" + sub.port.ID[:11]
	v := &vm{VM: &lab.VM{PortID: sub.port.ID, MAC: sub.port.MACAddress, Tap: tap}, net: x.blue, name: "sub-port", host: 1, v4: sub.ip(), v6: "fd00:e2e::241"}
	x.blue.vms = append(x.blue.vms, v)
	defer func() {
		v.probe.close()
		x.blue.vms = x.blue.vms[:len(x.blue.vms)-1]
		c.close()
		if err := c.vm.Unplug(x.ctx, false); err != nil {
			t.Error(err)
		}
		_, _ = x.l.Host(1).Switch().Vsctl(x.ctx, "--if-exists", "del-br", c.bridge())
		x.update(t, c.vm, attributes{"binding:host_id": ""})
		for _, path := range []string{"trunks/" + c.trunk, "ports/" + parent.port.ID, "ports/" + sub.port.ID, "networks/" + other.ID} {
			if err := x.try(http.MethodDelete, path, nil, nil); err != nil {
				t.Error(err)
			}
		}
		x.nets = x.nets[:len(x.nets)-1]
		x.flushMACs(t)
	}()
	// The sub-port as a VM of its own: all that it hears comes in its VLAN of the VM's link.
	var err error
	if v.probe, err = openTagged(c.vm.Netns, "eth0", sub.vlan); err != nil {
		t.Fatal(err)
	}
	x.opened(t, v)
	if err := x.hush(c.vm); err != nil {
		t.Fatal(err)
	}
	x.wait(time.Second) // what it has said before is learned late
	x.flushMACs(t)
	resume := x.pauseServer(t)
	defer resume()
	x.crash(t, 1)
	if err := os.Remove(snapshotOf(x.l.Host(1))); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if _, err := x.l.Host(1).Switch().Vsctl(x.ctx, "clear", "Port", tap, "tag", "other_config"); err != nil {
		t.Fatal(err)
	}
	if err := x.l.Host(1).LaunchAgent(x.ctx, x.agent, x.overrides...); err != nil {
		t.Fatal(err)
	}
	x.wait(2 * time.Second)
	x.hold(t, "sub-port waiting", v, terms{closed: true})
	resume()
	x.opened(t, v)
	x.opened(t, x.blue.vms[0])
	x.opened(t, x.red.vms[0])
}
