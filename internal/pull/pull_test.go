// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pace"
)

// book is a ledger with what is needed of it, and the time.
type book struct {
	*Ledger
	t      *testing.T
	tokens pace.Bucket
	needs  []Need
	asked  uint64
	now    time.Time
	paused bool
}

func newBook(t *testing.T) *book {
	b := &book{t: t, now: time.Unix(1000, 0)}
	b.Ledger = New(map[Owner]Rule{
		Ports:      {Most: 100, First: 5, Calls: 2},
		Filters:    {Most: 100, Kinds: map[neutron.Kind]int{neutron.KindPort: 10}, Calls: 2, Burst: true},
		Tunnels:    {Most: 1, Unpaused: true},
		Extensions: {Most: 100, Calls: 2},
	}, &b.tokens)
	return b
}

// need adds count keys of an owner.
func (b *book) need(o Owner, kind neutron.Kind, prefix string, count int, known bool) {
	for i := range count {
		b.needs = append(b.needs, Need{Key: Key{Owner: o, Kind: kind, ID: fmt.Sprintf("%s%03d", prefix, i)}, Known: known, Since: b.asked})
	}
}

func (b *book) drop(o Owner, ids ...string) {
	b.needs = slices.DeleteFunc(b.needs, func(n Need) bool { return n.Owner == o && (len(ids) == 0 || slices.Contains(ids, n.ID)) })
}

func (b *book) next() []Batch {
	b.Set(b.needs)
	return b.Next(b.asked, b.now, b.paused)
}

// good answers a call: what it asked for is needed no more.
func (b *book) good(c Batch) {
	b.Done(c, Result{Answered: c.IDs}, b.now)
	b.needs = slices.DeleteFunc(b.needs, func(n Need) bool {
		return n.Owner == c.Owner && n.Kind == c.Kind && slices.Contains(c.IDs, n.ID)
	})
}

// expect compares calls: each as owner, kind, first id and how many, with a question mark if it is a check.
func (b *book) expect(calls []Batch, want ...string) []Batch {
	b.t.Helper()
	var got []string
	for _, c := range calls {
		mark := ""
		if c.Check {
			mark = "?"
		}
		got = append(got, strings.TrimSpace(fmt.Sprint(c.Owner, string(c.Kind), " ", c.IDs[0], " ", len(c.IDs), mark)))
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("calls %q, want %q", got, want)
	}
	return calls
}

// Few at first, then twice as many with every answer; two calls at a time; small again when all is known.
func TestCallsGrow(t *testing.T) {
	b := newBook(t)
	b.need(Ports, neutron.KindPort, "p", 300, false)
	first := b.expect(b.next(), "0Port p000 5", "0Port p005 5")
	b.expect(b.next())
	b.good(first[0])
	second := b.expect(b.next(), "0Port p010 10")
	b.good(first[1])
	third := b.expect(b.next(), "0Port p020 20")
	b.good(second[0])
	fourth := b.expect(b.next(), "0Port p040 40")
	b.good(third[0])
	b.expect(b.next(), "0Port p080 80")
	b.good(fourth[0])
	b.expect(b.next(), "0Port p160 100")
	if s := b.Stats(Ports); s != (Stats{Needed: 220, Asking: 2}) || b.InFlight() != 2 {
		t.Errorf("%+v, %d calls", s, b.InFlight())
	}
	b.drop(Ports)
	for b.InFlight() > 0 {
		for _, c := range b.calls {
			b.good(c)
		}
	}
	b.next()
	b.need(Ports, neutron.KindPort, "q", 10, false)
	b.expect(b.next(), "0Port q000 5", "0Port q005 5")
}

// Each owner has calls of its own, and each kind its size. Members go out all at once unless many calls are on their way.
func TestOwnersDoNotWaitForEachOther(t *testing.T) {
	b := newBook(t)
	b.need(Extensions+1, neutron.KindTrunk, "t", 1, false)
	b.need(Extensions, neutron.KindQosPolicy, "q", 150, false)
	b.need(Tunnels, "", "vxlan", 1, false)
	b.need(Tunnels, "", "gre", 1, false)
	b.need(Filters, neutron.KindPort, "m", 35, false)
	b.need(Filters, neutron.KindSecurityGroup, "g", 120, false)
	b.need(Filters, neutron.KindAddressGroup, "a", 2, false)
	b.need(Ports, neutron.KindPort, "m", 1, false)
	calls := b.expect(b.next(), "0Port m000 1", "1AddressGroup a000 2", "1Port m000 10", "1Port m010 10", "1Port m020 10", "1Port m030 5",
		"1SecurityGroup g000 100", "1SecurityGroup g100 20", "2 gre000 1", "2 vxlan000 1", "3QosPolicy q000 100", "3QosPolicy q100 50")
	b.need(Filters, neutron.KindSecurityGroup, "h", 1, false)
	b.expect(b.next())
	for _, c := range calls[1:6] {
		b.good(c)
	}
	b.expect(b.next())
	b.good(calls[6])
	b.expect(b.next(), "1SecurityGroup h000 1")
	b.good(calls[10])
	b.expect(b.next(), "4Trunk t000 1")
	if s := b.Stats(Extensions); s.Needed != 51 || s.Asking != 2 {
		t.Errorf("%+v", s)
	}
}

// While calls pause only tunnels are asked about.
func TestPause(t *testing.T) {
	b := newBook(t)
	b.paused = true
	for o := range Extensions + 1 {
		b.need(o, neutron.KindPort, "x", 1, false)
		b.need(o, neutron.KindPort, "y", 1, true)
	}
	b.drop(Tunnels, "y000")
	b.expect(b.next(), "2Port x000 1")
	b.paused = false
	b.expect(b.next(), "0Port x000 1", "0Port y000 1?", "1Port x000 1", "1Port y000 1?", "3Port x000 1", "3Port y000 1?")
}

// Checks: one at a time, each for a token, and never in the way of what is not known.
func TestChecksArePaced(t *testing.T) {
	b := newBook(t)
	b.need(Ports, neutron.KindPort, "p", 2000, true)
	for range pace.BucketSize {
		calls := b.next()
		if len(calls) != 1 || !calls[0].Check || len(calls[0].IDs) != 100 {
			t.Fatalf("%v", calls)
		}
		b.expect(b.next())
		b.good(calls[0])
	}
	b.need(Ports, neutron.KindPort, "new", 1, false)
	b.expect(b.next(), "0Port new000 1")
	if got := b.Deadline().Sub(b.now); got != pace.BucketFill {
		t.Errorf("comes back after %s", got)
	}
	b.now = b.Deadline()
	if calls := b.next(); len(calls) != 1 || !calls[0].Check {
		t.Errorf("%v", calls)
	}
	if s := b.Stats(Ports); s.Asking != 1 || s.Checking != 1 || !b.Deadline().IsZero() {
		t.Errorf("%+v, comes back at %v", s, b.Deadline())
	}
}

// A call that is refused is made again by halves, at once, until the key is found for which the server fails. That one waits,
// longer and longer; the others are answered.
func TestHalvesAfterARefusal(t *testing.T) {
	b := newBook(t)
	b.need(Filters, neutron.KindSecurityGroup, "g", 7, false)
	b.need(Ports, neutron.KindPort, "p", 1, false)
	n := 0
	for calls := b.next(); len(calls) > 0; calls = b.next() {
		for _, c := range calls {
			if n++; slices.Contains(c.IDs, "g003") {
				b.Done(c, Result{Failed: true, Refused: true}, b.now)
			} else {
				b.good(c)
			}
		}
	}
	if s := b.Stats(Filters); s != (Stats{Needed: 1, Failing: 1}) || n > 8 {
		t.Errorf("%+v after %d calls", s, n)
	}
	for range 12 {
		if b.now = b.Deadline(); b.now.IsZero() {
			t.Fatal("is not asked about again")
		}
		b.Done(b.expect(b.next(), "1SecurityGroup g003 1")[0], Result{Failed: true, Refused: true}, b.now)
		b.expect(b.next())
	}
	if pause := b.Deadline().Sub(b.now); pause <= pace.LongestCall {
		t.Errorf("refused again and again, it waits %s", pause)
	}
	b.RetryNow(b.now)
	b.good(b.expect(b.next(), "1SecurityGroup g003 1")[0])
	b.need(Filters, neutron.KindSecurityGroup, "g", 7, false)
	b.expect(b.next(), "1SecurityGroup g000 7")
}

// A server that does not answer is asked often, with one call for all. What it does not know is asked about more and more rarely.
func TestPausesAfterFailures(t *testing.T) {
	b := newBook(t)
	b.need(Ports, neutron.KindPort, "p", 80, false)
	fail := func(most time.Duration) {
		t.Helper()
		for calls := b.next(); len(calls) > 0; calls = b.next() {
			for _, c := range calls {
				b.Done(c, Result{Failed: true}, b.now)
			}
		}
		if pause := b.Deadline().Sub(b.now); pause > most {
			t.Errorf("comes back after %s", pause)
		}
	}
	fail(pace.Shortest)
	for range 12 {
		b.now = b.now.Add(pace.LongestCall)
		fail(pace.LongestCall)
	}
	b.now = b.now.Add(pace.LongestCall)
	calls := b.expect(b.next(), "0Port p000 80")
	// Part of the answer cannot be read.
	b.Done(calls[0], Result{Failed: true, Answered: calls[0].IDs[1:]}, b.now)
	b.drop(Ports, calls[0].IDs[1:]...)
	b.expect(b.next())
	b.now = b.Deadline()
	b.expect(b.next(), "0Port p000 1")
	b = newBook(t)
	b.need(Filters, neutron.KindSecurityGroup, "g", 1, false)
	for range 12 {
		b.Done(b.expect(b.next(), "1SecurityGroup g000 1")[0], Result{}, b.now)
		if b.expect(b.next()); b.Deadline().IsZero() {
			t.Fatal("is not asked about again")
		}
		b.now = b.Deadline()
	}
	if b.Stats(Filters).Failing != 1 || b.retries[b.needs[0].Key].At.Sub(b.now) > pace.Longest {
		t.Errorf("%v", b.retries)
	}
	b.drop(Filters)
	if b.next(); b.Stats(Filters) != (Stats{}) {
		t.Errorf("what is not needed is not forgotten: %+v", b.Stats(Filters))
	}
}

// What is needed anew is asked about although a question from before is on its way, whose answer does not count for it.
func TestAnswersThatDoNotCount(t *testing.T) {
	for name, anew := range map[string]func(b *book){
		"since":      func(b *book) { b.asked++; b.needs[0].Since = b.asked },
		"dropped":    func(b *book) { n := b.needs; b.needs = n[1:]; b.next(); b.needs = n },
		"abandoned":  func(b *book) { b.Abandon() },
		"superseded": func(b *book) { b.Supersede(Filters); b.expect(b.next()); b.Supersede(Ports) },
	} {
		b := newBook(t)
		b.need(Ports, neutron.KindPort, "p", 2, false)
		old := b.expect(b.next(), "0Port p000 2")[0]
		if !b.Counts(old) {
			t.Errorf("%s: does not count from the beginning", name)
		}
		b.next()
		anew(b)
		again := b.next()
		if len(again) != 1 || again[0].IDs[0] != "p000" || again[0].Asked != b.asked || b.Counts(old) {
			t.Errorf("%s: asked again %v", name, again)
			continue
		}
		b.Done(old, Result{Answered: old.IDs}, b.now)
		if !b.Counts(again[0]) || len(b.next()) > 1 {
			t.Errorf("%s: the old answer ends the new question", name)
		}
		b.good(again[0])
		b.drop(Ports)
		for _, c := range b.calls {
			b.good(c)
		}
		if b.next(); b.InFlight() != 0 || b.Stats(Ports) != (Stats{}) {
			t.Errorf("%s: %+v", name, b.Stats(Ports))
		}
	}
}

// The same needs and outcomes give the same calls, whatever the order in which maps are read.
func TestCallsAreDeterministic(t *testing.T) {
	play := func() string {
		b := newBook(t)
		for o := range Extensions + 2 {
			for _, kind := range []neutron.Kind{neutron.KindPort, neutron.KindSecurityGroup} {
				b.need(o, kind, "k", 30, false)
				b.need(o, kind, "c", 30, true)
			}
		}
		var out []string
		for n := range 60 {
			for i, c := range b.next() {
				out = append(out, fmt.Sprint(c))
				if (i+n)%4 == 0 {
					b.Done(c, Result{Failed: true, Refused: n%3 == 0}, b.now)
				} else {
					b.good(c)
				}
			}
			b.now = b.now.Add(50 * time.Millisecond)
		}
		return strings.Join(out, "\n")
	}
	want := play()
	for range 10 {
		if got := play(); got != want {
			t.Fatalf("first\n%s\nthen\n%s", want, got)
		}
	}
}
