// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/oslo/config"
)

// checks are the rules that the Python agent applies at start, beyond the types
// of single options. Each is a pure function of the options.
func checks() []func(*Options) []Problem {
	return []func(*Options) []Problem{
		checkBaseMAC, checkTunnels, checkBridges, checkOVSDB, checkRouting, checkPlacement, checkRabbit, checkExtensions,
	}
}

// check applies all rules.
func (o *Options) check() []Problem {
	var out []Problem
	for _, rule := range checks() {
		out = append(out, rule(o)...)
	}
	return out
}

// at makes a problem with an option, at the place where it is set.
func (o *Options) at(group, name, format string, args ...any) Problem {
	v, err := o.Value(group, name)
	if err != nil {
		return Problem{Group: group, Option: name, Sentence: fmt.Sprintf("[%s] %s ", group, name) + fmt.Sprintf(format, args...)}
	}
	return problem(v, format, args...)
}

func checkBaseMAC(o *Options) []Problem {
	if regexp.MustCompile(`^[0-9a-fA-F][aceACE02468](:[0-9a-fA-F]{2}){5}$`).MatchString(o.Default.BaseMAC) {
		return nil
	}
	return []Problem{o.at("DEFAULT", "base_mac", "is %q, which is not a unicast MAC address like fa:16:3e:00:00:00.", o.Default.BaseMAC)}
}

func checkTunnels(o *Options) []Problem {
	var out []Problem
	for _, t := range o.Agent.TunnelTypes {
		if !slices.Contains([]string{"gre", "vxlan", "geneve"}, t) {
			out = append(out, o.at("agent", "tunnel_types", "names %q, which is no tunnel type; there are gre, vxlan and geneve.", t))
		}
	}
	if len(o.Agent.TunnelTypes) > 0 && o.OVS.LocalIP == "" {
		out = append(out, o.at("agent", "tunnel_types", "asks for tunnels, but [ovs] local_ip is not set: tunnels need an address of this host."))
	}
	return out
}

func checkBridges(o *Options) []Problem {
	var out []Problem
	type name struct{ name, value string }
	named := []name{{"integration_bridge", o.OVS.IntegrationBridge}}
	if len(o.Agent.TunnelTypes) > 0 {
		named = append(named, name{"tunnel_bridge", o.OVS.TunnelBridge},
			name{"int_peer_patch_port", o.OVS.IntPeerPatchPort}, name{"tun_peer_patch_port", o.OVS.TunPeerPatchPort})
	}
	for _, n := range named {
		if n.value == "" {
			out = append(out, o.at("ovs", n.name, "is empty; it must name something."))
		}
	}
	if o.OVS.IntegrationBridge == o.OVS.TunnelBridge && o.OVS.TunnelBridge != "" && len(o.Agent.TunnelTypes) > 0 {
		out = append(out, o.at("ovs", "tunnel_bridge", "is %q, the same bridge as integration_bridge.", o.OVS.TunnelBridge))
	}
	for _, m := range o.OVS.BridgeMappings {
		if m.Bridge == o.OVS.IntegrationBridge || m.Bridge == o.OVS.TunnelBridge && len(o.Agent.TunnelTypes) > 0 {
			out = append(out, o.at("ovs", "bridge_mappings", "maps %s to %s, which is a bridge of the agent's own.", m.Physnet, m.Bridge))
		}
	}
	return out
}

func checkOVSDB(o *Options) []Problem {
	kind, where, _ := strings.Cut(o.OVS.OVSDBConnection, ":")
	if !slices.Contains([]string{"tcp", "ssl", "unix"}, kind) || where == "" {
		return []Problem{o.at("ovs", "ovsdb_connection", "is %q; it must be tcp:host:port, ssl:host:port or unix:path.", o.OVS.OVSDBConnection)}
	}
	var out []Problem
	if kind == "ssl" {
		files := []struct{ name, value string }{
			{"ssl_key_file", o.OVS.SSLKeyFile}, {"ssl_cert_file", o.OVS.SSLCertFile}, {"ssl_ca_cert_file", o.OVS.SSLCACertFile},
		}
		for _, f := range files {
			if f.value == "" {
				out = append(out, o.at("ovs", "ovsdb_connection", "is ssl:, so [ovs] %s must be set too.", f.name))
			}
		}
	}
	return out
}

func checkRouting(o *Options) []Problem {
	if o.Agent.DistributedRouting && len(o.Agent.TunnelTypes) > 0 && !o.Agent.L2Population {
		return []Problem{o.at("agent", "enable_distributed_routing",
			"with tunnels needs [agent] l2_population = true, here and on the server.")}
	}
	return nil
}

func checkPlacement(o *Options) []Problem {
	var out []Problem
	if p := o.OVS.Placement; len(p.PacketRates) > 0 && len(p.DirectedPacketRates) > 0 {
		out = append(out, o.at("ovs", "resource_provider_packet_processing_with_direction",
			"and resource_provider_packet_processing_without_direction exclude each other."))
	}
	return append(out, checkBandwidthBridges(o)...)
}

func checkBandwidthBridges(o *Options) []Problem {
	var out []Problem
	for bridge := range o.OVS.Placement.Bandwidths {
		known := slices.ContainsFunc(o.OVS.BridgeMappings, func(m Mapping) bool { return m.Bridge == bridge })
		if !known && bridge != o.ML2.TunnelledNetworkRPName {
			out = append(out, o.at("ovs", "resource_provider_bandwidths", "names the bridge %q, which is not in bridge_mappings.", bridge))
		}
	}
	slices.SortFunc(out, func(a, b Problem) int { return strings.Compare(a.Sentence, b.Sentence) })
	return out
}

func checkRabbit(o *Options) []Problem {
	if o.Rabbit.QuorumQueue && o.Rabbit.HAQueues {
		return []Problem{o.at("oslo_messaging_rabbit", "rabbit_quorum_queue",
			"and rabbit_ha_queues exclude each other: a queue is a quorum queue or a mirrored one.")}
	}
	return nil
}

// checkExtensions holds what extensions will need; until they exist, naming one
// is refused or ignored.
func checkExtensions(o *Options) []Problem {
	var out []Problem
	loaded := func(name string) bool {
		ignored := o.Patchbay.UnknownExtensions == ignoreUnknown && !slices.Contains(Extensions(), name)
		return slices.Contains(o.Agent.Extensions, name) && !ignored
	}
	if loaded("local_ip") && !o.LocalIP.StaticNAT && o.SecurityGroup.Driver() == FirewallOpenVSwitch {
		out = append(out, o.at("local_ip", "static_nat", "must be true when the openvswitch firewall is used."))
	}
	if devices, err := o.FDB.Devices(); loaded("fdb") && err != nil {
		out = append(out, o.at("fdb", "shared_physical_device_mappings", "%s.", err))
	} else if loaded("fdb") && len(devices) == 0 {
		out = append(out, o.at("fdb", "shared_physical_device_mappings", "must be set when the extension fdb is loaded."))
	}
	if loaded("metadata_path") {
		out = append(out, checkMetadata(o)...)
	}
	if loaded("dns_forwarder") {
		if _, err := o.DNSForwarder.Resolvers(); err != nil {
			out = append(out, o.at("dns_forwarder", "upstream_dns_server_ports", "%s.", err))
		}
		if local, err := o.DNSForwarder.Local(); err != nil {
			out = append(out, o.at("dns_forwarder", "client_dns_server_ports", "%s.", err))
		} else if len(local) == 0 {
			out = append(out, o.at("dns_forwarder", "client_dns_server_ports", "must be set when the extension dns_forwarder is loaded."))
		}
	}
	return out
}

// checkMetadata checks what the extension metadata_path needs.
func checkMetadata(o *Options) []Problem {
	var out []Problem
	m := &o.Metadata
	if !slices.ContainsFunc(o.OVS.BridgeMappings, func(m Mapping) bool { return m.Physnet == "meta" }) {
		out = append(out, o.at("ovs", "bridge_mappings", "must have a bridge of physical network meta, such as meta:br-meta, when the extension metadata_path is loaded."))
	}
	switch cidr, err := netip.ParsePrefix(m.ProviderCIDR); {
	case err != nil || !cidr.Addr().Is4():
		out = append(out, o.at("metadata", "provider_cidr", "must be an IPv4 network such as 240.0.0.0/16."))
	case cidr.Bits() > 29 || cidr.Bits() < 8:
		out = append(out, o.at("metadata", "provider_cidr", "must have a prefix of 8 to 29 bits: every port of an instance on this host gets an address of it."))
	case cidr.Overlaps(netip.MustParsePrefix("169.254.169.254/32")):
		out = append(out, o.at("metadata", "provider_cidr", "must not have 169.254.169.254, which instances ask."))
	}
	if m.ProviderVLAN < 1 || m.ProviderVLAN > 4094 {
		out = append(out, o.at("metadata", "provider_vlan_id", "must be 1 to 4094."))
	}
	if mac, err := net.ParseMAC(m.ProviderBaseMAC); err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		out = append(out, o.at("metadata", "provider_base_mac", "must be the MAC address of a station, such as fa:16:ee:00:00:00."))
	}
	if m.HostProxyPort == 0 {
		out = append(out, o.at("metadata", "host_proxy_listen_port", "must be a port."))
	}
	if (m.NovaClientCert == "") != (m.NovaClientPrivKey == "") {
		out = append(out, o.at("metadata", "nova_client_cert", "and nova_client_priv_key are set together or not at all."))
	}
	return out
}

// Advice lists settings that are accepted but probably not what was meant.
func (o *Options) Advice() []Problem {
	var out []Problem
	for _, r := range rows(thisMachine()) {
		v, err := o.conf.Get(r.Group, r.ID().Option)
		if err != nil || r.advise == nil {
			continue // reported with the values
		}
		if sentence := r.advise(v); sentence != "" {
			out = append(out, problem(v, "%s.", sentence))
		}
	}
	if v, err := o.Value("agent", "arp_responder"); err == nil && v.Bool() && !o.Agent.L2Population {
		out = append(out, problem(v, "does nothing without [agent] l2_population = true."))
	}
	if v, err := o.Value("securitygroup", "permitted_ethertypes"); err == nil {
		for _, item := range v.List() {
			if _, ok := parseEthertype(item); !ok {
				out = append(out, problem(v, "names %q, which is not a hexadecimal ethernet type like 0x4008; it is ignored.", item))
			}
		}
	}
	if o.SecurityGroup.Enabled && o.SecurityGroup.Driver() == FirewallNone {
		out = append(out, o.at("securitygroup", "firewall_driver", "is noop: nothing filters the ports of this host, although enable_security_group is true."))
	}
	if !o.SecurityGroup.Enabled && o.SecurityGroup.Driver() == FirewallHybrid {
		out = append(out, o.at("securitygroup", "enable_security_group", "is false: nothing filters the ports of this host, although there is a firewall_driver."))
	}
	if !o.SecurityGroup.Enabled && o.SecurityGroup.Driver() == FirewallOpenVSwitch {
		out = append(out, o.at("securitygroup", "enable_security_group", "is false: nothing filters the ports of this host, nor who they say they are, although there is a firewall_driver."))
	}
	out = append(out, o.adviseExtensions()...)
	out = append(out, o.adviseLogging()...)
	return append(out, o.openDoors()...)
}

// adviseExtensions names the extensions that the agent goes on without, and those that have nothing to do.
func (o *Options) adviseExtensions() []Problem {
	var out []Problem
	if slices.Contains(o.Agent.Extensions, "log") && (o.SecurityGroup.Driver() != FirewallOpenVSwitch || !o.SecurityGroup.Enabled) {
		out = append(out, o.at("agent", "extensions", "names log, which logs nothing here: it needs [securitygroup] firewall_driver = openvswitch and enable_security_group = true."))
	}
	if slices.Contains(o.Agent.Extensions, "taas") && o.SecurityGroup.Driver() == FirewallHybrid {
		out = append(out, o.at("agent", "extensions", "names taas, which copies no packets to ports behind Linux bridges: with firewall_driver = iptables_hybrid tap mirrors work, and tap flows are refused."))
	}
	if slices.Contains(o.Agent.Extensions, "metadata_path") && o.Metadata.SharedSecret.Reveal() == "" {
		out = append(out, o.at("metadata", "metadata_proxy_shared_secret", "is empty: whoever reaches Nova's metadata service can ask for any instance."))
	}
	if slices.Contains(o.Agent.Extensions, "dns_forwarder") && len(o.DNSForwarder.Upstream) == 0 {
		out = append(out, o.at("dns_forwarder", "upstream_dns_server_ports", "is empty: the extension dns_forwarder answers nobody."))
	}
	if o.Patchbay.UnknownExtensions != ignoreUnknown {
		return out // they stop it
	}
	for _, name := range o.MissingExtensions() {
		if !isolating(name) {
			out = append(out, o.at("agent", "extensions", "%s; the agent goes on without it.", describeExtension(name)))
		}
	}
	return out
}

// openDoors lists settings that work and leave open what others could come in by. They are Neutron's defaults, or were needed once, so
// they are no errors.
func (o *Options) openDoors() []Problem {
	var out []Problem
	if o.Rabbit.TLS && o.Rabbit.TLSCAFile == "" {
		out = append(out, o.at("oslo_messaging_rabbit", "ssl",
			"is true, but ssl_ca_file is not set: the broker's certificate is not verified, and whoever is between can read the password. Set ssl_ca_file."))
	}
	if v, err := o.Value("ovs", "ovsdb_connection"); err == nil && v.Origin().Kind != config.FromDefault && strings.HasPrefix(o.OVS.OVSDBConnection, "tcp:") {
		out = append(out, problem(v, "is tcp: every account that reaches the address can change the switch. Leave it out, or set unix:/run/openvswitch/db.sock."))
	}
	return out
}
