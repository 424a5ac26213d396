// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/patchbay-sdn/patchbay/internal/datagram"
	"github.com/patchbay-sdn/patchbay/internal/extension"
)

const (
	serverPort4, clientPort4 = 67, 68
	serverPort6, clientPort6 = 547, 546
)

// Options of DHCPv4 by number; those that are sent whether the client asks for them or not come first.
const (
	optType, optServer, optLease, optT1, optT2, optMask, optBroadcast, optMTU = 53, 54, 51, 58, 59, 1, 28, 26

	optRouter, optDNS, optHostname, optDomain, optRoutes, optRoutesOld = 3, 6, 12, 15, 121, 249
	optMessage, optBootFile, optServerName, optIPXE, optEnd            = 56, 67, 66, 175, 255
)

// always says whether an option is sent to a client that does not ask for it.
func always(code uint16) bool {
	return slices.Contains([]uint16{optType, optServer, optLease, optT1, optT2, optMask, optBroadcast, optMTU, optMessage, clientID}, code)
}

// answer4 returns the answer to a DHCPv4 packet that came from the client's port; nil if it gets none.
func answer4(c *client, f *datagram.Frame) (*datagram.Frame, request, extension.Outcome) {
	m, err := dhcpv4.FromBytes(f.Payload)
	if err != nil {
		return nil, request{}, extension.Malformed
	}
	kind := request{name: "DHCP" + m.MessageType().String()}
	own := m.OpCode == dhcpv4.OpcodeBootRequest && m.HWType == iana.HWTypeEthernet && slices.Equal(m.ClientHWAddr, c.mac[:]) && f.SrcMAC == c.mac
	if !own || !m.GatewayIPAddr.IsUnspecified() { // another's address, or a relay
		return nil, kind, extension.Refused
	}
	l, server, reply, outcome := decide4(c, f, m)
	if outcome != extension.Answered {
		return nil, kind, outcome
	}
	kind.got = l.ip
	out := &datagram.Frame{
		SrcMAC: c.cfg.MAC, DstMAC: f.SrcMAC, Src: server, Dst: netip.AddrFrom4([4]byte{255, 255, 255, 255}), SrcPort: serverPort4, DstPort: clientPort4,
	}
	if have := address(m.ClientIPAddr); reply != dhcpv4.MessageTypeNak && have.IsValid() && !have.IsUnspecified() {
		out.Dst = have // it has the address already
	}
	out.Payload = message4(c, m, reply, l, server)
	return out, kind, extension.Answered
}

// decide4 decides about a request: about which address, from which server, and with which message it is answered.
func decide4(c *client, f *datagram.Frame, m *dhcpv4.DHCPv4) (l lease, from netip.Addr, reply dhcpv4.MessageType, outcome extension.Outcome) {
	all := c.leases(4, stateful)
	if len(all) == 0 {
		return l, from, 0, extension.Refused
	}
	wanted := address(m.Options.Get(dhcpv4.OptionRequestedIPAddress))
	if have := address(m.ClientIPAddr); have.IsValid() && !have.IsUnspecified() {
		wanted = have
	}
	found := slices.IndexFunc(all, func(l lease) bool { return l.ip == wanted })
	l = all[max(found, 0)]
	from = server(l.subnet)
	named := address(m.Options.Get(dhcpv4.OptionServerIdentifier))
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return l, from, dhcpv4.MessageTypeOffer, extension.Answered
	case dhcpv4.MessageTypeInform:
		return l, from, dhcpv4.MessageTypeAck, extension.Answered
	case dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeDecline:
		return l, from, 0, extension.Ignored
	case dhcpv4.MessageTypeRequest:
	default:
		return l, from, 0, extension.Malformed
	}
	// A client that has its address from another server, such as a DHCP agent's, keeps to that one. Nobody else is heard on this port, so that
	// the answer comes as from there.
	if !f.Dst.IsMulticast() && f.Dst != broadcast && !named.IsValid() {
		named = f.Dst
	}
	switch {
	case !named.IsValid() || named == from:
	case l.subnet.CIDR.Contains(named) && named != l.ip:
		from = named
	default:
		return l, from, 0, extension.Refused // it has chosen another server
	}
	switch {
	case !wanted.IsValid():
		return l, from, 0, extension.Malformed
	case found < 0:
		return l, from, dhcpv4.MessageTypeNak, extension.Answered
	}
	return l, from, dhcpv4.MessageTypeAck, extension.Answered
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// address reads an IPv4 address; it is not valid if there is none.
func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	if a = a.Unmap(); a.Is4() {
		return a
	}
	return netip.Addr{}
}

// minMessage is the length of a BOOTP message, which every answer has: some clients drop shorter ones.
const minMessage = 300

// message4 returns the message of an answer.
func message4(c *client, m *dhcpv4.DHCPv4, kind dhcpv4.MessageType, l lease, from netip.Addr) []byte {
	reply := dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: iana.HWTypeEthernet, TransactionID: m.TransactionID, Flags: m.Flags,
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero, GatewayIPAddr: net.IPv4zero, ClientHWAddr: m.ClientHWAddr,
	}
	options := []option{{optType, []byte{byte(kind)}}, {optServer, from.AsSlice()}}
	asked := m.Options.Get(dhcpv4.OptionParameterRequestList)
	switch kind {
	case dhcpv4.MessageTypeNak:
		options = append(options, option{optMessage, []byte("not the address of this port")})
	default:
		inform := m.MessageType() == dhcpv4.MessageTypeInform
		if !inform {
			reply.YourIPAddr = l.ip.AsSlice()
		}
		if m.MessageType() == dhcpv4.MessageTypeRequest || inform {
			reply.ClientIPAddr = m.ClientIPAddr
		}
		reply.ServerIPAddr = from.AsSlice()
		extra, _ := c.extra(4, tags4(m)...)
		extra = fields(&reply, extra, asked)
		options = merge(append(options, c.options4(l, !inform)...), extra)
	}
	if id := m.Options.Get(dhcpv4.OptionClientIdentifier); len(id) > 0 {
		options = append(options, option{clientID, id})
	}
	header := reply.ToBytes()[:240] // with the cookie, without options
	return appendOptions(header, options, asked, room(c, m))
}

// tags4 returns the tags that the DHCP agent's dnsmasq has for a request.
func tags4(m *dhcpv4.DHCPv4) []string {
	if m.Options.Has(dhcpv4.GenericOptionCode(optIPXE)) {
		return []string{"ipxe"}
	}
	return nil
}

// options4 returns the options of a lease in the order in which they are sent.
func (c *client) options4(l lease, timed bool) []option {
	s := l.subnet
	var out []option
	add := func(code uint16, value []byte) {
		if len(value) > 0 {
			out = append(out, option{code, value})
		}
	}
	if timed {
		add(optLease, uint32Bytes(c.cfg.seconds()))
		if t1, t2 := c.cfg.times(7, 8); t2 != infinite {
			add(optT1, uint32Bytes(t1))
			add(optT2, uint32Bytes(t2))
		}
	}
	mask := ^uint32(0) << (32 - s.CIDR.Bits())
	add(optMask, uint32Bytes(mask))
	if s.CIDR.Bits() < 31 { // a network of one or two addresses has none
		network := s.CIDR.Addr().As4()
		add(optBroadcast, uint32Bytes(binary.BigEndian.Uint32(network[:])|^mask))
	}
	add(optDNS, addressBytes(nameservers(s)...))
	add(optDomain, []byte(c.domain()))
	if gw := gateway(s); gw.Is4() {
		add(optRouter, gw.AsSlice())
	}
	var routes []byte
	for _, r := range c.routesOf(s) {
		routes = r.append(routes)
	}
	add(optRoutes, routes)
	add(optRoutesOld, routes)
	if mtu := c.network.MTU; mtu > 0 && mtu <= 0xffff {
		add(optMTU, binary.BigEndian.AppendUint16(nil, uint16(mtu)))
	}
	add(optHostname, []byte(c.hostname(l.ip)))
	return out
}

// fields moves options to the fields of a message that are for them: the server's address always, the names for booting for a client that does not
// ask for them as options.
func fields(m *dhcpv4.DHCPv4, options []option, asked []byte) (rest []option) {
	for _, o := range options {
		inField := len(asked) == 0 || !slices.Contains(asked, byte(o.code))
		switch {
		case o.code == serverAddress:
			if a := address(o.value); a.IsValid() {
				m.ServerIPAddr = a.AsSlice()
			}
			continue
		case o.code == optBootFile && inField && len(o.value) < 128:
			m.BootFileName = string(o.value)
		case o.code == optServerName && inField && len(o.value) < 64:
			m.ServerHostName = string(o.value)
		}
		rest = append(rest, o)
	}
	return rest
}

// merge adds options. One with the code of an earlier one takes its place, and without a value takes it away.
func merge(options, extra []option) []option {
	for _, o := range extra {
		i := slices.IndexFunc(options, func(have option) bool { return have.code == o.code })
		switch {
		case i >= 0:
			options[i].value = o.value
		case len(o.value) > 0:
			options = append(options, o)
		}
	}
	return slices.DeleteFunc(options, func(o option) bool { return len(o.value) == 0 })
}

// room returns how long a message to the client may be.
func room(c *client, m *dhcpv4.DHCPv4) int {
	const least = 576 // every host takes this
	most := 1500
	if c.network.MTU > 0 {
		most = c.network.MTU
	}
	if size := m.Options.Get(dhcpv4.OptionMaximumDHCPMessageSize); len(size) == 2 {
		most = min(most, int(binary.BigEndian.Uint16(size)))
	}
	return max(most, least) - datagram.IPv4Len - datagram.UDPLen
}

// appendOptions appends the options that the client asks for to a message; asked is nil if it does not say. What does not fit into the room is left
// out. Values over 255 bytes become several options of the same code (RFC 3396).
func appendOptions(b []byte, options []option, asked []byte, room int) []byte {
	for _, o := range options {
		wanted := len(asked) == 0 && o.code != optRoutesOld || always(o.code) || slices.Contains(asked, byte(o.code))
		size := len(o.value) + 2*((len(o.value)+254)/255)
		if !wanted || len(b)+size+1 > room {
			continue
		}
		for part := range slices.Chunk(o.value, 255) {
			b = append(append(b, byte(o.code), byte(len(part))), part...)
		}
	}
	b = append(b, optEnd)
	return append(b, make([]byte, max(minMessage-len(b), 0))...)
}
