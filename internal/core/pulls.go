// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
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

// pullFailed lasts while the server does not answer about what an extension needs.
const pullFailed = "bulk_pull for an extension failed, retrying"

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
			out = append(out, pull.Need{Key: pull.Key{Owner: pull.Extensions + pull.Owner(i), Kind: item.Kind, ID: item.ID, By: item.By}, Since: missed})
		}
	}
	return out
}

// ask asks the server about what is missing, many things with one call. Paused: it has no database.
func (p *pulls) ask(set extension.Set, versions neutron.Versions, paused bool) {
	p.Set(p.needs(set))
	for _, b := range p.Next(p.world.Now(), p.now(), paused) {
		p.start(effect.Pull{Batch: b, Versions: versions})
	}
	filters := p.Stats(pull.Filters)
	p.world.Members.KeepRevisions(filters.Asking+filters.Checking > 0)
	p.wakeUp(p.Deadline())
	if p.Stats(pull.Extensions).Failing == 0 {
		p.log.forget(pullFailed)
	}
}

// ended takes the server's answer, or that there is none, and returns whether more is known now than the world tells. The ledger learns of
// it last: should taking the answer fail, what was asked for is due again, see abandon.
func (p *pulls) ended(e effect.Pulled, set extension.Set) (learned bool) {
	now := p.now()
	r := pull.Result{Failed: e.Err != nil, Refused: refused(e.Err)}
	switch {
	case r.Refused && len(e.Batch.IDs) > 1: // halves are asked about at once
	case e.Batch.Owner == pull.Ports:
		r.Answered = p.portsPulled(e, now)
	case e.Batch.Owner == pull.Filters:
		r.Answered = p.itemsPulled(e)
	case e.Batch.Owner == pull.Tunnels:
		r.Answered = p.tunnelsPulled(e)
		learned = e.Err == nil
	case !p.Counts(e.Batch):
		r = pull.Result{Answered: e.Batch.IDs} // what is still missing is asked for again
	default:
		p.objectsPulled(e, set[e.Batch.Owner-pull.Extensions])
		learned = e.Err == nil
	}
	p.Done(e.Batch, r, now)
	return learned
}

// portsPulled returns the ports for which the answer was good. What could be read counts also if other parts could not.
func (p *pulls) portsPulled(e effect.Pulled, now time.Time) []string {
	const failed = "bulk_pull of ports failed, retrying"
	read := slices.DeleteFunc(slices.Clone(e.Batch.IDs), func(id string) bool {
		return slices.Contains(e.Unread, id) && !slices.ContainsFunc(e.Ports, func(found neutron.Port) bool { return found.ID == id })
	})
	if e.Err != nil {
		p.contained.unreadable("ports", e.Err)
		if len(e.Unread) == 0 {
			read = nil
		}
		p.log.repeat(slog.LevelWarn, failed, "ports", len(e.Batch.IDs)-len(read), "err", e.Err)
	} else {
		p.log.forget(failed)
	}
	for _, id := range read {
		p.lines.markAnswered(id, now)
	}
	p.world.PortsAsked(e.Batch.Asked, read, e.Ports)
	return read
}

// itemsPulled returns the ids of what filters need that the answer has. What it does not have, or should not have any more, is asked for
// again, more and more rarely.
func (p *pulls) itemsPulled(e effect.Pulled) (answered []string) {
	const failed, bad = "bulk_pull of security groups failed, retrying", "reply of bulk_pull cannot be decoded"
	first, of := string(e.Batch.Kind)+" "+e.Batch.IDs[0], len(e.Batch.IDs)
	if e.Err != nil {
		p.log.repeat(slog.LevelWarn, failed, "first", first, "of", of, "err", e.Err)
		return nil
	}
	p.log.forget(failed)
	p.log.Debug("bulk_pull of security groups answered", "first", first, "of", of,
		"groups", len(e.Groups), "members", len(e.Members), "addresses", len(e.Addresses), "took", e.Took)
	if e.Bad != nil {
		p.contained.unreadable("what filters need", e.Bad)
		p.log.repeat(slog.LevelWarn, bad, "first", first, "of", of, "err", e.Bad)
	}
	members := e.Batch.Kind == neutron.KindPort
	var read, unread []world.Item
	for _, id := range e.Batch.IDs {
		item := world.Item{Kind: e.Batch.Kind, ID: id, Asked: e.Batch.Asked}
		found := has(&e.Reply, id)
		if found && !p.world.Deleted(id) || members && len(e.Unread) == 0 {
			answered = append(answered, id)
		}
		if !found && !members && (slices.Contains(e.Unread, id) || slices.Contains(e.Unread, "")) { // it may be what cannot be read
			unread = append(unread, item)
		} else {
			read = append(read, item)
		}
	}
	p.world.Unread(unread)
	switch e.Batch.Kind {
	case neutron.KindSecurityGroup:
		p.world.Groups.Pulled(read, e.Groups)
	case neutron.KindPort:
		p.world.Members.Pulled(read, e.Members, e.Unread...)
	case neutron.KindAddressGroup:
		p.world.Members.AddressGroupsPulled(read, e.Addresses)
	}
	return answered
}

// has says whether a group or an address group is in an answer.
func has(r *effect.Reply, id string) bool {
	return slices.ContainsFunc(r.Groups, func(g neutron.SecurityGroup) bool { return g.ID == id }) ||
		slices.ContainsFunc(r.Addresses, func(g neutron.AddressGroup) bool { return g.ID == id })
}

// tunnelsPulled takes all endpoints of one type.
func (p *pulls) tunnelsPulled(e effect.Pulled) (answered []string) {
	const failed = "tunnel_sync failed, retrying"
	tunnelType := e.Batch.IDs[0]
	if e.Err != nil {
		p.log.repeat(slog.LevelWarn, failed, "type", tunnelType, "err", e.Err)
		return nil
	}
	p.log.forget(failed)
	endpoints := make([]netip.Addr, len(e.Tunnels))
	for i, t := range e.Tunnels {
		endpoints[i] = t.IP
	}
	p.world.Tunnels.Sync(tunnelType, endpoints, e.Batch.Asked)
	return e.Batch.IDs
}

// objectsPulled takes what an extension asked for. Whether it has to be asked for again, ever more rarely, the extension says by
// listing it.
func (p *pulls) objectsPulled(e effect.Pulled, ext extension.Member) {
	kind, ids := e.Batch.Kind, e.Batch.IDs
	if e.Err != nil {
		p.log.repeat(slog.LevelWarn, pullFailed, "extension", ext.Name(), "kind", string(kind), "first", ids[0], "of", len(ids), "err", e.Err)
		return
	}
	if err := ext.Puller.OnPulled(kind, ids, e.Objects); err != nil {
		p.log.repeat(slog.LevelWarn, "object for an extension cannot be decoded", "extension", ext.Name(), "err", err)
	}
}
