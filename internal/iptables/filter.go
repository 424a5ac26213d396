// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Filter decides what is written. It has one owner, does no I/O and never waits.
type Filter struct {
	cfg     Config
	ports   map[string]*Port          // a port that changes is another pointer
	members map[string][]netip.Prefix // by group or address group
	zones   *Zones
	// compiled are the ports that have not changed since.
	compiled map[string]compiled
	// applied are the ports as they were when the rules were written last.
	applied map[string]*Port
	// sets are what the host has of the sets of these ports since; nil: not known.
	sets map[string]Set
	// changed are the groups and address groups whose members have changed since, with the number of the change.
	changed map[string]uint64
	changes uint64
	// owed are connections to delete, of changes whose writing failed.
	owed []Connections
	// unfit are the ports that have no rules, with the reason.
	unfit map[string]string
	// held are ports with a rule that the host refuses, with the reason: the rules that they had stay.
	held map[string]string
}

// New returns a filter without ports.
func New(cfg Config) *Filter {
	return &Filter{
		cfg: cfg, ports: map[string]*Port{}, members: map[string][]netip.Prefix{}, zones: NewZones(),
		compiled: map[string]compiled{}, applied: map[string]*Port{}, unfit: map[string]string{}, held: map[string]string{}, changed: map[string]uint64{},
	}
}

// Set takes what is known of a port. It returns whether that is new.
func (f *Filter) Set(p Port) bool {
	if old, there := f.ports[p.ID]; there && old.equals(&p) {
		return false
	}
	f.ports[p.ID] = &p
	delete(f.compiled, p.ID)
	delete(f.held, p.ID)
	return true
}

// Delete takes that a port is no longer here, or no longer wired.
func (f *Filter) Delete(id string) {
	delete(f.ports, id)
	delete(f.compiled, id)
	delete(f.held, id)
}

// Hold takes that the host refuses a line, and returns the port whose chain the line is of, or nothing. Until its facts change, or [Filter.Retry],
// the port keeps the rules that it has, and keeps nobody else from theirs.
func (f *Filter) Hold(line, reason string) string {
	_, chain, _ := strings.Cut(line, " ")
	chain, _, _ = strings.Cut(chain, " ")
	for id := range f.ports {
		if chain == ingressChain(id) || chain == egressChain(id) || chain == spoofChain(id) {
			f.held[id] = reason
			delete(f.compiled, id)
			return id
		}
	}
	return ""
}

// Retry has the rules of all ports tried again that the host has refused. It returns whether there are any.
func (f *Filter) Retry() bool {
	some := len(f.held) > 0
	for id := range f.held {
		delete(f.compiled, id)
	}
	clear(f.held)
	return some
}

// Has returns whether a port is known, and not gone.
func (f *Filter) Has(id string) bool { _, known := f.ports[id]; return known }

// Ports returns the ids of the ports that are known, sorted.
func (f *Filter) Ports() []string { return slices.Sorted(maps.Keys(f.ports)) }

// SetMembers takes the addresses of the members of a group, or of an address group. Nil forgets the group.
func (f *Filter) SetMembers(remote string, members []netip.Prefix) {
	if members == nil {
		delete(f.members, remote)
	} else {
		f.members[remote] = members
	}
	f.changes++
	f.changed[remote] = f.changes
	if f.cfg.NoSets {
		clear(f.compiled)
	}
}

// Remotes returns the groups and address groups that the rules of ports refer to, sorted. The members of others need not be told.
func (f *Filter) Remotes() []string {
	all := map[string]bool{}
	for _, p := range f.ports {
		for _, remote := range p.Remotes() {
			all[remote] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Changes are what makes a host as wanted, in the order in which it is written.
type Changes struct {
	// Sets is the input of ipset restore before, Unused that after the rules are written.
	Sets, Unused string
	// Rules are the inputs of iptables-restore and ip6tables-restore.
	Rules [2]string
	// Connections are to be deleted when all else is done: no rule allows them any more.
	Connections []Connections

	ports   map[string]*Port
	done    []string
	sets    map[string]Set
	members map[string]uint64 // see Filter.changed
}

// Empty returns whether the host is as wanted.
func (c *Changes) Empty() bool {
	return c.Sets == "" && c.Unused == "" && c.Rules == [2]string{} && len(c.Connections) == 0
}

// Next returns what makes a host as wanted that has a state. Prune says that everything is known, so that what belongs to no known port
// goes; before that the agent deletes nothing of ports that it does not know.
func (f *Filter) Next(have State, prune bool) Changes {
	f.zones.Read(have.Rules[0])
	want := f.wanted()
	for id := range f.held {
		if _, known := f.applied[id]; !known {
			prune = false // what the port has stays, and is not known
		}
	}
	out := Changes{ports: maps.Clone(f.ports), done: want.Ports, members: maps.Clone(f.changed)}
	for id := range f.held {
		out.ports[id] = f.applied[id]
	}
	sets := diffSets(want.Sets, have.Sets)
	out.Sets, out.sets = lines(sets.before), sets.after
	narrow := map[string]bool{}
	referred := map[string]bool{}
	for i, tables := range want.Families {
		if have.Rules[i] == nil || len(want.Ports) == 0 && !anyOurs(have.Rules[i]) {
			continue // an agent without ports writes nothing
		}
		var text []string
		for t := range tables {
			d := diffTable(f.cfg.Protocols, &tables[t], have.Rules[i][tables[t].Name], knownPorts(want.Ports), prune)
			if len(d.out) > 0 {
				text = slices.Concat(text, []string{"*" + tables[t].Name}, d.out, []string{"COMMIT"})
			}
			maps.Copy(narrow, d.narrowed)
			d.refer(referred)
		}
		out.Rules[i] = lines(text)
	}
	if prune {
		out.Unused = lines(destroySets(want.Sets, have.Sets, referred))
	}
	out.Connections = once(slices.Concat(f.owed, f.connections(narrow, sets.gone)))
	return out
}

// NextMembers returns what makes the sets of a host as wanted on which nothing but members has changed since rules were written last. Nothing need be
// read for that. It returns false if more than members of known sets has to change.
func (f *Filter) NextMembers() (Changes, bool) {
	if f.sets == nil || f.cfg.NoSets || len(f.applied) != len(f.ports) {
		return Changes{}, false
	}
	for id := range f.ports {
		if !f.Applied(id) {
			return Changes{}, false
		}
	}
	want := map[string][]netip.Prefix{}
	for remote := range f.changed {
		for _, version := range []uint8{4, 6} {
			if name := SetName(remote, version); f.sets[name].Members != nil {
				want[name] = setMembers(f.members[remote], version)
			}
		}
	}
	for name, members := range want {
		if f.sets[name].MaxElem < len(members) {
			return Changes{}, false
		}
	}
	diff := diffSets(want, f.sets)
	sets := maps.Clone(f.sets)
	maps.Copy(sets, diff.after)
	out := Changes{
		Sets: lines(diff.before), sets: sets, ports: f.applied, done: slices.Sorted(maps.Keys(f.applied)), members: maps.Clone(f.changed), Connections: f.owed,
	}
	if len(diff.gone) > 0 {
		out.Connections = once(slices.Concat(f.owed, f.connections(nil, diff.gone)))
	}
	return out, true
}

// once leaves each of the connections once.
func once(all []Connections) []Connections {
	seen := map[Connections]bool{}
	return slices.DeleteFunc(all, func(c Connections) bool {
		before := seen[c]
		seen[c] = true
		return before
	})
}

// Leave returns what deletes everything of the agent from a host: chains, the rules that refer to them, and sets. Chains that are shared with
// other agents of Neutron stay. It is for a host whose ports have all got filters of another kind.
func Leave(have State) Changes {
	var out Changes
	referred := map[string]bool{}
	for i, rules := range have.Rules {
		var text []string
		for _, name := range slices.Sorted(maps.Keys(rules)) {
			d := diffTable(Protocols{}, &Table{Name: name}, rules[name], knownPorts(nil), true)
			if len(d.out) > 0 {
				text = slices.Concat(text, []string{"*" + name}, d.out, []string{"COMMIT"})
			}
			d.refer(referred)
		}
		out.Rules[i] = lines(text)
	}
	out.Unused = lines(destroySets(nil, have.Sets, referred))
	return out
}

func lines(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "\n") + "\n"
}

func anyOurs(rules Ruleset) bool {
	for _, table := range rules {
		for chain := range table {
			if isOurs(chain) {
				return true
			}
		}
	}
	return false
}

// wanted puts together what is wanted. Ports that have changed are compiled.
func (f *Filter) wanted() Wanted {
	clear(f.unfit)
	live := func(part string) bool {
		for id := range f.ports {
			if short(id) == part {
				return true
			}
		}
		return false
	}
	var all []compiled
	var filtered []*Port
	for _, id := range slices.Sorted(maps.Keys(f.ports)) {
		p := f.ports[id]
		if why, held := f.held[id]; held {
			f.unfit[id] = why
			before, known := f.applied[id]
			if !known {
				continue
			}
			p = before
		}
		c, done := f.compiled[id]
		if !done {
			zone := uint16(0)
			if p.Kind == Filtered {
				var err error
				if zone, err = f.zones.Take(id, live); err != nil {
					f.unfit[id] = err.Error()
					continue
				}
			}
			c = f.cfg.compile(p, zone, f.members)
			f.compiled[id] = c
		}
		all, filtered = append(all, c), append(filtered, p)
	}
	out := f.cfg.assemble(all)
	if !f.cfg.NoSets {
		out.Sets = setsWanted(filtered, f.members)
	}
	for _, c := range all {
		if _, found := slices.BinarySearch(out.Ports, c.id); !found {
			f.unfit[c.id] = fmt.Sprintf("another port has a chain with the name %s", ingressChain(c.id))
		}
	}
	return out
}

// connections returns the connections that no rule allows any more: narrow are the chains that lost a rule, gone the members that left sets.
func (f *Filter) connections(narrow map[string]bool, gone map[string][]netip.Prefix) []Connections {
	var out []Connections
	for _, id := range slices.Sorted(maps.Keys(f.applied)) {
		if _, here := f.ports[id]; !here && f.zones.Of(id) != 0 {
			out = append(out, Connections{Zone: f.zones.Of(id), Whole: true})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.ports)) {
		p, zone := f.ports[id], f.zones.Of(id)
		before, known := f.applied[id]
		if zone == 0 || p.Kind != Filtered && !known {
			continue
		}
		lost := narrow[ingressChain(id)] || narrow[egressChain(id)]
		if known && !before.equals(p) {
			out = append(out, narrowed(before, p, zone)...)
		} else if lost {
			out = append(out, Connections{Zone: zone, Whole: true}) // what the rule allowed is not known
			continue
		}
		for _, remote := range p.Remotes() {
			for _, version := range []uint8{4, 6} {
				out = append(out, left(p, zone, remote, version, gone[SetName(remote, version)])...)
			}
		}
	}
	return out
}

// Done takes the outcome of changes. Connections are the caller's from then on, if err is nil.
func (f *Filter) Done(c Changes, err error) {
	if err != nil {
		f.owed, f.sets = c.Connections, nil
		return
	}
	f.owed, f.sets = nil, c.sets
	maps.DeleteFunc(f.changed, func(remote string, n uint64) bool { return c.members[remote] == n })
	f.applied = map[string]*Port{}
	for _, id := range c.done {
		f.applied[id] = c.ports[id]
	}
}

// Applied returns whether the rules of a port as it is known now are in place. Until then the port must not be in its network.
func (f *Filter) Applied(id string) bool {
	p, wanted := f.ports[id]
	applied, there := f.applied[id]
	return wanted && there && p.equals(applied)
}

// Unfit returns why a port cannot have rules; nothing if it can.
func (f *Filter) Unfit(id string) string { return f.unfit[id] }
