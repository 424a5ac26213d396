// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Block is what one port has in a chain that ports share. Blocks are ordered by section, then by key, a part of the port's id.
type Block struct {
	Section int
	Key     string
	Rules   []string
}

// Shared is a chain that ports share.
type Shared struct {
	Name   string
	Blocks []Block
	Last   []string // rules after those of ports
}

// Jump is a rule of the agent in a chain that is not the agent's.
type Jump struct{ Chain, Rule string }

// Table is what is wanted of a table.
type Table struct {
	Name   string
	Shared []Shared
	Ports  []Chain
	Jumps  []Jump
}

// Wanted is the state that is wanted. It is a value: nothing in it is changed later.
type Wanted struct {
	// Families are the tables for IPv4 and IPv6, in the order in which they are written.
	Families [2][]Table
	// Sets are the members of the IP sets, by name; not kept without sets.
	Sets map[string][]netip.Prefix
	// Ports are the ids for which there is a place in Families.
	Ports []string
}

// Sections of chains that ports share: a port that is filtered is asked first. The order of rules of the other sections means nothing,
// all of them accept.
const (
	sectionFiltered = iota
	sectionTrusted
	sectionOpen
)

func section(k Kind) int {
	return map[Kind]int{Filtered: sectionFiltered, Trusted: sectionTrusted, Open: sectionOpen}[k]
}

// compiled is what one port alone wants.
type compiled struct {
	id     string
	kind   Kind
	zone   uint16
	raw    string // target in the table raw, with its comment
	chains [2][]Chain
}

// compile works out what one port wants. Zone is that of its connections, for a filtered port.
func (c *Config) compile(p *Port, zone uint16, members map[string][]netip.Prefix) compiled {
	out := compiled{id: p.ID, kind: p.Kind, zone: zone}
	if p.Kind != Filtered {
		return out
	}
	out.raw = comment("Set zone for "+p.ID) + fmt.Sprintf("-j CT --zone %d", zone)
	if p.Stateless {
		out.raw = comment("Make "+p.ID+" stateless") + "-j CT --notrack"
	}
	out.chains = [2][]Chain{c.chainsOf(p, 4, members), c.chainsOf(p, 6, members)}
	return out
}

// assemble puts together what all ports want. Ports are sorted by id. Of two ports whose ids begin alike, so that their chains have the same
// name, the second one has no place.
func (c *Config) assemble(ports []compiled) Wanted {
	var out Wanted
	taken := map[string]bool{}
	ports = slices.DeleteFunc(slices.Clone(ports), func(p compiled) bool {
		name := ingressChain(p.id)
		clash := taken[name]
		taken[name] = true
		if !clash {
			out.Ports = append(out.Ports, p.id)
		}
		return clash
	})
	for f := range out.Families {
		out.Families[f] = []Table{c.rawTable(ports, f == 0), c.filterTable(ports, f)}
		if !c.NoNAT {
			out.Families[f] = append(out.Families[f], c.natTable(ports))
		}
	}
	return out
}

func physdev(direction, id, then string) string {
	return "-m physdev --physdev-" + direction + " " + tapName(id) + " " + then
}

func bridged(direction, id, then string) string {
	return physdev(direction, id, "--physdev-is-bridged "+then)
}

// rawTable sets the zone of connections before they are tracked.
func (c *Config) rawTable(ports []compiled, zones bool) Table {
	pre, note := Shared{Name: chainPrerouting}, Shared{Name: chainZones}
	for _, p := range ports {
		if p.kind != Filtered {
			continue
		}
		pre.Blocks = append(pre.Blocks, Block{sectionFiltered, short(p.id), []string{
			"-m physdev --physdev-in " + bridgeName(p.id) + " " + p.raw,
			"-i " + bridgeName(p.id) + " " + p.raw,
			"-m physdev --physdev-in " + tapName(p.id) + " " + p.raw,
		}})
		note.Blocks = append(note.Blocks, Block{sectionFiltered, shifted(p.id), []string{
			fmt.Sprintf("-m physdev --physdev-in tap%s -j CT --zone %d", shifted(p.id), p.zone),
		}})
	}
	out := Table{
		Name:   "raw",
		Shared: []Shared{pre, {Name: chainOutput}},
		Jumps:  []Jump{{"PREROUTING", "-j " + chainPrerouting}, {"OUTPUT", "-j " + chainOutput}},
	}
	if zones {
		slices.SortStableFunc(note.Blocks, compareBlocks)
		out.Shared = append(out.Shared, note)
	}
	return out
}

func (c *Config) filterTable(ports []compiled, f int) Table {
	input, forward := Shared{Name: chainInput}, Shared{Name: chainForward}
	groups := Shared{Name: chainGroups, Last: []string{"-j ACCEPT"}}
	var chains []Chain
	for _, p := range ports {
		at := func(rules ...string) Block { return Block{section(p.kind), short(p.id), rules} }
		switch p.kind {
		case Filtered:
			then := c.about(aboutToGroups) + "-j " + chainGroups
			forward.Blocks = append(forward.Blocks, at(bridged("out", p.id, then), bridged("in", p.id, then)))
			in, out := c.about(aboutToPort)+"-j "+ingressChain(p.id), c.about(aboutToPort)+"-j "+egressChain(p.id)
			groups.Blocks = append(groups.Blocks, at(bridged("out", p.id, in), bridged("in", p.id, out)))
			input.Blocks = append(input.Blocks, at(bridged("in", p.id, c.about(aboutInput)+"-j "+egressChain(p.id))))
			chains = append(chains, p.chains[f]...)
		case Trusted:
			then := c.about(aboutTrusted) + "-j ACCEPT"
			forward.Blocks = append(forward.Blocks, at(bridged("out", p.id, then), bridged("in", p.id, then)))
		case Open:
			then := c.about(aboutOpen) + "-j ACCEPT"
			forward.Blocks = append(forward.Blocks, at(bridged("out", p.id, then), bridged("in", p.id, then)))
			input.Blocks = append(input.Blocks, at(bridged("in", p.id, then)))
		case Absent:
		}
	}
	for _, s := range []*Shared{&input, &forward} {
		slices.SortStableFunc(s.Blocks, compareBlocks)
	}
	return Table{
		Name: "filter",
		Shared: []Shared{
			{Name: chainFallback, Last: []string{c.about(aboutUnmatchedDrop) + "-j DROP"}},
			{Name: chainLocal}, {Name: chainOutput}, input, groups, forward,
		},
		Ports: chains,
		Jumps: []Jump{
			{"INPUT", "-j " + chainInput},
			{"FORWARD", "-j " + chainTop}, {"FORWARD", "-j " + chainForward},
			{"OUTPUT", "-j " + chainTop}, {"OUTPUT", "-j " + chainOutput},
			{chainTop, "-j " + chainLocal},
		},
	}
}

// natTable keeps packets of ports from the rules that others have for packets of the host.
func (c *Config) natTable(ports []compiled) Table {
	pre := Shared{Name: chainPrerouting}
	for _, p := range ports {
		if p.kind == Absent {
			continue
		}
		then := c.about(aboutTrusted) + "-j ACCEPT"
		pre.Blocks = append(pre.Blocks, Block{sectionOpen, short(p.id), []string{physdev("out", p.id, then), physdev("in", p.id, then)}})
	}
	return Table{Name: "nat", Shared: []Shared{pre}, Jumps: []Jump{{"PREROUTING", "-j " + chainPrerouting}}}
}

func compareBlocks(a, b Block) int {
	if a.Section != b.Section {
		return a.Section - b.Section
	}
	return strings.Compare(a.Key, b.Key)
}

// chain returns the chain with its rules in order.
func (s *Shared) chain() Chain {
	out := Chain{Name: s.Name}
	for _, b := range s.Blocks {
		out.Rules = append(out.Rules, b.Rules...)
		if b.Section == sectionFiltered {
			out.Free[0] = len(out.Rules)
		}
	}
	out.Free[1] = len(out.Rules)
	out.Rules = append(out.Rules, s.Last...)
	return out
}
