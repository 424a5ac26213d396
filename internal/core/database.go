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
