// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
)

// TestWrong: an answer counts only if everything in it is the port's own.
func TestWrong(t *testing.T) {
	p := Port{MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 0, 1}, Address: netip.MustParsePrefix("10.5.0.7/22"), Router: netip.MustParseAddr("10.5.0.1")}
	m, err := dhcpv4.NewDiscovery(p.MAC)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := broadcast(p.MAC, m)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := datagram.Read(frame); err != nil || f.SrcPort != 68 || f.DstPort != 67 || f.Dst != netip.MustParseAddr("255.255.255.255") {
		t.Errorf("the frame of a client is %+v, %v", f, err)
	}
	answer := func(more ...dhcpv4.Modifier) string {
		a, err := dhcpv4.NewReplyFromRequest(m, append([]dhcpv4.Modifier{
			dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer), dhcpv4.WithYourIP(net.IPv4(10, 5, 0, 7)), dhcpv4.WithNetmask(net.CIDRMask(22, 32)),
			dhcpv4.WithRouter(net.IPv4(10, 5, 0, 1)), dhcpv4.WithServerIP(net.IPv4(10, 5, 0, 1)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 5, 0, 1))),
			dhcpv4.WithLeaseTime(uint32(time.Hour / time.Second)),
		}, more...)...)
		if err != nil {
			t.Fatal(err)
		}
		return wrong(p, a)
	}
	if got := answer(); got != "" {
		t.Errorf("the right answer is wrong: %s", got)
	}
	for name, change := range map[string]dhcpv4.Modifier{
		"another's address": dhcpv4.WithYourIP(net.IPv4(10, 5, 0, 8)), "mask": dhcpv4.WithNetmask(net.CIDRMask(24, 32)), "router": dhcpv4.WithRouter(net.IPv4(10, 5, 0, 2)),
		"MAC": dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 1}), "no time": dhcpv4.WithLeaseTime(0),
	} {
		if answer(change) == "" {
			t.Errorf("%s: not noticed", name)
		}
	}
}
