// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// Config is what the options say.
type Config struct {
	IPv6      bool        // answer DHCPv6
	MAC       neutron.MAC // under which answers are sent
	Domain    string      // of ports whose network has none
	Lease     time.Duration
	Renewal   time.Duration // T1; 0: half of the lease
	Rebinding time.Duration // T2; 0: seven eighths of the lease, and four fifths with DHCPv6
}

// infinite is the lease that does not end, in seconds, as it is sent.
const infinite = 0xffffffff

// seconds returns the lease as it is sent. Neutron writes -1 for one that does not end.
func (c *Config) seconds() uint32 {
	if s := c.Lease / time.Second; s >= 0 && s < infinite {
		return uint32(s)
	}
	return infinite
}

// times returns T1 and T2 in seconds; numerator and denominator are of the lease, where no option sets T2.
func (c *Config) times(numerator, denominator uint64) (t1, t2 uint32) {
	lease := c.seconds()
	t1, t2 = lease/2, uint32(uint64(lease)*numerator/denominator)
	if lease == infinite {
		t1, t2 = infinite, infinite
	}
	if c.Renewal > 0 {
		t1 = uint32(c.Renewal / time.Second)
	}
	if c.Rebinding > 0 {
		t2 = uint32(c.Rebinding / time.Second)
	}
	return min(t1, t2), t2
}

// client is everything that an answer to a port is made from.
type client struct {
	cfg     *Config
	mac     neutron.MAC
	port    *neutron.Port
	network *neutron.Network
	subnets []neutron.Subnet // of the network, sorted by id
}

// lease is an address of the port that DHCP gives out.
type lease struct {
	ip     netip.Addr
	subnet *neutron.Subnet
}

// How a subnet is served.
type service uint8

const (
	silent    service = iota
	stateful          // addresses and options
	stateless         // options: hosts make the address by themselves
)

// serviceOf says how a subnet is served: as the DHCP agent does.
func serviceOf(s *neutron.Subnet) service {
	switch {
	case !s.EnableDHCP:
		return silent
	case s.IPVersion == 4:
		return stateful
	case s.AddressMode == "dhcpv6-stateful", s.AddressMode == "" && s.RAMode == "":
		return stateful
	case s.AddressMode == "dhcpv6-stateless":
		return stateless
	}
	return silent
}

// leases returns the addresses of the port in subnets that are served in a way, in the port's order.
func (c *client) leases(version int, how service) []lease {
	var out []lease
	for _, ip := range c.port.FixedIPs {
		i := slices.IndexFunc(c.subnets, func(s neutron.Subnet) bool { return s.ID == ip.SubnetID })
		if i >= 0 && ip.IP.IsValid() && c.subnets[i].IPVersion == version && serviceOf(&c.subnets[i]) == how {
			out = append(out, lease{ip.IP, &c.subnets[i]})
		}
	}
	return out
}

// answers says whether the port gets answers to DHCPv4 and DHCPv6.
func (c *client) answers() (v4, v6 bool) {
	v4 = len(c.leases(4, stateful)) > 0
	v6 = c.cfg.IPv6 && len(c.leases(6, stateful))+len(c.leases(6, stateless)) > 0
	return v4, v6
}

// noGateway is the server's address in subnets without a gateway, as Neutron 27 and later have it.
var noGateway = netip.AddrFrom4([4]byte{169, 254, 169, 254})

// metadata is where instances find Nova's metadata.
var metadata = netip.PrefixFrom(noGateway, 32)

// gateway returns the gateway of a subnet; a host route to everywhere stands for a missing one.
func gateway(s *neutron.Subnet) netip.Addr {
	if s.Gateway.IsValid() {
		return s.Gateway
	}
	for _, r := range s.HostRoutes {
		if r.Destination.IsValid() && r.Destination.Bits() == 0 && r.NextHop.Is4() == (s.IPVersion == 4) {
			return r.NextHop
		}
	}
	return netip.Addr{}
}

// server returns the address under which DHCPv4 of a subnet is answered.
func server(s *neutron.Subnet) netip.Addr {
	if s.Gateway.Is4() {
		return s.Gateway
	}
	return noGateway
}

// routesOf returns the routes of a subnet: to the other subnets of its segment that have DHCP, the user's, to the metadata and to everywhere. There are none if
// there is only the last one: option router says it, too.
func (c *client) routesOf(s *neutron.Subnet) []route {
	var out []route
	onLink := netip.IPv4Unspecified()
	for i := range c.subnets {
		if o := &c.subnets[i]; o.IPVersion == 4 && o.EnableDHCP && o.CIDR != s.CIDR && o.SegmentID == s.SegmentID && o.CIDR.IsValid() {
			out = append(out, route{o.CIDR.Prefix, onLink})
		}
	}
	for _, r := range s.HostRoutes {
		if r.Destination.IsValid() && r.Destination.Addr().Is4() && r.Destination.Bits() > 0 && r.NextHop.Is4() {
			out = append(out, route{r.Destination.Prefix, r.NextHop})
		}
	}
	if gw := gateway(s); gw.Is4() {
		if !s.CIDR.Contains(gw) { // as with a subnet of one address
			out = append(out, route{netip.PrefixFrom(gw, 32), onLink})
		}
		out = append(out, route{metadata, gw}, route{netip.PrefixFrom(onLink, 0), gw})
	}
	return out
}

// nameservers returns the DNS servers of a subnet. The unspecified address says that there shall be none.
func nameservers(s *neutron.Subnet) []netip.Addr {
	var out []netip.Addr
	list := slices.Clone(s.Nameservers)
	slices.SortStableFunc(list, func(a, b neutron.Nameserver) int { return cmp.Compare(a.Order, b.Order) })
	for _, n := range list {
		a, err := netip.ParseAddr(n.Address)
		switch {
		case err != nil || a.Is4() != (s.IPVersion == 4):
		case a.IsUnspecified():
			return nil
		default:
			out = append(out, a)
		}
	}
	return out
}

// domain returns the domain of the port's names; "" if there is none.
func (c *client) domain() string {
	return strings.TrimSuffix(cmp.Or(c.network.DNSDomain, c.cfg.Domain), ".")
}

// hostname returns the name of the port at an address, without the domain.
func (c *client) hostname(ip netip.Addr) string {
	if d := c.port.DNS.Value; d != nil && d.Name != "" {
		name, _, _ := strings.Cut(d.Name, ".")
		return name
	}
	return "host-" + strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
}

// option is one option of an answer.
type option struct {
	code  uint16
	value []byte
}

// extra returns the options that the user has set on the port, in their order. The last of several with the same code counts. Tags are those that
// the DHCP agent sets for what a request shows. Of an option that cannot be read the problem is returned.
func (c *client) extra(version int, tags ...string) (out []option, problems []error) {
	names, v6 := names4, version == 6
	if v6 {
		names = names6
	}
	for _, o := range c.port.DHCPOptions {
		if cmp.Or(o.IPVersion, 4) != version {
			continue
		}
		name, ok := untagged(firstLine(o.Name), tags)
		if !ok {
			continue
		}
		k, err := find(names, name)
		if err == nil && !v6 && (k.code == clientID || k.code == 0 || k.code > serverAddress) {
			continue
		}
		var value []byte
		if err == nil {
			value, err = encode(k.form, firstLine(o.Value), v6)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		out = slices.DeleteFunc(out, func(before option) bool { return before.code == k.code })
		out = append(out, option{k.code, value})
	}
	return out, problems
}

func firstLine(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }

// untagged takes tags from the front of an option's name, such as tag:!ipxe, and says whether they are as they shall be.
func untagged(name string, tags []string) (string, bool) {
	for strings.HasPrefix(name, "tag:") {
		tag, rest, more := strings.Cut(strings.TrimPrefix(name, "tag:"), ",")
		if !more {
			return "", false
		}
		want := !strings.HasPrefix(tag, "!")
		if slices.Contains(tags, strings.TrimPrefix(tag, "!")) != want {
			return "", false
		}
		name = rest
	}
	return strings.TrimPrefix(strings.TrimPrefix(name, "option6:"), "option:"), true
}

func uint32Bytes(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func addressBytes(list ...netip.Addr) (out []byte) {
	for _, a := range list {
		out = append(out, a.AsSlice()...)
	}
	return out
}
