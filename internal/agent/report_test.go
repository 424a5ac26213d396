// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

func load(t *testing.T, text string) *options.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := options.Load([]string{"--config-file", file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// testdata/python-state.json is what a Python agent 21 reported in a lab with these options.
func TestConfigurationsAreThePythonAgents(t *testing.T) {
	o := load(t, `
[DEFAULT]
host = hv1
[ovs]
datapath_type = netdev
local_ip = 10.251.0.11
bridge_mappings = physnet1:br-ex
[agent]
tunnel_types = vxlan,gre,geneve
l2_population = true
arp_responder = true
extensions = qos
`)
	c := neutron.ConfigurationsFor(configurations(o, "vm"), nil)
	c.OVSCapabilities = neutron.Capabilities{
		DatapathTypes: []string{"netdev", "system"},
		IfaceTypes: []string{
			"afxdp", "afxdp-nonpmd", "bareudp", "erspan", "geneve", "gre", "gtpu", "internal", "ip6erspan", "ip6gre",
			"lisp", "patch", "stt", "system", "tap", "vxlan",
		},
	}
	got, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/python-state.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree(t, want), tree(t, got)); diff != "" {
		t.Errorf("differs from the Python agent's report (-python +ours):\n%s", diff)
	}
}

// tree decodes JSON to compare it without regard to order.
func tree(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPlacementInTheReport(t *testing.T) {
	o := load(t, `
[DEFAULT]
host = hv1
[ovs]
bridge_mappings = physnet1:br-a,physnet2:br-b
resource_provider_bandwidths = br-a:1000:2000,br-b::500
resource_provider_hypervisors = br-b:other
resource_provider_packet_processing_without_direction = :700
resource_provider_inventory_defaults = allocation_ratio:1.5,min_unit:2
`)
	got, err := json.Marshal(configurations(o, "vm"))
	if err != nil {
		t.Fatal(err)
	}
	all, ok := tree(t, got).(map[string]any)
	if !ok {
		t.Fatalf("%s", got)
	}
	for key, want := range map[string]string{
		"resource_provider_bandwidths":                          `{"br-a":{"egress":1000,"ingress":2000},"br-b":{"egress":null,"ingress":500}}`,
		"resource_provider_hypervisors":                         `{"br-a":"vm","br-b":"other","rp_tunnelled":"vm"}`,
		"resource_provider_packet_processing_without_direction": `{"hv1":{"any":700}}`,
		"resource_provider_inventory_defaults":                  `{"allocation_ratio":1.5,"min_unit":2}`,
		"tunneling_ip":                                          `null`,
	} {
		if diff := cmp.Diff(tree(t, []byte(want)), all[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

// The server's readers iterate over lists: one that nobody has set is empty, not null.
func TestListsOfTheReport(t *testing.T) {
	for _, o := range []*options.Options{{}, load(t, "")} {
		if c := configurations(o, "vm"); c.TunnelTypes == nil || c.Extensions == nil || len(c.TunnelTypes)+len(c.Extensions) > 0 {
			t.Errorf("tunnel types %#v, extensions %#v", c.TunnelTypes, c.Extensions)
		}
	}
}
