// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

var (
	portMAC = neutron.MAC{0xfa, 0x16, 0x3e, 1, 2, 3}
	baseMAC = neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, 0}
)

func prefix(s string) neutron.Prefix { return neutron.Prefix{Prefix: netip.MustParsePrefix(s)} }
func addr(s string) netip.Addr       { return netip.MustParseAddr(s) }

// subnet4 is the subnet s4 of the tests: a gateway, DNS, a route.
func subnet4() neutron.Subnet {
	return neutron.Subnet{
		ID: "s4", NetworkID: "n", IPVersion: 4, CIDR: prefix("10.5.0.0/24"), Gateway: addr("10.5.0.1"), EnableDHCP: true,
		Nameservers: neutron.List[neutron.Nameserver]{{Address: "192.0.2.54", Order: 1}, {Address: "192.0.2.53"}},
		HostRoutes:  neutron.List[neutron.SubnetRoute]{{Destination: prefix("10.9.0.0/16"), NextHop: addr("10.5.0.9")}},
	}
}

// aClient is a port with one IPv4 address, changed as the test wants it.
func aClient(change ...func(*client)) *client {
	c := &client{
		cfg:     &Config{IPv6: true, MAC: baseMAC, Domain: "openstacklocal", Lease: 86400 * time.Second},
		mac:     portMAC,
		port:    &neutron.Port{ID: "p", NetworkID: "n", MAC: portMAC, FixedIPs: neutron.List[neutron.FixedIP]{{SubnetID: "s4", IP: addr("10.5.0.54")}}},
		network: &neutron.Network{ID: "n", MTU: 1450},
		subnets: []neutron.Subnet{subnet4()},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// ask4 is a request in a frame.
func ask4(t testing.TB, dst string, modifiers ...dhcpv4.Modifier) []byte {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(net.HardwareAddr(portMAC[:])), dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, 4}),
	}, modifiers...)...)
	if err != nil {
		t.Fatal(err)
	}
	f := datagram.Frame{SrcMAC: portMAC, DstMAC: neutron.MAC{255, 255, 255, 255, 255, 255}, Src: addr("0.0.0.0"), Dst: addr(dst), SrcPort: 68, DstPort: 67, Payload: m.ToBytes()}
	return f.Bytes()
}

func kind4(k dhcpv4.MessageType) dhcpv4.Modifier { return dhcpv4.WithMessageType(k) }

func want4(ip string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(ip)))
}

func from4(ip string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(ip)))
}

// got4 returns the answer to a request.
func got4(t testing.TB, c *client, packet []byte) (*datagram.Frame, *dhcpv4.DHCPv4) {
	t.Helper()
	f, _, outcome := c.answer(packet)
	if f == nil || outcome != extension.Answered {
		t.Fatalf("the outcome is %s, want an answer", outcome)
	}
	again, err := datagram.Read(f.Bytes())
	if err != nil {
		t.Fatalf("the answer cannot be read: %v", err)
	}
	m, err := dhcpv4.FromBytes(again.Payload)
	if err != nil {
		t.Fatalf("the answer cannot be read: %v", err)
	}
	return f, m
}

// TestOfferByteForByte compares a whole frame with what Neutron's extension sends for the same port, but for what that one does wrong: T1 and T2 are
// in it, the message is padded to 300 bytes, and the routes are those that the DHCP agent gives.
func TestOfferByteForByte(t *testing.T) {
	f, _ := got4(t, aClient(), ask4(t, "255.255.255.255", kind4(dhcpv4.MessageTypeDiscover)))
	options := strings.Join([]string{
		"350102", "36040a050001", "330400015180", "3a040000a8c0", "3b0400012750", "0104ffffff00", "1c040a0500ff", "0608c0000235c0000236",
		"0f0e" + hex.EncodeToString([]byte("openstacklocal")), "03040a050001",
		"7915" + "100a090a050009" + "20a9fea9fe0a050001" + "000a050001", "1a0205aa",
		"0c0e" + hex.EncodeToString([]byte("host-10-5-0-54")), "ff",
	}, "")
	body := "02010600" + "01020304" + "00000000" + "00000000" + "0a050036" + "0a050001" + "00000000" + "fa163e010203" + strings.Repeat("00", 10+64+128) + "63825363" + options
	body += strings.Repeat("00", max(300-len(body)/2, 0))
	got := f.Bytes()
	if h, want := hex.EncodeToString(got[:14]), "fa163e010203fa163e0000000800"; h != want {
		t.Errorf("Ethernet header %s, want %s", h, want)
	}
	if h := hex.EncodeToString(got[42:]); h != body {
		t.Errorf("message\n%s, want\n%s", h, body)
	}
	if sum := datagram.Checksum(0, got[14:34]); sum != 0xffff {
		t.Errorf("the IPv4 header adds up to %#x, want 0xffff", sum)
	}
	if sum := datagram.Checksum(datagram.Checksum(17+uint32(len(got)-34), got[26:34]), got[34:]); sum != 0xffff {
		t.Errorf("the UDP datagram adds up to %#x, want 0xffff", sum)
	}
	if got[22] != 255 || got[14] != 0x45 || !bytes.Equal(got[26:38], []byte{10, 5, 0, 1, 255, 255, 255, 255, 0, 67, 0, 68}) {
		t.Errorf("headers %x", got[14:42])
	}
}

func TestRequests(t *testing.T) {
	request := kind4(dhcpv4.MessageTypeRequest)
	have := func(ip string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(ip)) }
	const all = "255.255.255.255"
	for _, c := range []struct {
		name      string
		packet    []byte
		kind      dhcpv4.MessageType // 0: no answer
		outcome   extension.Outcome
		from, dst string
	}{
		{"selecting", ask4(t, all, request, want4("10.5.0.54"), from4("10.5.0.1")), dhcpv4.MessageTypeAck, extension.Answered, "10.5.0.1", all},
		{"selecting a DHCP agent's offer of before", ask4(t, all, request, want4("10.5.0.54"), from4("10.5.0.2")), dhcpv4.MessageTypeAck, extension.Answered, "10.5.0.2", all},
		{"selecting a server of elsewhere", ask4(t, all, request, want4("10.5.0.54"), from4("10.6.0.2")), 0, extension.Refused, "", ""},
		{"after a reboot", ask4(t, all, request, want4("10.5.0.54")), dhcpv4.MessageTypeAck, extension.Answered, "10.5.0.1", all},
		{"after a reboot with another's address", ask4(t, all, request, want4("10.5.0.55")), dhcpv4.MessageTypeNak, extension.Answered, "10.5.0.1", all},
		{"renewing at the gateway", ask4(t, "10.5.0.1", request, have("10.5.0.54")), dhcpv4.MessageTypeAck, extension.Answered, "10.5.0.1", "10.5.0.54"},
		{"renewing at a DHCP agent of before", ask4(t, "10.5.0.2", request, have("10.5.0.54")), dhcpv4.MessageTypeAck, extension.Answered, "10.5.0.2", "10.5.0.54"},
		{"renewing an address of before", ask4(t, "10.5.0.1", request, have("10.5.0.7")), dhcpv4.MessageTypeNak, extension.Answered, "10.5.0.1", all},
		{"rebinding", ask4(t, all, request, have("10.5.0.54")), dhcpv4.MessageTypeAck, extension.Answered, "10.5.0.1", "10.5.0.54"},
		{"for nothing", ask4(t, all, request), 0, extension.Malformed, "", ""},
		{"inform", ask4(t, all, kind4(dhcpv4.MessageTypeInform), have("10.5.0.54")), dhcpv4.MessageTypeAck, extension.Answered, "10.5.0.1", "10.5.0.54"},
		{"release", ask4(t, "10.5.0.1", kind4(dhcpv4.MessageTypeRelease), have("10.5.0.54")), 0, extension.Ignored, "", ""},
		{"decline", ask4(t, all, kind4(dhcpv4.MessageTypeDecline), want4("10.5.0.54")), 0, extension.Ignored, "", ""},
		{"no type", ask4(t, all), 0, extension.Malformed, "", ""},
		{"relay", ask4(t, all, kind4(dhcpv4.MessageTypeDiscover), dhcpv4.WithGatewayIP(net.ParseIP("10.5.0.1"))), 0, extension.Refused, "", ""},
		{"another's MAC", ask4(t, all, kind4(dhcpv4.MessageTypeDiscover), dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 1})), 0, extension.Refused, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, outcome := aClient().answer(c.packet)
			if outcome != c.outcome || (f != nil) != (c.kind != 0) {
				t.Fatalf("the outcome is %s, answer %v; want %s", outcome, f, c.outcome)
			}
			if f == nil {
				return
			}
			_, m := got4(t, aClient(), c.packet)
			if m.MessageType() != c.kind || f.Src != addr(c.from) || f.Dst != addr(c.dst) || address(m.Options.Get(dhcpv4.OptionServerIdentifier)) != addr(c.from) {
				t.Errorf("%s from %s to %s, server %s; want %s from %s to %s", m.MessageType(), f.Src, f.Dst, m.ServerIdentifier(), c.kind, c.from, c.dst)
			}
			if ip := address(m.YourIPAddr); c.kind == dhcpv4.MessageTypeAck && c.name != "inform" && ip != addr("10.5.0.54") || c.kind == dhcpv4.MessageTypeNak && !ip.IsUnspecified() {
				t.Errorf("yiaddr %s", ip)
			}
			if leased := m.Options.Has(dhcpv4.OptionIPAddressLeaseTime); leased != (c.kind == dhcpv4.MessageTypeAck && c.name != "inform") {
				t.Errorf("a lease time: %v", leased)
			}
		})
	}
}

// TestClientIDGivesNothing: what a request says about its sender never leads to another port's address.
func TestClientIDGivesNothing(t *testing.T) {
	other := append([]byte{1}, 0xfa, 0x16, 0x3e, 9, 9, 9)
	_, m := got4(t, aClient(), ask4(t, "255.255.255.255", kind4(dhcpv4.MessageTypeDiscover), dhcpv4.WithOption(dhcpv4.OptClientIdentifier(other)), want4("10.5.0.99")))
	if ip := address(m.YourIPAddr); ip != addr("10.5.0.54") {
		t.Errorf("the offer is %s, want the port's own", ip)
	}
	if id := m.Options.Get(dhcpv4.OptionClientIdentifier); !bytes.Equal(id, other) {
		t.Errorf("client id %x, want it back (RFC 6842)", id)
	}
}

func TestWhatAPortGets(t *testing.T) {
	extra := func(pairs ...string) func(*client) {
		return func(c *client) {
			for i := 0; i < len(pairs); i += 2 {
				c.port.DHCPOptions = append(c.port.DHCPOptions, neutron.DHCPOption{Name: pairs[i], Value: pairs[i+1], IPVersion: 4})
			}
		}
	}
	edit := func(f func(s *neutron.Subnet)) func(*client) { return func(c *client) { f(&c.subnets[0]) } }
	ask := func(codes ...uint8) []dhcpv4.Modifier {
		var list []dhcpv4.OptionCode
		for _, code := range codes {
			list = append(list, dhcpv4.GenericOptionCode(code))
		}
		return []dhcpv4.Modifier{dhcpv4.WithRequestedOptions(list...)}
	}
	for _, c := range []struct {
		name   string
		client *client
		asks   []dhcpv4.Modifier
		want   string // options besides 53, 54, 51, 58, 59 and 61 that New adds none of
	}{
		{"everything", aClient(), nil, "1=ffffff00 3=0a050001 6=c0000235c0000236 12=host-10-5-0-54 15=openstacklocal 26=05aa 28=0a0500ff 121=100a090a05000920a9fea9fe0a050001000a050001"},
		{"what is asked for", aClient(), ask(1, 3), "1=ffffff00 3=0a050001 26=05aa 28=0a0500ff"},
		{"routes as Windows has them", aClient(), ask(249), "1=ffffff00 26=05aa 28=0a0500ff 249=100a090a05000920a9fea9fe0a050001000a050001"},
		{"no gateway", aClient(edit(func(s *neutron.Subnet) { s.Gateway = netip.Addr{} })), ask(3, 121), "1=ffffff00 26=05aa 28=0a0500ff 121=100a090a050009"},
		{"no gateway, no routes", aClient(edit(func(s *neutron.Subnet) { s.Gateway, s.HostRoutes = netip.Addr{}, nil })), ask(3, 121), "1=ffffff00 26=05aa 28=0a0500ff"},
		{"a route stands for the gateway", aClient(edit(func(s *neutron.Subnet) {
			s.Gateway, s.HostRoutes = netip.Addr{}, neutron.List[neutron.SubnetRoute]{{Destination: prefix("0.0.0.0/0"), NextHop: addr("10.5.0.7")}}
		})), ask(3, 121), "1=ffffff00 3=0a050007 26=05aa 28=0a0500ff 121=20a9fea9fe0a050007000a050007"},
		{"no DNS wanted", aClient(edit(func(s *neutron.Subnet) { s.Nameservers = neutron.List[neutron.Nameserver]{{Address: "0.0.0.0"}} })), ask(6), "1=ffffff00 26=05aa 28=0a0500ff"},
		{"two addresses", aClient(edit(func(s *neutron.Subnet) {
			s.CIDR, s.HostRoutes = prefix("10.5.0.54/31"), nil
			s.Gateway = addr("10.5.0.55")
		})), ask(28, 3), "1=fffffffe 3=0a050037 26=05aa"},
		{"one address", aClient(edit(func(s *neutron.Subnet) { s.CIDR, s.HostRoutes = prefix("10.5.0.54/32"), nil })), ask(121), "1=ffffffff 26=05aa 121=200a0500010000000020a9fea9fe0a050001000a050001"},
		{"another subnet of the segment", aClient(func(c *client) {
			c.subnets = append(c.subnets, neutron.Subnet{ID: "t", IPVersion: 4, CIDR: prefix("10.6.0.0/24"), EnableDHCP: true},
				neutron.Subnet{ID: "u", IPVersion: 4, CIDR: prefix("10.7.0.0/24"), EnableDHCP: true, SegmentID: "elsewhere"}, neutron.Subnet{ID: "v", IPVersion: 4, CIDR: prefix("10.8.0.0/24")})
		}), ask(121), "1=ffffff00 26=05aa 28=0a0500ff 121=180a060000000000100a090a05000920a9fea9fe0a050001000a050001"},
		{"names", aClient(func(c *client) {
			c.network.DNSDomain = "example.org."
			c.port.DNS.Value = &neutron.PortDNS{Name: "web"}
		}), ask(12, 15), "1=ffffff00 12=web 15=example.org 26=05aa 28=0a0500ff"},
		{"no domain, no MTU", aClient(func(c *client) { c.cfg.Domain, c.network.MTU = "", 0 }), ask(15, 26), "1=ffffff00 28=0a0500ff"},
		{"options of the port", aClient(extra("tftp-server", "boot", "150", "192.0.2.1", "42", "192.0.2.2,192.0.2.3", "mtu", "1400", "dns-server", "192.0.2.9", "client-id", "01:02", "234", "01:ff", "no-such", "x")),
			ask(66, 150, 42, 6, 234), "1=ffffff00 6=c0000209 26=0578 28=0a0500ff 42=c0000202c0000203 66=boot 150=c0000201 234=01ff"},
		{"an option taken away", aClient(extra("router", "", "121", "")), ask(3, 121), "1=ffffff00 26=05aa 28=0a0500ff"},
		{"the last of two", aClient(extra("domain-name", "a", "15", "b")), ask(15), "1=ffffff00 15=b 26=05aa 28=0a0500ff"},
		{"tags", aClient(extra("tag:!ipxe,67", "plain", "tag:ipxe,67", "ipxe")), append(ask(67), dhcpv4.WithGeneric(dhcpv4.GenericOptionCode(175), []byte{1})), "1=ffffff00 26=05aa 28=0a0500ff 67=ipxe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, m := got4(t, c.client, ask4(t, "255.255.255.255", append(c.asks, kind4(dhcpv4.MessageTypeDiscover))...))
			var got []string
			for code, value := range m.Options {
				text := hex.EncodeToString(value)
				if slices.Contains([]uint8{12, 15, 66, 67}, code) {
					text = string(value)
				}
				if !slices.Contains([]uint8{53, 54, 51, 58, 59, 61}, code) {
					got = append(got, fmt.Sprintf("%03d=%s", code, text))
				}
			}
			slices.Sort(got)
			for i := range got {
				got[i] = strings.TrimLeft(got[i], "0")
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

func TestFieldsForBooting(t *testing.T) {
	c := aClient(func(c *client) {
		c.port.DHCPOptions = neutron.List[neutron.DHCPOption]{{Name: "server-ip-address", Value: "192.0.2.7", IPVersion: 4}, {Name: "bootfile-name", Value: "pxelinux.0", IPVersion: 4}}
	})
	_, m := got4(t, c, ask4(t, "255.255.255.255", kind4(dhcpv4.MessageTypeDiscover), dhcpv4.WithRequestedOptions(dhcpv4.OptionRouter)))
	if address(m.ServerIPAddr) != addr("192.0.2.7") || m.BootFileName != "pxelinux.0" || m.Options.Has(dhcpv4.OptionBootfileName) {
		t.Errorf("siaddr %s, file %q, option %q", m.ServerIPAddr, m.BootFileName, m.BootFileNameOption())
	}
}

// TestLongOptions: what does not fit into one option is in several, and what the client has no room for is left out.
func TestLongOptions(t *testing.T) {
	c := aClient(func(c *client) {
		for i := range 40 {
			c.subnets[0].HostRoutes = append(c.subnets[0].HostRoutes, neutron.SubnetRoute{Destination: prefix(fmt.Sprintf("10.%d.0.0/16", 100+i)), NextHop: addr("10.5.0.9")})
		}
	})
	_, m := got4(t, c, ask4(t, "255.255.255.255", kind4(dhcpv4.MessageTypeDiscover)))
	if n := len(m.Options.Get(dhcpv4.OptionClasslessStaticRoute)); n != 41*7+9+5 {
		t.Errorf("%d bytes of routes, want %d", n, 41*7+9+5)
	}
	f, m := got4(t, c, ask4(t, "255.255.255.255", kind4(dhcpv4.MessageTypeDiscover), dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(576))))
	if m.Options.Has(dhcpv4.OptionClasslessStaticRoute) || !m.Options.Has(dhcpv4.OptionRouter) || len(f.Payload) > 548 {
		t.Errorf("%d bytes with %s", len(f.Payload), m.Options)
	}
}

func TestSeveralAddresses(t *testing.T) {
	c := aClient(func(c *client) {
		c.subnets = append(c.subnets, neutron.Subnet{ID: "a6", IPVersion: 6, CIDR: prefix("2001:db8::/64"), EnableDHCP: true},
			neutron.Subnet{ID: "t4", IPVersion: 4, CIDR: prefix("10.6.0.0/24"), EnableDHCP: true}, neutron.Subnet{ID: "u4", IPVersion: 4, CIDR: prefix("10.4.0.0/24")})
		c.port.FixedIPs = neutron.List[neutron.FixedIP]{
			{SubnetID: "a6", IP: addr("2001:db8::5")}, {SubnetID: "u4", IP: addr("10.4.0.5")}, {SubnetID: "s4", IP: addr("10.5.0.54")}, {SubnetID: "t4", IP: addr("10.6.0.5")},
		}
	})
	for wanted, got := range map[string]string{"0.0.0.0": "10.5.0.54", "10.6.0.5": "10.6.0.5", "10.4.0.5": "10.5.0.54"} {
		_, m := got4(t, c, ask4(t, "255.255.255.255", kind4(dhcpv4.MessageTypeDiscover), want4(wanted)))
		if address(m.YourIPAddr) != addr(got) {
			t.Errorf("who asks for %s is offered %s, want %s", wanted, m.YourIPAddr, got)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		cfg           Config
		lease, t1, t2 uint32
	}{
		{Config{Lease: 86400 * time.Second}, 86400, 43200, 75600},
		{Config{Lease: -time.Second}, infinite, infinite, infinite},
		{Config{Lease: 86400 * time.Second, Renewal: 600 * time.Second, Rebinding: 1200 * time.Second}, 86400, 600, 1200},
		{Config{Lease: 86400 * time.Second, Rebinding: 1200 * time.Second}, 86400, 1200, 1200},
	} {
		if t1, t2 := c.cfg.times(7, 8); c.cfg.seconds() != c.lease || t1 != c.t1 || t2 != c.t2 {
			t.Errorf("%+v: lease %d, T1 %d, T2 %d; want %d, %d, %d", c.cfg, c.cfg.seconds(), t1, t2, c.lease, c.t1, c.t2)
		}
	}
}
