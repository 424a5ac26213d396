// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	path := write(t, "agent.conf", `[DEFAULT]
host = compute-1
transport_url = rabbit://u:hidden@broker:5672/v
[ovs]
local_ip = 192.0.2.1
bridge_mappings = physnet1:br-ex, physnet2:br-2
[agent]
tunnel_types = vxlan
report_interval = 2.5
[securitygroup]
firewall_driver = noop
`)
	o, err := Load([]string{"--config-file", path, "--config-dir", t.TempDir()}, []string{"OS_AGENT__VXLAN_UDP_PORT=8472"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Default.Host != "compute-1" || o.Default.TransportURL.Reveal() != "rabbit://u:hidden@broker:5672/v" ||
		o.Agent.ReportInterval != 2500*time.Millisecond || o.Agent.VXLANUDPPort != 8472 ||
		len(o.OVS.BridgeMappings) != 2 || o.OVS.BridgeMappings[1] != (Mapping{"physnet2", "br-2"}) {
		t.Errorf("%+v", o)
	}
	if p := o.Unsupported(); p != nil {
		t.Error(p)
	}
}
