// SPDX-License-Identifier: Apache-2.0

package options

import "github.com/patchbay-sdn/patchbay/oslo/config"

func extensionRows() []row {
	least := func(n int64) config.Int { return config.Int{Min: config.Limit(n)} }
	text, flag, num := config.String{}, config.Bool{}, config.Int{}
	dhcp := func(name string, t config.Type, def any, help string, field func(*Options) any) row {
		return row{Option: config.Option{Group: "DHCP", Name: name, Type: t, Default: def, Help: help}, field: field}
	}
	logs := func(name string, t config.Type, def any, help string, field func(*Options) any) row {
		return row{Option: config.Option{Group: "network_log", Name: name, Type: t, Default: def, Help: help}, field: field}
	}
	metadata := func(name string, t config.Type, def any, help string, field func(*Options) any) row {
		return since("26 and later", row{Option: config.Option{Group: "metadata", Name: name, Type: t, Default: def, Help: "with the extension metadata_path: " + help}, field: field})
	}
	dns := func(name string, t config.Type, def any, help string, field func(*Options) any) row {
		return since("29 and later", row{Option: config.Option{Group: "dns_forwarder", Name: name, Type: t, Default: def, Help: "with the extension dns_forwarder: " + help}, field: field})
	}
	secret := metadata("metadata_proxy_shared_secret", text, "", "secret shared with Nova", func(o *Options) any { return &o.Metadata.SharedSecret })
	secret.Secret = true
	return []row{
		dhcp("enable_ipv6", flag, true, "answer DHCPv6", func(o *Options) any { return &o.DHCP.EnableIPv6 }),
		dhcp("dhcp_renewal_time", num, 0, "seconds; 0: half of the lease", func(o *Options) any { return &o.DHCP.RenewalTime }),
		dhcp("dhcp_rebinding_time", num, 0, "seconds; 0: seven eighths of the lease", func(o *Options) any { return &o.DHCP.RebindingTime }),
		since("20 and later", row{Option: config.Option{Group: "LOCAL_IP", Name: "static_nat", Type: flag, Default: false,
			Help: "with the extension local_ip: translate without connection tracking, but for ICMP"}, field: func(o *Options) any { return &o.LocalIP.StaticNAT }}),
		{Option: config.Option{Group: "FDB", Name: "shared_physical_device_mappings", Type: config.List{}, Default: "",
			Help: "with the extension fdb: physnet:device shared with SR-IOV ports; a physical network may have several"},
			field: func(o *Options) any { return &o.FDB.SharedDevices }},
		logs("rate_limit", least(100), 100, "with the extension log: lines a second on this host, besides one of each port", func(o *Options) any { return &o.NetworkLog.RateLimit }),
		logs("burst_limit", least(25), 25, "with the extension log: lines at once", func(o *Options) any { return &o.NetworkLog.BurstLimit }),
		logs("local_output_log_base", text, nil, "with the extension log: file for its lines; not set: the agent's log, and the journal or the system log",
			func(o *Options) any { return &o.NetworkLog.OutputFile }),
		metadata("provider_cidr", text, "240.0.0.0/16", "addresses given to ports on the metadata path", func(o *Options) any { return &o.Metadata.ProviderCIDR }),
		metadata("provider_vlan_id", num, 1, "VLAN of the metadata path", func(o *Options) any { return &o.Metadata.ProviderVLAN }),
		metadata("provider_base_mac", text, "fa:16:ee:00:00:00", "first octets of MAC addresses on the metadata path",
			func(o *Options) any { return &o.Metadata.ProviderBaseMAC }),
		metadata("host_proxy_listen_port", config.Port(), 80, "port of the proxy on this host", func(o *Options) any { return &o.Metadata.HostProxyPort }),
		metadata("nova_metadata_host", config.HostAddress{}, "127.0.0.1", "host of Nova's metadata service", func(o *Options) any { return &o.Metadata.NovaHost }),
		metadata("nova_metadata_port", config.Port(), 8775, "port of Nova's metadata service", func(o *Options) any { return &o.Metadata.NovaPort }),
		metadata("nova_metadata_protocol", config.String{Choices: []string{"http", "https"}}, "http", "protocol of Nova's metadata service",
			func(o *Options) any { return &o.Metadata.NovaProtocol }),
		metadata("nova_metadata_insecure", flag, false, "do not verify its certificate", func(o *Options) any { return &o.Metadata.NovaInsecure }),
		secret,
		metadata("auth_ca_cert", text, nil, "authority that signed its certificate", func(o *Options) any { return &o.Metadata.AuthCACert }),
		metadata("nova_client_cert", text, "", "certificate of this client", func(o *Options) any { return &o.Metadata.NovaClientCert }),
		metadata("nova_client_priv_key", text, "", "private key of this client", func(o *Options) any { return &o.Metadata.NovaClientPrivKey }),
		dns("upstream_dns_server_ports", config.List{}, "", "resolvers to ask in this order, 192.0.2.53:53 or [2001:db8::53]:53; empty: queries are not answered here",
			func(o *Options) any { return &o.DNSForwarder.Upstream }),
		dns("upstream_dns_query_timeout", least(1), 5, "seconds to wait for them, all together", func(o *Options) any { return &o.DNSForwarder.UpstreamTimeout }),
		dns("client_dns_server_ports", config.List{}, "169.254.169.254:53,[fd00::254]:53", "where instances ask", func(o *Options) any { return &o.DNSForwarder.Listen }),
		since("22 and later", row{Option: config.Option{Group: "ml2", Name: "tunnelled_network_rp_name", Default: "rp_tunnelled",
			Help: "Placement resource provider of tunnelled networks"}, field: func(o *Options) any { return &o.ML2.TunnelledNetworkRPName }}),
	}
}

// libraryRows are options of Python libraries that the agent has loaded, and
// that nothing here could use.
func libraryRows() []row {
	library := func(group, name string, t config.Type, def any, help, why string) row {
		return noEffect(row{Option: config.Option{Group: group, Name: name, Type: t, Default: def, Help: help}}, why)
	}
	text, flag, num := config.String{}, config.Bool{}, config.Int{}
	var rows []row
	privsep := "Patchbay needs no privileged helper process"
	for _, group := range []string{"privsep", "privsep_dhcp_release", "privsep_ovs_vsctl", "privsep_namespace", "privsep_conntrack", "privsep_link"} {
		rows = append(rows,
			library(group, "user", text, nil, "user of the helper", privsep),
			library(group, "group", text, nil, "group of the helper", privsep),
			library(group, "capabilities", config.List{}, nil, "capabilities of the helper", privsep),
			library(group, "thread_pool_size", num, nil, "threads of the helper", privsep),
			library(group, "helper_command", text, nil, "command that starts the helper", privsep),
			library(group, "logger_name", text, "oslo_privsep.daemon", "logger of the helper", privsep),
		)
	}
	lock := row{Option: config.Option{Group: "oslo_concurrency", Name: "lock_path", Type: text,
		Help: "with iptables_hybrid: directory of lock files that all agents of Neutron use; unset: no locks"}, field: func(o *Options) any { return &o.LockPath }}
	locking := library("oslo_concurrency", "disable_process_locking", flag, false, "no locks between processes", "without [oslo_concurrency] lock_path there are none")
	notifications := "the agent sends no notifications"
	driver := library("oslo_messaging_notifications", "driver", text, []string{}, "how notifications are sent", notifications)
	driver.Multi = true
	url := library("oslo_messaging_notifications", "transport_url", text, nil, "broker for notifications", notifications)
	url.Secret, url.Mask = true, MaskURL
	topics := library("oslo_messaging_notifications", "topics", config.List{}, "notifications", "topics of notifications", notifications)
	metrics := "Patchbay has metrics of its own"
	profiler := library("profiler", "enabled", flag, false, "trace calls with osprofiler", "")
	keys := library("profiler", "hmac_keys", text, "SECRET_KEY", "keys that sign traces", "there is no osprofiler")
	keys.Secret = true
	connection := library("profiler", "connection_string", text, "messaging://", "where traces go", "there is no osprofiler")
	connection.Secret = true
	return append(rows,
		movedFromTop(lock), movedFromTop(locking),
		alias(driver, config.Name{Group: "DEFAULT", Option: "notification_driver"}),
		alias(url, config.Name{Group: "DEFAULT", Option: "notification_transport_url"}),
		alias(topics, config.Name{Group: "rpc_notifier2", Option: "topics"}, config.Name{Group: "DEFAULT", Option: "notification_topics"}),
		library("oslo_messaging_notifications", "retry", num, -1, "how often notifications are tried", notifications),
		library("oslo_messaging_metrics", "metrics_enabled", flag, false, "metrics of oslo.messaging", metrics),
		library("oslo_messaging_metrics", "metrics_buffer_size", num, 1000, "buffer of those metrics", metrics),
		library("oslo_messaging_metrics", "metrics_socket_file", text, "/var/tmp/metrics_collector.sock", "socket of those metrics", metrics),
		library("oslo_messaging_metrics", "metrics_process_name", text, "", "name in those metrics", metrics),
		library("oslo_messaging_metrics", "metrics_thread_stop_timeout", num, 10, "seconds to stop them", metrics),
		library("oslo_versionedobjects", "fatal_exception_format_errors", flag, false, "fail on badly formed messages", "it is for developers of Python services"),
		row{Option: config.Option{Group: "oslo_reports", Name: "log_dir", Help: "directory of the reports that SIGUSR2 asks for; not set: standard error"},
			field: func(o *Options) any { return &o.Reports.Dir }},
		row{Option: config.Option{Group: "oslo_reports", Name: "file_event_handler", Help: "file that asks for a report when it is touched, besides SIGUSR2"},
			field: func(o *Options) any { return &o.Reports.File }},
		row{Option: config.Option{Group: "oslo_reports", Name: "file_event_handler_interval", Type: num, Default: 1, Help: "seconds between looks at it"},
			field: func(o *Options) any { return &o.Reports.Interval }},
		alias(advised(profiler, "there is no osprofiler; patchbay spans has traces of ports",
			adviseTrue("asks for osprofiler, which Patchbay does not have; patchbay spans has traces of ports")),
			config.Name{Option: "profiler_enabled"}),
		library("profiler", "trace_sqlalchemy", flag, false, "trace the database", "there is no osprofiler"),
		keys, connection,
		library("profiler", "es_doc_type", text, "notification", "for Elasticsearch", "there is no osprofiler"),
		library("profiler", "es_scroll_time", text, "2m", "for Elasticsearch", "there is no osprofiler"),
		library("profiler", "es_scroll_size", num, 10000, "for Elasticsearch", "there is no osprofiler"),
		library("profiler", "socket_timeout", config.Float{}, 0.1, "for Redis", "there is no osprofiler"),
		library("profiler", "sentinel_service_name", text, "mymaster", "for Redis", "there is no osprofiler"),
		library("profiler", "filter_error_trace", flag, false, "separate errors", "there is no osprofiler"),
	)
}
