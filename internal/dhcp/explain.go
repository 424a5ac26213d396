// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Explain implements extension.Explainer: who answers the port's DHCP, and with what.
func (d *DHCP) Explain(o world.Object) []string {
	id, ok := world.PortID(o)
	if !ok || d.ports[id] == "" {
		return nil
	}
	c := d.clientOf(id)
	if c == nil {
		return []string{"dhcp: waits for the subnets of network " + d.ports[id] + "; until they are known its requests leave the port as any packet"}
	}
	v4, v6 := c.answers()
	var out []string
	if v4 {
		for i, l := range c.leases(4, stateful) {
			out = append(out, "dhcp: "+c.says4(l, i == 0))
		}
	}
	if v6 {
		out = append(out, c.says6()...)
	}
	if !v4 && !v6 {
		return []string{"dhcp: no subnet of the port has DHCP here; its requests leave the port as any packet"}
	}
	for _, version := range []int{4, 6} {
		_, problems := c.extra(version)
		for _, p := range problems {
			out = append(out, fmt.Sprintf("dhcp: one of extra_dhcp_opts is left out: %s", p))
		}
	}
	if last, ok := d.last[id]; ok {
		text := fmt.Sprintf("dhcp: its last packet, %s at %s, was %s", last.name, last.at.UTC().Format(time.RFC3339), last.outcome)
		if last.got.IsValid() {
			text += " with " + last.got.String()
		}
		out = append(out, text)
	}
	return out
}

// says4 returns what the client is told about an IPv4 address.
func (c *client) says4(l lease, first bool) string {
	what := "the agent answers DHCPv4"
	if !first {
		what = "a client that asks for it gets"
	}
	parts := []string{fmt.Sprintf("%s with %s/%d of subnet %s for %s", what, l.ip, l.subnet.CIDR.Bits(), l.subnet.ID, c.says(c.cfg.seconds()))}
	if gw := gateway(l.subnet); gw.IsValid() {
		parts = append(parts, "gateway "+gw.String())
	}
	if dns := nameservers(l.subnet); len(dns) > 0 {
		parts = append(parts, "DNS "+list(dns))
	}
	if c.network.MTU > 0 {
		parts = append(parts, fmt.Sprintf("MTU %d", c.network.MTU))
	}
	if n := len(c.routesOf(l.subnet)); n > 0 {
		parts = append(parts, fmt.Sprintf("%d routes", n))
	}
	if extra, _ := c.extra(4); len(extra) > 0 {
		parts = append(parts, fmt.Sprintf("%d options of the port", len(extra)))
	}
	return strings.Join(append(parts, "as server "+server(l.subnet).String()), ", ")
}

// says6 returns what the client is told with DHCPv6.
func (c *client) says6() []string {
	var out []string
	if all := c.leases(6, stateful); len(all) > 0 {
		var ips []netip.Addr
		for _, l := range all {
			ips = append(ips, l.ip)
		}
		out = append(out, fmt.Sprintf("dhcp: the agent answers DHCPv6 with %s for %s", list(ips), c.says(c.cfg.seconds())))
	}
	if all := c.leases(6, stateless); len(all) > 0 {
		out = append(out, fmt.Sprintf("dhcp: the agent answers DHCPv6 with options for %s, whose address the guest makes by itself", all[0].ip))
	}
	return out
}

func (*client) says(seconds uint32) string {
	if seconds == infinite {
		return "ever"
	}
	return (time.Duration(seconds) * time.Second).String()
}

func list(ips []netip.Addr) string {
	var out []string
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return strings.Join(slices.Compact(out), " ")
}
