// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// chainRule is a rule in a chain of a port, as the agent lists it.
type chainRule struct {
	text    string   // behind the name of the chain
	words   []string // of it
	because string   // security group rules that it is there for
}

// chains are the chains of a port for one version of IP, by name.
type chains map[string][]chainRule

// readChains reads the lines of a port: "iptables -A CHAIN RULE  # security group rule ID".
func readChains(lines []string, six bool) chains {
	program := "iptables "
	if six {
		program = "ip6tables "
	}
	out := chains{}
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, program+"-A ")
		if !ok {
			continue
		}
		rule, because, _ := strings.Cut(rest, "  # security group rule ")
		if words := splitRule(rule); len(words) > 0 {
			out[words[0]] = append(out[words[0]], chainRule{strings.TrimPrefix(rule, words[0]+" "), words[1:], because})
		}
	}
	return out
}

// splitRule splits a rule into words. A word in quotation marks is one.
func splitRule(rule string) []string {
	var out []string
	for i, part := range strings.Split(rule, `"`) {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

// Chains of a port begin so, and their names go on with the direction and a part of the port's id.
const (
	chainPrefix   = "neutron-openvswi-"
	fallbackChain = chainPrefix + "sg-fallback"
)

// entry returns the chain that a packet meets first; direction is seen from the port.
func (c chains) entry(direction string) string {
	for name := range c {
		if rest, ok := strings.CutPrefix(name, chainPrefix); ok && len(rest) > 0 && rest[0] == map[string]byte{"ingress": 'i', "egress": 'o'}[direction] {
			return name
		}
	}
	return ""
}

// RuleMatch is the rule of iptables that decides about a packet.
type RuleMatch struct {
	Chain string `json:"chain"`
	// Number is the place of the rule in its chain, from 1, as iptables -L --line-numbers counts.
	Number int    `json:"number"`
	Text   string `json:"rule"`
	// Because are the security group rules that it is there for.
	Because string `json:"security_group_rules,omitempty"`
	Passes  bool   `json:"passes"`
	// Unsure is why another rule may decide; empty if none can.
	Unsure string `json:"unsure,omitempty"`
}

// passage is a packet on its way through rules.
type passage struct {
	*Packet
	tracked bool // its connection is known already
	// member tells whether an address is in an IP set, and whether that is known; nil: nothing is.
	member func(set string, a netip.Addr) (in, known bool)
}

// walk returns the rule that decides about a packet. It is false if the packet comes to the end of the chain.
func (c chains) walk(chain string, p *passage) (out RuleMatch, decided bool) {
	unsure := ""
	for i, r := range c[chain] {
		m := r.match(p)
		if m == ruleMiss {
			continue
		}
		if m == ruleUnsure {
			if unsure == "" {
				unsure = fmt.Sprintf("whether rule %d of %s matches is not known: %s", i+1, chain, r.text)
			}
			continue
		}
		target := r.option("-j")
		here := RuleMatch{Chain: chain, Number: i + 1, Text: r.text, Because: r.because, Passes: target == "RETURN" || target == "ACCEPT", Unsure: unsure}
		switch target {
		case "RETURN", "ACCEPT", "DROP":
			return here, true
		}
		next, done := RuleMatch{}, target == fallbackChain
		if !done {
			next, done = c.walk(target, p)
		}
		switch {
		case target == fallbackChain:
			return here, true
		case done && !next.Passes:
			if next.Unsure == "" {
				next.Unsure = unsure
			}
			return next, true
		case done && unsure == "":
			unsure = next.Unsure
		}
	}
	return RuleMatch{Chain: chain, Unsure: unsure}, false
}

// option returns the value of an option of a rule, or nothing.
func (r *chainRule) option(name string) string {
	if i := slices.Index(r.words, name); i >= 0 && i+1 < len(r.words) {
		return r.words[i+1]
	}
	return ""
}

// ruleFit is whether a rule matches a packet.
type ruleFit int

const (
	ruleMiss ruleFit = iota
	ruleUnsure
	ruleHit
)

// match compares a rule with a packet.
func (r *chainRule) match(p *passage) ruleFit {
	fit := ruleHit
	for i := 0; i+1 < len(r.words); i++ {
		value := r.words[i+1]
		var ok bool
		switch name := r.words[i]; name {
		case "-s":
			ok = within(value, p.Src)
		case "-d":
			ok = within(value, p.Dst)
		case "-p":
			ok = ruleProtocol(value, p.Dst.Is6()) == p.number()
		case "--sport":
			ok = within16(value, p.SrcPort)
		case "--dport", "--dports":
			if ok = within16(value, p.DstPort); !p.hasPorts() {
				ok, fit = true, ruleUnsure // dccp and udplite have ports, which the packet does not tell
			}
		case "--icmp-type", "--icmpv6-type":
			ok = ofType(value, p.Packet)
		case "--mac-source":
			ok = strings.EqualFold(value, p.SrcMAC)
		case "--state":
			ok = p.tracked && strings.Contains(value, "ESTABLISHED") // else of packets that belong to no connection, and begin none
		case "--match-set":
			in, known := p.inSet(value, i+2 < len(r.words) && r.words[i+2] == "dst")
			if ok = in || !known; !known {
				fit = ruleUnsure
			}
			i++
		case "-m", "--comment", "-j":
			ok = true
		default:
			ok, fit = true, ruleUnsure
		}
		if !ok {
			return ruleMiss
		}
		i++
	}
	return fit
}

// inSet returns whether the source or the destination is in an IP set, and whether that is known.
func (p *passage) inSet(set string, destination bool) (in, known bool) {
	if p.member == nil {
		return false, false
	}
	if destination {
		return p.member(set, p.Dst)
	}
	return p.member(set, p.Src)
}

// ruleProtocol returns the number of a protocol by the word that iptables has for it. Numbers 4 and 94 have names that differ between hosts.
func ruleProtocol(word string, six bool) int {
	if n, ok := map[string]int{
		"ipencap": 4, "ipv4": 4, "ipip": 94, "ipv6": 41, "ipv6-route": 43, "ipv6-frag": 44, "ipv6-nonxt": 59, "ipv6-opts": 60, "icmp": 1, "ipv6-icmp": 58,
	}[word]; ok {
		return n
	}
	return protocolNumber(word, six)
}

func within(prefix string, a netip.Addr) bool {
	p, err := netip.ParsePrefix(prefix)
	return err == nil && p.Contains(a)
}

// within16 returns whether a port is in a range like 80 or 80:90.
func within16(text string, port uint16) bool {
	low, high, ranged := strings.Cut(text, ":")
	if !ranged {
		high = low
	}
	from, err := strconv.ParseUint(low, 10, 16)
	to, err2 := strconv.ParseUint(high, 10, 16)
	return err == nil && err2 == nil && uint64(port) >= from && uint64(port) <= to
}

// ofType returns whether an ICMP packet is of a type like 8 or 3/4.
func ofType(text string, p *Packet) bool {
	kind, code, coded := strings.Cut(text, "/")
	return p.isICMP() && kind == strconv.Itoa(int(p.Type)) && (!coded || code == strconv.Itoa(int(p.Code)))
}

// throughRules returns the rule of iptables that decides about the packet at one of its ends; nil where none does. Direction is seen from the port.
func (j *judge) throughRules(e *End, direction string) *RuleMatch {
	if e.Port == nil || len(e.Port.Rules) == 0 || j.Packet.Protocol == ARP {
		return nil // frames that are not IP meet no rules
	}
	c := readChains(e.Port.Rules, j.Packet.Dst.Is6())
	name := c.entry(direction)
	if name == "" {
		return nil
	}
	m, _ := c.walk(name, &passage{&j.Packet, j.Tracked, j.h.Member})
	return &m
}

// String is the rule for people.
func (m *RuleMatch) String() string {
	if m.Number == 0 {
		return "no rule of " + m.Chain
	}
	text := fmt.Sprintf("rule %d of %s: %s", m.Number, m.Chain, m.Text)
	if m.Because != "" {
		text += " (security group rule " + m.Because + ")"
	}
	return text
}

// ruleVerdict returns what becomes of a packet that rules of iptables drop at one of its ends; false if none does.
func (j *judge) ruleVerdict(e *End, direction string) (Verdict, bool) {
	m := j.throughRules(e, direction)
	if m == nil || m.Passes || m.Number == 0 {
		return Verdict{}, false
	}
	word := map[string]string{"ingress": "into", "egress": "out of"}[direction]
	v := Verdict{Outcome: Dropped, Cause: "group", Text: fmt.Sprintf("iptables does not let %s %s %s: %s", &j.Packet, word, e, m)}
	if strings.HasPrefix(m.Chain, chainPrefix+"s") && m.Chain != fallbackChain {
		v.Cause = "spoofed"
	}
	if m.Unsure != "" {
		v.Hints = append(v.Hints, m.Unsure)
	}
	if refused := j.refused(e, direction); v.Cause == "group" && refused.Cause == "group" {
		v.Hints = append(append(v.Hints, refused.Text), refused.Hints...)
	}
	return v, true
}
