// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// TestMulticastOptions: the options of multicast snooping are written as the Python agent 29 writes them, on the integration bridge and on
// its patches; other bridges have none of them. Every bridge is without in-band control.
func TestMulticastOptions(t *testing.T) {
	const unregistered, flood, reports = `"mcast-snooping-disable-flood-unregistered","`, `"mcast-snooping-flood","`, `"mcast-snooping-flood-reports","`
	for _, tc := range []struct {
		s      Settings
		bridge string // what the integration bridge has to have
		patch  []string
	}{
		{Settings{IGMPFloodReports: true}, unregistered + "true", []string{flood + "false", reports + "true"}},
		{Settings{IGMPSnooping: true, IGMPFloodReports: true}, unregistered + "true", []string{flood + "false", reports + "true"}},
		{Settings{IGMPFlood: true}, unregistered + "true", []string{flood + "true", reports + "false"}},
		{Settings{IGMPFloodUnregistered: true}, unregistered + "false", []string{flood + "false", reports + "false"}},
	} {
		w := world.New(filterConfig())
		w.Switch(&ovsdb.Batch{Kind: ovsdb.Update, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root"}}}})
		written := func(bridge string) string {
			want := Compile(w, &tc.s, world.BridgeObject(bridge))
			all, err := ovsdb.DiffRows(w.View, want.Rows...).JSON()
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(all, "\n")
		}
		own, tunnels := written("br-int"), written("br-tun")
		for _, want := range append(tc.patch, tc.bridge, `"disable-in-band","true"`) {
			if !strings.Contains(own, want) {
				t.Errorf("%+v: no %s in\n%s", tc.s, want, own)
			}
		}
		if !strings.Contains(tunnels, `"disable-in-band","true"`) || strings.Contains(tunnels, "mcast") {
			t.Errorf("%+v: the tunnel bridge has\n%s", tc.s, tunnels)
		}
	}
}
