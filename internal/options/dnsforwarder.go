// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"net/netip"
	"slices"
)

// Resolvers returns the resolvers to ask, in their order.
func (d *DNSForwarder) Resolvers() ([]netip.AddrPort, error) { return addressPorts(d.Upstream) }

// Local returns the addresses that instances ask.
func (d *DNSForwarder) Local() ([]netip.AddrPort, error) {
	all, err := addressPorts(d.Listen)
	for _, at := range all {
		if ip := at.Addr(); err == nil && (ip.IsMulticast() || ip.IsUnspecified() || ip.IsLoopback() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})) {
			return nil, fmt.Errorf("names %s, which no instance can send a query to", at)
		}
	}
	return all, err
}

// addressPorts reads addresses with ports, each once.
func addressPorts(texts []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, text := range texts {
		at, err := netip.ParseAddrPort(text)
		if err != nil || at.Port() == 0 || at.Addr().Zone() != "" || at.Addr().Is4In6() {
			return nil, fmt.Errorf("names %q, which is no address with a port like 192.0.2.53:53 or [2001:db8::53]:53", text)
		}
		if !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out, nil
}
