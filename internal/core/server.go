// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/pace"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// server is where the agent stands with neutron-server: the search for one, the state reports, and the server's database.
type server struct {
	room
	rnd          *rand.Rand
	versions     neutron.Versions // nil: none has answered
	registration registration
	report       reporting
	database     pace.Breaker
}

// known returns whether a server has answered, and canReport whether it has its database, too.
func (s *server) known() bool     { return s.versions != nil }
func (s *server) canReport() bool { return s.known() && !s.database.Open() }

// introducing returns whether questions wait for the end of the agent's first state report. The server may push objects in other
// versions than ours until it has that, so what is asked before has to be asked again.
func (s *server) introducing() bool {
	return s.report.unheard && !s.report.accepted && s.report.ended == 0 && s.cfg.ReportInterval > 0
}

// alivePause and aliveMax separate questions whether a server is alive.
const (
	alivePause = time.Second
	aliveMax   = 30 * time.Second
)

// kinds are the objects that the agent wants to hear of.
func kinds() []neutron.Kind {
	return []neutron.Kind{
		neutron.KindPort, neutron.KindNetwork, neutron.KindSubnet,
		neutron.KindSecurityGroup, neutron.KindSecurityGroupRule, neutron.KindAddressGroup,
	}
}

// registration is where the search for a server stands.
type registration struct {
	inFlight bool
	began    time.Time
	pause    time.Duration // after the next failure
	at       time.Time     // not before
}

// again has a server searched for anew.
func (r *registration) again(now time.Time) { *r = registration{at: now.Add(alivePause)} }

// wait returns nothing before a pause. Pauses grow and are jittered, because after an outage every host of the region searches.
func (r *registration) wait(now time.Time, jitter float64) {
	r.pause = max(r.pause, alivePause)
	r.at = now.Add(time.Duration((0.5 + jitter) * float64(r.pause)))
	r.pause = min(2*r.pause, aliveMax)
}

// register searches for a server until one is found, whether the switch has been seen or not.
func (s *server) register(set extension.Set) {
	r := &s.registration
	if s.known() || r.inFlight {
		return
	}
	if s.now().Before(r.at) {
		s.wakeUp(r.at)
		return
	}
	if r.began.IsZero() {
		r.began = s.now()
	}
	r.inFlight = true
	listen := slices.Concat(kinds(), set.Kinds())
	slices.Sort(listen)
	s.start(effect.Register{Kinds: slices.Compact(listen), Topics: set.Topics(), L2Population: s.cfg.Configurations.L2Population})
}

// registered takes that a server is alive, or that none answered, and returns which.
func (s *server) registered(e effect.Registered) bool {
	const noAnswer = "neutron-server does not answer, retrying"
	if e.Err != nil {
		s.log.repeat(slog.LevelWarn, noAnswer, "err", e.Err)
		s.registration.wait(s.now(), s.rnd.Float64())
		return false
	}
	s.log.forget(noAnswer)
	s.versions, s.report.unheard = e.Versions, neutron.PushesAfterReport(e.Releases)
	s.world.NewerTunnelNames = e.Versions.Since(25)
	s.log.Info("neutron-server answered", "release", e.Releases, "waited", s.now().Sub(s.registration.began))
	if len(e.Removed) > 0 {
		s.log.Info("queues of an earlier agent deleted", "queues", len(e.Removed))
	}
	if s.cfg.ReportInterval == 0 {
		s.start(effect.Notify{Ready: "listening, without state reports"})
	}
	return true
}

// registrationLost has a server searched for anew, if none is known.
func (s *server) registrationLost() {
	if !s.known() {
		s.registration.again(s.now())
	}
}

// landed takes that a call has come to its end, whatever becomes of its outcome.
func (s *server) landed(e effect.Event) {
	switch e := e.(type) {
	case effect.Registered:
		s.registration.inFlight = false
	case effect.StateReported:
		s.report.inFlight = false
		s.report.ended++
	case effect.DatabaseAsked:
		s.database.Probed(e.Err != nil, refused(e.Err), s.now())
	}
}

// reporting is where the state reports stand.
type reporting struct {
	start    bool // the server is to treat us as an agent that has just begun
	accepted bool // a report got through, and with it our object versions
	inFlight bool
	unheard  bool // until then the server may push objects in other versions than ours
	ended    int  // since one was accepted
	failed   int  // in a row
	since    time.Time
}

// sendReport sends the agent's state, if there is a true one to send: the server is known and the switch is in sight.
// While the switch's database is away, or ovs-vswitchd, the server hears nothing, and after its agent_down_time it takes the host for
// what it is: one on which nothing can be wired. The first report of an agent does not wait for ovs-vswitchd: bridges may still have to be made.
func (s *server) sendReport(switchUp, switchDead bool, set extension.Set) {
	const notReporting = "ovs-vswitchd does not answer, sending no state reports until it does"
	if s.cfg.ReportInterval == 0 || !s.known() || !switchUp || s.report.inFlight {
		return
	}
	if switchDead && s.report.accepted {
		s.log.repeat(slog.LevelWarn, notReporting)
		return
	}
	s.log.forget(notReporting)
	state := neutron.AgentState{
		Binary: neutron.Binary, Host: s.cfg.Host, Topic: "N/A", AgentType: neutron.AgentType,
		Configurations: neutron.ConfigurationsFor(s.cfg.Configurations, s.versions), StartFlag: s.report.start,
	}
	found := s.world.View.Capabilities()
	// Empty lists, no null: the server's readers iterate over them.
	state.Configurations.OVSCapabilities = neutron.Capabilities{DatapathTypes: append([]string{}, found.DatapathTypes...), IfaceTypes: append([]string{}, found.IfaceTypes...)}
	set.AddState(&state.Configurations)
	if !s.report.accepted {
		state.ResourceVersions = s.versions
	}
	s.report.inFlight = true
	s.start(effect.ReportState{State: state, Timeout: s.cfg.ReportInterval})
}

// reportEnded takes the outcome of a state report. Missed: the server may have sent what did not get here; revived: it had taken the agent for dead.
func (s *server) reportEnded(e effect.StateReported) (missed, revived bool) {
	if e.Err != nil {
		if s.report.failed++; s.report.failed == 1 {
			s.report.since = s.now()
			s.log.Warn("report_state failed, retrying", "err", e.Err)
		}
		return false, false
	}
	if e.Status == "" {
		s.log.repeat(slog.LevelWarn, "neutron-server ignored report_state: this host's clock is behind the server's start")
		return false, false
	}
	if s.report.failed > 0 {
		s.log.Info("report_state succeeds again", "failed", s.report.failed, "after", s.now().Sub(s.report.since))
	}
	first := !s.report.accepted
	missed = s.report.unheard && (!first || s.report.ended > 1)
	s.report = reporting{accepted: true}
	switch {
	case first:
		s.log.Info("registered with neutron-server", "status", string(e.Status), "took", e.Took)
		s.start(effect.Notify{Ready: "reporting to neutron-server"})
	case e.Status == neutron.StatusRevived:
		s.log.Warn("neutron-server had marked this agent as down and revived it", "took", e.Took)
		return missed, true
	}
	return missed, false
}

// While the server has no database every question fails at once. A report does not: the server tries it again itself, with pauses that
// grow to ten seconds, and says nothing meanwhile, also when the database is back. So nothing is asked or told while the breaker is
// open, but for one question at a time that is to find out; and a report that was made before is given up when the database is back,
// and made again. The same question is asked when a report takes long.

// longReport is when a report takes long enough to wonder. A server that has much to do takes longer than that for many ports;
// it is then asked ever more rarely.
const longReport = 10 * time.Second

// What the log says.
const (
	noDatabase  = "neutron-server has no database connection, pausing RPC"
	hasDatabase = "neutron-server has its database connection again, resuming RPC"
)

// heard takes what the outcome of any question says about the database, and returns whether that is back.
func (s *server) heard(err error) (back bool) {
	now := s.now()
	switch {
	case errors.Is(err, messaging.Class("DBConnectionError")):
		s.database.Observe(err, now)
		s.log.repeat(slog.LevelWarn, noDatabase, "err", err)
	case err != nil:
	case s.database.Observe(nil, now):
		s.log.repeat(slog.LevelInfo, hasDatabase)
		return true
	case s.database.Calm(now):
		s.log.forget(noDatabase)
		s.log.forget(hasDatabase)
	}
	return false
}

// askDatabase asks whether the server has its database, while that is away or a report takes long.
func (s *server) askDatabase(reporting bool) {
	if !s.known() || !s.database.Open() && !reporting {
		return
	}
	if !s.database.Probe(s.now()) {
		s.wakeUp(s.database.Deadline())
		return
	}
	s.start(effect.AskDatabase{Versions: s.versions})
}

// reportBegins says when to wonder about a report that is not answered.
func (s *server) reportBegins() { s.database.Watch(longReport, s.now()) }

// refused says whether the server stumbles over what was asked. Without its database it stumbles over everything, and for no
// reason of ours.
func refused(err error) bool {
	var remote *messaging.RemoteError
	return errors.As(err, &remote) && !strings.HasPrefix(remote.Class, "DB")
}
