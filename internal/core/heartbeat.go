// SPDX-License-Identifier: Apache-2.0

package core

import (
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// reporting is where the state reports stand.
type reporting struct {
	start    bool // the server is to treat us as an agent that has just begun
	told     bool // a report got through, and with it our object versions
	inFlight bool
	unheard  bool // until then the server may have pushed objects in other versions than ours
	failed   int  // in a row
	since    time.Time
}

// sendReport sends the agent's state, if there is a true one to send: the server is known and the switch is in sight.
// While the switch's database is away, or ovs-vswitchd, the server hears nothing, and after its agent_down_time it takes the host for
// what it is: one on which nothing can be wired.
func (a *Core) sendReport() {
	if a.cfg.ReportInterval == 0 || a.versions == nil || !a.switchUp || a.report.inFlight {
		return
	}
	if switchDead(a) {
		a.log.repeat(slog.LevelWarn, notReporting)
		return
	}
	a.log.forget(notReporting)
	state := neutron.AgentState{
		Binary: neutron.Binary, Host: a.cfg.Host, Topic: "N/A", AgentType: neutron.AgentType,
		Configurations: neutron.ConfigurationsFor(a.cfg.Configurations, a.versions), StartFlag: a.report.start,
	}
	found := a.world.View.Capabilities()
	// Empty lists, no null: the server's readers iterate over them.
	state.Configurations.OVSCapabilities = neutron.Capabilities{DatapathTypes: append([]string{}, found.DatapathTypes...), IfaceTypes: append([]string{}, found.IfaceTypes...)}
	a.extensions.AddState(&state.Configurations)
	if !a.report.told {
		state.ResourceVersions = a.versions
	}
	a.report.inFlight = true
	a.turn.start(effect.ReportState{State: state, Timeout: a.cfg.ReportInterval})
}

const notReporting = "ovs-vswitchd does not answer, sending no state reports until it does"

// switchDead returns whether ovs-vswitchd has not answered for longer than it takes to restart, though its database lives. The first
// report of an agent waits for nothing: bridges may still have to be made.
func switchDead(a *Core) bool {
	bridge := a.cfg.World.IntegrationBridge
	if !a.report.told || a.dataplane.Bridge(bridge).Connected {
		return false
	}
	lost, _ := a.dataplane.Unreachable(bridge, a.turn.now())
	row := a.world.View.BridgeByName(bridge)
	return lost || row != nil && row.DatapathID == "" // it has never made the bridge
}

func (a *Core) reportEnded(e effect.StateReported) {
	if e.Err != nil {
		if a.report.failed++; a.report.failed == 1 {
			a.report.since = a.turn.now()
			a.log.Warn("report_state failed, retrying", "err", e.Err)
		}
		return
	}
	if e.Status == "" {
		a.log.repeat(slog.LevelWarn, "neutron-server ignored report_state: this host's clock is behind the server's start")
		return
	}
	if a.report.failed > 0 {
		a.log.Info("report_state succeeds again", "failed", a.report.failed, "after", a.turn.now().Sub(a.report.since))
	}
	first, unheard := !a.report.told, a.report.unheard
	a.report = reporting{told: true}
	if unheard {
		a.resync()
	}
	switch {
	case first:
		a.log.Info("registered with neutron-server", "status", string(e.Status), "took", e.Took)
		a.turn.start(effect.Notify{Ready: "reporting to neutron-server"})
	case e.Status == neutron.StatusRevived:
		a.log.Warn("neutron-server had marked this agent as down and revived it", "took", e.Took)
		// Our queue has kept what was sent meanwhile; had it not, a gap would have told.
		a.refreshNetworks()
	}
}
