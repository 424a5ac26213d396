// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// group is a security group that ports here have.
type group struct {
	id   string
	name string // for people
	// stateless: connections of its ports are not tracked. The server refuses to change it while a port has the group.
	stateless bool
	pullState
	resolved pullState        // as when its ports were looked at last
	rules    map[string]entry // by id
	// What follows from the rules: what they allow, and of each conjunction the offsets in use, as bits.
	normal       []Rule
	all          []Rule // with ports that flows cannot match
	conjunctions map[Conjunction]uint8
	// ports need it; on segments so many have it in force.
	ports    map[string]bool
	segments map[SegmentKey]int
}

// entry is a rule as the server told it.
type entry struct {
	rule *neutron.SecurityGroupRule
	seen uint64
}

// pullState is what the server has said about something.
type pullState struct {
	// Answered: it has answered, and nothing was missed since.
	answered bool
	// Known: what the server said is in force. Unknown: it said that there is no such thing.
	known, unknown bool
	// since is when it was first needed, or when the question left that was answered last: an answer to an earlier one does not count.
	since uint64
	// unread: its last answer could not be read. Whatever was known before is in force.
	unread bool
	// late is until when pushes may come that are older than the first answer since messages may have been lost; zero: there is none yet.
	late        time.Time
	unconfirmed bool // such a push has added to it
}

// latePush is by how much a push may be overtaken by the push that its object was deleted. Where that came before anybody listened here, nothing
// says that the object is gone.
const latePush = time.Minute

// added takes that a push has added a rule or a member. Soon after messages may have been lost the server is asked once more; see confirm.
func (t *pullState) added(now time.Time) {
	if t.late.IsZero() || now.Before(t.late) {
		t.unconfirmed = true
	}
}

// confirm has what late pushes may have added to asked for again.
func (t *pullState) confirm(now time.Time) {
	if t.unconfirmed && !t.late.IsZero() && !now.Before(t.late) {
		t.unconfirmed, t.answered = false, false
	}
}

// missed has it asked for again: messages may have been lost.
func (t *pullState) missed() { t.answered, t.late, t.unconfirmed = false, time.Time{}, false }

// spoken says whether the server has spoken, as far as that can be waited for: what cannot be read leaves things as they are.
func (t *pullState) spoken() bool { return t.answered || t.unknown || t.unread && t.known }

// Item is something that filters need, and that the server can be asked about: a security group, an address group, or
// with kind Port the members of a security group.
type Item struct {
	Kind neutron.Kind
	ID   string
	// Asked is the moment of the question, see [World.Now]: what was heard later is newer than the answer.
	Asked uint64
}

// String names the item; it is the same for every question about it.
func (i Item) String() string { return string(i.Kind) + " " + i.ID }

// filters is what filters need of the server.
type filters struct {
	*common
	groups  map[string]*group  // security groups that ports here have
	remotes map[string]*remote // groups and address groups that their rules refer to
}

// MissingItems lists what the server has to be asked about for filters, sorted. Whoever asks later sets Asked anew.
func (w *filters) MissingItems() []Item {
	var items []Item
	for id, g := range w.groups {
		if !g.answered {
			items = append(items, Item{neutron.KindSecurityGroup, id, w.seq})
		}
	}
	for _, r := range w.remotes {
		if !r.answered {
			items = append(items, Item{r.kind(), r.id, w.seq})
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	return items
}

// pullStateOf finds what the server has said about an item; nil when it is not needed any more.
func (w *filters) pullStateOf(i Item) *pullState {
	if i.Kind == neutron.KindSecurityGroup {
		if g := w.groups[i.ID]; g != nil {
			return &g.pullState
		}
	} else if r := w.remotes[i.ID]; r != nil {
		return &r.pullState
	}
	return nil
}

// Standing returns whether what was said about an item is in force, so that asking about it is a check, and the moment from which on
// questions about it count.
func (w *filters) Standing(i Item) (known bool, since uint64) {
	if t := w.pullStateOf(i); t != nil {
		return t.known, t.since
	}
	return false, 0
}

// answer finds what an answer belongs to; nil when it is to a question of long ago.
func (w *filters) answer(i Item) *pullState {
	t := w.pullStateOf(i)
	if t == nil || i.Asked < t.since {
		return nil
	}
	t.since = i.Asked
	return t
}

// answered takes that an item was answered. An answer from before messages were lost counts, but may be too old: the item is
// asked for again.
func (w *filters) answered(t *pullState) {
	if t.answered, t.unread = t.since >= w.staleSince, false; t.late.IsZero() {
		t.late = w.Time.Add(latePush)
	}
}

// Unread takes that the server has answered about items, and the answer cannot be read. That is not the same as that there is no such
// thing: what was known stays in force, and what was not known stays so. They are to be asked again.
func (w *filters) Unread(asked []Item) {
	for _, i := range asked {
		t := w.answer(i)
		if t == nil {
			continue
		}
		t.answered, t.unread = false, true
		if g := w.groups[i.ID]; g != nil && i.Kind == neutron.KindSecurityGroup {
			w.touchGroup(g) // the reason why its ports wait is another
		} else if r := w.remotes[i.ID]; r != nil {
			w.touchUsers(r)
		}
	}
}

// absent takes the answer that there is no such thing. It is to be asked again: what a server does not know yet another
// may.
func (t *pullState) absent() { t.answered, t.known, t.unknown, t.unread = false, false, true, false }

// needed is what the server has said about something that is needed from now on: nothing.
func (w *filters) needed() pullState {
	w.seq++
	return pullState{since: w.seq}
}

// Groups are the security groups that ports here have, and their rules.
type Groups struct {
	*filters
	members *Members
	groupOf map[string]string // group of a rule
}

// need notes the groups that a port needs; they are asked for, and forgotten when nothing needs them any more.
func (w *Groups) need(p *Port, groups []string) {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	for _, id := range groups {
		g := w.groups[id]
		if g == nil {
			g = &group{
				id: id, rules: map[string]entry{}, conjunctions: map[Conjunction]uint8{}, ports: map[string]bool{},
				segments: map[SegmentKey]int{}, pullState: w.needed(),
			}
			w.groups[id] = g
			if sg := w.recalled.groups[id]; sg != nil {
				w.learnGroup(g, sg)
			}
		}
		g.ports[p.ID] = true
	}
	for _, id := range p.needs {
		if !slices.Contains(groups, id) {
			delete(w.groups[id].ports, p.ID)
		}
	}
	p.needs = groups
}

// resolve forgets groups that no port needs, the remote groups that only these referred to, and the members that
// are in no remote group any more.
func (w *Groups) resolve() {
	for id, g := range w.groups {
		if len(g.ports) > 0 {
			continue
		}
		for c := range g.conjunctions {
			w.members.disuse(c)
		}
		for rule := range g.rules {
			delete(w.groupOf, rule)
		}
		delete(w.groups, id)
	}
	w.members.resolve()
}

// Pulled takes the server's answer about security groups.
func (w *Groups) Pulled(asked []Item, found []neutron.SecurityGroup) {
	for _, item := range asked {
		t := w.answer(item)
		if t == nil {
			continue
		}
		i := slices.IndexFunc(found, func(sg neutron.SecurityGroup) bool { return sg.ID == item.ID })
		deleted := w.deleted.has(item.ID)
		g := w.groups[item.ID]
		if i < 0 || deleted {
			t.absent()
			w.clearRules(g)
			continue
		}
		// Rules that were heard of before the question and are not in the answer are gone.
		for id, e := range g.rules {
			if e.seen <= item.Asked && !slices.ContainsFunc(found[i].Rules, func(r neutron.SecurityGroupRule) bool { return r.ID == id }) {
				w.dropRule(id)
			}
		}
		w.answered(t)
		w.learnGroup(g, &found[i])
	}
}

// learnGroup takes what the server says about a group, with all of its rules.
func (w *Groups) learnGroup(g *group, sg *neutron.SecurityGroup) {
	g.known, g.unknown, g.name = true, false, cmp.Or(sg.Name, g.name)
	g.stateless = sg.Stateful != nil && !*sg.Stateful
	for i := range sg.Rules {
		w.learnRule(&sg.Rules[i])
	}
	w.touchGroup(g)
}

// learnRule takes what the server says about a rule, unless something newer is known.
func (w *Groups) learnRule(r *neutron.SecurityGroupRule) {
	g := w.groups[r.SecurityGroupID]
	if g == nil || w.deleted.has(r.ID) {
		return
	}
	if before, ok := g.rules[r.ID]; ok && before.rule.Revision > r.Revision {
		return
	}
	w.seq++
	g.rules[r.ID] = entry{r, w.seq}
	w.groupOf[r.ID] = g.id
	w.touchGroup(g)
}

func (w *Groups) dropRule(id string) {
	g := w.groups[w.groupOf[id]]
	if g == nil {
		return
	}
	delete(g.rules, id)
	delete(w.groupOf, id)
	w.touchGroup(g)
}

func (w *Groups) clearRules(g *group) {
	for id := range g.rules {
		w.dropRule(id)
	}
	w.touchGroup(g)
}

// touchGroup has a group worked out anew, and with it the ports that need it.
func (w *common) touchGroup(g *group) { w.touchedGroups[g.id] = true }

// resolveGroup works out what follows from a group's rules.
func (w *Groups) resolveGroup(id string) {
	g := w.groups[id]
	if g == nil {
		return
	}
	normal := normalise(g.rules, read)
	all := normalise(g.rules, readAll)
	unchanged := slices.EqualFunc(normal, g.normal, same)
	samePorts := slices.EqualFunc(all, g.all, same)
	if state := (pullState{known: g.known, unknown: g.unknown, unread: g.unread}); !unchanged || !samePorts || state != g.resolved {
		g.resolved = state
		for port := range g.ports {
			w.touched[port] = true
		}
	}
	if unchanged {
		g.all = all
		return
	}
	before, after := g.conjunctions, map[Conjunction]uint8{}
	for _, r := range normal {
		if r.Remote != "" {
			c := Conjunction{g.id, r.Remote, r.Direction, r.IPVersion}
			after[c] |= 1 << r.Offset()
		}
	}
	addresses := map[string]bool{}
	for _, e := range g.rules {
		if e.rule.RemoteGroupID == "" && e.rule.RemoteAddressGroupID != "" {
			addresses[e.rule.RemoteAddressGroupID] = true
		}
	}
	for c, offsets := range after {
		if before[c] == 0 {
			w.members.use(c, addresses[c.Remote])
		}
		if before[c] != offsets {
			w.members.markUsers(c)
		}
	}
	for c := range before {
		if after[c] == 0 {
			w.members.markUsers(c)
			w.members.disuse(c)
		}
	}
	g.normal, g.all, g.conjunctions = normal, all, after // last: if something above fails it is all done again
}

// markFiltersStale has everything that filters need asked for again.
func (w *filters) markFiltersStale() {
	for _, g := range w.groups {
		g.missed()
	}
	for _, r := range w.remotes {
		r.missed()
	}
}

// confirm has everything asked for again that late pushes may have added to.
func (w *filters) confirm(now time.Time) {
	for _, g := range w.groups {
		g.confirm(now)
	}
	for _, r := range w.remotes {
		r.confirm(now)
	}
}
