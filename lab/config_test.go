// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAgentConfig(t *testing.T) {
	neutron, ovs, err := agentConfig(agentParams{
		host: "hv1", dir: "/lab/hosts/hv1/agent", transportURL: "rabbit://u:p@10.251.0.1:5672/", localIP: "10.251.1.11",
		overrides: []string{
			"agent.l2_population=false", "ovs.bridge_mappings=", "DEFAULT.debug=true",
			"agent.extensions=qos,log", "oslo_messaging_rabbit.heartbeat_rate=3", "securitygroup.firewall_driver = noop",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantNeutron := `[DEFAULT]
host = hv1
transport_url = rabbit://u:p@10.251.0.1:5672/
state_path = /lab/hosts/hv1/agent/state
debug = true

[oslo_concurrency]
lock_path = /lab/hosts/hv1/agent/lock

[oslo_messaging_rabbit]
heartbeat_rate = 3
`
	wantOVS := `[ovs]
ovsdb_connection = tcp:127.0.0.1:6640
local_ip = 10.251.1.11
bridge_mappings =
datapath_type = netdev

[agent]
tunnel_types = vxlan,gre,geneve
l2_population = false
arp_responder = true
root_helper = env
root_helper_daemon =
extensions = qos,log

[securitygroup]
firewall_driver = noop

[privsep]
helper_command = env privsep-helper --config-file /lab/hosts/hv1/agent/neutron.conf --config-file /lab/hosts/hv1/agent/ovs.ini
`
	if diff := cmp.Diff(wantNeutron, neutron); diff != "" {
		t.Error("neutron.conf", diff)
	}
	if diff := cmp.Diff(wantOVS, ovs); diff != "" {
		t.Error("ovs.ini", diff)
	}
}

func TestOverridesThatAreNone(t *testing.T) {
	for _, s := range []string{"", "debug=true", "agent.x", ".x=1", "agent.=1", "=1"} {
		if _, _, err := agentConfig(agentParams{overrides: []string{s}}); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestServerConfig(t *testing.T) {
	neutron, ml2 := serverConfig(serverParams{dir: "/lab/server", apiPort: 9696, database: "mysql+pymysql://db", transportURL: "rabbit://b/"})
	for _, line := range []string{
		"auth_strategy = noauth", "bind_host = 127.0.0.1", "bind_port = 9696", "service_plugins = router,trunk,qos",
		"connection = mysql+pymysql://db", "transport_url = rabbit://b/", "rpc_workers = 1", "quota_port = -1",
	} {
		if !strings.Contains(neutron, "\n"+line+"\n") {
			t.Errorf("neutron.conf lacks %q", line)
		}
	}
	if neutron, _ := serverConfig(serverParams{workers: "4"}); !strings.Contains(neutron, "\nrpc_workers = 4\n") {
		t.Error("neutron.conf lacks its four workers")
	}
	if neutron, _ := serverConfig(serverParams{plugins: "local_ip,log"}); !strings.Contains(neutron, "\nservice_plugins = router,trunk,qos,local_ip,log\n") {
		t.Errorf("other service plugins are missing:\n%s", neutron)
	}
	neutron, _ = serverConfig(serverParams{dir: "/lab/server", queues: "kolla,denied"})
	for _, line := range []string{"policy_file = /lab/server/policy.yaml", "rabbit_stream_fanout = true", "use_queue_manager = true", "hostname = server"} {
		if !strings.Contains(neutron, "\n"+line+"\n") {
			t.Errorf("neutron.conf lacks %q", line)
		}
	}
	for _, line := range []string{
		"type_drivers = flat,vlan,vxlan,gre,geneve,local", "mechanism_drivers = openvswitch,l2population",
		"extension_drivers = port_security,qos",
	} {
		if !strings.Contains(ml2, "\n"+line+"\n") {
			t.Errorf("ml2.ini lacks %q", line)
		}
	}
}

func TestQueues(t *testing.T) {
	for q, want := range map[queues]bool{"": true, "denied": true, "kolla,denied": true, "quorum": true, "mirrored": false, "kolla, denied": false} {
		if err := q.check(); (err == nil) != want {
			t.Errorf("%q: %v", q, err)
		}
	}
	if conf := queues("kolla").conf() + queues("").conf(); conf != "" {
		t.Errorf("without denial: %q", conf)
	}
	if conf := queues("quorum,denied").conf(); !strings.Contains(conf, "transient_nonexcl_queues = false") {
		t.Errorf("with denial: %q", conf)
	}
	if list := queues("denied").options("hv1"); len(list) > 0 {
		t.Errorf("the broker's denial is no option of server and agents: %q", list)
	}
	neutron, _, err := agentConfig(agentParams{host: "hv1", queues: "kolla"})
	if err != nil || !strings.Contains(neutron, "\nhostname = hv1\n") {
		t.Errorf("agents share queues: %v\n%s", err, neutron)
	}
	for _, word := range QueueSets() {
		if _, known := queueSets[word]; !known || len(QueueSets()) != len(queueSets) {
			t.Errorf("%q is not known, or others are", word)
		}
	}
}
