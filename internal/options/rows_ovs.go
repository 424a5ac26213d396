// SPDX-License-Identifier: Apache-2.0

package options

import "github.com/patchbay-sdn/patchbay/oslo/config"

// The group names are spelled as the Python agent declares them: files do not
// care, but "$OVS.local_ip" in a value does.
const (
	groupOVS   = "OVS"
	groupAgent = "AGENT"
)

const inventoryDefaults = "allocation_ratio:1.0,min_unit:1,step_size:1,reserved:0"

func ovsRows() []row {
	str := func(name, def, help string, field func(*Options) any) row {
		return row{Option: config.Option{Group: groupOVS, Name: name, Default: def, Help: help}, field: field}
	}
	unset := func(r row) row { r.Default = nil; return r }
	list := func(name, help string, field func(*Options) any) row {
		return row{Option: config.Option{Group: groupOVS, Name: name, Type: config.List{}, Default: "", Help: help}, field: field}
	}
	flag := func(name, help string, field func(*Options) any) row {
		return row{Option: config.Option{Group: groupOVS, Name: name, Type: config.Bool{}, Default: false, Help: help}, field: field}
	}
	num := func(name string, def, least int, help string, field func(*Options) any) row {
		return row{Option: config.Option{Group: groupOVS, Name: name, Type: config.Int{}, Default: def, Help: help},
			field: field, advise: atLeast(least)}
	}
	bridge := str("integration_bridge", "br-int", "bridge that instances are plugged into",
		func(o *Options) any { return &o.OVS.IntegrationBridge })
	bridge.Deprecated = []config.Name{{Option: "ovs_integration_bridge"}}
	return []row{
		bridge,
		str("tunnel_bridge", "br-tun", "bridge of the tunnels", func(o *Options) any { return &o.OVS.TunnelBridge }),
		str("int_peer_patch_port", "patch-tun", "patch port on the integration bridge towards the tunnel bridge",
			func(o *Options) any { return &o.OVS.IntPeerPatchPort }),
		str("tun_peer_patch_port", "patch-int", "patch port on the tunnel bridge towards the integration bridge",
			func(o *Options) any { return &o.OVS.TunPeerPatchPort }),
		{Option: config.Option{Group: groupOVS, Name: "local_ip", Type: config.IP{},
			Help: "address of this host as a tunnel endpoint; needed when tunnel_types is set"},
			field: func(o *Options) any { return &o.OVS.LocalIP }},
		list("bridge_mappings", "physical networks and their bridges, physnet:bridge; the bridges must exist",
			func(o *Options) any { return &o.OVS.BridgeMappings }),
		list("resource_provider_bandwidths", "bridge:egress:ingress in kbit/s, reported to Placement",
			func(o *Options) any {
				return parser(func(v config.Value) (err error) {
					o.OVS.Placement.Bandwidths, err = parseRates(v.List(), "bridge:egress:ingress", "egress", "ingress")
					return err
				})
			}),
		{Option: config.Option{Group: groupOVS, Name: "resource_provider_hypervisors", Type: config.Dict{}, Default: "",
			Help: "bridge:hypervisor, reported to Placement"},
			field: func(o *Options) any { return &o.OVS.Placement.Hypervisors }},
		unset(str("resource_provider_default_hypervisor", "", "hypervisor for bridges that are not listed; else the host name",
			func(o *Options) any { return &o.OVS.Placement.DefaultHypervisor })),
		since("21 and later", list("resource_provider_packet_processing_without_direction",
			"hypervisor:rate in kpackets/s, reported to Placement",
			func(o *Options) any {
				return parser(func(v config.Value) (err error) {
					o.OVS.Placement.PacketRates, err = parseHostRates(v.List(), o.Default.Host, "hypervisor:rate", "any")
					return err
				})
			})),
		since("21 and later", list("resource_provider_packet_processing_with_direction",
			"hypervisor:egress:ingress in kpackets/s, reported to Placement",
			func(o *Options) any {
				return parser(func(v config.Value) (err error) {
					o.OVS.Placement.DirectedPacketRates, err = parseHostRates(v.List(), o.Default.Host, "hypervisor:egress:ingress", "egress", "ingress")
					return err
				})
			})),
		{Option: config.Option{Group: groupOVS, Name: "resource_provider_inventory_defaults", Type: config.Dict{}, Default: inventoryDefaults,
			Help: "Placement inventory of bandwidths: allocation_ratio, min_unit, max_unit, step_size, reserved"},
			field: func(o *Options) any {
				return parser(func(v config.Value) (err error) {
					o.OVS.Placement.Inventory, err = parseInventory(v.Dict())
					return err
				})
			}},
		{Option: config.Option{Group: groupOVS, Name: "resource_provider_packet_processing_inventory_defaults", Type: config.Dict{},
			Default: inventoryDefaults, Help: "Placement inventory of packet rates"},
			field: func(o *Options) any {
				return parser(func(v config.Value) (err error) {
					o.OVS.Placement.PacketInventory, err = parseInventory(v.Dict())
					return err
				})
			}, releases: "21 and later"},
		{Option: config.Option{Group: groupOVS, Name: "datapath_type", Type: config.String{Choices: []string{"system", "netdev"}}, Default: "system",
			Help: "datapath of the bridges: kernel (system) or user space (netdev)"},
			field: func(o *Options) any { return &o.OVS.DatapathType }},
		str("vhostuser_socket_dir", "/var/run/openvswitch", "directory of vhost-user sockets, reported to the server",
			func(o *Options) any { return &o.OVS.VhostUserSockets }),
		{Option: config.Option{Group: groupOVS, Name: "of_listen_address", Type: config.IP{}, Default: "127.0.0.1",
			Help: "address on which bridges reach the agent as their controller"},
			field: func(o *Options) any { return &o.OVS.OFListenAddress }},
		{Option: config.Option{Group: groupOVS, Name: "of_listen_port", Type: config.Port(), Default: 6633,
			Help: "port of of_listen_address"},
			field: func(o *Options) any { return &o.OVS.OFListenPort }},
		num("of_connect_timeout", 300, 1, "seconds that one attempt to connect to a bridge may take before the next, 10 at most; not set: 10", func(o *Options) any { return &o.OVS.OFConnectTimeout }),
		num("of_request_timeout", 300, 1, "seconds to wait for a bridge to answer when its flows are read; not set: 30. A round of changes has 30 seconds", func(o *Options) any { return &o.OVS.OFRequestTimeout }),
		num("of_inactivity_probe", 10, 0, "seconds between probes of an idle bridge; 0: none", func(o *Options) any { return &o.OVS.OFInactivity }),
		since("21 and later", noEffect(flag("openflow_processed_per_port", "commit the flows of each port on their own", nil),
			"what changes at a time is one atomic bundle of the flows that differ")),
		str("ovsdb_connection", "tcp:127.0.0.1:6640", "OVSDB server: tcp:host:port, ssl:host:port or unix:path; not set: the unix socket db.sock, where Open vSwitch has its run directory",
			func(o *Options) any { return &o.OVS.OVSDBConnection }),
		unset(str("ssl_key_file", "", "private key for an ssl: OVSDB connection", func(o *Options) any { return &o.OVS.SSLKeyFile })),
		unset(str("ssl_cert_file", "", "certificate for an ssl: OVSDB connection", func(o *Options) any { return &o.OVS.SSLCertFile })),
		unset(str("ssl_ca_cert_file", "", "authority that signed the OVSDB server's certificate", func(o *Options) any { return &o.OVS.SSLCACertFile })),
		noEffect(flag("ovsdb_debug", "log what the Python OVSDB library does", nil), "there is no such library; debug = true covers OVSDB"),
		num("ovsdb_timeout", 10, 1, "seconds that ovsdb-server may take for a transaction; a round of changes has 30 seconds", func(o *Options) any { return &o.OVS.OVSDBTimeout }),
		num("bridge_mac_table_size", 50000, 0, "entries of a bridge's MAC table", func(o *Options) any { return &o.OVS.BridgeMACTableSize }),
		flag("igmp_snooping_enable", "multicast snooping on the integration bridge", func(o *Options) any { return &o.OVS.IGMPSnooping }),
		since("24 and later", flag("igmp_flood", "with igmp_snooping_enable: flood multicast to the bridges of tunnels and physical networks, registered there or not",
			func(o *Options) any { return &o.OVS.IGMPFlood })),
		{Option: config.Option{Group: groupOVS, Name: "igmp_flood_reports", Type: config.Bool{}, Default: true,
			Help: "with igmp_snooping_enable: flood reports of multicast receivers to the bridges of tunnels and physical networks"},
			field: func(o *Options) any { return &o.OVS.IGMPFloodReports }, releases: "24 and later"},
		since("24 and later", flag("igmp_flood_unregistered", "with igmp_snooping_enable: flood multicast that nobody has registered for within its network",
			func(o *Options) any { return &o.OVS.IGMPFloodUnregistered })),
		since("26 and later", flag("qos_meter_bandwidth", "limit bandwidth with meters instead of the switch's policing and queues, where the switch has meters",
			func(o *Options) any { return &o.OVS.QoSMeterBandwidth })),
		{Option: config.Option{Group: groupOVS, Name: "trunk_enabled", Type: config.Bool{}, Default: true, Help: "handle trunk ports"},
			field: func(o *Options) any { return &o.OVS.TrunkEnabled }, releases: "28 and later"},
		since("17 only", withReason(flag("use_veth_interconnection", "join bridges with veth pairs instead of patch ports", nil),
			"bridges are joined with patch ports only: beside veth pairs they would make a loop",
			whenTrue("asks for veth pairs between bridges, which Neutron itself has removed; Patchbay uses patch ports"))),
	}
}
