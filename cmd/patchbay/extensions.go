// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/patchbay-sdn/patchbay/internal/dhcp"
	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fdb"
	"github.com/patchbay-sdn/patchbay/internal/grouplog"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
)

// extensions makes those that the options name, in their order, after those that have an option of their own. Names that
// Patchbay does not have were refused before; see options.Extensions.
func extensions(o *options.Options) []extension.New {
	devices, _ := o.FDB.Devices() // checked before
	makers := map[string]extension.New{"qos": qos.New, "dhcp": dhcp.New(dhcpConfig(o)), "fdb": fdb.New(devices), "log": grouplog.New(logBound(o))}
	var out []extension.New
	if o.Agent.DistributedRouting {
		out = append(out, dvr.New)
	}
	if o.OVS.TrunkEnabled {
		out = append(out, trunk.New)
	}
	for _, name := range o.Agent.Extensions {
		if m := makers[name]; m != nil {
			out = append(out, m)
		}
	}
	return out
}

// logBound is how many lines the extension log writes. A meter has no more than 32 bits.
func logBound(o *options.Options) extension.Bound {
	const most = 1_000_000
	return extension.Bound{Rate: min(o.NetworkLog.RateLimit, most), Burst: min(o.NetworkLog.BurstLimit, most)}
}

// dhcpConfig is what the dhcp extension reads of the options. Whether base_mac is an address was checked before.
func dhcpConfig(o *options.Options) dhcp.Config {
	mac, _ := neutron.ParseMAC(o.Default.BaseMAC)
	return dhcp.Config{
		IPv6: o.DHCP.EnableIPv6, MAC: mac, Domain: o.Default.DNSDomain, Lease: o.Default.DHCPLeaseDuration,
		Renewal: o.DHCP.RenewalTime, Rebinding: o.DHCP.RebindingTime,
	}
}
