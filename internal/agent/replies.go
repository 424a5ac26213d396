// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// pullEnded takes the server's answer, or that there is none. The ledger learns of it last: should taking the answer fail, what was
// asked for is due again, see abandon.
func (a *Agent) pullEnded(e pulled) {
	a.heard(e.err)
	now := time.Now()
	r := pull.Result{Failed: e.err != nil, Refused: refused(e.err)}
	switch {
	case r.Refused && len(e.batch.IDs) > 1: // halves are asked about at once
	case e.batch.Owner == pull.Ports:
		r.Answered = a.portsPulled(e, now)
	case e.batch.Owner == pull.Filters:
		r.Answered = a.itemsPulled(e)
	case e.batch.Owner == pull.Tunnels:
		r.Answered = a.tunnelsPulled(e)
	case !a.pulls.Counts(e.batch):
		r = pull.Result{Answered: e.batch.IDs} // what is still missing is asked for again
	default:
		a.objectsPulled(e)
	}
	a.pulls.Done(e.batch, r, now)
}

// portsPulled returns the ports for which the answer was good. What could be read counts also if other parts could not.
func (a *Agent) portsPulled(e pulled, now time.Time) []string {
	const failed = "bulk_pull of ports failed, retrying"
	read := slices.DeleteFunc(slices.Clone(e.batch.IDs), func(id string) bool {
		return slices.Contains(e.unread, id) && !slices.ContainsFunc(e.ports, func(p neutron.Port) bool { return p.ID == id })
	})
	if e.err != nil {
		a.unreadable("ports", e.err)
		if len(e.unread) == 0 {
			read = nil
		}
		a.repeats.log(a.log, slog.LevelWarn, failed, "ports", len(e.batch.IDs)-len(read), "err", e.err)
	} else {
		a.repeats.forget(failed)
	}
	for _, id := range read {
		a.timelines.markAnswered(id, now)
	}
	a.world.PortsAsked(e.batch.Asked, read, e.ports)
	return read
}

// itemsPulled returns the ids of what filters need that the answer has. What it does not have is asked for again, more and more rarely.
func (a *Agent) itemsPulled(e pulled) (answered []string) {
	const failed, bad = "bulk_pull of security groups failed, retrying", "reply of bulk_pull cannot be decoded"
	first, of := string(e.batch.Kind)+" "+e.batch.IDs[0], len(e.batch.IDs)
	if e.err != nil {
		a.repeats.log(a.log, slog.LevelWarn, failed, "first", first, "of", of, "err", e.err)
		return nil
	}
	a.repeats.forget(failed)
	a.log.Debug("what filters need", "first", first, "of", of,
		"groups", len(e.groups), "members", len(e.members), "addresses", len(e.addresses), "took", e.took)
	if e.bad != nil {
		a.unreadable("what filters need", e.bad)
		a.repeats.log(a.log, slog.LevelWarn, bad, "first", first, "of", of, "err", e.bad)
	}
	members := e.batch.Kind == neutron.KindPort
	var told, unread []world.Item
	for _, id := range e.batch.IDs {
		item := world.Item{Kind: e.batch.Kind, ID: id, Asked: e.batch.Asked}
		found := e.has(id)
		if found || members && len(e.unread) == 0 {
			answered = append(answered, id)
		}
		if !found && !members && e.mayHave(id) {
			unread = append(unread, item)
		} else {
			told = append(told, item)
		}
	}
	a.world.Unread(unread)
	switch e.batch.Kind {
	case neutron.KindSecurityGroup:
		a.world.Groups.Pulled(told, e.groups)
	case neutron.KindPort:
		a.world.Members.Pulled(told, e.members, e.unread...)
	case neutron.KindAddressGroup:
		a.world.Members.AddressGroupsPulled(told, e.addresses)
	}
	return answered
}

// has says whether a group or an address group is in an answer. mayHave says whether it may be what came and cannot be read.
func (r *reply) has(id string) bool {
	return slices.ContainsFunc(r.groups, func(g neutron.SecurityGroup) bool { return g.ID == id }) ||
		slices.ContainsFunc(r.addresses, func(g neutron.AddressGroup) bool { return g.ID == id })
}

func (r *reply) mayHave(id string) bool {
	return slices.Contains(r.unread, id) || slices.Contains(r.unread, "")
}

// hasRules says whether a security group comes with its rules. Without them it would be one that allows nothing.
func hasRules(o neutron.Primitive) bool {
	_, rest, found := bytes.Cut(o.Data, []byte(`"rules"`))
	return found && !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n:"), []byte("null"))
}

// tunnelsPulled takes all endpoints of one type.
func (a *Agent) tunnelsPulled(e pulled) (answered []string) {
	const failed = "tunnel_sync failed, retrying"
	tunnelType := e.batch.IDs[0]
	if e.err != nil {
		a.repeats.log(a.log, slog.LevelWarn, failed, "type", tunnelType, "err", e.err)
		return nil
	}
	a.repeats.forget(failed)
	endpoints := make([]netip.Addr, len(e.tunnels))
	for i, t := range e.tunnels {
		endpoints[i] = t.IP
	}
	a.world.Tunnels.Sync(tunnelType, endpoints, e.batch.Asked)
	a.memory.stale = true
	return e.batch.IDs
}

// notTold lasts while the server does not answer about what an extension needs.
const notTold = "bulk_pull for an extension failed, retrying"

// objectsPulled takes what an extension asked for. Whether it has to be asked for again, ever more rarely, the extension says by
// listing it.
func (a *Agent) objectsPulled(e pulled) {
	ext, kind, ids := a.extensions.Set[e.batch.Owner-pull.Extensions], e.batch.Kind, e.batch.IDs
	if e.err != nil {
		a.repeats.log(a.log, slog.LevelWarn, notTold, "extension", ext.Name(), "kind", string(kind), "first", ids[0], "of", len(ids), "err", e.err)
		return
	}
	if err := ext.Puller.OnPulled(kind, ids, e.objects); err != nil {
		a.repeats.log(a.log, slog.LevelWarn, "object for an extension cannot be decoded", "extension", ext.Name(), "err", err)
	}
	a.memory.stale = true
}
