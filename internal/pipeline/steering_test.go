// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// TestSteering: the hint of a port is written to its interface, and goes with the hint. Other keys of the row stay, and a port without a hint is left alone.
func TestSteering(t *testing.T) {
	for _, tc := range []struct {
		hints string
		have  map[string]string
		want  string // operations, in words; empty: none
	}{
		{"", nil, ""},
		{"", map[string]string{"mine": "1"}, ""},
		{"", map[string]string{"mine": "1", "tx-steering": "hash"}, `["other_config","delete","tx-steering"]`},
		{`{"openvswitch":{"other_config":{"tx-steering":"hash"}}}`, map[string]string{"mine": "1"}, `"insert",["map",[["tx-steering","hash"]]]`},
		{`{"openvswitch":{"other_config":{"tx-steering":"thread"}}}`, map[string]string{"tx-steering": "thread"}, ""},
		{`{"openvswitch":{"other_config":{"tx-steering":"thread"}}}`, map[string]string{"tx-steering": "hash"}, `"insert",["map",[["tx-steering","thread"]]]`},
		{`{"openvswitch":{"other_config":{"tx-steering":"any","mtu_request":"1"}}}`, nil, ""},
		{`{"openvswitch":[1]}`, map[string]string{"tx-steering": "hash"}, `["other_config","delete","tx-steering"]`},
	} {
		c := newCloud(filterConfig())
		c.networks = map[string]neutron.Segment{"N": {NetworkType: "local"}}
		p := &neutron.Port{ID: "A", DeviceOwner: "compute:nova", MAC: neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}}
		if tc.hints != "" {
			p.Hints.Value = &neutron.Hints{}
			if err := json.Unmarshal([]byte(tc.hints), &p.Hints.Value.Hints); err != nil {
				t.Fatal(err)
			}
		}
		c.bind(p, "N")
		c.ports["A"] = p
		c.plugInto("tapA", 11, map[string]string{"iface-id": "A", "attached-mac": p.MAC.String()})
		c.converge(t)
		was := c.w.View.Interface(c.w.Port("A").VIF.Interface)
		is := *was
		is.OtherConfig = tc.have
		c.apply(&ovsdb.Batch{Kind: ovsdb.Update, Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: was, New: &is}}})
		ops, err := ovsdb.DiffRows(c.w.View, Compile(c.w, c.s, world.PortObject("A")).Rows...).JSON()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(ops, "\n")
		if tc.want == "" && strings.Contains(got, "steering") || !strings.Contains(got, tc.want) || strings.Contains(got, "mine") || strings.Contains(got, "mtu") {
			t.Errorf("hints %s over %v: %s, want %s", tc.hints, tc.have, got, tc.want)
		}
	}
}
