// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// host is a reporter, what is true of its ports, and a clock.
type host struct {
	*Reporter
	t      *testing.T
	checks pace.Bucket
	ports  map[string]Claim
	now    time.Time
	narrow bool // the window stays closed: one batch at a time, of all that is due
}

func newHost(t *testing.T, perReport int) *host {
	t.Helper()
	h := &host{t: t, ports: map[string]Claim{}, now: time.Unix(1000, 0), narrow: true}
	h.Reporter = New(perReport, &h.checks)
	return h
}

// set changes what is true of ports.
func (h *host) set(claims ...Claim) {
	for _, c := range claims {
		h.ports[c.Port] = c
		h.Changed(c.Port)
	}
}

// gone unplugs a port.
func (h *host) gone(port string) { h.set(Claim{Port: port, Status: Down, Applied: true}) }

func (h *host) next() []Batch {
	claims := func(ids []string) (out []Claim) {
		for _, id := range ids {
			out = append(out, h.ports[id])
		}
		return out
	}
	if h.narrow {
		h.window = pace.Window{}
		h.window.Failed()
	}
	return h.Next(claims(h.Due()), claims(h.Candidates()), h.now)
}

// want demands that the next batches are these, as text.
func (h *host) want(texts ...string) []Batch {
	h.t.Helper()
	batches := h.next()
	var got []string
	for i := range batches {
		got = append(got, text(&batches[i]))
	}
	if !slices.Equal(got, texts) {
		h.t.Fatalf("batches %q, want %q", got, texts)
	}
	return batches
}

func text(b *Batch) string {
	switch {
	case b.AdminDown != "":
		return "disabled " + b.AdminDown
	case b.Refresh:
		return fmt.Sprint("refresh ", b.Update.Up)
	}
	s := fmt.Sprint("up ", b.Update.Up, " down ", b.Update.Down)
	if b.Update.RefreshTunnels {
		s += " with entries"
	}
	return s
}

// done takes that the server has confirmed batches but for some ports, and demands that all others are returned.
func (h *host) done(batches []Batch, refused ...string) {
	h.t.Helper()
	for i := range batches {
		confirmed, counts := h.Done(batches[i], Result{DeviceResult: neutron.DeviceResult{FailedUp: refused}}, h.now)
		want := slices.DeleteFunc(batches[i].Ports(), func(id string) bool { return slices.Contains(refused, id) })
		var got []string
		for _, c := range confirmed {
			got = append(got, c.Port)
		}
		if !counts || !slices.Equal(got, want) {
			h.t.Fatalf("confirmed %q (%v), want %q", got, counts, want)
		}
	}
}

// up returns the claim that a port is up on an interface.
func up(port string, vif ovsdb.UUID) Claim {
	return Claim{Port: port, Status: Up, Interface: vif, Applied: true}
}

// tunnelled returns the claim that a port is up on a tunnelled network.
func tunnelled(port, network string) Claim {
	c := up(port, "i")
	c.Segment, c.Tunnelled = world.SegmentKey{Network: network}, true
	return c
}

func TestPortsAreReportedOnce(t *testing.T) {
	h := newHost(t, 10)
	h.Synced()
	waiting := up("b", "ib")
	waiting.Applied = false
	h.set(up("a", "ia"), waiting, Claim{Port: "c", Applied: true})
	h.gone("never-reported")
	h.done(h.want("up [a] down []"))
	h.want()
	if got := h.Stats(); got != (Stats{Due: 1}) || h.Confirmed("a") != Up || h.Confirmed("b") != Unknown {
		t.Errorf("%+v, a is %d, b is %d", got, h.Confirmed("a"), h.Confirmed("b"))
	}
	h.set(up("a", "ia"), up("b", "ib")) // compiled again: nothing new of a
	h.done(h.want("up [b] down []"))
	h.gone("a")
	h.done(h.want("up [] down [a]"))
	if h.want(); h.Stats() != (Stats{}) || h.Confirmed("a") != Unknown {
		t.Errorf("%+v, a is %d", h.Stats(), h.Confirmed("a"))
	}
	// Moved to a bridge that is not the agent's: down, once; and then gone, of which the server knows enough.
	h.set(Claim{Port: "b", Status: Down, Interface: "elsewhere", Applied: true})
	h.done(h.want("up [] down [b]"))
	h.set(Claim{Port: "b", Status: Down, Interface: "elsewhere", Applied: true})
	h.want()
	h.gone("b")
	if h.want(); h.Stats() != (Stats{}) || h.Confirmed("b") != Unknown {
		t.Errorf("%+v, b is %d", h.Stats(), h.Confirmed("b"))
	}
}

// A port that was plugged in anew goes down before it comes up: the server sees both.
func TestReplug(t *testing.T) {
	h := newHost(t, 10)
	h.Synced()
	h.set(up("a", "first"))
	h.done(h.want("up [a] down []"))
	h.set(up("a", "second"))
	h.done(h.want("up [] down [a]"))
	if h.Confirmed("a") != Down {
		t.Errorf("a is %d", h.Confirmed("a"))
	}
	h.done(h.want("up [a] down []"))
	h.want()
}

// A port that an earlier run reported, and that goes before this one has, is reported down: a trunk lost it while no agent ran. Of a port that the
// server does not have as ACTIVE nothing is said. The trunk's sub-port c waited for its trunk all the time.
func TestAPortOfAnEarlierRunGoes(t *testing.T) {
	h := newHost(t, 10)
	h.set(Claim{Port: "a", Status: Up, Interface: "i", ServerStatus: "ACTIVE"}, Claim{Port: "b", Status: Up, Interface: "j", ServerStatus: "DOWN"},
		Claim{Port: "c", Status: Unknown, Applied: true, ServerStatus: "ACTIVE"})
	h.want()
	h.gone("a")
	h.gone("b")
	h.gone("c")
	h.done(h.want("up [] down [a c]"))
	h.gone("a")
	h.want()

	// It goes before the server has said anything of it: its row tells. Once the server has, that counts.
	h = newHost(t, 10)
	h.set(Claim{Port: "a", Marked: true}, Claim{Port: "b"}, Claim{Port: "c", Marked: true})
	h.want()
	h.set(Claim{Port: "c", Marked: true, ServerStatus: "DOWN"})
	h.want()
	h.gone("a")
	h.gone("b")
	h.gone("c")
	h.done(h.want("up [] down [a]"))
	h.want()
}

// The server refuses the first report of a port after a restart, and everything else is in sync. The next one asks for forwarding entries: those that
// are known are of the earlier run, and nobody keeps them.
func TestEntriesAfterARefusedReport(t *testing.T) {
	h := newHost(t, 10)
	h.set(Claim{Port: "a", Status: Up, Interface: "i", Applied: true, ServerStatus: "ACTIVE", Tunnelled: true, Segment: world.SegmentKey{Network: "n"}})
	first := h.next()
	if len(first) != 1 || !first[0].Update.RefreshTunnels {
		t.Fatalf("%+v", first)
	}
	h.done(first, "a")
	h.Synced()
	h.now = h.now.Add(time.Minute)
	again := h.next()
	if len(again) != 1 || !again[0].Update.RefreshTunnels {
		t.Fatalf("asks for no entries: %+v", again)
	}
	h.done(again)
}

// A disabled port has a call of its own, which waits for the others.
func TestDisabledPorts(t *testing.T) {
	h := newHost(t, 10)
	h.Synced()
	off := func(id string) Claim {
		return Claim{Port: id, Status: AdminDown, Interface: "i", Applied: true}
	}
	h.set(off("a"), off("b"), up("c", "i"))
	h.done(h.want("up [c] down []"))
	h.done(h.want("disabled a"))
	h.done(h.want("disabled b"))
	h.want()
	h.set(up("a", "i"))
	b := h.want("up [a] down []")
	if len(b[0].Repeated) > 0 {
		t.Errorf("reported up before: %v", b[0].Repeated)
	}
}

// A port that the server refuses is reported again after a pause, and no other port waits for it.
func TestARefusedPort(t *testing.T) {
	h := newHost(t, 10)
	h.Synced()
	h.set(up("a", "i"), up("b", "i"))
	h.done(h.want("up [a b] down []"), "b")
	h.set(up("c", "i"))
	h.done(h.want("up [c] down []"))
	h.want()
	at := h.Deadline()
	if pause := at.Sub(h.now); pause <= 0 || pause > pace.Shortest {
		t.Fatalf("b is reported again after %s", pause)
	}
	if h.Confirmed("b") != Unknown || h.Stats().Due != 1 {
		t.Errorf("b is %d, %+v", h.Confirmed("b"), h.Stats())
	}
	h.now = at
	h.done(h.want("up [b] down []"))
	if h.want(); !h.Deadline().IsZero() {
		t.Errorf("wakes at %v for nothing", h.Deadline())
	}
	h.set(up("d", "i"))
	h.done(h.want("up [d] down []"), "d")
	h.RetryNow(h.now)
	h.done(h.want("up [d] down []"))
}

// A success ends the pauses, and so does the end of the port.
func TestPausesEnd(t *testing.T) {
	h := newHost(t, 10)
	pause := func() time.Duration {
		h.t.Helper()
		b := h.next()[0]
		h.Done(b, Result{DeviceResult: neutron.DeviceResult{FailedUp: b.Update.Up, FailedDown: b.Update.Down}}, h.now)
		h.want()
		before := h.now
		h.now = h.Deadline()
		return h.now.Sub(before)
	}
	h.set(up("a", "i"))
	for range 5 {
		pause()
	}
	if got := pause(); got < 8*pace.Shortest {
		t.Errorf("a pause of %s after six failures", got)
	}
	h.gone("a")
	h.done(h.want("up [] down [a]"))
	h.set(up("a", "j"))
	if got := pause(); got > pace.Shortest {
		t.Errorf("plugged in again: a pause of %s", got)
	}
	pause()
	h.done(h.want("up [a] down [] with entries"))
	h.gone("a")
	if got := pause(); got > pace.Shortest {
		t.Errorf("after a success: a pause of %s", got)
	}
	h.done(h.want("up [] down [a]"))
}

// The pauses grow longer for what the server refuses than for a server that does not answer.
func TestPausesAfterErrors(t *testing.T) {
	for result, longest := range map[*Result]time.Duration{
		{Failed: true}:                pace.LongestCall,
		{Failed: true, Refused: true}: pace.Longest,
	} {
		h := newHost(t, 10)
		h.set(up("a", "i"))
		var pause time.Duration
		for range 20 {
			confirmed, counts := h.Done(h.next()[0], *result, h.now)
			if len(confirmed) > 0 || !counts {
				t.Fatalf("%+v: confirmed %v, %v", result, confirmed, counts)
			}
			h.want()
			pause = h.Deadline().Sub(h.now)
			h.now = h.Deadline()
		}
		if pause > longest || pause < longest/2 {
			t.Errorf("%+v: a pause of %s at last, want %s at most", result, pause, longest)
		}
	}
}

// A network that goes and comes back while the report of its port is on its way has lost the entries that the server sent for it: it asks again.
func TestANetworkThatIsBackAsksForItsEntries(t *testing.T) {
	n := world.SegmentKey{Network: "n"}
	h := newHost(t, 10)
	h.Synced()
	h.set(tunnelled("a", "n"))
	first := h.want("up [a] down []")
	h.Refresh(n)
	h.want() // no port of it is confirmed yet
	h.done(first)
	h.done(h.want("refresh [a]"))
	h.want()

	// The same if messages were lost while it was on its way.
	h = newHost(t, 10)
	h.set(tunnelled("a", "n"))
	first = h.want("up [a] down [] with entries")
	h.Resync(n)
	h.want()
	h.done(first)
	h.done(h.want("refresh [a]"))
	h.want()

	// The same if its port has gone meanwhile: the next one that comes up asks, and those after it do not.
	h = newHost(t, 10)
	h.set(tunnelled("a", "n"))
	h.done(h.want("up [a] down [] with entries"))
	h.Synced()
	h.gone("a")
	h.done(h.want("up [] down [a]"))
	h.Refresh(n)
	h.want()
	h.set(tunnelled("b", "n"))
	h.done(h.want("up [b] down [] with entries"))
	h.set(tunnelled("c", "n"))
	h.done(h.want("up [c] down []"))
	if h.Requested(n).IsZero() {
		t.Error("not requested")
	}
}

// A port is in one batch at a time: what becomes of it meanwhile is reported afterwards.
func TestAPortIsInOneBatch(t *testing.T) {
	h := newHost(t, 10)
	h.set(tunnelled("a", "n"))
	first := h.want("up [a] down [] with entries")
	h.gone("a")
	h.Refresh(world.SegmentKey{Network: "n"})
	h.want()
	if got := h.Stats(); got.InFlight != 1 || got.Due != 1 || h.Due() != nil {
		t.Errorf("%+v, due %v", got, h.Due())
	}
	h.done(first)
	h.done(h.want("up [] down [a]"))

	// A refresh does not keep changes of other ports waiting, and its port waits for it.
	h = newHost(t, 10)
	h.set(tunnelled("a", "n"))
	h.done(h.want("up [a] down [] with entries"))
	h.Refresh(world.SegmentKey{Network: "n"})
	refresh := h.want("refresh [a]")
	h.gone("a")
	h.set(tunnelled("b", "n"))
	other := h.want("up [b] down []")
	h.done(other)
	h.want()
	h.done(refresh)
	h.done(h.want("up [] down [a]"))

	// A port whose status is reported is not used for a refresh, nor is another one of its network.
	h = newHost(t, 10)
	h.set(tunnelled("a", "n"), tunnelled("b", "n"))
	h.done(h.want("up [a] down [] with entries"))
	h.done(h.want("up [b] down []"))
	down := tunnelled("a", "n")
	down.Revision, down.ServerStatus = 1, "DOWN"
	h.set(down)
	h.Refresh(world.SegmentKey{Network: "n"})
	h.want("up [a] down []")
}

// The outcome of an abandoned batch may be late. The server may have carried it out after the batch that followed: its ports are
// compared once more.
func TestALateOutcome(t *testing.T) {
	h := newHost(t, 10)
	h.Synced()
	h.set(up("a", "i"), up("b", "i"))
	first := h.want("up [a b] down []")
	h.Abandon()
	if got := h.Stats(); got != (Stats{Due: 2}) {
		t.Errorf("%+v", got)
	}
	h.gone("b")
	second := h.want("up [a] down [b]")
	if confirmed, counts := h.Done(first[0], Result{Failed: true}, h.now); counts || len(confirmed) > 0 {
		t.Errorf("a failure counts: %v", confirmed)
	}
	if got := h.Stats(); got.InFlight != 2 {
		t.Errorf("the outcome of one batch ends another: %+v", got)
	}
	h.done(second)
	h.want()
	h.done(first) // the same once more, as a success
	if got := h.Due(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("due %v", got)
	}
	h.done(h.want("up [] down [b]"))
	h.want()
}

// A batch whose outcome is lost has failed.
func TestALostOutcome(t *testing.T) {
	h := newHost(t, 10)
	h.set(up("a", "i"))
	b := h.want("up [a] down [] with entries")
	h.done(b)
	h.want()
	h.Fail(b[0], h.now) // it may have been taken half-way
	h.want()
	if h.Deadline().IsZero() || h.Stats() != (Stats{Due: 1}) {
		t.Errorf("wakes at %v, %+v", h.Deadline(), h.Stats())
	}
	h.now = h.Deadline()
	h.done(h.want("up [a] down [] with entries"))
	if h.want(); h.Stats() != (Stats{}) {
		t.Errorf("%+v", h.Stats())
	}
}

// The server may have taken a report that failed, or take it later. What it confirmed before may not be what it has: the status is
// reported again, also if it is the one of before.
func TestAFailedReportMayHaveBeenTaken(t *testing.T) {
	h := newHost(t, 10)
	h.Synced()
	off := Claim{Port: "a", Status: AdminDown, Interface: "i", Applied: true}
	h.set(off)
	h.done(h.want("disabled a"))
	h.set(up("a", "i"))
	h.done(h.want("up [a] down []"), "a")
	h.set(off)
	h.want()
	h.now = h.Deadline()
	h.done(h.want("disabled a"))
	h.want()
	h.set(up("b", "i"))
	h.Done(h.want("up [b] down []")[0], Result{Failed: true}, h.now)
	h.gone("b")
	h.want()
	h.now = h.Deadline()
	h.done(h.want("up [] down [b]"))
	if h.want(); h.Stats() != (Stats{}) || len(h.unsure) > 0 {
		t.Errorf("%+v, %v", h.Stats(), h.unsure)
	}
	h.set(up("c", "i"))
	h.want("up [c] down []")
	h.Abandon()
	h.gone("c")
	h.done(h.want("up [] down [c]"))
	h.want()
}

// A report names so many ports as up, and as many as down.
func TestBoundOfPorts(t *testing.T) {
	h := newHost(t, 2)
	h.Synced()
	for i := range 3 {
		h.set(up(fmt.Sprint("gone", i), "i"))
	}
	h.done(h.want("up [gone0 gone1] down []"))
	h.done(h.want("up [gone2] down []"))
	for i := range 3 {
		h.gone(fmt.Sprint("gone", i))
		h.set(tunnelled(fmt.Sprint("new", i), fmt.Sprint("n", i)))
	}
	h.done(h.want("up [new0 new1] down [gone0 gone1]"))
	h.done(h.want("up [new2] down [gone2]"))
	h.want()
	for i := range 3 {
		h.Refresh(world.SegmentKey{Network: fmt.Sprint("n", i)})
	}
	h.done(h.want("refresh [new0 new1]"))
	h.done(h.want("refresh [new2]"))
	h.want()
}

// One port of each network is reported again, and another one only if that failed.
func TestRefresh(t *testing.T) {
	h := newHost(t, 10)
	h.set(tunnelled("a", "n"), tunnelled("b", "n"), tunnelled("c", "m"), up("d", "i"))
	h.done(h.want("up [a c d] down [] with entries")) // one of n is enough
	h.done(h.want("up [b] down []"))
	h.Synced()
	n, m := world.SegmentKey{Network: "n"}, world.SegmentKey{Network: "m"}
	h.Refresh(n, m)
	h.done(h.want("refresh [a c]"), "c")
	if got := h.Stats().Networks; got != 1 {
		t.Fatalf("%d networks left", got)
	}
	h.want()
	if h.Deadline().IsZero() {
		t.Error("nothing wakes for c")
	}
	h.now = h.Deadline()
	h.done(h.want("refresh [c]"))
	if got := h.Stats().Networks; got != 0 {
		t.Errorf("%d networks left", got)
	}
	// A network without a port that is known as up is refreshed by the report of its first one.
	h.Refresh(world.SegmentKey{Network: "empty"})
	if h.want(); h.Stats().Networks != 0 {
		t.Error("a network waits for a port")
	}
	// Nor is a port used that was plugged in anew.
	again := tunnelled("c", "m")
	again.Interface = "other"
	h.ports["c"] = again
	h.Refresh(m)
	h.want()
	// Refreshes are paced.
	for h.checks.Take(h.now) {
	}
	h.Refresh(n)
	h.want()
	if !h.Deadline().Equal(h.checks.Next()) {
		t.Errorf("wakes at %v, the next token is there at %v", h.Deadline(), h.checks.Next())
	}
	h.now = h.Deadline()
	h.done(h.want("refresh [a]"))
}

// A network goes and comes again while a refresh of it is in flight: the entries of that one came when nobody wanted them, so there is another.
func TestRefreshAfterARefreshThatIsInFlight(t *testing.T) {
	h := newHost(t, 10)
	n := world.SegmentKey{Network: "n"}
	h.set(tunnelled("a", "n"))
	h.done(h.want("up [a] down [] with entries"))
	h.Synced()
	h.Refresh(n)
	first := h.want("refresh [a]")
	h.Refresh(n)
	h.done(first)
	h.done(h.want("refresh [a]"))
	if h.want(); h.Stats().Networks != 0 {
		t.Error("refreshes for ever")
	}
}

// A request from before messages may have been lost does not count.
func TestResync(t *testing.T) {
	h := newHost(t, 10)
	n := world.SegmentKey{Network: "n"}
	h.set(tunnelled("a", "n"))
	first := h.want("up [a] down [] with entries")
	h.Resync(n)
	h.done(first)
	if at := h.Requested(n); !at.IsZero() || h.Stats().Networks != 1 {
		t.Errorf("requested at %v, %+v", at, h.Stats())
	}
	h.now = h.now.Add(time.Second)
	h.done(h.want("refresh [a]"))
	asked := h.Requested(n)
	if !asked.Equal(h.now) || h.Stats().Networks != 0 {
		t.Errorf("requested at %v, %+v", asked, h.Stats())
	}
	h.now = h.now.Add(time.Second)
	h.set(tunnelled("b", "n"), up("c", "i"))
	h.done(h.want("up [b c] down [] with entries"))
	if later := h.Requested(n); !later.Equal(asked) {
		t.Errorf("first requested at %v, then at %v", asked, later)
	}
	if !h.Requested(world.SegmentKey{}).IsZero() {
		t.Error("entries of no network are requested")
	}
	if h.Resync(); !h.Requested(n).IsZero() {
		t.Error("a request from before messages were lost counts")
	}
	h.Refresh(n)
	h.done(h.want("refresh [a]"))
	h.ForgetNetworks(func(key world.SegmentKey) bool { return key != n })
	if h.Requested(n).IsZero() {
		t.Error("a network that is there was forgotten")
	}
	h.ForgetNetworks(func(key world.SegmentKey) bool { return key == n })
	if !h.Requested(n).IsZero() {
		t.Error("a network that is gone was not forgotten")
	}
}

// A port that the server has confirmed as up is reported again when the server has put it down since, or when it is on another
// tunnelled network.
func TestRepeatedReports(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Claim)
		again  bool
	}{
		"as before":               {func(*Claim) {}, false},
		"later, active":           {func(c *Claim) { c.Revision, c.ServerStatus = 6, "ACTIVE" }, false},
		"as known, down":          {func(c *Claim) { c.ServerStatus = "DOWN" }, false},
		"later, down":             {func(c *Claim) { c.Revision, c.ServerStatus = 6, "DOWN" }, true},
		"later, being built":      {func(c *Claim) { c.Revision, c.ServerStatus = 6, "BUILD" }, true},
		"another network":         {func(c *Claim) { c.Segment.Network = "m" }, true},
		"another network, no fdb": {func(c *Claim) { c.Segment.Network, c.Tunnelled = "m", false }, false},
	} {
		h := newHost(t, 1)
		h.Synced()
		before := tunnelled("a", "n")
		before.Revision = 5
		h.set(before)
		h.done(h.want("up [a] down []"))
		c.change(&before)
		h.set(before)
		got := h.next()
		if (len(got) == 1) != c.again {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		if c.again && (text(&got[0]) != "up [a] down []" || !slices.Equal(got[0].Repeated, []string{"a"})) {
			t.Errorf("%s: %+v", name, got)
		}
		h.done(got)
		h.want()
	}
}

// Forwarding entries are requested of every network at first, and later with the first port of a network of which none are known.
func TestRequestsForEntries(t *testing.T) {
	h := newHost(t, 10)
	h.set(up("a", "i"))
	h.done(h.want("up [a] down [] with entries"))
	h.gone("a")
	h.done(h.want("up [] down [a]"))
	h.Synced()
	h.set(up("b", "i"), tunnelled("c", "n"))
	h.done(h.want("up [b c] down []"))
	first, second := tunnelled("d", "m"), tunnelled("e", "m")
	first.NoEntries, second.NoEntries = true, true
	h.set(first, second)
	h.done(h.want("up [d] down [] with entries"))
	h.done(h.want("up [e] down []")) // m is on this host alone
}

// The server answers the report of a port that it has deleted as that of another one, and sends no entries for it. When that turns out, another port asks.
func TestAPortThatIsAbsentHasAsked(t *testing.T) {
	absent := func(id string) Claim { return Claim{Port: id, Absent: true, Applied: true} }
	for name, c := range map[string]struct {
		claim Claim
		after time.Duration
		again []string
	}{
		"the one that asked":           {absent("a"), absentAfter - time.Second, []string{"refresh [b]"}},
		"the one that asked, long ago": {absent("a"), absentAfter, nil},
		"another":                      {absent("b"), 0, nil},
		"one in another network":       {Claim{Port: "a", Status: Up, Interface: "i", Applied: true, Segment: world.SegmentKey{Network: "v"}}, 0, []string{"refresh [b]"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 10)
			h.Synced()
			h.set(tunnelled("a", "n"), tunnelled("b", "n"))
			h.done(h.want("up [a] down []"))
			h.done(h.want("up [b] down []"))
			h.now = h.now.Add(time.Hour)
			h.Resync(world.SegmentKey{Network: "n"})
			h.done(h.want("refresh [a]"))
			h.now = h.now.Add(c.after)
			h.set(c.claim)
			if h.want(); len(c.again) > 0 && h.Deadline().After(h.now) {
				t.Error("nothing follows at once")
			}
			h.done(h.want(c.again...))
			h.want()
		})
	}
}

// After a start a port may be in another network than the snapshot has it in. A port that has not been reported by then asks for the entries.
func TestAPortThatHasAskedForAnotherNetwork(t *testing.T) {
	h := newHost(t, 10)
	h.set(tunnelled("a", "n"), tunnelled("b", "n"))
	first := h.want("up [a] down [] with entries")
	moved := up("a", "i")
	moved.Segment = world.SegmentKey{Network: "v"}
	h.set(moved)
	h.want() // a is on its way, and b waits for it
	h.done(first)
	h.done(h.want("up [b] down [] with entries"))
	h.want()
}

// Ports for which somebody waits are reported side by side, few at first. One failure, and they are reported together.
func TestReportsSideBySide(t *testing.T) {
	h := newHost(t, 50)
	h.narrow = false
	h.Synced()
	for i := range 40 {
		h.set(up(fmt.Sprintf("p%02d", i), "i"))
	}
	batches := h.want("up [p00] down []", "up [p01] down []")
	h.want()
	h.now = h.now.Add(100 * time.Millisecond)
	h.done(batches[:1])
	h.want("up [p02 p03] down []")
	h.done(batches[1:])
	if got := len(h.next()); got != 2 || h.window.Size() != 3 {
		t.Errorf("%d more batches, a window of %d", got, h.window.Size())
	}
	for id, b := range h.flights {
		h.Done(b, Result{Failed: true}, h.now)
		if _, ok := h.flights[id]; ok {
			t.Fatal("still in flight")
		}
	}
	if got := h.next(); len(got) != 1 || len(got[0].Update.Up) < 20 {
		t.Errorf("after failures %d batches", len(got))
	}
}

// What the server has as ACTIVE already is reported in one large batch at a time, and nothing that is new waits for it.
func TestPortsThatAreActive(t *testing.T) {
	h := newHost(t, 3)
	h.narrow = false
	h.Synced()
	active := func(id string) Claim {
		c := up(id, "i")
		c.ServerStatus = "ACTIVE"
		return c
	}
	h.set(active("a"), active("b"), active("c"), active("d"), up("new", "i"))
	first := h.want("up [new] down []", "up [a b c] down []")
	h.set(up("newer", "i"))
	h.done(h.want("up [newer] down []"))
	h.want()
	if got := h.Due(); slices.Contains(got, "d") {
		t.Errorf("%v are looked at though nothing can be sent", got)
	}
	h.done(first)
	h.done(h.want("up [d] down []"))
	if h.want(); h.Stats() != (Stats{}) {
		t.Errorf("%+v", h.Stats())
	}
}

// The first report of a network, and each that a port is down, runs beside no other of the network.
func TestReportsThatRunAlone(t *testing.T) {
	h := newHost(t, 10)
	h.narrow = false
	h.Synced()
	h.set(tunnelled("a", "n"), tunnelled("b", "n"), tunnelled("c", "m"))
	first := h.want("up [a] down []", "up [c] down []")
	h.done(first[1:])
	h.want()
	h.done(first[:1])
	b := h.want("up [b] down []")
	h.gone("a")
	h.set(tunnelled("d", "n"))
	h.want() // a waits for b, and d behind it: else ports that come would keep one that goes waiting
	h.gone("c")
	h.done(h.want("up [] down [c]"))
	h.done(b)
	h.done(h.want("up [d] down [a]"))
	h.set(Claim{Port: "d", Status: AdminDown, Interface: "i", Applied: true, Segment: world.SegmentKey{Network: "n"}, Tunnelled: true}, tunnelled("e", "n"))
	up := h.want("up [e] down []")
	h.done(up)
	h.done(h.want("disabled d"))
}
