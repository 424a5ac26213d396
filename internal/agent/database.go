// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
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

// databaseAsked: the outcome of the question.
type databaseAsked struct{ err error }

// heard takes what the outcome of any question says about the database.
func (a *Agent) heard(err error) {
	now := time.Now()
	switch {
	case errors.Is(err, messaging.Class("DBConnectionError")):
		a.database.Observe(err, now)
		a.repeats.log(a.log, slog.LevelWarn, noDatabase, "err", err)
	case err != nil:
	case a.database.Observe(nil, now):
		a.repeats.log(a.log, slog.LevelInfo, hasDatabase)
		a.pulls.RetryNow(now)
		a.extensions.calls.retries.RetryNow(now)
		a.reports.RetryNow(now)
		a.reports.Abandon() // they are in one of the server's pauses
	case a.database.Calm(now):
		a.repeats.forget(noDatabase)
		a.repeats.forget(hasDatabase)
	}
}

// askDatabase asks whether the server has its database, while that is away or a report takes long.
func (a *Agent) askDatabase(ctx context.Context) {
	if a.versions == nil || !a.database.Open() && a.reports.Stats().InFlight == 0 {
		return
	}
	if !a.database.Probe(time.Now()) {
		a.wakeUp(a.database.Deadline())
		return
	}
	versions := a.versions // the loop's
	a.work.Go(func() {
		a.inbox.put(databaseAsked{a.aside("asking for the server's database", func() error {
			_, err := a.server.BulkPull(ctx, versions, neutron.KindPort, map[string]any{"id": []string{neutron.Nobody}})
			return err
		})})
	})
}

// reportBegins says when to wonder about a report that is not answered.
func (a *Agent) reportBegins(now time.Time) { a.database.Watch(longReport, now) }
