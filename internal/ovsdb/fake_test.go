// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"encoding/json"
	"errors"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// The tests of protocol faults have no database behind the server: each answers, refuses, stays silent or sends nonsense by itself.

var errDown = errors.New("fake server is down")

// notify tells changes as monitor_cond_since does.
func notify(c *fake.RPCConn, txn, updates string) {
	c.Notify("update3", "patchbay", txn, json.RawMessage(updates))
}

// dump answers monitor_cond_since with all rows.
func dump(txn, updates string) any { return []any{false, txn, json.RawMessage(updates)} }

func newFakeClient(s *fake.RPC, cfg ovsdb.Config) *ovsdb.Client {
	cfg.Dial = s.Dial
	c, err := ovsdb.New(cfg)
	if err != nil {
		panic(err)
	}
	c.NoJitter()
	return c
}
