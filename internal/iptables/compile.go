// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// Config is what is settled at start.
type Config struct {
	// Protocols are the names of protocols on this host.
	Protocols Protocols
	// NoComments is [AGENT] comment_iptables_rules = false.
	NoComments bool
	// NoSets is [SECURITYGROUP] enable_ipset = false: a rule for each member of a group.
	NoSets bool
	// NoNAT leaves out the rules of the table nat, as releases before 24 do.
	NoNAT bool
}

// Comments of rules.
const (
	aboutUnmatchedDrop = "Default drop rule for unmatched traffic."
	aboutToGroups      = "Direct traffic from the VM interface to the security group chain."
	aboutToPort        = "Jump to the VM specific chain."
	aboutInput         = "Direct incoming traffic from VM to the security group chain."
	aboutPair          = "Allow traffic from defined IP/MAC pairs."
	aboutNoPair        = "Drop traffic without an IP/MAC allow rule."
	aboutDHCP          = "Allow DHCP client traffic."
	aboutDHCPServer    = "Prevent DHCP Spoofing by VM."
	aboutUnmatched     = "Send unmatched traffic to the fallback chain."
	aboutInvalid       = "Drop packets that appear related to an existing connection (e.g. TCP ACK/FIN) but do not have an entry in conntrack."
	aboutEstablished   = "Direct packets associated with a known session to the RETURN chain."
	aboutOpen          = "Accept all packets when port security is disabled."
	aboutTrusted       = "Accept all packets when port is trusted."
	aboutRouter        = "Drop IPv6 Router Advts from VM Instance."
	aboutICMPv6        = "Allow IPv6 ICMP traffic."
)

// comment is a match that says why a rule is there.
func comment(text string) string { return `-m comment --comment "` + text + `" ` }

// about is comment, unless comments are switched off.
func (c *Config) about(text string) string {
	if c.NoComments {
		return ""
	}
	return comment(text)
}

// Chain is a chain with its rules, as iptables-save prints them without "-A name".
type Chain struct {
	Name  string
	Rules []string
	// Of the rules from Free[0] up to Free[1] the order means nothing: all of them return.
	Free [2]int
}

// finish leaves each rule once, at its last place, as the Python agent does.
func (c Chain) finish() Chain {
	last := map[string]int{}
	for i, rule := range c.Rules {
		last[rule] = i
	}
	out := Chain{Name: c.Name}
	for i, rule := range c.Rules {
		if i == c.Free[0] {
			out.Free[0] = len(out.Rules)
		}
		if i == c.Free[1] {
			out.Free[1] = len(out.Rules)
		}
		if last[rule] == i {
			out.Rules = append(out.Rules, rule)
		}
	}
	if c.Free[1] == len(c.Rules) {
		out.Free[1] = len(out.Rules)
	}
	return out
}

// chainsOf returns the chains of a filtered port for an IP version. Of a version under which the port has no addresses there is no chain
// against forged senders.
func (c *Config) chainsOf(p *Port, version uint8, members map[string][]netip.Prefix) []Chain {
	own := c.spoof(p, version)
	out := []Chain{c.ingress(p, version, members), c.egress(p, version, members, len(own.Rules) > 0)}
	if len(own.Rules) > 0 {
		out = append(out, own)
	}
	for i := range out {
		out[i] = out[i].finish()
	}
	return out
}

// groupRules returns what the groups of a port allow in a direction, each rule once.
func (c *Config) groupRules(p *Port, version uint8, d world.Direction, members map[string][]netip.Prefix, seen ...string) []string {
	var out []string
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.IPVersion != version || r.Direction != d {
			continue
		}
		for _, text := range c.ruleText(r, p, members) {
			if !slices.Contains(seen, text) {
				seen = append(seen, text)
				out = append(out, text)
			}
		}
	}
	return out
}

func (c *Config) established() string {
	return "-m state --state RELATED,ESTABLISHED " + c.about(aboutEstablished) + "-j RETURN"
}

// last returns the rules that end a chain of a port.
func (c *Config) last() []string {
	return []string{
		"-m state --state INVALID " + c.about(aboutInvalid) + "-j DROP",
		c.about(aboutUnmatched) + "-j " + chainFallback,
	}
}

func icmp6(kind int, then string) string {
	return fmt.Sprintf("-p ipv6-icmp -m icmp6 --icmpv6-type %d %s", kind, then)
}

func udp(from, to int, then string) string {
	return fmt.Sprintf("-p udp -m udp --sport %d --dport %d %s", from, to, then)
}

func (c *Config) ingress(p *Port, version uint8, members map[string][]netip.Prefix) Chain {
	chain := Chain{Name: ingressChain(p.ID)}
	var provider []string // answers of DHCP servers and routers
	own := slices.DeleteFunc(slices.Clone(p.FixedIPs), func(ip netip.Addr) bool { return versionOf(ip) != version })
	from, to, others := 67, 68, "255.255.255.255/32"
	if version == 6 {
		for _, kind := range []int{130, 135, 136} { // listener query, neighbor solicitation and advertisement
			chain.Rules = append(chain.Rules, icmp6(kind, "-j RETURN"))
		}
		if len(own) > 0 {
			provider = append(provider, icmp6(134, "-j RETURN")) // router advertisement
		}
		from, to, others = 547, 546, "fe80::/64"
	}
	for _, ip := range own {
		provider = append(provider, "-d "+netip.PrefixFrom(ip, ip.BitLen()).String()+" "+udp(from, to, "-j RETURN"))
	}
	provider = append(provider, "-d "+others+" "+udp(from, to, "-j RETURN"))
	chain.Rules = append(chain.Rules, c.established())
	chain.Free[0] = len(chain.Rules)
	chain.Rules = append(chain.Rules, provider...)
	chain.Rules = append(chain.Rules, c.groupRules(p, version, world.Ingress, members, provider...)...)
	chain.Free[1] = len(chain.Rules)
	chain.Rules = append(chain.Rules, c.last()...)
	return chain
}

func (c *Config) egress(p *Port, version uint8, members map[string][]netip.Prefix, checked bool) Chain {
	chain := Chain{Name: egressChain(p.ID)}
	add := func(rules ...string) { chain.Rules = append(chain.Rules, rules...) }
	dhcp, server, icmp := c.about(aboutDHCP)+"-j RETURN", c.about(aboutDHCPServer)+"-j DROP", c.about(aboutICMPv6)+"-j RETURN"
	jump := func() {
		if checked {
			add("-j " + spoofChain(p.ID))
		}
	}
	if version == 4 {
		add("-s 0.0.0.0/32 -d 255.255.255.255/32 " + udp(68, 67, dhcp))
		jump()
		add(udp(68, 67, dhcp), udp(67, 68, server))
	} else {
		for _, kind := range []int{131, 135, 143} { // listener report, neighbor solicitation, listener report of version 2
			add("-s ::/128 -d ff02::/16 " + icmp6(kind, icmp))
		}
		jump()
		add(icmp6(134, c.about(aboutRouter)+"-j DROP"), "-p ipv6-icmp "+icmp, udp(546, 547, dhcp), udp(547, 546, server))
	}
	add(c.established())
	chain.Free[0] = len(chain.Rules)
	add(c.groupRules(p, version, world.Egress, members)...)
	chain.Free[1] = len(chain.Rules)
	add(c.last()...)
	return chain
}

// spoof returns the chain that lets only packets pass that a port sends under its own addresses.
func (c *Config) spoof(p *Port, version uint8) Chain {
	chain := Chain{Name: spoofChain(p.ID)}
	add := func(from string, mac neutron.MAC) {
		rule := from + "-m mac --mac-source " + strings.ToUpper(mac.String()) + " " + c.about(aboutPair) + "-j RETURN"
		if !slices.Contains(chain.Rules, rule) {
			chain.Rules = append(chain.Rules, rule)
		}
	}
	pair := func(prefix netip.Prefix, mac neutron.MAC) {
		switch {
		case versionOf(prefix.Addr()) != version:
			return
		case prefix.Bits() == 0: // iptables prints no condition for every address
			add("", mac)
		default:
			add("-s "+prefix.String()+" ", mac)
		}
		if version == 6 {
			add("-s "+linkLocal(mac).String()+"/128 ", mac)
		}
	}
	for _, a := range p.Pairs {
		pair(a.Prefix, a.MAC)
	}
	for _, ip := range p.FixedIPs {
		pair(netip.PrefixFrom(ip, ip.BitLen()), p.MAC)
	}
	if len(p.FixedIPs) == 0 {
		add("", p.MAC)
	}
	if len(chain.Rules) == 0 {
		return chain
	}
	chain.Free = [2]int{0, len(chain.Rules)}
	chain.Rules = append(chain.Rules, c.about(aboutNoPair)+"-j DROP")
	return chain
}

// linkLocal returns the IPv6 address that a host makes of its MAC.
func linkLocal(mac neutron.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}
