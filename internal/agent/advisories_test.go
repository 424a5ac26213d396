// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Holes of the switch (CVE-2023-1668, CVE-2023-5366) and a broker that may be anybody are in the log once and in the status as long
// as they last. They do not keep the agent from its work.
func TestAdvisories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		defer func() { _ = r.stop() }()
		r.broker.onEvent(messaging.Connected{Addr: "a:5671", TLS: "unverified"})
		first := fake.Connected()
		r.sw.changes <- first
		wait(time.Second)
		s, err := r.agent.Status(t.Context())
		if err != nil || len(s.Advisories) != 2 || !has(s.Advisories, "ssl_ca_file") || !has(s.Advisories, "CVE-2023-5366") || !has(s.Advisories, "backported") {
			t.Errorf("advisories %q, %v", s.Advisories, err)
		}
		for _, reason := range s.Reasons {
			if has(s.Advisories, reason) {
				t.Errorf("%q is no reason not to be in sync", reason)
			}
		}
		// The same again: no new lines.
		r.broker.onEvent(messaging.Connected{Addr: "a:5671", TLS: "unverified"})
		r.sw.changes <- &ovsdb.Batch{Seq: 2, Kind: ovsdb.Disconnected, Err: ovsdb.ErrDisconnected}
		row := first.OpenVSwitch[0].New
		r.sw.changes <- &ovsdb.Batch{Seq: 3, Kind: ovsdb.Reconnected, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{Old: row, New: row}}}
		wait(time.Second)
		if a, b := r.lines(brokerUnverified), r.lines(switchAdvisories); a != 1 || b != 1 || r.lines("cves=\"[CVE-2023-1668 CVE-2023-5366]\"") != 1 {
			t.Errorf("%d lines about the broker, %d about the switch:\n%s", a, b, r.log)
		}
		// Both were put right.
		r.broker.onEvent(messaging.Connected{Addr: "a:5671", TLS: "verified"})
		r.sw.changes <- &ovsdb.Batch{Seq: 4, Kind: ovsdb.Disconnected, Err: ovsdb.ErrDisconnected}
		mended := *row
		mended.OVSVersion = "3.3.1"
		r.sw.changes <- &ovsdb.Batch{Seq: 5, Kind: ovsdb.Reconnected, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{Old: row, New: &mended}}}
		wait(time.Second)
		if s, err := r.agent.Status(t.Context()); err != nil || len(s.Advisories) != 0 {
			t.Errorf("advisories %q, %v", s.Advisories, err)
		}
	})
}
