// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/patchbay-sdn/patchbay/internal/dhcp"
	"github.com/patchbay-sdn/patchbay/internal/dnsforward"
	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/fdb"
	"github.com/patchbay-sdn/patchbay/internal/grouplog"
	"github.com/patchbay-sdn/patchbay/internal/localip"
	"github.com/patchbay-sdn/patchbay/internal/metadata"
	"github.com/patchbay-sdn/patchbay/internal/mirror"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/options"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
)

// madeExtension says how to make an extension, with what it reads of the options.
type madeExtension struct {
	Name    string              `json:"name"`
	DHCP    *dhcp.Config        `json:"dhcp,omitempty"`
	Devices map[string][]string `json:"devices,omitempty"` // of fdb
	Metered bool                `json:"metered,omitempty"` // qos limits bandwidth with meters
	Bound   extension.Bound     `json:"bound,omitzero"`    // of log
	Meta    *metadata.Config    `json:"metadata,omitempty"`
	DNS     *dnsforward.Config  `json:"dns,omitempty"`
	Static  bool                `json:"static,omitempty"` // local_ip translates without connection tracking
}

// extensionsOf lists those that the options name, in their order, after those that have an option of their own. Names that
// Patchbay does not have were refused before; see options.Extensions.
func extensionsOf(o *options.Options) []madeExtension {
	var out []madeExtension
	if o.Agent.DistributedRouting {
		out = append(out, madeExtension{Name: "dvr"})
	}
	if o.OVS.TrunkEnabled {
		out = append(out, madeExtension{Name: "trunk"})
	}
	for _, name := range o.Agent.Extensions {
		switch name {
		case "qos":
			out = append(out, madeExtension{Name: name, Metered: o.OVS.QoSMeterBandwidth})
		case "dhcp":
			c := dhcpConfig(o)
			out = append(out, madeExtension{Name: name, DHCP: &c})
		case "fdb":
			devices, _ := o.FDB.Devices() // checked before
			out = append(out, madeExtension{Name: name, Devices: devices})
		case "log":
			out = append(out, madeExtension{Name: name, Bound: logBound(o)})
		case "metadata_path":
			c := metadataConfig(o)
			out = append(out, madeExtension{Name: name, Meta: &c})
		case "dns_forwarder":
			c := dnsConfig(o)
			out = append(out, madeExtension{Name: name, DNS: &c})
		case "taas":
			out = append(out, madeExtension{Name: name})
		case "local_ip":
			out = append(out, madeExtension{Name: name, Static: o.LocalIP.StaticNAT})
		}
	}
	return out
}

// makers returns what makes extensions.
func makers(list []madeExtension) ([]extension.New, error) {
	var out []extension.New
	for _, e := range list {
		switch e.Name {
		case "dvr":
			out = append(out, dvr.New)
		case "trunk":
			out = append(out, trunk.New)
		case "qos":
			if e.Metered {
				out = append(out, qos.NewMetered)
			} else {
				out = append(out, qos.New)
			}
		case "dhcp":
			if e.DHCP == nil {
				return nil, errors.New("the extension dhcp has no configuration")
			}
			out = append(out, dhcp.New(*e.DHCP))
		case "fdb":
			out = append(out, fdb.New(e.Devices))
		case "log":
			out = append(out, grouplog.New(e.Bound))
		case "metadata_path":
			if e.Meta == nil {
				return nil, errors.New("the extension metadata_path has no configuration")
			}
			out = append(out, metadata.New(*e.Meta))
		case "dns_forwarder":
			if e.DNS == nil {
				return nil, errors.New("the extension dns_forwarder has no configuration")
			}
			out = append(out, dnsforward.New(*e.DNS))
		case "taas":
			out = append(out, mirror.New)
		case "local_ip":
			out = append(out, localip.New(e.Static))
		default:
			return nil, fmt.Errorf("this version has no extension %s", e.Name)
		}
	}
	return out, nil
}

// logBound is how many lines the extension log writes. A meter has no more than 32 bits.
func logBound(o *options.Options) extension.Bound {
	const most = 1_000_000
	return extension.Bound{Rate: min(o.NetworkLog.RateLimit, most), Burst: min(o.NetworkLog.BurstLimit, most)}
}

// dnsConfig is what the extension dns_forwarder reads of the options. Whether they are addresses was checked before.
func dnsConfig(o *options.Options) dnsforward.Config {
	listen, _ := o.DNSForwarder.Local()
	upstream, _ := o.DNSForwarder.Resolvers()
	return dnsforward.Config{Listen: listen, Upstream: upstream, Timeout: o.DNSForwarder.UpstreamTimeout}
}

// dhcpConfig is what the dhcp extension reads of the options. Whether base_mac is an address was checked before.
func dhcpConfig(o *options.Options) dhcp.Config {
	mac, _ := neutron.ParseMAC(o.Default.BaseMAC)
	return dhcp.Config{
		IPv6: o.DHCP.EnableIPv6, MAC: mac, Domain: o.Default.DNSDomain, Lease: o.Default.DHCPLeaseDuration,
		Renewal: o.DHCP.RenewalTime, Rebinding: o.DHCP.RebindingTime,
	}
}
