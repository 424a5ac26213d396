// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"time"

	sim "github.com/patchbay-sdn/patchbay/lab/sim/region"
)

// knowsAddressGroups says whether agents are told of address groups: those of release 17 are not.
func (h *unkindHistory) knowsAddressGroups() bool { return h.cloud.Release() > 17 }

// burst has something happen, once or again and again, so that what is told about it crosses: to the host, to a port of it, to
// other hosts, to what ports share.
func (h *unkindHistory) burst() {
	again := func(what func()) {
		for range 1 + h.rnd.IntN(3) {
			what()
			h.moment()
		}
	}
	if h.bridged != nil && h.bridged.draw(4) == 0 {
		h.restart() // under another driver, perhaps
		return
	}
	switch h.rnd.IntN(20) {
	case 14, 15, 16, 17, 18, 19:
		id := pick(h.rnd, h.local...)
		if h.ovs.plugged(id) == 0 && h.rnd.IntN(3) > 0 {
			h.note("plug %s", id)
			h.plug(id)
		}
		h.changes(id)
		if h.cloud.Status(id) != "" && len(h.local) > 1 && h.rnd.IntN(4) == 0 {
			h.deletePort(id)
		}
	case 0, 1:
		h.actOnHost()
	case 2, 3, 4, 5, 6:
		id := pick(h.rnd, slices.Concat(h.local, h.local, []string{trunkParent, "7", "8"})...)
		again(func() {
			if id == trunkParent || id == "7" || id == "8" || slices.Contains(h.local, id) {
				h.actOnPort(id)
			}
		})
	case 7, 8:
		h.actElsewhere()
	case 9:
		h.missAndMove()
	case 10:
		h.flicker()
	default:
		again(h.actOnShared)
	}
}

// finale is something that is not put right by what follows.
func (h *unkindHistory) finale() {
	switch h.rnd.IntN(4) {
	case 0:
		h.restart()
		return
	case 1:
		h.flicker()
	case 2:
		h.missAndMove()
	}
	for _, id := range h.local {
		if h.ovs.plugged(id) != 0 {
			h.changes(id)
		}
	}
	if id := pick(h.rnd, h.local...); h.ovs.plugged(id) != 0 && h.cloud.Status(id) != "" && h.rnd.IntN(2) == 0 {
		h.changes(id)
		h.deletePort(id)
	}
}

// bindBack binds DHCP ports that are plugged in here to this host. Bound to another one they stay wired, as neutron-server has it for
// ports of several DHCP agents, but with L2 population it sends their networks' entries to the other host: what an agent knows of them
// then depends on what it was told before.
func (h *unkindHistory) bindBack() {
	host := "hv1"
	for _, id := range h.local {
		if h.cfg.L2Population && h.ovs.plugged(id) != 0 && h.cloud.Owner(id) == "network:dhcp" && h.cloud.Host(id) != host {
			h.note("bind port %s to %q", id, host)
			_, err := h.cloud.UpdatePort(h.ctx(), id, sim.PortSpec{Host: &host})
			h.must(err)
		}
	}
}

// restart starts the agent again, and changes ports while it asks for them.
func (h *unkindHistory) restart() {
	h.note("the agent restarts")
	h.stop()
	if h.bridged != nil {
		h.bridged.restart(h)
	}
	h.live()
	for _, id := range h.local {
		wait(time.Duration(h.rnd.IntN(3000)) * time.Millisecond)
		if h.cloud.Status(id) != "" {
			h.change(id)
		}
	}
}

// flicker adds rules that do not last.
func (h *unkindHistory) flicker() {
	for range 4 {
		id := h.addRule()
		wait(time.Duration(100+h.rnd.IntN(500)) * time.Millisecond)
		h.deleteRule(id)
	}
}

// missAndMove has everything checked, and a host move meanwhile.
func (h *unkindHistory) missAndMove() {
	h.note("messages may have been missed")
	h.link.Miss()
	wait(time.Duration(h.rnd.IntN(3000)) * time.Millisecond)
	h.move(pick(h.rnd, unkindHosts...))
}

// moment is shorter than what is held back.
func (h *unkindHistory) moment() { wait(time.Duration(h.rnd.IntN(700)) * time.Millisecond) }

func (h *unkindHistory) deleteRule(id string) {
	h.note("delete rule %.4s", id)
	h.must(h.cloud.DeleteRule(h.ctx(), id))
	h.rules = slices.DeleteFunc(h.rules, func(o string) bool { return o == id })
}

func (h *unkindHistory) actOnHost() {
	switch h.rnd.IntN(5) {
	case 0:
		h.note("the switch restarts")
		if h.bridged != nil {
			h.bridged.excuse(h.ovs, true)
		}
		h.ovs.restart()
		h.life.drop()
	case 1:
		h.restart()
	case 2, 3:
		h.note("the broker leaves")
		h.link.Leave()
		wait(time.Duration(h.rnd.IntN(20000)) * time.Millisecond)
	default:
		h.note("the broker is back")
		h.link.Back()
	}
}

func (h *unkindHistory) actOnPort(id string) {
	vm := id != trunkParent && id != "7" && id != "8"
	exists := h.cloud.Status(id) != ""
	switch n := h.rnd.IntN(8); {
	case !exists:
		h.createPort(id, pick(h.rnd, "hv1", "hv1", "hv2"))
	case n == 0 && vm && len(h.local) > 1:
		h.deletePort(id)
	case n == 1 && vm:
		host := pick(h.rnd, "hv1", "hv1", "hv2", "")
		h.note("bind port %s to %q", id, host)
		_, err := h.cloud.UpdatePort(h.ctx(), id, sim.PortSpec{Host: &host})
		h.must(err)
	case n == 2:
		list := []sim.FixedIP{}
		if h.rnd.IntN(4) > 0 {
			list = append(list, sim.FixedIP{SubnetID: h.cloud.SubnetOf(id)})
		}
		h.note("port %s has %d addresses", id, len(list))
		_, err := h.cloud.UpdatePort(h.ctx(), id, sim.PortSpec{FixedIPs: &list})
		h.must(err)
	case n < 5 && vm && h.ovs.plugged(id) != 0 && h.rnd.IntN(2) == 0:
		h.note("unplug %s", id)
		h.ovs.unplug(id)
	case n < 5 && vm:
		h.note("plug %s", id)
		h.plug(id)
	case n < 5 && id == trunkParent && len(h.more) > 0:
		if h.number++; h.ovs.plugged(id) != 0 && h.rnd.IntN(2) == 0 {
			h.note("halt the VM with a trunk")
			h.ovs.halt()
		} else {
			h.note("boot the VM with a trunk")
			h.ovs.boot(h.number)
		}
	default:
		h.change(id)
	}
}

// changes changes a port several times, faster than it is told.
func (h *unkindHistory) changes(id string) {
	for range 3 + h.rnd.IntN(3) {
		if h.cloud.Status(id) != "" {
			h.change(id)
			wait(time.Duration(100+h.rnd.IntN(300)) * time.Millisecond)
		}
	}
}

// change gives a port other groups, addresses, a policy, or switches it off.
func (h *unkindHistory) change(id string) {
	spec := h.specs()
	spec.DeviceOwner = nil
	h.keepOn(&spec, h.cloud.NetworkOf(id))
	h.bridged.keep(id, &spec)
	if h.cloud.Owner(id) == "network:dhcp" {
		spec.PortSecurity, spec.Groups, spec.Pairs = nil, nil, nil
	}
	h.note("change port %s: on %v, secure %v, groups %.4s", id, *spec.AdminUp, value(spec.PortSecurity), value(spec.Groups))
	_, err := h.cloud.UpdatePort(h.ctx(), id, spec)
	h.must(err)
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func (h *unkindHistory) actElsewhere() {
	host := pick(h.rnd, unkindHosts...)
	others := slices.Sorted(maps.Keys(h.away))
	switch n := h.rnd.IntN(6); {
	case n == 0:
		h.move(host)
	case n < 3 || len(others) == 0:
		h.createPort("", host)
	case n == 3:
		id := pick(h.rnd, others...)
		h.note("delete port %s of %s", id, h.cloud.Host(id))
		h.must(h.cloud.DeletePort(h.ctx(), id))
		delete(h.away, id)
	case n == 4:
		id := pick(h.rnd, others...)
		list := []sim.FixedIP{{SubnetID: h.cloud.SubnetOf(id)}}
		h.note("port %s has another address", id)
		_, err := h.cloud.UpdatePort(h.ctx(), id, sim.PortSpec{FixedIPs: &list})
		h.must(err)
	default:
		id := pick(h.rnd, others...)
		h.note("bind port %s to %s", id, host)
		_, err := h.cloud.UpdatePort(h.ctx(), id, sim.PortSpec{Host: &host})
		h.must(err)
		h.wire(id, host)
	}
}

// move gives another host another tunnel endpoint. Its agent reports its ports again.
func (h *unkindHistory) move(host string) {
	h.address[host] += 10
	h.note("%s has the tunnel endpoint 10.0.0.%d", host, h.address[host])
	h.endpoint(host)
	for _, id := range slices.Sorted(maps.Keys(h.away)) {
		if h.cloud.Host(id) == host {
			h.wire(id, host)
		}
	}
}

func (h *unkindHistory) deletePort(id string) {
	h.note("delete port %s", id)
	h.must(h.cloud.DeletePort(h.ctx(), id))
	h.local = slices.DeleteFunc(h.local, func(o string) bool { return o == id }) // no id comes twice
}

func (h *unkindHistory) actOnShared() {
	switch h.rnd.IntN(9) {
	case 0, 1:
		h.addRule()
	case 2, 3:
		if len(h.rules) > 0 {
			h.deleteRule(pick(h.rnd, h.rules...))
		}
	case 4:
		id, list := pick(h.rnd, h.lists...), some(h.rnd, "192.0.2.0/24", "10.0.0.99", "0.0.0.0/0")
		h.note("address group %s is %v", id, list)
		h.must(h.cloud.SetAddressGroup(h.ctx(), id, func([]string) []string { return list }))
	case 5:
		id, rules := pick(h.rnd, h.policies...), h.drawPolicy()
		h.note("policy %s is %v", id, rules)
		h.must(h.cloud.ChangePolicy(h.ctx(), id, rules...))
	case 6:
		id, policy := pick(h.rnd, h.networks...).ID, pick(h.rnd, append(slices.Clone(h.policies), "")...)
		h.note("network %s has policy %s", id, policy)
		h.must(h.cloud.SetNetworkPolicy(h.ctx(), id, policy))
	case 7:
		id, text := pick(h.rnd, h.groups...), time.Now().String()
		h.note("describe group %.4s", id)
		h.must(h.cloud.UpdateGroup(h.ctx(), id, sim.GroupSpec{Description: &text}))
	case 8:
		if len(h.more) == 0 {
			return
		}
		if id := pick(h.rnd, "7", "8"); h.subs[id] {
			h.note("sub-port %s goes", id)
			h.must(h.cloud.RemoveSubPorts(h.ctx(), trunkID, id))
			delete(h.subs, id)
		} else {
			h.note("sub-port %s comes", id)
			h.must(h.cloud.AddSubPorts(h.ctx(), trunkID, sim.SubPort{PortID: id, VLAN: 1 + h.rnd.IntN(9)}))
			h.subs[id] = true
		}
	}
}
