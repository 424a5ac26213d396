// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

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

// heard takes what the outcome of any question says about the database.
func (a *Core) heard(err error) {
	now := a.turn.now()
	switch {
	case errors.Is(err, messaging.Class("DBConnectionError")):
		a.database.Observe(err, now)
		a.log.repeat(slog.LevelWarn, noDatabase, "err", err)
	case err != nil:
	case a.database.Observe(nil, now):
		a.log.repeat(slog.LevelInfo, hasDatabase)
		a.pulls.RetryNow(now)
		a.extensions.calls.retries.RetryNow(now)
		a.reports.RetryNow(now)
		a.reports.Abandon() // they are in one of the server's pauses
	case a.database.Calm(now):
		a.log.forget(noDatabase)
		a.log.forget(hasDatabase)
	}
}

// askDatabase asks whether the server has its database, while that is away or a report takes long.
func (a *Core) askDatabase() {
	if a.versions == nil || !a.database.Open() && a.reports.Stats().InFlight == 0 {
		return
	}
	if !a.database.Probe(a.turn.now()) {
		a.turn.wakeUp(a.database.Deadline())
		return
	}
	a.turn.start(effect.AskDatabase{Versions: a.versions})
}

// reportBegins says when to wonder about a report that is not answered.
func (a *Core) reportBegins(now time.Time) { a.database.Watch(longReport, now) }
