// SPDX-License-Identifier: Apache-2.0

package world

import "strings"

// Guard is what iptables has of a port that it filters.
type Guard uint8

// The guards of a port.
const (
	// Unseen: the rules of the host have not been read yet.
	Unseen Guard = iota
	// Unguarded: the host has no rules of the port.
	Unguarded
	// Guarded: the host has rules of the port, of an earlier time.
	Guarded
	// Admitted: the rules of the port are as wanted, and packets meet them.
	Admitted
)

// bridgePrefix begins the name of the interface by which the Linux bridge of a port is plugged in; a part of the port id follows.
const bridgePrefix, bridgeName = "qvo", 14

// Bridged returns whether a port is plugged in through a Linux bridge of its own, where rules of iptables can filter it. The interface of the
// bridge is in a trunk's bridge if the port is a trunk's.
func (w *common) Bridged(p *Port) bool {
	if p.VIF == nil {
		return false
	}
	id := p.ID[:min(bridgeName-len(bridgePrefix), len(p.ID))]
	if rest, ok := strings.CutPrefix(p.VIF.Name, bridgePrefix); ok && rest == id {
		return true
	}
	return p.VIF.VM && w.View.InterfaceByName(bridgePrefix+id) != nil
}

// AnyBridged returns whether a port has a Linux bridge.
func (w *common) AnyBridged() bool {
	for _, p := range w.ports {
		if w.Bridged(p) {
			return true
		}
	}
	return false
}

// ByRules returns whether rules of iptables filter a port, in place of flows.
func (w *common) ByRules(p *Port) bool { return w.Config.Hybrid && w.Filtered(p) && w.Bridged(p) }

// Guard returns what iptables has of a port.
func (w *World) Guard(id string) Guard { return w.guards[id] }

// SetGuard takes what iptables has of a port. Unseen forgets the port.
func (w *World) SetGuard(id string, g Guard) {
	if w.guards[id] == g {
		return
	}
	if g == Unseen {
		delete(w.guards, id)
	} else {
		w.guards[id] = g
	}
	if w.ports[id] != nil {
		w.mark(PortObject(id))
	}
}

// InVLAN returns whether the row of a port has it in a network, as far as the switch has told.
func (w *common) InVLAN(p *Port) bool {
	if p == nil || p.VIF == nil {
		return false
	}
	row := w.View.Port(p.VIF.Port)
	return row != nil && row.Tag != nil && *row.Tag != DeadVLAN
}

// unfilterable says why a port that has to be filtered cannot be; nothing if it can.
func (w *common) unfilterable(p *Port) string {
	if !w.Config.Hybrid || !w.Config.BridgedOnly || w.Bridged(p) {
		return ""
	}
	return "iptables cannot filter it: it is plugged in without a Linux bridge of its own"
}

// RulesGoneKey is the key in other_config of the integration bridge that says that no rules of iptables are left, as the Python agent has it.
const RulesGoneKey = "iptables_cleaned"

// RulesGone returns whether rules of iptables that an agent with another driver has left are gone.
func (w *common) RulesGone() bool {
	b := w.View.BridgeByName(w.Config.IntegrationBridge)
	return w.rulesGone || b != nil && b.OtherConfig[RulesGoneKey] == "true"
}

// SetRulesGone takes that they are gone.
func (w *common) SetRulesGone() {
	w.rulesGone = true
	w.mark(BridgeObject(w.Config.IntegrationBridge))
}
