// SPDX-License-Identifier: Apache-2.0

package core

import (
	"github.com/patchbay-sdn/patchbay/internal/effect"
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

// needs lists everything that the server has to be asked about.
func (a *Core) needs() []pull.Need {
	var out []pull.Need
	for _, id := range a.world.Missing() {
		p := a.world.Port(id)
		out = append(out, pull.Need{Key: pull.Key{Owner: pull.Ports, Kind: neutron.KindPort, ID: id}, Known: p.Details != nil, Since: p.Since()})
	}
	for _, i := range a.world.MissingItems() {
		known, since := a.world.Standing(i)
		out = append(out, pull.Need{Key: pull.Key{Owner: pull.Filters, Kind: i.Kind, ID: i.ID}, Known: known, Since: since})
	}
	missed := a.world.Missed()
	for _, t := range a.cfg.World.TunnelTypes {
		if !a.world.Tunnels.Listed(t) {
			out = append(out, pull.Need{Key: pull.Key{Owner: pull.Tunnels, ID: t}, Since: missed})
		}
	}
	for i, e := range a.extensions.Set {
		for _, item := range e.Missing() {
			out = append(out, pull.Need{Key: pull.Key{Owner: pull.Extensions + pull.Owner(i), Kind: item.Kind, ID: item.ID}, Since: missed})
		}
	}
	return out
}

// pullMissing asks the server about what is missing, many things with one call.
func (a *Core) pullMissing() {
	if a.versions == nil {
		return
	}
	a.pulls.Set(a.needs())
	for _, b := range a.pulls.Next(a.world.Now(), a.turn.now(), a.database.Open()) {
		a.turn.start(effect.Pull{Batch: b, Versions: a.versions})
	}
	filters := a.pulls.Stats(pull.Filters)
	a.world.Members.KeepRevisions(filters.Asking+filters.Checking > 0)
	a.turn.wakeUp(a.pulls.Deadline())
	if a.pulls.Stats(pull.Extensions).Failing == 0 {
		a.log.forget(notTold)
	}
}
