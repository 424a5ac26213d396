// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/insomniacslk/dhcp/rfc1035label"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
)

// server6 is the address under which DHCPv6 is answered. It is link-local, as that of any server on the link: filters of guests let in answers
// from such addresses only.
var server6 = netip.MustParseAddr("fe80::a9fe:a9fe")

// answer6 returns the answer to a DHCPv6 packet that came from the client's port; nil if it gets none.
func answer6(c *client, f *datagram.Frame) (*datagram.Frame, request, extension.Outcome) {
	if len(f.Payload) > 0 && (f.Payload[0] == byte(dhcpv6.MessageTypeRelayForward) || f.Payload[0] == byte(dhcpv6.MessageTypeRelayReply)) {
		return nil, request{name: "RELAY-FORW"}, extension.Refused
	}
	m, err := dhcpv6.MessageFromBytes(f.Payload)
	if err != nil {
		return nil, request{}, extension.Malformed
	}
	kind := request{name: m.MessageType.String()}
	if f.SrcMAC != c.mac || !f.Src.IsLinkLocalUnicast() {
		return nil, kind, extension.Refused
	}
	all := c.leases(6, stateful)
	if _, v6 := c.answers(); !v6 {
		return nil, kind, extension.Refused
	}
	reply := dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply, TransactionID: m.TransactionID}
	if outcome := c.identify6(m, &reply); outcome != extension.Answered {
		return nil, kind, outcome
	}
	switch m.MessageType {
	case dhcpv6.MessageTypeInformationRequest:
	case dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		reply.AddOption(status(iana.StatusSuccess, "success"))
	case dhcpv6.MessageTypeConfirm:
		verdict, asks := confirm(m, all)
		if !asks {
			return nil, kind, extension.Ignored
		}
		reply.AddOption(verdict)
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		c.grant(m, &reply, all)
		if len(all) > 0 {
			kind.got = all[0].ip
		}
	default:
		return nil, kind, extension.Ignored
	}
	if m.MessageType != dhcpv6.MessageTypeRelease && m.MessageType != dhcpv6.MessageTypeDecline && m.MessageType != dhcpv6.MessageTypeConfirm {
		c.options6(m, &reply, all)
	}
	return &datagram.Frame{
		SrcMAC: c.cfg.MAC, DstMAC: f.SrcMAC, Src: server6, Dst: f.Src, SrcPort: serverPort6, DstPort: clientPort6, Payload: reply.ToBytes(),
	}, kind, extension.Answered
}

// duid is the server's name: the same on every host with the same base_mac, so that it stays when a VM moves.
func (c *client) duid() dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr(c.cfg.MAC[:])}
}

// identify6 checks who a message is from and for, as RFC 8415 asks in section 16, and names both in the answer. A client that has its addresses
// from another server, such as a DHCP agent's, and renews them is answered as from there: nobody else is heard on this port.
func (c *client) identify6(m, reply *dhcpv6.Message) extension.Outcome {
	id, to, own := m.Options.ClientID(), m.Options.ServerID(), c.duid()
	if id != nil {
		reply.AddOption(dhcpv6.OptClientID(id))
	} else if m.MessageType != dhcpv6.MessageTypeInformationRequest {
		return extension.Malformed
	}
	switch m.MessageType {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		if to != nil {
			return extension.Malformed
		}
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		switch {
		case to == nil:
			return extension.Malformed
		case to.Equal(own):
		case m.MessageType == dhcpv6.MessageTypeRequest:
			return extension.Refused // it has chosen another server
		default:
			own = to
		}
	case dhcpv6.MessageTypeInformationRequest:
		if to != nil && !to.Equal(own) {
			return extension.Refused
		}
	default:
		return extension.Ignored
	}
	reply.AddOption(dhcpv6.OptServerID(own))
	return extension.Answered
}

func status(code iana.StatusCode, text string) dhcpv6.Option {
	return &dhcpv6.OptStatusCode{StatusCode: code, StatusMessage: text}
}

// confirm says whether the addresses that a client has are of the networks of its port; asks is false if it names none.
func confirm(m *dhcpv6.Message, all []lease) (verdict dhcpv6.Option, asks bool) {
	verdict = status(iana.StatusSuccess, "success")
	for _, ia := range m.Options.IANA() {
		for _, a := range ia.Options.Addresses() {
			asks = true
			ip, _ := netip.AddrFromSlice(a.IPv6Addr)
			if !slices.ContainsFunc(all, func(l lease) bool { return l.subnet.CIDR.Contains(ip) }) {
				verdict = status(iana.StatusNotOnLink, "not on link")
			}
		}
	}
	return verdict, asks
}

// grant answers a client that wants addresses.
func (c *client) grant(m, reply *dhcpv6.Message, all []lease) {
	rapid := m.GetOneOption(dhcpv6.OptionRapidCommit) != nil
	if m.MessageType == dhcpv6.MessageTypeSolicit && !rapid {
		reply.MessageType = dhcpv6.MessageTypeAdvertise
	}
	if m.MessageType == dhcpv6.MessageTypeSolicit && rapid {
		reply.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
	}
	granted := false
	for _, ia := range m.Options.IANA() {
		out := &dhcpv6.OptIANA{IaId: ia.IaId}
		if len(all) == 0 || granted { // the port's addresses are in one
			out.Options.Add(status(iana.StatusNoAddrsAvail, "no addresses available"))
		} else {
			c.fill(out, ia, all)
			granted = true
		}
		reply.AddOption(out)
	}
	for _, ia := range m.Options.IATA() {
		out := &dhcpv6.OptIATA{IaId: ia.IaId}
		out.Options.Add(status(iana.StatusNoAddrsAvail, "no addresses available"))
		reply.AddOption(out)
	}
	for _, ia := range m.Options.IAPD() {
		out := &dhcpv6.OptIAPD{IaId: ia.IaId}
		out.Options.Add(status(iana.StatusNoPrefixAvail, "no prefixes available"))
		reply.AddOption(out)
	}
	if len(all) == 0 {
		reply.AddOption(status(iana.StatusNoAddrsAvail, "no addresses available"))
	} else {
		reply.AddOption(status(iana.StatusSuccess, "success"))
	}
	if reply.MessageType == dhcpv6.MessageTypeAdvertise {
		reply.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionPreference, OptionData: []byte{0}})
	}
}

// fill puts the port's addresses into an identity. Others that the client has get no time any more.
func (c *client) fill(out, asked *dhcpv6.OptIANA, all []lease) {
	second := time.Second
	t1, t2 := c.cfg.times(4, 5)
	life := time.Duration(c.cfg.seconds()) * second
	out.T1, out.T2 = time.Duration(t1)*second, time.Duration(t2)*second
	for _, l := range all {
		out.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: l.ip.AsSlice(), PreferredLifetime: life, ValidLifetime: life})
	}
	for _, a := range asked.Options.Addresses() {
		ip, _ := netip.AddrFromSlice(a.IPv6Addr)
		if !slices.ContainsFunc(all, func(l lease) bool { return l.ip == ip }) {
			out.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.IPv6Addr})
		}
	}
}

// Options of DHCPv6 by number.
const opt6DNS, opt6Search, opt6Refresh, opt6FQDN = 23, 24, 32, 39

// leastRefresh is the shortest information refresh time (RFC 8415, 21.23), in seconds.
const leastRefresh = 600

// options6 adds the options that a client asks for, or all if it does not say.
func (c *client) options6(m, reply *dhcpv6.Message, all []lease) {
	served := append(slices.Clone(all), c.leases(6, stateless)...)
	var dns []netip.Addr
	for _, l := range served {
		for _, a := range nameservers(l.subnet) {
			if !slices.Contains(dns, a) {
				dns = append(dns, a)
			}
		}
	}
	options := []option{{opt6DNS, addressBytes(dns...)}}
	if d := c.domain(); d != "" {
		options = append(options, option{opt6Search, (&rfc1035label.Labels{Labels: []string{d}}).ToBytes()})
	}
	asked := m.Options.RequestedOptions()
	asks := func(code uint16) bool { return slices.Contains(asked, dhcpv6.OptionCode(code)) }
	if m.MessageType == dhcpv6.MessageTypeInformationRequest && asks(opt6Refresh) {
		options = append(options, option{opt6Refresh, uint32Bytes(max(c.cfg.seconds(), leastRefresh))})
	}
	if len(served) > 0 && (m.Options.FQDN() != nil || asks(opt6FQDN)) {
		name := strings.Trim(c.hostname(served[0].ip)+"."+c.domain(), ".")
		const serverUpdates, against = 1, 2 // the server has the names, whatever the client wishes (RFC 4704)
		flags := byte(serverUpdates)
		if wish := m.Options.FQDN(); wish != nil && wish.Flags&serverUpdates == 0 {
			flags |= against
		}
		options = append(options, option{opt6FQDN, append([]byte{flags}, (&rfc1035label.Labels{Labels: []string{name}}).ToBytes()...)})
	}
	extra, _ := c.extra(6, tags6(m)...)
	for _, o := range merge(options, extra) {
		if len(asked) == 0 || asks(o.code) || o.code == opt6FQDN {
			reply.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionCode(o.code), OptionData: o.value})
		}
	}
}

// tags6 returns the tags that the DHCP agent's dnsmasq has for a request.
func tags6(m *dhcpv6.Message) []string {
	for _, class := range m.Options.UserClasses() {
		if strings.Contains(string(class), "iPXE") {
			return []string{"ipxe6"}
		}
	}
	return nil
}
