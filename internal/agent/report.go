// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"net"
	"os"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// Configurations is the part of the state report that follows from the options and the machine's name alone.
func Configurations(ctx context.Context, o *options.Options) neutron.Configurations {
	return configurations(o, hypervisorName(ctx))
}

// configurations takes the name of this machine as libvirt would give it; see [hypervisorName].
func configurations(o *options.Options, hypervisor string) neutron.Configurations {
	c := neutron.Configurations{
		BridgeMappings:             map[string]string{},
		IntegrationBridge:          o.OVS.IntegrationBridge,
		TunnelTypes:                orEmpty(o.Agent.TunnelTypes),
		L2Population:               o.Agent.L2Population,
		ARPResponderEnabled:        o.Agent.ARPResponder,
		EnableDistributedRouting:   o.Agent.DistributedRouting,
		LogAgentHeartbeats:         o.Agent.LogHeartbeats,
		Extensions:                 orEmpty(o.Agent.Extensions),
		DatapathType:               o.OVS.DatapathType,
		VhostuserSocketDir:         o.OVS.VhostUserSockets,
		OVSHybridPlug:              o.SecurityGroup.Driver() == options.FirewallHybrid,
		BaremetalSmartnic:          o.Agent.BaremetalSmartNIC,
		RPBandwidths:               directed(o.OVS.Placement.Bandwidths),
		RPInventoryDefaults:        inventory(o.OVS.Placement.Inventory),
		RPHypervisors:              map[string]string{},
		RPPacketsWithDirection:     directed(o.OVS.Placement.DirectedPacketRates),
		RPPacketsWithoutDirection:  map[string]map[string]*int64{},
		RPPacketsInventoryDefaults: inventory(o.OVS.Placement.PacketInventory),
	}
	if ip := o.OVS.LocalIP; ip != "" {
		c.TunnelingIP = &ip
	}
	if o.OVS.Placement.DefaultHypervisor != "" {
		hypervisor = o.OVS.Placement.DefaultHypervisor
	}
	for _, m := range o.OVS.BridgeMappings {
		c.BridgeMappings[m.Physnet] = m.Bridge
		c.RPHypervisors[m.Bridge] = cmp.Or(o.OVS.Placement.Hypervisors[m.Bridge], hypervisor)
	}
	if tunnelled := o.ML2.TunnelledNetworkRPName; tunnelled != "" {
		named := o.OVS.Placement.Hypervisors[tunnelled]
		c.RPHypervisors[tunnelled] = cmp.Or(named, hypervisor)
		if _, counted := o.OVS.Placement.Bandwidths[tunnelled]; named == "" && !counted {
			c.ImpliedRP = tunnelled
		}
	}
	for name, r := range o.OVS.Placement.PacketRates {
		c.RPPacketsWithoutDirection[name] = map[string]*int64{"any": wide(r.Any)}
	}
	return c
}

func directed(rates map[string]options.Rates) map[string]neutron.DirectedRate {
	out := map[string]neutron.DirectedRate{}
	for name, r := range rates {
		out[name] = neutron.DirectedRate{Egress: wide(r.Egress), Ingress: wide(r.Ingress)}
	}
	return out
}

func inventory(i options.Inventory) neutron.Inventory {
	out := neutron.Inventory{
		MinUnit: wide(i.MinUnit), MaxUnit: wide(i.MaxUnit), StepSize: wide(i.StepSize), Reserved: wide(i.Reserved),
	}
	if i.AllocationRatio != nil {
		r := neutron.Ratio(*i.AllocationRatio)
		out.AllocationRatio = &r
	}
	return out
}

func wide(p *int) *int64 {
	if p == nil {
		return nil
	}
	v := int64(*p)
	return &v
}

// orEmpty keeps null out of the report; the server's readers iterate over these lists.
func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// hypervisorName is the name under which Nova knows this machine, found as libvirt finds it: the host name if it is
// qualified, else the canonical name that the resolver has for it, else the host name.
func hypervisorName(ctx context.Context) string {
	name, err := os.Hostname()
	if err != nil || strings.HasPrefix(name, "localhost") || strings.Contains(name, ".") {
		return name
	}
	// A name service that does not answer must not hold up the start.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	canonical, err := net.DefaultResolver.LookupCNAME(ctx, name)
	canonical = strings.TrimSuffix(canonical, ".")
	if err != nil || canonical == "" || strings.HasPrefix(canonical, "localhost") {
		return name
	}
	return canonical
}
