// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// client6 is a port with one IPv6 address in a subnet of a mode.
func client6(mode string, change ...func(*client)) *client {
	return aClient(append([]func(*client){func(c *client) {
		c.subnets = []neutron.Subnet{{
			ID: "s6", NetworkID: "n", IPVersion: 6, CIDR: prefix("2001:db8::/64"), Gateway: addr("2001:db8::1"), EnableDHCP: true, AddressMode: mode, RAMode: mode,
			Nameservers: neutron.List[neutron.Nameserver]{{Address: "2001:db8::53"}},
		}}
		c.port.FixedIPs = neutron.List[neutron.FixedIP]{{SubnetID: "s6", IP: addr("2001:db8::54")}}
	}}, change...)...)
}

var (
	clientDUID = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr(portMAC[:])}
	otherDUID  = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
)

// ask6 is a request in a frame.
func ask6(kind dhcpv6.MessageType, options ...dhcpv6.Option) []byte {
	m := dhcpv6.Message{MessageType: kind, TransactionID: dhcpv6.TransactionID{1, 2, 3}}
	m.AddOption(dhcpv6.OptClientID(clientDUID))
	for _, o := range options {
		m.AddOption(o)
	}
	f := datagram.Frame{
		SrcMAC: portMAC, DstMAC: neutron.MAC{0x33, 0x33, 0, 1, 0, 2}, Src: addr("fe80::f816:3eff:fe01:203"), Dst: addr("ff02::1:2"), SrcPort: 546, DstPort: 547,
		Payload: m.ToBytes(),
	}
	return f.Bytes()
}

// identity is an IA_NA with addresses.
func identity(ips ...string) dhcpv6.Option {
	ia := &dhcpv6.OptIANA{IaId: [4]byte{0, 0, 0, 7}}
	for _, ip := range ips {
		ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(ip)})
	}
	return ia
}

func ownDUID() dhcpv6.Option { return dhcpv6.OptServerID(client6("").duid()) }

// says6 is an answer in one line.
func says6(m *dhcpv6.Message) string {
	out := []string{m.MessageType.String()}
	for _, o := range m.Options.Options {
		switch o := o.(type) {
		case *dhcpv6.OptIANA:
			for _, a := range o.Options.Addresses() {
				out = append(out, fmt.Sprintf("%s/%d/%d", a.IPv6Addr, a.PreferredLifetime/time.Second, a.ValidLifetime/time.Second))
			}
			if s := o.Options.Status(); s != nil {
				out = append(out, "ia:"+s.StatusCode.String())
			}
		case *dhcpv6.OptIAPD:
			out = append(out, "pd:"+o.Options.Status().StatusCode.String())
		case *dhcpv6.OptStatusCode:
			out = append(out, o.StatusCode.String())
		default:
			out = append(out, fmt.Sprint(uint16(o.Code())))
		}
	}
	return strings.Join(out, " ")
}

func TestDHCPv6(t *testing.T) {
	oro := dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer)
	none := dhcpv6.OptRequestedOption(dhcpv6.OptionNTPServer)
	rapid := &dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}
	const stateful, stateless = "dhcpv6-stateful", "dhcpv6-stateless"
	for _, c := range []struct {
		name    string
		client  *client
		packet  []byte
		outcome extension.Outcome
		want    string
	}{
		{"solicit", client6(stateful), ask6(dhcpv6.MessageTypeSolicit, identity(), oro), extension.Answered, "ADVERTISE 1 2 2001:db8::54/86400/86400 Success 7 23"},
		{"solicit that asks for nothing in particular", client6(stateful), ask6(dhcpv6.MessageTypeSolicit, identity()), extension.Answered, "ADVERTISE 1 2 2001:db8::54/86400/86400 Success 7 23 24"},
		{"modes that are not set", client6(""), ask6(dhcpv6.MessageTypeSolicit, identity(), oro), extension.Answered, "ADVERTISE 1 2 2001:db8::54/86400/86400 Success 7 23"},
		{"rapid commit", client6(stateful), ask6(dhcpv6.MessageTypeSolicit, identity(), rapid, none), extension.Answered, "REPLY 1 2 14 2001:db8::54/86400/86400 Success"},
		{"solicit for a prefix", client6(stateful), ask6(dhcpv6.MessageTypeSolicit, identity(), &dhcpv6.OptIAPD{}, none), extension.Answered, "ADVERTISE 1 2 2001:db8::54/86400/86400 pd:NoPrefixAvail Success 7"},
		{"two identities", client6(stateful), ask6(dhcpv6.MessageTypeSolicit, identity(), identity(), none), extension.Answered, "ADVERTISE 1 2 2001:db8::54/86400/86400 ia:NoAddrsAvail Success 7"},
		{"request", client6(stateful), ask6(dhcpv6.MessageTypeRequest, ownDUID(), identity("2001:db8::54"), oro), extension.Answered, "REPLY 1 2 2001:db8::54/86400/86400 Success 23"},
		{"request to another server", client6(stateful), ask6(dhcpv6.MessageTypeRequest, dhcpv6.OptServerID(otherDUID), identity()), extension.Refused, ""},
		{"renew", client6(stateful), ask6(dhcpv6.MessageTypeRenew, ownDUID(), identity("2001:db8::54"), none), extension.Answered, "REPLY 1 2 2001:db8::54/86400/86400 Success"},
		{"renew at a DHCP agent of before", client6(stateful), ask6(dhcpv6.MessageTypeRenew, dhcpv6.OptServerID(otherDUID), identity("2001:db8::54"), none), extension.Answered, "REPLY 1 2 2001:db8::54/86400/86400 Success"},
		{"rebind of another address", client6(stateful), ask6(dhcpv6.MessageTypeRebind, identity("2001:db8::99"), none), extension.Answered, "REPLY 1 2 2001:db8::54/86400/86400 2001:db8::99/0/0 Success"},
		{"confirm", client6(stateful), ask6(dhcpv6.MessageTypeConfirm, identity("2001:db8::54")), extension.Answered, "REPLY 1 2 Success"},
		{"confirm of another network's", client6(stateful), ask6(dhcpv6.MessageTypeConfirm, identity("2001:db9::54")), extension.Answered, "REPLY 1 2 NotOnLink"},
		{"confirm of nothing", client6(stateful), ask6(dhcpv6.MessageTypeConfirm, identity()), extension.Ignored, ""},
		{"release", client6(stateful), ask6(dhcpv6.MessageTypeRelease, ownDUID(), identity("2001:db8::54")), extension.Answered, "REPLY 1 2 Success"},
		{"decline", client6(stateful), ask6(dhcpv6.MessageTypeDecline, ownDUID(), identity("2001:db8::54")), extension.Answered, "REPLY 1 2 Success"},
		{"information", client6(stateless), ask6(dhcpv6.MessageTypeInformationRequest, dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList, dhcpv6.OptionInformationRefreshTime)), extension.Answered, "REPLY 1 2 23 24 32"},
		{"solicit where hosts make addresses", client6(stateless), ask6(dhcpv6.MessageTypeSolicit, identity(), none), extension.Answered, "ADVERTISE 1 2 ia:NoAddrsAvail NoAddrsAvail 7"},
		{"slaac", client6("slaac"), ask6(dhcpv6.MessageTypeSolicit, identity()), extension.Refused, ""},
		{"switched off", client6(stateful, func(c *client) { c.cfg.IPv6 = false }), ask6(dhcpv6.MessageTypeSolicit, identity()), extension.Refused, ""},
		{"solicit that names a server", client6(stateful), ask6(dhcpv6.MessageTypeSolicit, ownDUID(), identity()), extension.Malformed, ""},
		{"request that names none", client6(stateful), ask6(dhcpv6.MessageTypeRequest, identity()), extension.Malformed, ""},
		{"an answer", client6(stateful), ask6(dhcpv6.MessageTypeReply), extension.Ignored, ""},
		{"a relay's", client6(stateful), ask6(dhcpv6.MessageTypeRelayForward), extension.Refused, ""},
		{"options of the port", client6(stateful, func(c *client) {
			c.port.DHCPOptions = neutron.List[neutron.DHCPOption]{{Name: "bootfile-url", Value: "tftp://x", IPVersion: 6}, {Name: "ntp-server", Value: "[2001:db8::7]", IPVersion: 6}, {Name: "42", Value: "192.0.2.1", IPVersion: 4}}
		}), ask6(dhcpv6.MessageTypeSolicit, identity(), dhcpv6.OptRequestedOption(dhcpv6.OptionBootfileURL, dhcpv6.OptionNTPServer)), extension.Answered, "ADVERTISE 1 2 2001:db8::54/86400/86400 Success 7 59 56"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, outcome := c.client.answer(c.packet)
			if outcome != c.outcome || (f != nil) != (c.want != "") {
				t.Fatalf("the outcome is %s, answer %v; want %s", outcome, f, c.outcome)
			}
			if f == nil {
				return
			}
			m, err := dhcpv6.MessageFromBytes(f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			if got := says6(m); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if f.Src != server6 || f.Dst != addr("fe80::f816:3eff:fe01:203") || f.SrcPort != 547 || f.DstPort != 546 || m.TransactionID != (dhcpv6.TransactionID{1, 2, 3}) {
				t.Errorf("headers of %+v", f)
			}
			b := f.Bytes()
			if sum := datagram.Checksum(datagram.Checksum(17+uint32(len(b)-54), b[22:54]), b[54:]); sum != 0xffff || b[21] != 255 {
				t.Errorf("the UDP datagram adds up to %#x, hop limit %d", sum, b[21])
			}
		})
	}
}

// TestServerIDStays: the name of the server is the same in every answer, and the one that the client knows where it renews at another.
func TestServerIDStays(t *testing.T) {
	for _, packet := range [][]byte{ask6(dhcpv6.MessageTypeSolicit, identity()), ask6(dhcpv6.MessageTypeRebind, identity())} {
		f, _, _ := client6("dhcpv6-stateful").answer(packet)
		m, _ := dhcpv6.MessageFromBytes(f.Payload)
		if want := []byte{0, 3, 0, 1, 0xfa, 0x16, 0x3e, 0, 0, 0}; !bytes.Equal(m.Options.ServerID().ToBytes(), want) {
			t.Errorf("server id %x, want %x", m.Options.ServerID().ToBytes(), want)
		}
	}
	f, _, _ := client6("dhcpv6-stateful").answer(ask6(dhcpv6.MessageTypeRenew, dhcpv6.OptServerID(otherDUID), identity()))
	if m, _ := dhcpv6.MessageFromBytes(f.Payload); !m.Options.ServerID().Equal(otherDUID) {
		t.Errorf("server id %s, want %s", m.Options.ServerID(), otherDUID)
	}
}

func TestNamesAreLabels(t *testing.T) {
	f, _, _ := client6("dhcpv6-stateful").answer(ask6(dhcpv6.MessageTypeRequest, ownDUID(), identity(), dhcpv6.OptRequestedOption(dhcpv6.OptionFQDN, dhcpv6.OptionDomainSearchList)))
	m, _ := dhcpv6.MessageFromBytes(f.Payload)
	if got := m.Options.DomainSearchList().Labels; !slices.Equal(got, []string{"openstacklocal"}) {
		t.Errorf("search list %q", got)
	}
	fqdn := m.Options.FQDN()
	if want := "host-2001-db8--54.openstacklocal"; fqdn == nil || fqdn.Flags != 1 || !slices.Equal(fqdn.DomainName.Labels, []string{want}) {
		t.Errorf("name %v, want %s with flags 1", fqdn, want)
	}
	f, _, _ = client6("dhcpv6-stateful").answer(ask6(dhcpv6.MessageTypeRequest, ownDUID(), identity(), &dhcpv6.OptFQDN{DomainName: fqdn.DomainName}))
	if m, _ = dhcpv6.MessageFromBytes(f.Payload); m.Options.FQDN() == nil || m.Options.FQDN().Flags != 3 {
		t.Errorf("a client that would update the names itself gets %v, want flags 3", m.Options.FQDN())
	}
}

func TestTimesOfDHCPv6(t *testing.T) {
	f, _, _ := client6("dhcpv6-stateful").answer(ask6(dhcpv6.MessageTypeSolicit, identity()))
	m, _ := dhcpv6.MessageFromBytes(f.Payload)
	if ia := m.Options.OneIANA(); ia.T1 != 43200*time.Second || ia.T2 != 69120*time.Second || ia.IaId != [4]byte{0, 0, 0, 7} {
		t.Errorf("T1 %s, T2 %s, id %v", ia.T1, ia.T2, ia.IaId)
	}
}

func TestForeignSenders(t *testing.T) {
	packet := ask6(dhcpv6.MessageTypeSolicit, identity())
	for name, change := range map[string]func(f *datagram.Frame){
		"another MAC":        func(f *datagram.Frame) { f.SrcMAC = neutron.MAC{2, 0, 0, 0, 0, 1} },
		"an address in use":  func(f *datagram.Frame) { f.Src = addr("2001:db8::54") },
		"no address at all":  func(f *datagram.Frame) { f.Src = netip.IPv6Unspecified() },
		"no longer a client": func(f *datagram.Frame) { f.SrcPort = 547 },
	} {
		f, err := datagram.Read(packet)
		if err != nil {
			t.Fatal(err)
		}
		change(&f)
		if answer, _, outcome := client6("dhcpv6-stateful").answer(f.Bytes()); answer != nil || outcome == extension.Answered {
			t.Errorf("%s: the outcome is %s, want no answer", name, outcome)
		}
	}
}

// FuzzAnswer: whatever a guest sends, there is no panic, and an answer goes to it alone, with no other address than its own.
func FuzzAnswer(f *testing.F) {
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeInformationRequest, dhcpv6.MessageTypeRelayForward} {
		f.Add(ask6(kind, ownDUID(), identity("2001:db8::54"), dhcpv6.OptRequestedOption(dhcpv6.OptionFQDN)))
	}
	for kind := range 9 {
		f.Add(ask4(f, "255.255.255.255", kind4(dhcpv4.MessageType(1+kind)), want4("10.5.0.54")))
	}
	long := ask4(f, "10.5.0.1", kind4(3), want4("10.5.0.99"))
	f.Add(long[:60])
	f.Add(append(slices.Clone(long), long...))
	f.Add([]byte{})
	c := aClient(func(c *client) {
		six := client6("dhcpv6-stateful")
		c.subnets, c.port.FixedIPs = append(c.subnets, six.subnets...), append(c.port.FixedIPs, six.port.FixedIPs...)
	})
	f.Fuzz(func(t *testing.T, packet []byte) {
		answer, _, outcome := c.answer(packet)
		if (answer != nil) != (outcome == extension.Answered) {
			t.Fatalf("answer %v, outcome %s", answer, outcome)
		}
		if answer == nil {
			return
		}
		sent, err := datagram.Read(answer.Bytes())
		if err != nil || sent.DstMAC != portMAC || sent.SrcMAC != baseMAC {
			t.Fatalf("%v: the answer goes from %s to %s", err, sent.SrcMAC, sent.DstMAC)
		}
		if sent.Src.Is4() && len(sent.Payload) >= 20 {
			if ip := address(sent.Payload[16:20]); !ip.IsUnspecified() && ip != addr("10.5.0.54") {
				t.Fatalf("the answer has the address %s", ip)
			}
		}
	})
}
