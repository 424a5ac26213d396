// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func TestStatistics(t *testing.T) {
	for answer, want := range map[string]string{
		`[{"rows": [{"name": "tap0", "statistics": ["map",[["rx_bytes",9007199254740993],["rx_packets",2]]]}, {"name": "tap1", "statistics": ["map",[]]}]}]`: "",
		`[{"rows": [{"name": "tap0", "statistics": ["map",[["rx_bytes","x"]]]}]}]`:                                                                           "tap0",
		`[{"rows": [{"statistics": 5}]}]`:   "name",
		`[{"error": "not allowed"}]`:        "not allowed",
		`[]`:                                "answers",
		`[{"rows": []}, {"error": "late"}]`: "answers",
		`5`:                                 "decoding the results of a transaction",
	} {
		var asked string
		s := &fake.RPC{Handle: func(_ *fake.RPCConn, method string, params []json.RawMessage) (any, string) {
			if method == "transact" {
				asked = string(params[1])
				return json.RawMessage(answer), ""
			}
			return dump(txn1, oneBridge), ""
		}}
		inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
			synctest.Wait()
			got, err := f.client.Statistics(t.Context())
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, %v", answer, got, err)
				}
				return
			}
			if diff := cmp.Diff(map[string]map[string]int{"tap0": {"rx_bytes": 9007199254740993, "rx_packets": 2}, "tap1": nil}, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
			if asked != `{"where":[],"op":"select","table":"Interface","columns":["name","statistics"]}` {
				t.Errorf("asked %s", asked)
			}
		})
	}
}

func TestStatisticsWithoutConnection(t *testing.T) {
	// A client that does not run has no connection; one that does may have it before its first question.
	if _, err := newFakeClient(&fake.RPC{}, ovsdb.Config{}).Statistics(t.Context()); !errors.Is(err, ovsdb.ErrDisconnected) {
		t.Errorf("without a connection: %v", err)
	}
}
