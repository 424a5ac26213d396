// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

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

// failed returns nothing before a pause. Pauses grow and are jittered, because after an outage every host of the region searches.
func (r *registration) failed(now time.Time, jitter float64) {
	r.pause = max(r.pause, alivePause)
	r.at = now.Add(time.Duration((0.5 + jitter) * float64(r.pause)))
	r.pause = min(2*r.pause, aliveMax)
}

// register searches for a server until one is found, whether the switch has been seen or not.
func (a *Core) register() {
	r := &a.registration
	if a.versions != nil || r.inFlight {
		return
	}
	if a.turn.now().Before(r.at) {
		a.turn.wakeUp(r.at)
		return
	}
	if r.began.IsZero() {
		r.began = a.turn.now()
	}
	r.inFlight = true
	listen := slices.Concat(kinds(), a.extensions.Kinds())
	slices.Sort(listen)
	a.turn.start(effect.Register{Kinds: slices.Compact(listen), Topics: a.extensions.Topics(), L2Population: a.cfg.Configurations.L2Population})
}

// registered takes that a server is alive, or that none answered.
func (a *Core) registered(e effect.Registered) {
	const noAnswer = "neutron-server does not answer, retrying"
	if e.Err != nil {
		a.log.repeat(slog.LevelWarn, noAnswer, "err", e.Err)
		a.registration.failed(a.turn.now(), a.rnd.Float64())
		return
	}
	a.log.forget(noAnswer)
	a.versions, a.report.unheard = e.Versions, neutron.PushesWhenTold(e.Releases)
	a.world.NewerTunnelNames = e.Versions.Since(25)
	a.log.Info("neutron-server answered", "release", e.Releases, "waited", a.turn.now().Sub(a.registration.began))
	if len(e.Removed) > 0 {
		a.log.Info("queues of an earlier agent deleted", "queues", len(e.Removed))
	}
	if a.cfg.ReportInterval == 0 {
		a.turn.start(effect.Notify{Ready: "listening, without state reports"})
	}
	a.sendReport()
}
