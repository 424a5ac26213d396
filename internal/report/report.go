// SPDX-License-Identifier: Apache-2.0

// Package report decides which statuses of ports neutron-server is told, and when.
//
// Its inputs are what is true of a port now (a [Claim]), the networks whose forwarding entries the server has to send again, and
// the outcomes of reports. Its outputs are reports to send (a [Batch]), and the claims that the server has confirmed. Nothing in
// it calls the server or reads the clock.
//
// Somebody waits for a port that the server does not have as ACTIVE yet: such ports are reported in small batches side by side, as many as the server
// answers well ([pace.Window]). Ports that the server has as ACTIVE already, as after a restart, follow in one large batch at a time. Beside these,
// one batch at a time refreshes networks: the server takes long for that. A port is in one batch at a time, so that no report overtakes another one.
//
// With l2population the server counts the active ports of a network on the host: the first one has it send the forwarding entries of the network,
// the last one that goes has other hosts forget this host. So that it counts right, the first report of such a network names one port of it and runs
// beside no other report of the network, and so does a report that a port is down. Networks are independent of each other.
package report

import (
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Status is the status of a port that the server is told.
type Status uint8

// The statuses of a port. Of an Unknown one the server is told nothing.
const (
	Unknown   Status = iota
	Up               // wired
	Down             // not on this host
	AdminDown        // on this host, and disabled by its administrator
)

// Claim is what is true of a port, as the server is told.
type Claim struct {
	Port      string
	Status    Status
	Interface ovsdb.UUID // the incarnation of the port; empty when it is gone
	Applied   bool       // the status is true already: everything that it says is in place
	// Revision and ServerStatus are what the server last said of the port. A later DOWN or BUILD undoes an Up.
	Revision     int64
	ServerStatus string
	Marked       bool // the row of the port says that an agent has wired it
	Absent       bool // the server may not have the port on this host: it did not know it, or the port is dead; not set if it has announced that it deletes the port
	Segment      world.SegmentKey
	Tunnelled    bool // the server sends forwarding entries of the segment (l2population) when a port of it is reported up
	NoEntries    bool // and no tunnel of the segment is known
}

// Batch is one report.
type Batch struct {
	Update    neutron.DeviceUpdate
	AdminDown string // the only port of the batch, if it is disabled by its administrator; Update is empty then
	Refresh   bool   // a batch of known statuses, for the forwarding entries that the server sends
	Claims    map[string]Claim
	// Repeated are the due ports, of this batch and of later ones, that the server has confirmed as up and has to be told again.
	Repeated []string

	id       int
	again    bool // the server has the ports as ACTIVE already
	sent     time.Time
	resyncs  int                       // of the reporter, see Resync
	networks map[world.SegmentKey]bool // those that the server counts ports of; true: no other batch of the network may be in flight
}

// Number returns the number of the batch, by which its outcome is known.
func (b *Batch) Number() int { return b.id }

// Ports returns the ports that a batch names.
func (b *Batch) Ports() []string {
	ids := slices.Concat(b.Update.Up, b.Update.Down)
	if b.AdminDown != "" {
		ids = append(ids, b.AdminDown)
	}
	return ids
}

// Result is the outcome of a batch.
type Result struct {
	neutron.DeviceResult      // the reply, which may name ports as failed
	Failed               bool // there is no reply
	Refused              bool // the server failed because of what was reported, and will again
}

// Reporter holds what the server has confirmed, what it may have to be told, and what is in flight.
type Reporter struct {
	perReport int
	checks    *pace.Bucket // limits refreshes together with other calls that check what is known
	retries   pace.Backoff[string]
	deadline  time.Time

	due       map[string]bool          // ports whose status may have to be reported
	confirmed map[string]Claim         // what the server has confirmed
	up        map[world.SegmentKey]int // how many of those are up, by network that the server counts ports of
	unsure    map[string]Claim         // of a report since that failed: the server may have taken it, or still take it
	again     map[string]bool          // due ports that the server has as ACTIVE already
	earlier   map[string]bool          // ports of which it has confirmed nothing yet, and that it had as ACTIVE, or may have had, while they were here: an earlier run reported them
	synced    bool                     // see Synced

	window    pace.Window // of batches for which somebody waits
	step      int         // how many ports such a batch has; it grows from 1
	flights   map[int]Batch
	sent      int // batches, ever
	resyncs   int
	networks  map[world.SegmentKey]bool // that a batch has to refresh
	since     map[world.SegmentKey]int  // whose forwarding entries the server has to send again: for a batch after the one of this number
	requested map[world.SegmentKey]time.Time
	askers    map[world.SegmentKey]asker
}

// asker is the port whose report had the server send the forwarding entries of a network, and when it answered. To the report of a port that it has
// deleted, or bound to another host, the server answers the same, and sends none.
type asker struct {
	port string
	at   time.Time
}

// absentAfter is how long after the answer it may turn out that the server did not have the port there.
const absentAfter = 10 * time.Minute

// New returns a reporter. A batch names at most perReport ports as up, and as many as down. Every batch that refreshes networks
// takes a token from checks.
func New(perReport int, checks *pace.Bucket) *Reporter {
	return &Reporter{
		perReport: perReport, checks: checks, retries: pace.Backoff[string]{}, step: 1, due: map[string]bool{}, confirmed: map[string]Claim{},
		up: map[world.SegmentKey]int{}, unsure: map[string]Claim{}, again: map[string]bool{}, earlier: map[string]bool{}, flights: map[int]Batch{},
		networks: map[world.SegmentKey]bool{}, since: map[world.SegmentKey]int{}, requested: map[world.SegmentKey]time.Time{}, askers: map[world.SegmentKey]asker{},
	}
}

// Changed makes a port due: its claim may have changed.
func (r *Reporter) Changed(port string) {
	r.due[port] = true
	delete(r.again, port)
}

// Refresh has the server send the forwarding entries of networks again. The report of one port of each makes it do so. Those that it sends for a
// report on its way may have come before.
func (r *Reporter) Refresh(networks ...world.SegmentKey) {
	for _, key := range networks {
		r.networks[key], r.since[key] = true, r.sent
		if r.first(key) {
			delete(r.requested, key) // no port of it can be reported again: the next one that comes up asks
		}
	}
}

// checkAsker has another port ask for the forwarding entries of a network, if the one that asked may not have been there, or in that network, any more.
func (r *Reporter) checkAsker(c Claim, now time.Time) {
	key := r.confirmed[c.Port].Segment
	absent := c.Absent || c.Segment != key && c.Segment != (world.SegmentKey{})
	if a, ok := r.askers[key]; absent && ok && a.port == c.Port {
		delete(r.askers, key)
		if now.Sub(a.at) < absentAfter {
			r.Refresh(key)
			delete(r.requested, key) // those that have not been reported yet ask, too
		}
	}
}

// Resync is Refresh after messages may have been lost: batches from before do not count as requests for forwarding entries.
func (r *Reporter) Resync(networks ...world.SegmentKey) {
	r.resyncs++
	clear(r.requested)
	r.Refresh(networks...)
}

// ForgetNetworks forgets the requests for forwarding entries of networks that are gone.
func (r *Reporter) ForgetNetworks(gone func(world.SegmentKey) bool) {
	maps.DeleteFunc(r.requested, func(key world.SegmentKey, _ time.Time) bool { return gone(key) })
	maps.DeleteFunc(r.since, func(key world.SegmentKey, _ int) bool { return gone(key) })
	maps.DeleteFunc(r.askers, func(key world.SegmentKey, _ asker) bool { return gone(key) })
}

// Synced says that everything has been pulled and reported once. Until then every report of a port that is up asks for the
// forwarding entries of its network, because it is not known what the server sent to an earlier run.
func (r *Reporter) Synced() { r.synced = true }

// RetryNow ends the pauses after failures: what they failed for is over.
func (r *Reporter) RetryNow(now time.Time) { r.retries.RetryNow(now) }

// Abandon gives up the batches in flight: their ports are reported again. A late outcome of one counts, and makes its ports due
// once more, because the server may have taken the later report first.
func (r *Reporter) Abandon() {
	for _, b := range r.flights {
		maps.Copy(r.unsure, b.Claims)
	}
	clear(r.flights)
}

// Stats is how much there is to do.
type Stats struct {
	Due      int // ports whose status may have to be reported
	InFlight int // ports of batches in flight
	Networks int // networks to refresh
}

// Stats returns how much there is to do.
func (r *Reporter) Stats() Stats {
	s := Stats{Due: len(r.due), Networks: len(r.networks)}
	for _, b := range r.flights {
		s.InFlight += len(b.Claims)
	}
	return s
}

// Confirmed returns the status of a port that the server has confirmed.
func (r *Reporter) Confirmed(port string) Status { return r.confirmed[port].Status }

// Requested returns when the server first answered a report that has it send the forwarding entries of a network, or zero.
func (r *Reporter) Requested(network world.SegmentKey) time.Time { return r.requested[network] }
