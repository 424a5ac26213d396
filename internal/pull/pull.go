// SPDX-License-Identifier: Apache-2.0

// Package pull is the one ledger of what neutron-server has to be asked: ports, security groups, their members, address groups,
// tunnel endpoints and the objects of extensions.
//
// In: what is needed, and the outcome of each call. Out: the calls to make now, as batches, and when to come back. What was
// asked, what is on its way and when to ask again is known here and nowhere else. The ledger starts nothing, reads no clock and
// does not look into answers: their owner says which keys an answer was good for.
package pull

import (
	"cmp"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// Owner is who needs something.
type Owner int

// The owners. Extension number n is Extensions+n; all extensions share one rule.
const (
	Ports   Owner = iota // details of ports that are plugged in here
	Filters              // security groups, address groups, and as kind Port the members of security groups
	Tunnels              // endpoints, by tunnel type
	Extensions
)

// rule is the owner whose rule counts.
func (o Owner) rule() Owner { return min(o, Extensions) }

// Key names something at the server.
type Key struct {
	Owner Owner
	Kind  neutron.Kind
	ID    string
	By    string // the field that has the ID; "": the object's id
}

func (k Key) compare(l Key) int {
	return cmp.Or(cmp.Compare(k.Owner, l.Owner), cmp.Compare(k.Kind, l.Kind), cmp.Compare(k.By, l.By), cmp.Compare(k.ID, l.ID))
}

// Need is a key that has to be asked about.
type Need struct {
	Key
	// Known: something is in force for it. It is checked, which is paced, and never holds up what is not known.
	Known bool
	// Since: the answer to a question from before it does not count. The key is asked about at once even if one is on its way.
	Since uint64
}

// Batch is one call to the server.
type Batch struct {
	ID    uint64
	Owner Owner
	Kind  neutron.Kind
	By    string // see Key
	IDs   []string
	Asked uint64 // when, as the caller of Next counts
	Check bool   // of what is known
}

// key returns the key of one of its IDs.
func (b *Batch) key(id string) Key { return Key{b.Owner, b.Kind, id, b.By} }

// Result is the outcome of a call.
type Result struct {
	Answered []string // IDs for which the answer was good
	Failed   bool     // the call had no answer, or none that could be read
	Refused  bool     // the server failed because of what was asked
}

// Rule is how the keys of an owner are asked about.
type Rule struct {
	Most  int                  // keys in a call
	Kinds map[neutron.Kind]int // the same for some kinds
	First int                  // keys in the first call of many; every answer doubles it. 0: Most
	Calls int                  // calls at a time, checks apart. 0: any number
	// Burst: Next starts all calls at once whenever fewer than Calls are on their way.
	Burst bool
	// Unpaused: they go out also while calls pause.
	Unpaused bool
}

func (r *Rule) most(kind neutron.Kind) int { return cmp.Or(r.Kinds[kind], r.Most) }

// Ledger holds what has to be asked. It has one owner; nothing in it is safe for concurrent use.
type Ledger struct {
	rules    map[Owner]Rule
	tokens   *pace.Bucket // for checks
	keys     map[Key]*entry
	retries  pace.Backoff[Key]
	sizes    map[Owner]int    // keys in the next call, for owners with First
	calls    map[uint64]Batch // on their way
	last     uint64           // id of a call
	deadline time.Time
}

type entry struct {
	known bool
	call  uint64 // that asks about it; 0: none
	most  int    // keys to ask about together with it, after a refusal; 0: no limit
}

// New returns an empty ledger. Every check takes a token.
func New(rules map[Owner]Rule, tokens *pace.Bucket) *Ledger {
	return &Ledger{
		rules: rules, tokens: tokens, keys: map[Key]*entry{}, retries: pace.Backoff[Key]{}, sizes: map[Owner]int{}, calls: map[uint64]Batch{},
	}
}

// Set replaces what is needed. What is not needed any more is forgotten; the answer to a question about it does not count if it is
// needed again later.
func (l *Ledger) Set(needs []Need) {
	wanted := make(map[Key]bool, len(needs))
	for _, n := range needs {
		wanted[n.Key] = true
		e := l.keys[n.Key]
		if e == nil {
			e = &entry{}
			l.keys[n.Key] = e
		}
		if e.known = n.Known; e.call != 0 && l.calls[e.call].Asked < n.Since {
			e.call = 0
		}
	}
	for k := range l.keys {
		if !wanted[k] {
			delete(l.keys, k)
			l.retries.Forget(k)
		}
	}
}

// Abandon forgets all calls that are on their way. What they ask about is due again.
func (l *Ledger) Abandon() {
	clear(l.calls)
	for _, e := range l.keys {
		e.call = 0
	}
}

// Supersede says that the answers to calls that are on their way do not count for what an owner needs. It is due again.
func (l *Ledger) Supersede(o Owner) {
	for k, e := range l.keys {
		if k.Owner == o {
			e.call = 0
		}
	}
}

// RetryNow ends all pauses: what calls failed for is over.
func (l *Ledger) RetryNow(now time.Time) { l.retries.RetryNow(now) }

// Next takes the calls to make now. What is not known goes first, few at first and then more. Asked is the moment, for the owners to
// tell an answer from what they heard later. While paused, only keys whose rule says so are asked about.
func (l *Ledger) Next(asked uint64, now time.Time, paused bool) []Batch {
	l.deadline = time.Time{}
	type todo struct {
		fresh, known []Key
		waiting      int
	}
	var due [Extensions + 1]todo
	for k, e := range l.keys {
		d := &due[k.Owner.rule()]
		switch {
		case e.call != 0:
		case l.retries.Waiting(k, now):
			d.waiting++
			l.wake(l.retries[k].At)
		case e.known:
			d.known = append(d.known, k)
		default:
			d.fresh = append(d.fresh, k)
		}
	}
	var out []Batch
	for o := range Extensions + 1 {
		d := &due[o]
		if paused && !l.rules[o].Unpaused {
			continue
		}
		if len(d.fresh)+d.waiting == 0 && l.onWay(o, false) == 0 {
			delete(l.sizes, o)
		}
		out = append(out, l.ask(o, d.fresh, asked)...)
		out = append(out, l.check(o, d.known, asked, now)...)
	}
	return out
}

// ask starts calls about keys that are not known. The turn of the others comes with the next answer.
func (l *Ledger) ask(o Owner, keys []Key, asked uint64) (out []Batch) {
	r := l.rules[o]
	free := r.Calls - l.onWay(o, false)
	if len(keys) == 0 || r.Calls > 0 && free <= 0 {
		return nil
	}
	for _, question := range l.chunks(keys, l.size(o)) {
		if r.Calls == 0 || r.Burst || len(out) < free {
			out = append(out, l.start(question, asked, false))
		}
	}
	return out
}

// check starts a call about keys that are known: one at a time.
func (l *Ledger) check(o Owner, keys []Key, asked uint64, now time.Time) []Batch {
	if len(keys) == 0 || l.onWay(o, true) > 0 {
		return nil
	}
	if !l.tokens.Take(now) {
		l.wake(l.tokens.Next())
		return nil
	}
	return []Batch{l.start(l.chunks(keys, l.rules[o].Most)[0], asked, true)}
}

func (l *Ledger) start(keys []Key, asked uint64, check bool) Batch {
	l.last++
	b := Batch{ID: l.last, Owner: keys[0].Owner, Kind: keys[0].Kind, By: keys[0].By, Asked: asked, Check: check}
	for _, k := range keys {
		b.IDs = append(b.IDs, k.ID)
		l.keys[k].call = b.ID
	}
	l.calls[b.ID] = b
	return b
}

// size is how many keys the next call of an owner may have.
func (l *Ledger) size(o Owner) int {
	r := l.rules[o]
	return cmp.Or(l.sizes[o], r.First, r.Most)
}

// chunks puts keys together into questions: of one owner and kind, at most so many, and fewer where a question was refused.
func (l *Ledger) chunks(keys []Key, most int) [][]Key {
	type lot struct {
		owner Owner
		kind  neutron.Kind
		by    string
		size  int
	}
	lots := map[lot][]Key{}
	for _, k := range keys {
		r := l.rules[k.Owner.rule()]
		size := min(cmp.Or(l.keys[k].most, r.most(k.Kind)), r.most(k.Kind), most)
		at := lot{k.Owner, k.Kind, k.By, size}
		lots[at] = append(lots[at], k)
	}
	var out [][]Key
	for at, list := range lots {
		slices.SortFunc(list, Key.compare)
		out = slices.AppendSeq(out, slices.Chunk(list, at.size))
	}
	slices.SortFunc(out, func(a, b []Key) int { return a[0].compare(b[0]) })
	return out
}

// Counts says whether the answer to a call counts for all that it asks about.
func (l *Ledger) Counts(b Batch) bool {
	return !slices.ContainsFunc(b.IDs, func(id string) bool {
		e := l.keys[b.key(id)]
		return e == nil || e.call != b.ID
	})
}

// Done takes the outcome of a call. What it was good for is done. After a refusal of several keys each half is asked about at once:
// one of them may be what the server fails for. Everything else is asked about after a pause, if it is still needed then.
func (l *Ledger) Done(b Batch, r Result, now time.Time) {
	if _, ok := l.calls[b.ID]; !ok {
		return // abandoned
	}
	delete(l.calls, b.ID)
	l.grow(b.Owner.rule(), r)
	good := make(map[string]bool, len(r.Answered))
	for _, id := range r.Answered {
		good[id] = true
	}
	for _, id := range b.IDs {
		k := b.key(id)
		e := l.keys[k]
		switch {
		case e == nil || e.call != b.ID:
			continue
		case good[id]:
			l.retries.Forget(k)
			e.most = 0
		case r.Refused && len(b.IDs) > 1:
			e.most = (len(b.IDs) + 1) / 2
		default:
			l.retries.FailCall(k, now, r.Refused || !r.Failed)
		}
		e.call = 0
	}
}

// grow works out how many keys the next call may have. One call is enough to find out when a server that is away is back.
func (l *Ledger) grow(o Owner, r Result) {
	rule := l.rules[o]
	switch {
	case r.Refused:
	case r.Failed:
		l.sizes[o] = rule.Most
	default:
		l.sizes[o] = min(2*l.size(o), rule.Most)
	}
}

// Stats is how much an owner waits for.
type Stats struct {
	Needed           int // keys
	Failing          int // of these, keys whose last call was no good
	Asking, Checking int // calls on their way
}

// Stats counts what an owner waits for; Extensions stands for all of them.
func (l *Ledger) Stats(o Owner) Stats {
	s := Stats{Asking: l.onWay(o, false), Checking: l.onWay(o, true)}
	for k := range l.keys {
		if k.Owner.rule() == o.rule() {
			s.Needed++
		}
	}
	for k := range l.retries {
		if k.Owner.rule() == o.rule() {
			s.Failing++
		}
	}
	return s
}

func (l *Ledger) onWay(o Owner, check bool) int {
	n := 0
	for _, b := range l.calls {
		if b.Owner.rule() == o.rule() && b.Check == check {
			n++
		}
	}
	return n
}

// InFlight counts the calls on their way, with and without checks.
func (l *Ledger) InFlight() int { return len(l.calls) }

func (l *Ledger) wake(at time.Time) {
	if l.deadline.IsZero() || at.Before(l.deadline) {
		l.deadline = at
	}
}

// Deadline returns when Next has to be called again, unless something happens before; zero: no time is known.
func (l *Ledger) Deadline() time.Time { return l.deadline }
