// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/insomniacslk/dhcp/rfc1035label"
)

// form is how the value of an option is written.
type form uint8

const (
	guessed form = iota // addresses, a number, bytes as 01:ff, or text
	addresses
	text
	number8
	number16
	number32
	routes  // prefix,router,…
	domains // names as in DNS
	ntp     // addresses and names, each with a header
	params  // texts, each with its length
)

// known is an option with a name.
type known struct {
	name string
	code uint16
	form form
}

// serverAddress stands for the field siaddr of an answer, which dnsmasq has as an option, too.
const serverAddress = 255

// names4 are dnsmasq's names of DHCPv4 options, which Neutron's extra_dhcp_opts use.
var names4 = []known{
	{"netmask", 1, addresses}, {"time-offset", 2, number32}, {"router", 3, addresses}, {"dns-server", 6, addresses}, {"log-server", 7, addresses},
	{"lpr-server", 9, addresses}, {"hostname", 12, text}, {"boot-file-size", 13, number16}, {"domain-name", 15, text}, {"swap-server", 16, addresses},
	{"root-path", 17, text}, {"extension-path", 18, text}, {"ip-forward-enable", 19, number8}, {"non-local-source-routing", 20, number8},
	{"policy-filter", 21, addresses}, {"max-datagram-reassembly", 22, number16}, {"default-ttl", 23, number8}, {"mtu", 26, number16},
	{"all-subnets-local", 27, number8}, {"broadcast", 28, addresses}, {"router-discovery", 31, number8}, {"router-solicitation", 32, addresses},
	{"static-route", 33, addresses}, {"trailer-encapsulation", 34, number8}, {"arp-timeout", 35, number32}, {"ethernet-encap", 36, number8},
	{"tcp-ttl", 37, number8}, {"tcp-keepalive", 38, number32}, {"nis-domain", 40, text}, {"nis-server", 41, addresses}, {"ntp-server", 42, addresses},
	{"netbios-ns", 44, addresses}, {"netbios-dd", 45, addresses}, {"netbios-nodetype", 46, number8}, {"netbios-scope", 47, text},
	{"x-windows-fs", 48, addresses}, {"x-windows-dm", 49, addresses}, {"T1", 58, number32}, {"T2", 59, number32}, {"vendor-class", 60, text},
	{"nis+-domain", 64, text}, {"nis+-server", 65, addresses}, {"tftp-server", 66, text}, {"bootfile-name", 67, text}, {"mobile-ip-home", 68, addresses},
	{"smtp-server", 69, addresses}, {"pop3-server", 70, addresses}, {"nntp-server", 71, addresses}, {"irc-server", 74, addresses},
	{"user-class", 77, text}, {"client-arch", 93, number16}, {"client-interface-id", 94, guessed}, {"client-machine-id", 97, guessed},
	{"posix-timezone", 100, text}, {"tzdb-timezone", 101, text}, {"ipv6-only", 108, number32}, {"domain-search", 119, domains}, {"sip-server", 120, guessed},
	{"classless-static-route", 121, routes}, {"vendor-id-encap", 125, guessed}, {"tftp-server-address", 150, addresses}, {"", 249, routes},
	{"server-ip-address", serverAddress, addresses},
}

// names6 are those of DHCPv6 options.
var names6 = []known{
	{"sip-server-domain", 21, domains}, {"sip-server", 22, addresses}, {"dns-server", 23, addresses}, {"domain-search", 24, domains},
	{"nis-server", 27, addresses}, {"nis+-server", 28, addresses}, {"nis-domain", 29, domains}, {"nis+-domain", 30, domains},
	{"sntp-server", 31, addresses}, {"information-refresh-time", 32, number32}, {"posix-timezone", 41, text}, {"tzdb-timezone", 42, text},
	{"ntp-server", 56, ntp}, {"bootfile-url", 59, text}, {"bootfile-param", 60, params},
}

// clientID is an option that tells dnsmasq by what to know a client. Here the switch's port says whose a request is.
const clientID = 61

// find returns the option with a name or number.
func find(names []known, name string) (known, error) {
	if code, err := strconv.ParseUint(name, 10, 16); err == nil {
		for _, k := range names {
			if uint64(k.code) == code {
				return k, nil
			}
		}
		return known{name, uint16(code), guessed}, nil
	}
	for _, k := range names {
		if strings.EqualFold(k.name, name) {
			return k, nil
		}
	}
	return known{}, fmt.Errorf("no DHCP option has the name %q", name)
}

// encode returns a value as it is sent. V6: addresses are those of IPv6.
func encode(f form, value string, v6 bool) ([]byte, error) {
	fields := strings.Split(value, ",")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	switch f {
	case addresses:
		return encodeAddresses(fields, v6)
	case text:
		return []byte(value), nil
	case number8, number16, number32:
		bits := map[form]int{number8: 8, number16: 16, number32: 32}[f]
		n, err := strconv.ParseInt(strings.TrimSuffix(fields[0], "s"), 0, 64)
		if err != nil || n >= 1<<bits || n < -1<<(bits-1) {
			return nil, fmt.Errorf("%q is no number of %d bits", value, bits)
		}
		return binary.BigEndian.AppendUint64(nil, uint64(n))[8-bits/8:], nil
	case routes:
		return encodeRouteTexts(fields)
	case domains:
		return (&rfc1035label.Labels{Labels: fields}).ToBytes(), nil
	case ntp, params:
		return encodeHeaded(f, fields)
	}
	return guess(value, fields, v6), nil
}

// guess encodes the value of an option without a known form, as dnsmasq does.
func guess(value string, fields []string, v6 bool) []byte {
	if b, err := encodeAddresses(fields, v6); err == nil {
		return b
	}
	if n, err := strconv.ParseUint(value, 10, 32); err == nil {
		switch {
		case n < 1<<8:
			return []byte{byte(n)}
		case n < 1<<16:
			return binary.BigEndian.AppendUint16(nil, uint16(n))
		}
		return binary.BigEndian.AppendUint32(nil, uint32(n))
	}
	if b, err := hex.DecodeString(strings.ReplaceAll(value, ":", "")); err == nil && strings.Contains(value, ":") {
		return b
	}
	return []byte(strings.Trim(value, `"`))
}

func encodeAddresses(fields []string, v6 bool) (out []byte, err error) {
	if len(fields) == 1 && fields[0] == "" {
		return nil, nil
	}
	for _, field := range fields {
		a, err := netip.ParseAddr(strings.Trim(field, "[]"))
		if err != nil || a.Is4() == v6 {
			return nil, fmt.Errorf("%q is no address of the option's family", field)
		}
		out = append(out, a.AsSlice()...)
	}
	return out, nil
}

func encodeRouteTexts(fields []string) (out []byte, err error) {
	if len(fields) == 1 && fields[0] == "" {
		return nil, nil
	}
	if len(fields)%2 != 0 {
		return nil, fmt.Errorf("a route of %q has no router", strings.Join(fields, ","))
	}
	for i := 0; i < len(fields); i += 2 {
		to, err := netip.ParsePrefix(fields[i])
		if err != nil {
			return nil, err
		}
		via, err := netip.ParseAddr(fields[i+1])
		if err != nil {
			return nil, err
		}
		if !to.Addr().Is4() || !via.Is4() {
			return nil, fmt.Errorf("route %s by %s is not one of IPv4", to, via)
		}
		out = route{to, via}.append(out)
	}
	return out, nil
}

// route is one of classless-static-route.
type route struct {
	to  netip.Prefix
	via netip.Addr // 0.0.0.0: on the link
}

func (r route) append(b []byte) []byte {
	to := r.to.Masked().Addr().As4()
	b = append(append(b, byte(r.to.Bits())), to[:(r.to.Bits()+7)/8]...)
	return append(b, r.via.AsSlice()...)
}

// encodeHeaded encodes the options of DHCPv6 whose parts have headers of their own.
func encodeHeaded(f form, fields []string) (out []byte, err error) {
	for _, field := range fields {
		part, kind := []byte(field), uint16(3) // a name
		if f == ntp {
			if a, err := netip.ParseAddr(strings.Trim(field, "[]")); err == nil {
				part, kind = a.AsSlice(), 1
			} else {
				part = (&rfc1035label.Labels{Labels: []string{field}}).ToBytes()
			}
			out = binary.BigEndian.AppendUint16(out, kind)
		}
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(part))), part...)
	}
	return out, nil
}
