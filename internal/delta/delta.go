// SPDX-License-Identifier: Apache-2.0

// Package delta compares what is wanted with what is there: flows, meters and rows of the database.
//
// A [Tracker] belongs to one bridge. Objects say what they want ([Tracker.Want], always the whole of it), the switch says
// what it has ([Tracker.Have]) and what others do to it ([Tracker.Observe]), and [Tracker.Changes] is the difference. A flow that is there as wanted is never touched:
// its counters go on, and packets do not notice. Flows are compared by what they do; a cookie alone is no difference, so
// flows of another agent that are right stay as they are.
//
// A flow that nobody wants any more goes at once when its owner said so. A flow that was there before and was never
// wanted, because it is an earlier run's or somebody else's, waits until [Tracker.Sweep] says that everything that could
// want it has spoken.
package delta

import (
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// Flow is a wanted flow with its reason.
type Flow struct {
	Entry  of.Entry
	Reason string
}

// Tracker is one bridge. It has one owner.
type Tracker struct {
	want  map[of.Key][]claim // the first claim counts
	owned map[world.Object][]of.Key
	have  map[of.Key]of.Entry
	known bool // have is what the switch has
	dirty map[of.Key]bool
	stale map[of.Key]bool // there, and never wanted
	// left are flows that are to go, with the owner that wanted them last.
	left map[of.Key]world.Object
	// learned are flows that the switch made itself, by an action of an agent's flow.
	learned map[of.Key]bool
	// disturbed are flows that somebody else changed since Sent; unsure: one of them was sent.
	disturbed map[of.Key]bool
	unsure    bool
}

type claim struct {
	owner  world.Object
	entry  of.Entry
	reason string
}

// New returns a tracker of a bridge about which nothing is known.
func New() *Tracker {
	return &Tracker{
		want: map[of.Key][]claim{}, owned: map[world.Object][]of.Key{}, have: map[of.Key]of.Entry{},
		dirty: map[of.Key]bool{}, stale: map[of.Key]bool{}, left: map[of.Key]world.Object{}, learned: map[of.Key]bool{}, disturbed: map[of.Key]bool{},
	}
}

// Want replaces everything that an owner wants.
func (t *Tracker) Want(owner world.Object, flows []Flow) {
	keep := make(map[of.Key]bool, len(flows))
	for _, f := range flows {
		keep[f.Entry.Key()] = true
	}
	for _, k := range t.owned[owner] {
		if !keep[k] {
			t.drop(k, owner)
		}
	}
	if len(flows) == 0 {
		delete(t.owned, owner)
		return
	}
	keys := make([]of.Key, 0, len(flows))
	for _, f := range flows {
		k := f.Entry.Key()
		keys = append(keys, k)
		t.put(k, claim{owner, f.Entry, f.Reason})
	}
	t.owned[owner] = keys
}

func (t *Tracker) put(k of.Key, c claim) {
	claims := t.want[k]
	if i := slices.IndexFunc(claims, func(o claim) bool { return o.owner == c.owner }); i >= 0 {
		if claims[i] == c {
			return
		}
		claims[i] = c
	} else {
		claims = append(claims, c)
		// Two owners of one flow: which of them counts must not depend on who came first.
		slices.SortFunc(claims, func(a, b claim) int { return world.CompareObjects(a.owner, b.owner) })
	}
	t.want[k] = claims
	t.dirty[k] = true
	delete(t.stale, k)
	delete(t.left, k)
}

func (t *Tracker) drop(k of.Key, owner world.Object) {
	claims := slices.DeleteFunc(t.want[k], func(c claim) bool { return c.owner == owner })
	if len(claims) == 0 {
		delete(t.want, k)
		t.left[k] = owner
	} else {
		t.want[k] = claims
	}
	t.dirty[k] = true
}

// Have takes a complete dump of the bridge.
func (t *Tracker) Have(entries []of.Entry) {
	t.known, t.unsure = true, false
	t.have = make(map[of.Key]of.Entry, len(entries))
	clear(t.stale)
	clear(t.dirty)
	left := t.left
	t.left = map[of.Key]world.Object{}
	clear(t.learned)
	for _, e := range entries {
		k := e.Key()
		t.set(k, e)
		if len(t.want[k]) > 0 {
			continue
		}
		if owner, ok := left[k]; ok { // it was to go already
			t.dirty[k], t.left[k] = true, owner
		} else {
			t.stale[k] = true
		}
	}
	for k, claims := range t.want {
		if !same(claims[0].entry, t.have[k]) {
			t.dirty[k] = true
		}
	}
}

// set takes down that a flow is there, or with the zero entry that it is not.
func (t *Tracker) set(k of.Key, e of.Entry) {
	delete(t.learned, k)
	if e.IsZero() {
		delete(t.have, k)
		return
	}
	t.have[k] = e
	if Learned(e) {
		t.learned[k] = true
	}
}

// Learned says whether a flow was made by the switch for an agent: it bears the mark of one, and expires.
func Learned(e of.Entry) bool { return e.Cookie() != 0 && e.Expires() }

// Lost says that the switch cannot be reached: what it has is no longer known.
func (t *Tracker) Lost() { t.known = false }

// Known says whether there is something to compare with.
func (t *Tracker) Known() bool { return t.known }

func same(want, have of.Entry) bool { return want == have || want.SameActions(have) }

// Change is one step to make what is there equal to what is wanted. Delete without Entry.
type Change struct {
	Key   of.Key
	Entry of.Entry // zero for a deletion
	// Owner wants the flow, or wanted it last; nil for a flow that nothing ever wanted.
	Owner world.Object
}

// Message is the change as the switch reads it.
func (c Change) Message() of.Message {
	if c.Entry.IsZero() {
		return of.DeleteFlow(c.Key)
	}
	return of.AddFlow(c.Entry)
}

// Changes lists what has to change, additions first: within one bundle the order does not matter to packets, but it
// reads better. Nothing while the switch is not known.
func (t *Tracker) Changes() []Change {
	if !t.known {
		return nil
	}
	var adds, deletes []Change
	for k := range t.dirty {
		switch claims := t.want[k]; {
		case t.asWanted(k):
		case len(claims) == 0:
			deletes = append(deletes, Change{Key: k, Owner: t.left[k]})
		default:
			adds = append(adds, Change{k, claims[0].entry, claims[0].owner})
		}
	}
	byKey := func(a, b Change) int { return a.Key.Compare(b.Key) }
	slices.SortFunc(adds, byKey)
	slices.SortFunc(deletes, byKey)
	return append(adds, deletes...)
}

// asWanted returns whether a flow is there as wanted, or neither wanted nor there.
func (t *Tracker) asWanted(k of.Key) bool {
	claims, have := t.want[k], t.have[k]
	if len(claims) == 0 {
		return have.IsZero()
	}
	return same(claims[0].entry, have)
}

// Sent says that Changes, or a part of them, are on their way from now on.
func (t *Tracker) Sent() {
	clear(t.disturbed)
	if !t.known {
		return
	}
	for k := range t.dirty {
		if t.asWanted(k) {
			delete(t.dirty, k)
			delete(t.left, k)
		}
	}
}

// Done says that changes were applied that were sent last.
func (t *Tracker) Done(changes []Change) {
	for _, c := range changes {
		if t.disturbed[c.Key] {
			t.unsure = true
			continue
		}
		t.set(c.Key, c.Entry)
		// Wanted differently meanwhile: it stays dirty.
		claims := t.want[c.Key]
		if len(claims) == 0 && c.Entry.IsZero() || len(claims) > 0 && claims[0].entry == c.Entry {
			delete(t.dirty, c.Key)
			delete(t.left, c.Key)
		}
	}
}

// Pending says whether something that an owner wants is not there yet.
func (t *Tracker) Pending(owner world.Object) bool {
	if !t.known {
		return true
	}
	return slices.ContainsFunc(t.owned[owner], func(k of.Key) bool { return t.dirty[k] && !same(t.want[k][0].entry, t.have[k]) })
}

// Stale counts the flows that are there and were never wanted.
func (t *Tracker) Stale() int { return len(t.stale) }

// HasStale says whether there is such a flow that was never wanted.
func (t *Tracker) HasStale(which func(of.Entry) bool) bool {
	for k := range t.stale {
		if which(t.have[k]) {
			return true
		}
	}
	return false
}

// Tables returns the tables that have wanted flows.
func (t *Tracker) Tables() map[uint8]bool {
	tables := map[uint8]bool{}
	for k := range t.want {
		tables[k.Table()] = true
	}
	return tables
}

// Sweep releases the stale flows that ours says are an agent's. The others are somebody's own and stay.
func (t *Tracker) Sweep(ours func(of.Entry) bool) (swept int) {
	for k := range t.stale {
		delete(t.stale, k)
		if len(t.want[k]) == 0 && ours(t.have[k]) {
			t.dirty[k] = true
			swept++
		}
	}
	return swept
}

// Release has stale flows go at once, without waiting for Sweep.
func (t *Tracker) Release(which func(of.Entry) bool) (released int) {
	for k := range t.stale {
		if which(t.have[k]) {
			delete(t.stale, k)
			t.dirty[k] = true
			released++
		}
	}
	return released
}

// Owner tells who wants a flow, and why.
func (t *Tracker) Owner(k of.Key) (owner world.Object, reason string, ok bool) {
	claims := t.want[k]
	if len(claims) == 0 {
		return nil, "", false
	}
	return claims[0].owner, claims[0].reason, true
}
