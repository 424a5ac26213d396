// SPDX-License-Identifier: Apache-2.0

package options

import "strings"

// A neutron.conf serves many programs. What belongs to the server or to other
// agents is not this agent's business, but it is no mistake either.

// otherSections are sections that this agent never reads.
func otherSections() []string {
	return strings.Fields(`
		amqp1 api audit_middleware_notifications bagpipe barbican cache cli_script cors database default_servicetype designate experimental
		flowclassifier fwaas healthcheck ironic infoblox keystone keystone_authtoken l2pop linux_bridge macvtap metadata_rate_limiting
		ml2_type_flat ml2_type_geneve ml2_type_gre ml2_type_vlan ml2_type_vxlan nova oslo_limit oslo_messaging_amqp
		octavia oslo_messaging_kafka oslo_middleware oslo_policy ovn ovs_driver placement quotas service_auth service_providers sfc sql
		sriov_driver sriov_nic ssl vpnagent vxlan
	`)
}

// otherOptions are options of other programs in sections that they share with
// this agent.
func otherOptions() map[string][]string {
	return map[string][]string{
		"DEFAULT": strings.Fields(`
			advertise_mtu agent_down_time agent_mode allow_automatic_dhcp_failover allow_automatic_l3agent_failover allow_bulk
			allow_overlapping_ips allow_pagination allow_sorting allowed_conntrack_helpers api_extensions_path
			api_paste_config api_workers auth_ca_cert auth_strategy backdoor_port backdoor_socket backlog bind_host bind_port
			bulk_reload_interval cleanup_on_shutdown client_socket_timeout conn_pool_min_size conn_pool_ttl core_plugin
			db_backend dbapi_use_tpool default_availability_zones dhcp_agent_notification dhcp_agents_per_network
			dhcp_broadcast_reply dhcp_confs dhcp_delete_namespaces dhcp_domain dhcp_driver dhcp_load_type dnsmasq_base_log_dir
			dnsmasq_config_file dnsmasq_dns_server dnsmasq_dns_servers dnsmasq_enable_addr6_list dnsmasq_lease_max
			dnsmasq_local_resolv driver dvr_base_mac enable_dvr enable_isolated_metadata enable_metadata_network
			enable_metadata_proxy enable_new_agents enable_services_on_agents_with_admin_state_down enable_snat_by_default
			enable_traditional_dhcp external_dns_driver external_ingress_mark external_network_bridge fatal_deprecations
			filter_validation force_metadata gateway_external_network_id graceful_shutdown_timeout granular_traffic_data
			ha_confs_path ha_keepalived_state_change_server_threads ha_vrrp_advert_int ha_vrrp_auth_password ha_vrrp_auth_type
			ha_vrrp_health_check_interval handle_internal_only_routers host_dvr_for_dhcp http_retries interface_driver
			ipam_driver ipv6_gateway ipv6_pd_enabled keepalived_use_no_track l3_ha l3_ha_net_cidr l3_ha_network_physical_name
			l3_ha_network_type log_color log_options max_allowed_address_pair max_dns_nameservers max_fixed_ips_per_port max_header_line
			max_l3_agents_per_router max_request_body_size max_routes max_rtr_adv_interval max_subnet_host_routes
			measure_interval metadata_access_mark metadata_backlog metadata_port metadata_proxy_group
			metadata_proxy_shared_secret metadata_proxy_socket metadata_proxy_socket_mode metadata_proxy_user metadata_workers
			min_l3_agents_per_router min_rtr_adv_interval network_auto_schedule network_link_prefix network_scheduler_driver
			notify_nova_on_port_data_changes notify_nova_on_port_status_changes nova_client_cert nova_client_priv_key
			nova_metadata_host nova_metadata_insecure nova_metadata_ip nova_metadata_port nova_metadata_protocol
			nova_region_name nova_url num_sync_threads osapi_max_request_body_size ovs_integration_bridge ovs_use_veth
			pagination_max_limit pd_confs periodic_fuzzy_delay periodic_interval policy_default_rule policy_dirs policy_file
			prefix_delegation_driver quota_driver ra_confs radvd_user report_interval resync_interval resync_throttle
			retry_until_window router_auto_schedule router_delete_namespaces router_distributed router_scheduler_driver
			rpc_state_report_workers rpc_workers run_external_periodic_tasks send_events_interval service_plugins
			sql_connection sql_connection_debug sql_connection_trace sql_max_overflow sql_max_retries sql_retry_interval
			sqlite_synchronous ssl_ca_file ssl_cert_file ssl_key_file tcp_keepidle use_ssl vendor_pen vlan_qinq
			vlan_transparent wsgi_default_pool_size wsgi_keep_alive wsgi_log_format wsgi_server_debug
		`),
		"agent": strings.Fields(`
			availability_zone check_child_processes_action check_child_processes_interval kill_scripts_path
		`),
		"ml2": strings.Fields(`
			extension_drivers external_network_type mechanism_drivers overlay_ip_version path_mtu physical_network_mtus
			project_network_types tenant_network_types type_drivers
		`),
		"ovs": strings.Fields(`
			ovsdb_connection_timeout
		`),
	}
}

// gone says why an option that old files still hold is not there any more; ""
// for any other.
func gone(section, option string) string {
	return map[string]string{
		"agent.prevent_arp_spoofing":       "the protection is always on, unless the firewall does it",
		"ovs.enable_tunneling":             "[agent] tunnel_types decides",
		"agent.agent_type":                 "the type is always \"Open vSwitch agent\"",
		"ovs.of_interface":                 "OpenFlow is always spoken directly",
		"ovs.ovsdb_interface":              "OVSDB is always spoken directly",
		"DEFAULT.ovs_vsctl_timeout":        "its successor is [ovs] ovsdb_timeout",
		"ovs.vsctl_timeout":                "its successor is ovsdb_timeout",
		"agent.xenapi_connection_url":      "there is no XenAPI support",
		"agent.xenapi_connection_username": "there is no XenAPI support",
		"agent.xenapi_connection_password": "there is no XenAPI support",
		"DEFAULT.verbose":                  "information is always logged",
		"DEFAULT.rpc_backend":              "transport_url names the driver",
		"DEFAULT.use_syslog_rfc_format":    "there is no other format",
		"DEFAULT.use_namespaces":           "namespaces are always used",
		"nova.live_migration_events":       "such events are always sent",
	}[section+"."+option]
}
