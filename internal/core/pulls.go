// SPDX-License-Identifier: Apache-2.0

package core

import (
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
)

const (
	maxAsking        = 2   // calls at a time
	firstPerCall     = 5   // ports in the first call of many, so that the first ports need not wait for the last
	maxPerCall       = 100 // objects in one call
	maxGroupsPerCall = 10  // groups in one call for their members: the answer has all of them
)

// pullRules says how each kind of thing is asked about.
func pullRules() map[pull.Owner]pull.Rule {
	return map[pull.Owner]pull.Rule{
		pull.Ports:      {Most: maxPerCall, First: firstPerCall, Calls: maxAsking},
		pull.Filters:    {Most: maxPerCall, Kinds: map[neutron.Kind]int{neutron.KindPort: maxGroupsPerCall}, Calls: maxAsking, Burst: true},
		pull.Tunnels:    {Most: 1, Unpaused: true},
		pull.Extensions: {Most: maxPerCall, Calls: maxAsking},
	}
}

// pulls asks the server about what is missing, as package pull decides, and takes the answers.
type pulls struct {
	room
	*pull.Ledger
	contained *containment
	lines     *timelines
}

// needs lists everything that the server has to be asked about.
func (p *pulls) needs(set extension.Set) []pull.Need {
	var out []pull.Need
	for _, id := range p.world.Missing() {
		port := p.world.Port(id)
		out = append(out, pull.Need{Key: pull.Key{Owner: pull.Ports, Kind: neutron.KindPort, ID: id}, Known: port.Details != nil, Since: port.Since()})
	}
	for _, i := range p.world.MissingItems() {
		known, since := p.world.Standing(i)
		out = append(out, pull.Need{Key: pull.Key{Owner: pull.Filters, Kind: i.Kind, ID: i.ID}, Known: known, Since: since})
	}
	missed := p.world.Missed()
	for _, t := range p.cfg.World.TunnelTypes {
		if !p.world.Tunnels.Listed(t) {
			out = append(out, pull.Need{Key: pull.Key{Owner: pull.Tunnels, ID: t}, Since: missed})
		}
	}
	for i, e := range set {
		for _, item := range e.Missing() {
			out = append(out, pull.Need{Key: pull.Key{Owner: pull.Extensions + pull.Owner(i), Kind: item.Kind, ID: item.ID}, Since: missed})
		}
	}
	return out
}

// ask asks the server about what is missing, many things with one call. Paused: it has no database.
func (p *pulls) ask(set extension.Set, versions neutron.Versions, paused bool) {
	if versions == nil {
		return
	}
	p.Set(p.needs(set))
	for _, b := range p.Next(p.world.Now(), p.now(), paused) {
		p.start(effect.Pull{Batch: b, Versions: versions})
	}
	filters := p.Stats(pull.Filters)
	p.world.Members.KeepRevisions(filters.Asking+filters.Checking > 0)
	p.wakeUp(p.Deadline())
	if p.Stats(pull.Extensions).Failing == 0 {
		p.log.forget(notTold)
	}
}
