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
	told
	settled told             // as when its ports were looked at last
	rules   map[string]entry // by id
	// What follows from the rules: what they allow, and of each conjunction the offsets in use, as bits.
	normal       []Rule
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

// told is where the questions about something stand.
type told struct {
	// Asked: the question is on its way. Answered: it was answered, and nothing was missed since.
	asked, answered bool
	// Known: what the server said is in force. Unknown: it said that there is no such thing.
	known, unknown bool
	// since is when it was asked: what was heard later is newer than the answer.
	since uint64
	// unread: its last answer could not be read. Whatever was known before is in force.
	unread bool
}

// spoken says whether the server has spoken, as far as that can be waited for: what cannot be read leaves things as they are.
func (t *told) spoken() bool { return t.answered || t.unknown || t.unread && t.known }

// Item is something that filters need, and that the server can be asked about: a security group, an address group, or
// with kind Port the members of a security group.
type Item struct {
	Kind neutron.Kind
	ID   string

	since uint64 // of the question
}

// String names the item; it is the same for every question about it.
func (i Item) String() string { return string(i.Kind) + " " + i.ID }

// MissingItems lists what the server has to be asked about for filters, sorted, and marks it as asked. Every item has to
// be given back, with its answer or to [World.NoAnswer].
func (w *World) MissingItems() []Item {
	if len(w.missing) == 0 {
		return nil // this runs after every event
	}
	items := make([]Item, 0, len(w.missing))
	for item := range w.missing {
		w.news++
		t := w.toldOf(item)
		if t == nil {
			continue // not needed any more
		}
		t.asked, t.since = true, w.news
		item.since = w.news
		items = append(items, item)
		if item.Kind == neutron.KindPort {
			w.asking[item.since] = true
		}
	}
	clear(w.missing)
	slices.SortFunc(items, func(a, b Item) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	return items
}

// toldOf finds where the questions about an item stand; nil when it is not needed any more.
func (w *World) toldOf(i Item) *told {
	if i.Kind == neutron.KindSecurityGroup {
		if g := w.groups[i.ID]; g != nil {
			return &g.told
		}
	} else if r := w.remotes[i.ID]; r != nil {
		return &r.told
	}
	return nil
}

// Known says whether something that was said about an item is in force: asking about it is a check.
func (w *World) Known(i Item) bool {
	t := w.toldOf(i)
	return t != nil && t.known
}

// answer finds what an answer belongs to; nil when it is to a question of long ago.
func (w *World) answer(i Item) *told {
	if i.Kind == neutron.KindPort {
		if delete(w.asking, i.since); len(w.asking) == 0 {
			clear(w.passed)
		}
	}
	t := w.toldOf(i)
	if t == nil || !t.asked || t.since != i.since {
		return nil
	}
	t.asked = false
	return t
}

// NoAnswer takes back that items were asked about: the question failed and is to be asked again.
func (w *World) NoAnswer(asked []Item) {
	for _, i := range asked {
		if w.answer(i) != nil {
			w.missing[i.key()] = true
		}
	}
}

// answered takes that an item was answered. An answer from before news were missed counts, but may be too old: the item is
// asked for again.
func (w *World) answered(i Item, t *told) {
	t.unread = false
	if t.answered = t.since >= w.doubted; !t.answered {
		w.missing[i.key()] = true
	}
}

// Unread takes that the server has answered about items, and the answer cannot be read. That is not the same as that there is no such
// thing: what was known stays in force, and what was not known stays so. They are to be asked again.
func (w *World) Unread(asked []Item) {
	for _, i := range asked {
		t := w.answer(i)
		if t == nil {
			continue
		}
		t.answered, t.unread = false, true
		w.missing[i.key()] = true
		if g := w.groups[i.ID]; g != nil && i.Kind == neutron.KindSecurityGroup {
			w.touchGroup(g) // the reason why its ports wait is another
		} else if r := w.remotes[i.ID]; r != nil {
			w.touchUsers(r)
		}
	}
}

// key is the item without its question.
func (i Item) key() Item { return Item{Kind: i.Kind, ID: i.ID} }

// absent takes the answer that there is no such thing. It is to be asked again: what a server does not know yet another
// may.
func (w *World) absent(i Item, t *told) {
	t.answered, t.known, t.unknown, t.unread = false, false, true, false
	w.missing[i.key()] = true
}

// Complete says whether the server has spoken about everything that ports here need.
func (w *World) Complete() bool {
	for _, p := range w.ports {
		if p.VIF != nil && !p.Answered {
			return false
		}
	}
	for _, g := range w.groups {
		if !g.spoken() {
			return false
		}
	}
	for _, r := range w.remotes {
		if !r.spoken() {
			return false
		}
	}
	return true
}

// need notes the groups that a port needs; they are asked for, and forgotten when nothing needs them any more.
func (w *World) need(p *Port, groups []string) {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	for _, id := range groups {
		g := w.groups[id]
		if g == nil {
			g = &group{
				id: id, rules: map[string]entry{}, conjunctions: map[Conjunction]uint8{}, ports: map[string]bool{},
				segments: map[SegmentKey]int{},
			}
			w.groups[id] = g
			w.missing[Item{Kind: neutron.KindSecurityGroup, ID: id}] = true
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

// settleFilters forgets groups that no port needs, the remote groups that only these referred to, and the members that
// are in no remote group any more.
func (w *World) settleFilters() {
	for id, g := range w.groups {
		if len(g.ports) > 0 {
			continue
		}
		for c := range g.conjunctions {
			w.disuse(c)
		}
		for rule := range g.rules {
			delete(w.groupOf, rule)
		}
		delete(w.groups, id)
		delete(w.missing, Item{Kind: neutron.KindSecurityGroup, ID: id})
	}
	w.settleRemotes()
}

// Groups takes the server's answer about security groups.
func (w *World) Groups(asked []Item, found []neutron.SecurityGroup) {
	for _, item := range asked {
		t := w.answer(item)
		if t == nil {
			continue
		}
		i := slices.IndexFunc(found, func(sg neutron.SecurityGroup) bool { return sg.ID == item.ID })
		_, deleted := w.deleted[item.ID]
		g := w.groups[item.ID]
		if i < 0 || deleted {
			w.absent(item, t)
			w.clearRules(g)
			continue
		}
		// Rules that were heard of before the question and are not in the answer are gone.
		for id, e := range g.rules {
			if e.seen < t.since && !slices.ContainsFunc(found[i].Rules, func(r neutron.SecurityGroupRule) bool { return r.ID == id }) {
				w.dropRule(id)
			}
		}
		w.answered(item, t)
		w.learnGroup(g, &found[i])
	}
}

// learnGroup takes what the server says about a group, with all of its rules.
func (w *World) learnGroup(g *group, sg *neutron.SecurityGroup) {
	g.known, g.unknown, g.name = true, false, cmp.Or(sg.Name, g.name)
	delete(w.missing, Item{Kind: neutron.KindSecurityGroup, ID: g.id})
	if !g.answered && !g.asked {
		w.missing[Item{Kind: neutron.KindSecurityGroup, ID: g.id}] = true
	}
	for i := range sg.Rules {
		w.learnRule(&sg.Rules[i])
	}
	w.touchGroup(g)
}

// learnRule takes what the server says about a rule, unless something newer is known.
func (w *World) learnRule(r *neutron.SecurityGroupRule) {
	g := w.groups[r.SecurityGroupID]
	if _, gone := w.deleted[r.ID]; g == nil || gone {
		return
	}
	if before, ok := g.rules[r.ID]; ok && before.rule.Revision > r.Revision {
		return
	}
	w.news++
	g.rules[r.ID] = entry{r, w.news}
	w.groupOf[r.ID] = g.id
	w.touchGroup(g)
}

func (w *World) dropRule(id string) {
	g := w.groups[w.groupOf[id]]
	if g == nil {
		return
	}
	delete(g.rules, id)
	delete(w.groupOf, id)
	w.touchGroup(g)
}

func (w *World) clearRules(g *group) {
	for id := range g.rules {
		w.dropRule(id)
	}
	w.touchGroup(g)
}

// touchGroup has a group worked out anew, and with it the ports that need it.
func (w *World) touchGroup(g *group) { w.touchedGroups[g.id] = true }

// settleGroup works out what follows from a group's rules.
func (w *World) settleGroup(id string) {
	g := w.groups[id]
	if g == nil {
		return
	}
	normal := normalise(g.rules)
	unchanged := slices.EqualFunc(normal, g.normal, same)
	if state := (told{known: g.known, unknown: g.unknown, unread: g.unread}); !unchanged || state != g.settled {
		g.settled = state
		for port := range g.ports {
			w.touched[port] = true
		}
	}
	if unchanged {
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
			w.use(c, addresses[c.Remote])
		}
		if before[c] != offsets {
			w.markUsers(c)
		}
	}
	for c := range before {
		if after[c] == 0 {
			w.markUsers(c)
			w.disuse(c)
		}
	}
	g.normal, g.conjunctions = normal, after // last: if something above fails it is all done again
}

// markUsers has the peers of a conjunction compiled again wherever it is in force.
func (w *World) markUsers(c Conjunction) {
	for key := range w.groups[c.Group].segments {
		w.markConjunction(c, key)
	}
}

// pushGroup takes news about a security group.
func (w *World) pushGroup(o neutron.Primitive, event neutron.Event, now time.Time) error {
	var sg neutron.SecurityGroup
	if err := o.Decode(neutron.KindSecurityGroup, &sg); err != nil {
		return err
	}
	if event != neutron.Deleted {
		if g := w.groups[sg.ID]; g != nil && !w.isDeleted(sg.ID) {
			w.concerned = append(w.concerned, sg.ID)
			w.learnGroup(g, &sg)
		}
		return nil
	}
	w.deleted[sg.ID] = now
	// With it go its rules, and those of others that refer to it; the server does not tell about either.
	for _, g := range w.groups {
		for id, e := range g.rules {
			if g.id == sg.ID || e.rule.RemoteGroupID == sg.ID {
				w.deleted[id] = now
				w.dropRule(id)
			}
		}
	}
	if g := w.groups[sg.ID]; g != nil {
		w.concerned = append(w.concerned, sg.ID)
		g.known, g.unknown = false, true
		w.touchGroup(g)
	}
	return nil
}

// pushRule takes news about a rule.
func (w *World) pushRule(o neutron.Primitive, event neutron.Event, now time.Time) error {
	r := &neutron.SecurityGroupRule{}
	if err := o.Decode(neutron.KindSecurityGroupRule, r); err != nil {
		return err
	}
	if w.groups[w.groupOf[r.ID]] != nil || w.groups[r.SecurityGroupID] != nil {
		w.concerned = append(w.concerned, r.ID)
	}
	if event == neutron.Deleted {
		w.deleted[r.ID] = now
		w.dropRule(r.ID)
		return nil
	}
	w.learnRule(r)
	return nil
}

func (w *World) isDeleted(id string) bool {
	_, gone := w.deleted[id]
	return gone
}

// doubtFilters has everything that filters need asked for again.
func (w *World) doubtFilters() {
	doubt := func(i Item, t *told) {
		if t.answered = false; !t.asked {
			w.missing[i] = true
		}
	}
	for id, g := range w.groups {
		doubt(Item{Kind: neutron.KindSecurityGroup, ID: id}, &g.told)
	}
	for _, r := range w.remotes {
		doubt(r.item(), &r.told)
	}
}
