// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Option returns what the recording's configuration says about an option, given as "section.option"; empty when the lab's
// own value counts.
func (r *Recording) Option(name string) string {
	for _, o := range slices.Backward(r.Overrides) {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			return v
		}
	}
	return ""
}

// World is the configuration of a host for a replay. It fails closed where the agent does unless an operator says otherwise.
func (r *Recording) World(host string) (world.Config, error) {
	cfg := world.Config{
		Host: host, IntegrationBridge: "br-int", Physical: map[string]string{"physnet1": "br-ex"},
		L2Population: r.Option("agent.l2_population") == "true",
	}
	cfg.ARPResponder = cfg.L2Population && r.Option("agent.arp_responder") == "true"
	if r.Option("agent.enable_distributed_routing") == "true" {
		cfg.ARPResponder = cfg.L2Population // as package options has it
	}
	cfg.FilterTables = r.Option("securitygroup.firewall_driver") == "openvswitch"
	cfg.Filter = cfg.FilterTables && r.Option("securitygroup.enable_security_group") != "false"
	cfg.FailClosed, cfg.AntiSpoof = cfg.Filter, !cfg.FilterTables
	if r.Hybrid() {
		cfg.Filter, cfg.Hybrid, cfg.BridgedOnly = true, true, true
	}
	cfg.EgressDirect = r.Option("agent.explicitly_egress_direct") == "true"
	for _, e := range list(r.Option("securitygroup.permitted_ethertypes")) {
		n, err := strconv.ParseUint(e, 0, 16)
		if err != nil {
			return cfg, fmt.Errorf("%s: permitted_ethertypes: %w", r.Name, err)
		}
		cfg.PermittedEtherTypes = append(cfg.PermittedEtherTypes, uint16(n))
	}
	if types := list(r.Option("agent.tunnel_types")); len(types) > 0 {
		cfg.TunnelTypes, cfg.TunnelBridge, cfg.IntPatch, cfg.TunPatch = types, "br-tun", "patch-tun", "patch-int"
		for ip, name := range r.Names {
			if name == "ip-"+host {
				cfg.LocalIP = netip.MustParseAddr(ip)
			}
		}
	}
	return cfg, nil
}

// Hybrid tells whether rules of iptables filter, on Linux bridges.
func (r *Recording) Hybrid() bool {
	return r.Option("securitygroup.firewall_driver") == "iptables_hybrid"
}

// Settings are those of the pipeline for a replay.
func (r *Recording) Settings() (pipeline.Settings, error) {
	s := pipeline.Settings{
		DatapathType: "netdev", MACTableSize: 50000, VXLANPort: 4789, Controller: "tcp:127.0.0.1:6633",
		DontFragment: r.Option("agent.dont_fragment") != "false", TunnelChecksum: r.Option("agent.tunnel_csum") == "true",
		IGMPFloodReports: true, // the default
	}
	var err error
	if port := r.Option("agent.vxlan_udp_port"); port != "" {
		s.VXLANPort, err = strconv.Atoi(port)
	}
	if dscp := r.Option("agent.dscp"); dscp != "" && err == nil {
		var n int
		n, err = strconv.Atoi(dscp)
		s.TOS = strconv.Itoa(n << 2)
	}
	return s, err
}

// Extensions are the names of those that the configuration loads.
func (r *Recording) Extensions() []string { return list(r.Option("agent.extensions")) }

func list(option string) []string {
	var all []string
	for _, s := range strings.Split(option, ",") {
		if s = strings.TrimSpace(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}
