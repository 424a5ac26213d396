// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

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
// While the switch's database is away the server hears nothing, and after its agent_down_time it takes the host for
// what it is: one on which nothing can be wired.
func (a *Agent) sendReport(ctx context.Context) {
	if a.cfg.ReportInterval == 0 || a.versions == nil || !a.switchUp || a.report.inFlight {
		return
	}
	state := neutron.AgentState{
		Binary: neutron.Binary, Host: a.cfg.Host, Topic: "N/A", AgentType: neutron.AgentType,
		Configurations: a.cfg.Configurations.For(a.versions), StartFlag: a.report.start,
	}
	state.Configurations.OVSCapabilities = capabilities(a.world.View.Capabilities())
	a.extensions.AddState(&state.Configurations)
	if !a.report.told {
		state.ResourceVersions = a.versions
	}
	a.report.inFlight = true
	a.work.Go(func() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(ctx, a.cfg.ReportInterval)
		defer cancel()
		var e reported
		e.err = a.aside("reporting the agent's state", func() (err error) {
			e.status, err = a.server.ReportState(ctx, state, began)
			return err
		})
		e.took = time.Since(began)
		a.inbox.put(e)
	})
}

func (a *Agent) reportEnded(e reported) {
	if e.err != nil {
		if a.report.failed++; a.report.failed == 1 {
			a.report.since = time.Now()
			a.log.Warn("report_state failed, retrying", "err", e.err)
		}
		return
	}
	if e.status == "" {
		a.repeats.log(a.log, slog.LevelWarn, "neutron-server ignored report_state: this host's clock is behind the server's start")
		return
	}
	if a.report.failed > 0 {
		a.log.Info("report_state succeeds again", "failed", a.report.failed, "after", time.Since(a.report.since))
	}
	first, unheard := !a.report.told, a.report.unheard
	a.report = reporting{told: true}
	if unheard {
		a.resync()
	}
	switch {
	case first:
		a.log.Info("registered with neutron-server", "status", string(e.status), "took", e.took)
		a.notify(a.cfg.Notifier.Ready("reporting to neutron-server"))
	case e.status == neutron.StatusRevived:
		a.log.Warn("neutron-server had marked this agent as down and revived it", "took", e.took)
		// Our queue has kept what was sent meanwhile; had it not, a gap would have told.
		a.refreshNetworks()
	}
}
