// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/patchbay-sdn/patchbay/internal/inspect"
	"github.com/patchbay-sdn/patchbay/internal/metadata"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/options"
)

// metadataConfig is what the extension metadata_path reads of the options. They were checked before.
func metadataConfig(o *options.Options) metadata.Config {
	cidr, _ := netip.ParsePrefix(o.Metadata.ProviderCIDR)
	mac, _ := neutron.ParseMAC(o.Metadata.ProviderBaseMAC)
	return metadata.Config{CIDR: cidr.Masked(), VLAN: uint16(o.Metadata.ProviderVLAN), BaseMAC: mac, Port: uint16(o.Metadata.HostProxyPort)} //nolint:gosec // checked before
}

// newMetadataProxy makes the metadata proxy; nil without the extension.
func newMetadataProxy(o *options.Options) (*metaproxy.Proxy, error) {
	if !slices.Contains(o.Agent.Extensions, "metadata_path") {
		return nil, nil //nolint:nilnil // there is none
	}
	m := &o.Metadata
	nova := metaproxy.Nova{
		URL:    m.NovaProtocol + "://" + net.JoinHostPort(m.NovaHost, strconv.Itoa(m.NovaPort)),
		Secret: m.SharedSecret.Reveal(), Insecure: m.NovaInsecure, CACert: m.AuthCACert, Cert: m.NovaClientCert, Key: m.NovaClientPrivKey,
	}
	return metaproxy.New(nova, metaproxy.Host{}, filepath.Join(o.Default.StatePath, "external", "pids", "host_metadata_proxy.pid.haproxy"))
}

// proxied is an agent whose status has the requests to its metadata proxy.
type proxied struct {
	inspect.Source
	proxy *metaproxy.Proxy
}

// Status implements [inspect.Source].
func (p proxied) Status(ctx context.Context) (inspect.Status, error) {
	s, err := p.Source.Status(ctx)
	if err == nil {
		s.Totals.Requests = p.proxy.Totals()
	}
	return s, err
}
