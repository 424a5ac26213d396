// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

func agentRows() []row {
	flag := func(name string, def bool, help string, field func(*Options) any) row {
		return row{Option: config.Option{Group: groupAgent, Name: name, Type: config.Bool{}, Default: def, Help: help}, field: field}
	}
	num := func(name string, def int, help string) row {
		return row{Option: config.Option{Group: groupAgent, Name: name, Type: config.Int{}, Default: def, Help: help}}
	}
	unprivileged := "Patchbay runs no helper programs; give the service the capabilities it needs"
	veth := num("veth_mtu", 9000, "MTU of veth pairs")
	veth.Removal = "it has had no effect since Neutron 18"
	quitting := noEffect(num("quitting_rpc_timeout", 10, "seconds that calls may take once the agent was told to stop; 0: no limit of its own"),
		"a stop waits for no call; it ends within a second")
	quitting.advise = atLeast(0)
	veth.releases = "17 to 23"
	return []row{
		noEffect(num("polling_interval", 2, "seconds between looks at the switch"), "Patchbay is told about changes and does not poll"),
		noEffect(flag("minimize_polling", true, "watch OVSDB instead of polling", nil), "Patchbay never polls, so there is nothing to minimise"),
		noEffect(num("ovsdb_monitor_respawn_interval", 30, "seconds before the OVSDB monitor process is started again"),
			"OVSDB is watched on a connection; there is no monitor process"),
		quitting,
		{Option: config.Option{Group: groupAgent, Name: "dscp", Type: config.Int{Min: config.Limit[int64](0), Max: config.Limit[int64](63)},
			Help: "DSCP of tunnel packets; 0 is the same as not set"},
			field: func(o *Options) any { return &o.Agent.DSCP }},
		flag("dscp_inherit", false, "copy the DSCP of the inner packet; wins over dscp", func(o *Options) any { return &o.Agent.DSCPInherit }),
		{Option: config.Option{Group: groupAgent, Name: "report_interval", Type: config.Float{}, Default: 30,
			Help: "seconds between reports to the server, and how long one may take; should be less than half of the server's agent_down_time"},
			field: func(o *Options) any { return &o.Agent.ReportInterval }, advise: func(v config.Value) string {
				if v.Float() > 0 {
					return ""
				}
				return "switches reports off, so the server will take the agent for dead"
			}},
		flag("log_agent_heartbeats", false, "ask the server to log this agent's reports", func(o *Options) any { return &o.Agent.LogHeartbeats }),
		{Option: config.Option{Group: groupAgent, Name: "tunnel_types", Type: config.List{}, Default: "",
			Help: "tunnels to other hosts: gre, vxlan, geneve"},
			field: func(o *Options) any { return &o.Agent.TunnelTypes }},
		{Option: config.Option{Group: groupAgent, Name: "vxlan_udp_port", Type: config.Port(), Default: 4789, Help: "UDP port of VXLAN tunnels"},
			field: func(o *Options) any { return &o.Agent.VXLANUDPPort }},
		noEffect(veth, "there are no veth pairs"),
		flag("l2_population", false, "learn tunnel endpoints and addresses from the server; the server must have the l2population driver",
			func(o *Options) any { return &o.Agent.L2Population }),
		flag("arp_responder", false, "answer ARP on the host; needs l2_population", func(o *Options) any { return &o.Agent.ARPResponder }),
		flag("dont_fragment", true, "set the don't-fragment bit on tunnel packets", func(o *Options) any { return &o.Agent.DontFragment }),
		flag("enable_distributed_routing", false, "distributed virtual routers; with tunnels needs l2_population, and answers ARP on the host",
			func(o *Options) any { return &o.Agent.DistributedRouting }),
		advised(flag("drop_flows_on_start", false, "begin with empty flow tables instead of keeping traffic going", nil),
			"flows are compared at start, and those that are wrong are replaced",
			adviseTrue("asks for empty flow tables at start, which Patchbay does not do: it compares, and removes what is wrong")),
		flag("tunnel_csum", false, "checksums in tunnel headers", func(o *Options) any { return &o.Agent.TunnelCsum }),
		withReason(flag("baremetal_smartnic", false, "plug ports of smart NICs", func(o *Options) any { return &o.Agent.BaremetalSmartNIC }),
			"smart NIC ports are missing: such ports would not be wired", whenTrue("asks for smart NIC ports, which Patchbay does not have yet")),
		flag("explicitly_egress_direct", false, "send known unicast directly instead of flooding it",
			func(o *Options) any { return &o.Agent.ExplicitEgressDirect }),
		{Option: config.Option{Group: "agent", Name: "extensions", Type: config.List{}, Default: "",
			Help: "extensions to load, in this order: qos, fdb, log, dhcp, local_ip, metadata_path, dns_forwarder, taas"},
			field: func(o *Options) any { return &o.Agent.Extensions }, support: Partly,
			why: "of these there is " + strings.Join(Extensions(), ", ") + "; [patchbay] unknown_extensions decides about others, and one that filters ports (fwaas_v2) always stops", refuseWith: refuseExtensions},
		{Option: config.Option{Group: groupAgent, Name: "root_helper", Default: "sudo", Help: "command that runs others as root"},
			support: NoEffect, why: unprivileged},
		{Option: config.Option{Group: groupAgent, Name: "root_helper_daemon", Help: "the same, as a daemon"}, support: NoEffect, why: unprivileged},
		noEffect(flag("use_helper_for_ns_read", true, "list network namespaces as root", nil), unprivileged),
		flag("comment_iptables_rules", true, "with iptables_hybrid: comments on rules", func(o *Options) any { return &o.Agent.RuleComments }),
		noEffect(flag("debug_iptables_rules", false, "check iptables rules after each change", nil), "rules are compared in any case"),
		noEffect(flag("use_random_fully", true, "random source ports in iptables rules", nil), "the agent has no rule that it is about"),
	}
}

// Extensions are the names of those that Patchbay has.
func Extensions() []string {
	return []string{"qos", "dhcp", "fdb", "log", "local_ip", "metadata_path", "dns_forwarder", "taas"}
}

// What unknown_extensions can be.
const (
	stopOnUnknown = "stop"
	ignoreUnknown = "ignore"
)

// isolating are extensions of others that filter what ports send and receive. Going on without one would open what it has closed.
func isolating(name string) bool { return name == "fwaas_v2" }

// refuseExtensions completes a sentence for every extension that stops the start.
func refuseExtensions(conf *config.Config, v config.Value) []string {
	var out []string
	unknown, err := conf.Get("patchbay", "unknown_extensions")
	ignore := err == nil && unknown.Text() == ignoreUnknown
	for _, name := range missingExtensions(v.List()) {
		switch {
		case isolating(name):
			out = append(out, fmt.Sprintf("names %s, which filters ports and which Patchbay does not have; it stops whatever [patchbay] unknown_extensions is", name))
		case !ignore:
			out = append(out, describeExtension(name)+"; set [patchbay] unknown_extensions = ignore to go on without it")
		}
	}
	return out
}

// missingExtensions are those of the names that Patchbay does not have.
func missingExtensions(names []string) []string {
	var out []string
	for _, name := range names {
		if name != "" && !slices.Contains(Extensions(), name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func describeExtension(name string) string {
	return fmt.Sprintf("names %s, an extension that Patchbay does not know", name)
}

// MissingExtensions are the extensions that the options name and the agent goes on without.
func (o *Options) MissingExtensions() []string { return missingExtensions(o.Agent.Extensions) }

func securityGroupRows() []row {
	const group = "SECURITYGROUP"
	return []row{
		{Option: config.Option{Group: group, Name: "firewall_driver", Help: "what filters ports: openvswitch, or iptables_hybrid for ports that are plugged in through a Linux bridge; noop or unset: nothing"},
			field: func(o *Options) any { return &o.SecurityGroup.FirewallDriver }, support: Partly,
			why: "iptables, the driver of the Linux bridge agent, is missing", refuse: refuseFirewall},
		{Option: config.Option{Group: group, Name: "enable_security_group", Type: config.Bool{}, Default: true,
			Help: "filter ports by their security groups"},
			field: func(o *Options) any { return &o.SecurityGroup.Enabled }},
		{Option: config.Option{Group: group, Name: "enable_ipset", Type: config.Bool{}, Default: true,
			Help: "with iptables_hybrid: IP sets for the members of groups, instead of a rule for each"},
			field: func(o *Options) any { return &o.SecurityGroup.IPSets }},
		{Option: config.Option{Group: group, Name: "permitted_ethertypes", Type: config.List{}, Default: "",
			Help: "further ethernet types that the firewall lets through, in hexadecimal: 0x4008"},
			field: func(o *Options) any { return &o.SecurityGroup.PermittedEthertypes }},
	}
}

func refuseFirewall(v config.Value) []string {
	switch name := v.Text(); {
	case driver(name) != "":
		return nil
	case strings.Contains(strings.ToLower(name), "iptables"):
		return []string{"asks for the firewall of the Linux bridge agent; ports of Open vSwitch have iptables_hybrid"}
	}
	return []string{"names a firewall that Patchbay does not know; it has openvswitch, iptables_hybrid and noop"}
}

// The firewalls that Patchbay has.
const (
	FirewallNone        = "noop"
	FirewallOpenVSwitch = "openvswitch"
	FirewallHybrid      = "iptables_hybrid"
)

// driver finds the firewall that a name stands for: Neutron takes its name, or that of its class; "" for others.
func driver(name string) string {
	switch name {
	case "", FirewallNone, "neutron.agent.firewall.NoopFirewallDriver", "neutron.agent.firewall:NoopFirewallDriver":
		return FirewallNone
	case FirewallOpenVSwitch,
		"neutron.agent.linux.openvswitch_firewall.OVSFirewallDriver", "neutron.agent.linux.openvswitch_firewall:OVSFirewallDriver",
		"neutron.agent.linux.openvswitch_firewall.firewall.OVSFirewallDriver":
		return FirewallOpenVSwitch
	case FirewallHybrid,
		"neutron.agent.linux.iptables_firewall.OVSHybridIptablesFirewallDriver", "neutron.agent.linux.iptables_firewall:OVSHybridIptablesFirewallDriver":
		return FirewallHybrid
	}
	return ""
}

// notNeutrons stands for the releases of an option that only Patchbay has. The Python agent ignores it.
const notNeutrons = "none"

func patchbayRows() []row {
	return []row{
		{Option: config.Option{Group: "patchbay", Name: "fail_closed", Type: config.Bool{}, Default: true,
			Help: "with the openvswitch firewall: drop packets of interfaces of the integration bridge until it is known what they are; with iptables_hybrid: do not wire a port that has to be filtered and is plugged in without a Linux bridge"},
			field: func(o *Options) any { return &o.Patchbay.FailClosed }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "admin_socket", Default: "$state_path/patchbay.sock",
			Help: "unix socket on which the commands of patchbay ask the agent; empty: none"},
			field: func(o *Options) any { return &o.Patchbay.AdminSocket }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "admin_socket_group", Default: "",
			Help: "group that may use that socket, besides the agent's user; empty: the agent's own group"},
			field: func(o *Options) any { return &o.Patchbay.AdminSocketGroup }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "metrics_listen", Default: "",
			Help: "address and port on which metrics, livez and readyz are served over TCP, such as 127.0.0.1:9697; empty: on the socket only"},
			field: func(o *Options) any { return &o.Patchbay.MetricsListen }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "conntrack_limit_per_network", Type: config.Int{Min: config.Limit[int64](0), Max: config.Limit[int64](1<<32 - 1)}, Default: 0,
			Help: "with the openvswitch firewall: how many tracked connections a network may have on this host, so that one network cannot use up those of the others; 0: no limit"},
			field: func(o *Options) any { return &o.Patchbay.ConntrackLimit }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "drop_fragments", Type: config.Bool{}, Default: false,
			Help: "with the openvswitch firewall and datapath_type = netdev: have Open vSwitch before 4.0 drop the fragments of packets that are tracked, since it can let one out into another network; VMs then send and receive no fragmented packets. To set it back takes effect when ovs-vswitchd starts again"},
			field: func(o *Options) any { return &o.Patchbay.DropFragments }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "unknown_extensions", Type: config.String{Choices: []string{stopOnUnknown, ignoreUnknown}}, Default: stopOnUnknown,
			Help: "what an extension in [agent] extensions leads to that Patchbay does not have: stop at the start, or ignore, with a warning, a line in status and " +
				"the metric patchbay_configuration_unmet; one that filters ports always stops"},
			field: func(o *Options) any { return &o.Patchbay.UnknownExtensions }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "report_version", Type: config.Bool{}, Default: false,
			Help: "add this program's version to the agent's configurations in Neutron, so that openstack network agent show tells hosts with Patchbay from those without"},
			field: func(o *Options) any { return &o.Patchbay.ReportVersion }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "tape_size", Type: config.Int{Min: config.Limit[int64](0), Max: config.Limit[int64](4096)}, Default: 32,
			Help: "how many MiB the file $state_path/patchbay.tape may take, in which the agent records the inputs of its decisions for patchbay replay; as many again are kept of the agent before it; 0: nothing is recorded"},
			field: func(o *Options) any { return &o.Patchbay.TapeSize }, releases: notNeutrons},
		{Option: config.Option{Group: "patchbay", Name: "fanout_stream", Type: config.Bool{}, Default: false,
			Help: "read what neutron-server sends to all agents from one stream on the broker, instead of a copy in the queue of each; for regions of thousands of hosts, on RabbitMQ 3.9 or later"},
			field: func(o *Options) any { return &o.Patchbay.FanoutStream }, releases: notNeutrons},
	}
}
