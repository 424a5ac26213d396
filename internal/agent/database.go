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

// database is what is known of the server's database. It is owned by the loop.
//
// While it is away every question fails at once. A report does not: the server tries it again itself, with pauses that grow
// to ten seconds, and says nothing meanwhile, also when the database is back. So nothing is asked or told while the database
// is known to be away, but for one question at a time that is to find out; and a report that was made before is given up
// when it is back, and made again. The same question is asked when a report takes long.
type database struct {
	away   bool
	asking bool      // the question is on its way
	at     time.Time // of the next one, if there is reason
	pause  time.Duration
	failed retries[string]
}

// longReport is when a report takes long enough to wonder. A server that has much to do takes longer than that for many ports;
// it is then asked ever more rarely.
const longReport = 10 * time.Second

// databaseTime is how long the database has to be there for its absence to be over.
const databaseTime = time.Minute

// What the log says.
const (
	noDatabase  = "the server has lost its database, questions and reports wait for it"
	hasDatabase = "the server has its database again"
)

// databaseAsked: the outcome of the question.
type databaseAsked struct{ err error }

// heard takes what the outcome of any question says about the database. Several servers may answer, and one of them be without
// it: it is then away and back in turns, and the pauses grow as if it were away.
func (a *Agent) heard(err error) {
	d, now := &a.database, time.Now()
	switch {
	case errors.Is(err, messaging.Class("DBConnectionError")):
		if !d.away {
			d.away, d.at = true, now.Add(d.failed.unanswered(noDatabase, now, err))
		}
		a.repeats.log(a.log, slog.LevelWarn, noDatabase, "err", err)
	case err == nil && d.away:
		d.away = false
		a.repeats.log(a.log, slog.LevelInfo, hasDatabase)
		a.ports.retries.hasten(now)
		a.filters.retries.hasten(now)
		a.extensions.retries.hasten(now)
		a.tunnelRetries.hasten(now)
		if len(a.ports.onWay) > 0 { // in one of the server's pauses
			a.ports.noReport()
			a.ports.report++
		}
	case err == nil && now.Sub(d.failed[noDatabase].at) > databaseTime:
		d.failed.forget(noDatabase)
		a.repeats.forget(noDatabase)
		a.repeats.forget(hasDatabase)
	}
}

// askDatabase asks whether the server has its database, while that is away or a report takes long.
func (a *Agent) askDatabase(ctx context.Context) {
	d := &a.database
	if a.versions == nil || d.asking || !d.away && len(a.ports.onWay) == 0 {
		return
	}
	if time.Now().Before(d.at) {
		a.wakeUp(d.at)
		return
	}
	d.asking = true
	versions := a.versions // the loop's
	a.work.Go(func() {
		a.inbox.put(databaseAsked{a.aside("asking for the server's database", func() error {
			_, err := a.server.BulkPull(ctx, versions, neutron.KindPort, map[string]any{"id": []string{neutron.Nobody}})
			return err
		})})
	})
}

func (a *Agent) databaseAnswered(e databaseAsked) {
	d, now := &a.database, time.Now()
	if e.err != nil {
		d.at = now.Add(d.failed.unanswered(noDatabase, now, e.err))
	} else {
		d.pause *= 2
		d.at = now.Add(d.pause)
	}
	a.heard(e.err)
}

// reportBegins says when to wonder about a report that is not answered.
func (a *Agent) reportBegins(now time.Time) {
	a.database.pause, a.database.at = longReport, now.Add(longReport)
}

// cameLate takes the outcome of a report that was given up. What it said may not be true any more, and it may have come after what
// was told since: then that is told again.
func (a *Agent) cameLate(e toldAbout) {
	for _, id := range e.ports() {
		a.ports.changed[id] = true
	}
}
