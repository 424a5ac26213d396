// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"fmt"
	"strings"
)

// serverParams is what the server's configuration depends on.
type serverParams struct {
	dir          string
	apiPort      int
	database     string // SQLAlchemy URL
	transportURL string
	workers      string // processes that serve RPC
	plugins      string // service plugins besides those that every server has, separated by commas
	queues       queues
}

// serverConfig renders neutron.conf and ml2.ini of neutron-server.
func serverConfig(p serverParams) (neutron, ml2 string) {
	var n ini
	n.setAll("DEFAULT",
		"auth_strategy = noauth", // no Keystone: every request is an administrator's
		"core_plugin = ml2",
		"service_plugins = "+strings.Join(append([]string{"router", "trunk", "qos"}, strings.FieldsFunc(p.plugins, func(r rune) bool { return r == ',' })...), ","),
		"bind_host = 127.0.0.1",
		fmt.Sprintf("bind_port = %d", p.apiPort),
		"api_workers = 1",
		"rpc_workers = "+cmp.Or(p.workers, "1"),
		"transport_url = "+p.transportURL,
		"state_path = "+p.dir+"/state",
		"allow_overlapping_ips = true", // before 21; later ones always do, and do not know the option
		"notify_nova_on_port_status_changes = false",
		"notify_nova_on_port_data_changes = false",
		// A process title is written over the environment, by which we recognise our processes.
		"setproctitle = off",
	)
	n.setAll("database", "connection = "+p.database)
	n.setAll("oslo_concurrency", "lock_path = "+p.dir+"/lock")
	n.setAll("oslo_messaging_notifications", "driver = noop")
	n.setAll("oslo_messaging_rabbit", p.queues.options("server")...)
	n.setAll("oslo_policy", "policy_file = "+p.dir+"/policy.yaml")
	n.setAll("quotas",
		"quota_network = -1", "quota_subnet = -1", "quota_port = -1",
		"quota_security_group = -1", "quota_security_group_rule = -1", "quota_trunk = -1")

	var m ini
	m.setAll("ml2",
		"type_drivers = flat,vlan,vxlan,gre,geneve,local",
		"tenant_network_types = vxlan",
		"mechanism_drivers = openvswitch,l2population",
		"extension_drivers = port_security,qos",
	)
	m.setAll("ml2_type_flat", "flat_networks = *")
	m.setAll("ml2_type_vlan", "network_vlan_ranges = physnet1:100:299")
	m.setAll("ml2_type_vxlan", "vni_ranges = 1:1000")
	m.setAll("ml2_type_gre", "tunnel_id_ranges = 1:1000")
	m.setAll("ml2_type_geneve", "vni_ranges = 1:1000", "max_header_size = 38")
	m.setAll("securitygroup", "enable_security_group = true")
	return n.String(), m.String()
}

// serverPolicy lets everybody do what is Nova's to do, bindings of a port on a second host for instance: without Keystone nobody has a role.
const serverPolicy = `"service_api": "@"
`

// agentParams is what a host's configuration depends on.
type agentParams struct {
	host         string
	dir          string // of the agent
	transportURL string
	localIP      string
	queues       queues
	overrides    []string
}

// agentConfig renders the two files that either agent starts from, neutron.conf and ovs.ini. Overrides of [DEFAULT] and of
// the oslo sections go to the first, all others to the second.
func agentConfig(p agentParams) (neutron, ovs string, err error) {
	var n, o ini
	n.setAll("DEFAULT",
		"host = "+p.host,
		"transport_url = "+p.transportURL,
		"state_path = "+p.dir+"/state",
	)
	n.setAll("oslo_concurrency", "lock_path = "+p.dir+"/lock")
	n.setAll("oslo_messaging_rabbit", p.queues.options(p.host)...)
	o.setAll("ovs",
		"ovsdb_connection = tcp:127.0.0.1:6640",
		"local_ip = "+p.localIP,
		"bridge_mappings = physnet1:br-ex",
		"datapath_type = netdev",
	)
	o.setAll("agent",
		"tunnel_types = vxlan,gre,geneve",
		"l2_population = true",
		"arp_responder = true",
		// Root already: env only runs the command.
		"root_helper = env",
		"root_helper_daemon =",
	)
	// What both agents can do: Patchbay has no firewall yet.
	o.setAll("securitygroup", "firewall_driver = noop")
	o.setAll("privsep", "helper_command = env privsep-helper"+
		" --config-file "+p.dir+"/neutron.conf --config-file "+p.dir+"/ovs.ini")
	for _, s := range p.overrides {
		section, name, value, err := parseOverride(s)
		if err != nil {
			return "", "", err
		}
		switch section {
		case "DEFAULT", "oslo_concurrency", "oslo_messaging_rabbit", "oslo_messaging_notifications":
			n.set(section, name, value)
		default:
			o.set(section, name, value)
		}
	}
	return n.String(), o.String(), nil
}
