// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

func TestEssence(t *testing.T) {
	for _, tc := range []struct {
		method, args string
		want         []string
	}{
		{"update_device_list", `{"devices_up":["a"],"devices_down":["b"],"refresh_tunnels":true}`, []string{"up=a", "down=b", "refresh_tunnels"}},
		{"update_device_list", `{"devices_up":[]}`, nil},
		{"bulk_pull", `{"resource_type":"Port","filter_kwargs":{"id":["a","b"]}}`, []string{"Port id=a", "Port id=b"}},
		{"bulk_pull", `{"resource_type":"Port","filter_kwargs":{"id":["` + neutron.Nobody + `"]}}`, nil},
		{"bulk_pull", `{"resource_type":"Network","filter_kwargs":{"id":["` + neutron.Nobody + `"]}}`, []string{"Network id=" + neutron.Nobody}},
		{"tunnel_sync", `{"tunnel_type":"vxlan"}`, []string{"vxlan"}},
		{"get_all", `{}`, []string{""}},
	} {
		if got := Essence(tc.method, json.RawMessage(tc.args)); !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: %q, want %q", tc.method, tc.args, got, tc.want)
		}
	}
}
