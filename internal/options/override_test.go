// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"strings"
	"testing"
	"time"
)

func loadText(t *testing.T, text string) *Options {
	t.Helper()
	o, err := Load([]string{"--config-file", write(t, "a.conf", text), "--config-dir", t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOverride(t *testing.T) {
	o := loadText(t, "[oslo_messaging_rabbit]\nheartbeat_rate = 5\n")
	err := o.Override(map[string]string{
		"ssl": "1", "rabbit_quorum_queue": "true", "kombu_reconnect_delay": "0.5",
		"rabbit_transient_queues_ttl": "60", "kombu_ssl_ca_certs": "/ca$.pem", "rpc_conn_pool_size": "3",
	})
	if err != nil {
		t.Fatal(err)
	}
	r := o.Rabbit
	if !r.TLS || !r.QuorumQueue || r.ReconnectDelay != 500*time.Millisecond || r.TransientQueuesTTL != time.Minute ||
		r.TLSCAFile != "/ca$.pem" || r.HeartbeatRate != 5 {
		t.Errorf("%+v", r)
	}
}

func TestOverrideErrors(t *testing.T) {
	for _, test := range []struct{ key, value, want string }{
		{"sll", "hunter2", "no option of [oslo_messaging_rabbit]; did you mean ssl?"},
		{"hunter2hunter2", "1", "no option of [oslo_messaging_rabbit]."},
		{"ssl", "hunter2", "sets ssl, whose value is not a valid boolean."},
		{"heartbeat_rate", "99999999999", "sets heartbeat_rate, whose value is not sensible."},
		{"kombu_compression", "bz2", "a value that Patchbay does not support: gzip only."},
		{"rabbit_ha_queues", "1", "exclude each other"},
	} {
		o := loadText(t, "[DEFAULT]\ntransport_url = rabbit://\n[oslo_messaging_rabbit]\nrabbit_quorum_queue = true\n")
		err := o.Override(map[string]string{test.key: test.value})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", test.key, err, test.want)
		}
	}
}

func TestReload(t *testing.T) {
	path := write(t, "a.conf", "[DEFAULT]\nhost = a\n")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, err := Load([]string{"--config-file", path, "--config-dir", t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Override(map[string]string{"ssl": "1"}); err != nil {
		t.Fatal(err)
	}
	put("[DEFAULT]\nhost = b\ndebug = true\n[agent]\nreport_interval = 5\n")
	next, changes, err := Reload(o)
	if err != nil {
		t.Fatal(err)
	}
	if !next.Log.Debug || next.Default.Host != "a" || next.Agent.ReportInterval != 30*time.Second || !next.Rabbit.TLS {
		t.Errorf("%+v", next)
	}
	if len(changes.Changed) != 1 || len(changes.Ignored) != 2 {
		t.Errorf("%+v", changes)
	}
	put("[DEFAULT]\ndebug = maybe\n")
	if _, _, err := Reload(next); err == nil || !strings.Contains(err.Error(), "a.conf:2") {
		t.Errorf("%v", err)
	}
	if next, _, err = Reload(next); err == nil || next != nil {
		t.Errorf("%v", err)
	}
	put("[DEFAULT]\nlog_config_append = /x\n")
	next, _, err = Reload(o)
	if err != nil || next.Log.Debug || next.Log.Config != "/x" || len(next.Unsupported()) != 0 || len(next.Logging().Unmet) != 1 {
		t.Errorf("%+v %v", next, err)
	}
}

func TestDerived(t *testing.T) {
	o := loadText(t, `[DEFAULT]
log_dir = /var/log
log_file = x.log
[ovs]
bridge_mappings = physnet1:br-ex
resource_provider_bandwidths = br-ex:1000:, rp_tunnelled::5
resource_provider_packet_processing_without_direction = :7
resource_provider_inventory_defaults = allocation_ratio:2.5,reserved:3
igmp_flood = true
[agent]
arp_responder = true
dscp = 0
[securitygroup]
permitted_ethertypes = 0x4008, nonsense, 0xfffff
`)
	p := o.OVS.Placement
	if o.Log.File != "/var/log/x.log" || o.Agent.ARPResponder || o.Agent.DSCP != nil ||
		len(o.SecurityGroup.PermittedEthertypes) != 1 || o.SecurityGroup.PermittedEthertypes[0] != 0x4008 ||
		*p.Bandwidths["br-ex"].Egress != 1000 || p.Bandwidths["br-ex"].Ingress != nil || *p.PacketRates[o.Default.Host].Any != 7 ||
		*p.Inventory.AllocationRatio != 2.5 || *p.Inventory.Reserved != 3 || p.Inventory.MinUnit != nil ||
		!o.OVS.IGMPFlood || !o.OVS.IGMPFloodReports || o.OVS.IGMPFloodUnregistered {
		t.Errorf("%+v", o)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"local_ip", "tunnel_bridge", "bridge_mappings", "ssl", "log_file"}
	for name, want := range map[string]string{"locl_ip": "local_ip", "lcoal_ip": "local_ip", "brige_mapings": "bridge_mappings", "sll": "ssl", "qwerty": "", "x": ""} {
		if have := Nearest(name, names); have != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
	}
}
