// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pull"
)

const (
	maxAsking        = 2   // calls at a time
	firstPerCall     = 5   // ports in the first call of many, so that the first ports need not wait for the last
	maxPerCall       = 100 // objects in one call
	maxGroupsPerCall = 10  // groups in one call for their members: the answer has all of them
	manyMembers      = 1000
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

// pulled: a call that asks the server for something came to its end.
type pulled struct {
	batch pull.Batch
	reply
	err  error // there is no answer; or, about ports, parts of it cannot be read
	took time.Duration
}

// reply is what the server said. Which of the lists is used follows from what was asked for.
type reply struct {
	ports     []neutron.Port
	groups    []neutron.SecurityGroup
	members   []neutron.Member
	addresses []neutron.AddressGroup
	tunnels   []neutron.Tunnel
	objects   []neutron.Primitive // for an extension
	unread    []string            // ids of what cannot be read, empty where not even that can be read
	bad       error               // why
}

// needs lists everything that the server has to be asked about.
func (a *Agent) needs() []pull.Need {
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
func (a *Agent) pullMissing(ctx context.Context) {
	if a.versions == nil {
		return
	}
	a.pulls.Set(a.needs())
	for _, b := range a.pulls.Next(a.world.Now(), time.Now(), a.database.Open()) {
		a.startPull(ctx, b)
	}
	filters := a.pulls.Stats(pull.Filters)
	a.world.Members.KeepRevisions(filters.Asking+filters.Checking > 0)
	a.wakeUp(a.pulls.Deadline())
	if a.pulls.Stats(pull.Extensions).Failing == 0 {
		a.repeats.forget(notTold)
	}
}

func (a *Agent) startPull(ctx context.Context, b pull.Batch) {
	what := map[pull.Owner]string{pull.Ports: "asking about ports", pull.Filters: "asking for what filters need", pull.Tunnels: "asking for tunnels"}[b.Owner]
	if what == "" {
		what = "asking for what an extension needs"
	}
	versions := a.versions // the loop's
	a.work.Go(func() {
		e, began := pulled{batch: b}, time.Now()
		e.err = a.aside(what, func() (err error) {
			e.reply, err = a.call(ctx, versions, b)
			return err
		})
		e.took = time.Since(began)
		a.inbox.put(e)
	})
}

// call runs beside the loop.
func (a *Agent) call(ctx context.Context, versions neutron.Versions, b pull.Batch) (r reply, err error) {
	if b.Owner == pull.Tunnels { // which announces our own endpoint, too
		r.tunnels, err = a.server.TunnelSync(ctx, a.cfg.World.LocalIP, b.IDs[0])
		return r, err
	}
	by := "id"
	if b.Owner == pull.Filters && b.Kind == neutron.KindPort {
		by = "security_group_ids"
	}
	objects, err := a.server.BulkPull(ctx, versions, b.Kind, map[string]any{by: b.IDs})
	switch {
	case err != nil:
	case b.Owner == pull.Ports:
		all := neutron.ReadAll(b.Kind, objects, func(p *neutron.Port) string { return p.ID })
		r.ports, r.unread = all.Found, slices.DeleteFunc(slices.Clone(b.IDs), func(id string) bool { return !all.Maybe(id) })
		err = all.Err
	case b.Owner == pull.Filters:
		r = readItems(b.Kind, objects)
	default:
		r.objects = objects
	}
	return r, err
}

// readItems reads an answer about what filters need.
func readItems(kind neutron.Kind, objects []neutron.Primitive) (e reply) {
	switch kind {
	case neutron.KindSecurityGroup:
		id := func(g *neutron.SecurityGroup) string { return g.ID }
		var complete, without []neutron.Primitive
		for _, o := range objects {
			if hasRules(o) {
				complete = append(complete, o)
			} else {
				without = append(without, o)
			}
		}
		r, bare := neutron.ReadAll(kind, complete, id), neutron.ReadAll(kind, without, id)
		e.groups, e.unread, e.bad = r.Found, append(r.Unread, bare.Unread...), r.Err
		if len(without) > 0 {
			e.bad = errors.Join(e.bad, errors.New("the server tells about a security group, but not its rules"))
		}
		for _, g := range bare.Found {
			e.unread = append(e.unread, g.ID)
		}
	case neutron.KindPort:
		r := neutron.ReadAll(kind, objects, func(m *neutron.Member) string { return m.ID })
		e.members, e.unread, e.bad = r.Found, r.Unread, r.Err
		if len(objects) > manyMembers {
			// The answer, of some megabytes, is many times larger than what is kept of it, and does not come again soon.
			debug.FreeOSMemory()
		}
	case neutron.KindAddressGroup:
		r := neutron.ReadAll(kind, objects, func(g *neutron.AddressGroup) string { return g.ID })
		e.addresses, e.unread, e.bad = r.Found, r.Unread, r.Err
	}
	return e
}
