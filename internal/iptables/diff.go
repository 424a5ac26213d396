// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// differ compares one table.
type differ struct {
	protocols Protocols
	have      map[string][]string
	out       []string
	// narrowed are the chains of ports that lost a rule which let packets pass.
	narrowed map[string]bool
	// left are the rules after the change.
	left  map[string][]string
	known known
}

// known are the ports that are known, by the parts of their ids that are in names of devices, of chains, and in the chain of notes.
type known struct{ devices, chains, notes map[string]bool }

func knownPorts(ids []string) known {
	k := known{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, id := range ids {
		part, _ := portOfChain(ingressChain(id))
		k.devices[short(id)], k.chains[part], k.notes[shifted(id)] = true, true, true
	}
	return k
}

// diffTable returns the lines for iptables-restore that make a table as wanted. Chains of ports that are not known are deleted only if
// prune is set; before that they stay as they are, in their places.
func diffTable(protocols Protocols, want *Table, have map[string][]string, ports known, prune bool) *differ {
	d := &differ{protocols: protocols, have: have, narrowed: map[string]bool{}, left: maps.Clone(have), known: ports}
	if d.left == nil {
		d.left = map[string][]string{}
	}
	chains := map[string]Chain{}
	for _, c := range want.Ports {
		chains[c.Name] = c
	}
	for _, s := range want.Shared {
		if !prune {
			s.Blocks = d.keep(&s)
		}
		chains[s.Name] = s.chain()
	}
	gone := d.gone(chains, prune)
	d.declare(want, chains)
	for _, name := range slices.SortedFunc(maps.Keys(chains), compareNames) {
		d.chain(chains[name])
	}
	d.jumps(want.Jumps, gone)
	for _, command := range []string{"-F ", "-X "} {
		for _, name := range gone {
			d.add(command + name)
			delete(d.left, name)
		}
	}
	return d
}

func (d *differ) add(line string) { d.out = append(d.out, line) }

// compareNames sorts the chains that lead to those of ports last, as the Python agent does.
func compareNames(a, b string) int {
	late := func(s string) int {
		if strings.Contains(s, "-sg-") {
			return 1
		}
		return 0
	}
	if c := late(a) - late(b); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// keep returns the blocks of a chain, with those of ports that are in it and that nobody knows.
func (d *differ) keep(s *Shared) []Block {
	blocks := slices.Clone(s.Blocks)
	wanted := d.known.devices
	if s.Name == chainZones {
		wanted = d.known.notes
	}
	at := map[string]int{}
	for _, rule := range d.have[s.Name] {
		key, ok := deviceOf(rule)
		if !ok || wanted[key] {
			continue
		}
		i, begun := at[key]
		if !begun {
			i = len(blocks)
			at[key] = i
			blocks = append(blocks, Block{Section: sectionOf(rule), Key: key})
		}
		blocks[i].Rules = append(blocks[i].Rules, rule)
	}
	slices.SortStableFunc(blocks, compareBlocks)
	return blocks
}

// sectionOf returns where in a chain a rule of an unknown port belongs.
func sectionOf(rule string) int {
	switch {
	case target(rule) != "ACCEPT":
		return sectionFiltered
	case strings.Contains(rule, "--physdev-is-bridged") && strings.Contains(rule, aboutTrusted):
		return sectionTrusted
	}
	return sectionOpen
}

// gone returns the chains of the agent that are not wanted any more, sorted.
func (d *differ) gone(wanted map[string]Chain, prune bool) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(d.have)) {
		if _, want := wanted[name]; want || !isOurs(name) {
			continue
		}
		part, ofPort := portOfChain(name)
		if prune || ofPort && d.known.chains[part] {
			out = append(out, name)
		}
	}
	return out
}

// declare makes the chains that are missing. A line of that kind would empty a chain that exists.
func (d *differ) declare(want *Table, chains map[string]Chain) {
	names := slices.Collect(maps.Keys(chains))
	for _, j := range want.Jumps {
		if !builtInChain(j.Chain) && !slices.Contains(names, j.Chain) {
			names = append(names, j.Chain)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if _, there := d.have[name]; !there {
			d.add(":" + name + " - [0:0]")
			d.left[name] = nil
		}
	}
}

func builtInChain(name string) bool { return strings.ToUpper(name) == name }

// chain makes one chain of the agent as wanted, rule by rule: what stays keeps its counters.
func (d *differ) chain(want Chain) {
	have := d.have[want.Name]
	old := d.normalAll(have)
	rules := d.arrange(want, old)
	edits := compare(old, d.normalAll(rules))
	at, length := 0, len(have)
	for _, e := range edits {
		switch e.do {
		case keep:
			at++
		case drop:
			d.add(fmt.Sprintf("-D %s %d", want.Name, at+1))
			length--
			if passes(have[e.index]) {
				d.narrowed[want.Name] = true
			}
		case insert:
			if at == length {
				d.add("-A " + want.Name + " " + rules[e.index])
			} else {
				d.add(fmt.Sprintf("-I %s %d %s", want.Name, at+1, rules[e.index]))
			}
			at++
			length++
		}
	}
	d.left[want.Name] = rules
}

// passes returns whether a rule lets packets pass.
func passes(rule string) bool { t := target(rule); return t == "RETURN" || t == "ACCEPT" }

func (d *differ) normalAll(rules []string) []string {
	out := make([]string, len(rules))
	for i, rule := range rules {
		out[i] = d.protocols.normal(rule)
	}
	return out
}

// arrange puts the rules of which the order means nothing into the order that they have.
func (d *differ) arrange(want Chain, have []string) []string {
	from, to := want.Free[0], want.Free[1]
	if from >= to {
		return want.Rules
	}
	free := map[string]string{}
	for _, rule := range want.Rules[from:to] {
		free[d.protocols.normal(rule)] = rule
	}
	out := slices.Clone(want.Rules[:from])
	for _, form := range have {
		if rule, ok := free[form]; ok {
			out = append(out, rule)
			delete(free, form)
		}
	}
	for _, rule := range want.Rules[from:to] {
		if form := d.protocols.normal(rule); free[form] != "" {
			out = append(out, rule)
			delete(free, form)
		}
	}
	return append(out, want.Rules[to:]...)
}

// jumps puts the agent's rules in chains of others above all other rules there. These chains are not the agent's alone, so that rules are
// deleted by what they are and not by their place: somebody else may have added one meanwhile.
func (d *differ) jumps(jumps []Jump, gone []string) {
	wanted := map[string][]string{}
	var order []string
	for _, j := range jumps {
		if wanted[j.Chain] == nil {
			order = append(order, j.Chain)
		}
		wanted[j.Chain] = append(wanted[j.Chain], j.Rule)
	}
	for _, chain := range order {
		d.head(chain, wanted[chain])
	}
	for _, chain := range slices.Sorted(maps.Keys(d.have)) { // what refers to a chain keeps it from being deleted
		if wanted[chain] != nil || isOurs(chain) {
			continue
		}
		for _, rule := range d.have[chain] {
			if slices.Contains(gone, target(rule)) {
				d.add("-D " + chain + " " + rule)
				d.left[chain] = slices.DeleteFunc(slices.Clone(d.left[chain]), func(r string) bool { return r == rule })
			}
		}
	}
}

// head makes rules the first of a chain.
func (d *differ) head(chain string, rules []string) {
	have := d.have[chain]
	isOwn := func(rule string) bool { return isOurs(target(rule)) || slices.Contains(rules, rule) }
	own := 0
	for _, rule := range have {
		if isOwn(rule) {
			own++
		}
	}
	if own == len(rules) && slices.Equal(have[:own], rules) {
		return
	}
	var others []string
	for _, rule := range have {
		if isOwn(rule) {
			d.add("-D " + chain + " " + rule)
		} else {
			others = append(others, rule)
		}
	}
	for i, rule := range rules {
		d.add(fmt.Sprintf("-I %s %d %s", chain, i+1, rule))
	}
	d.left[chain] = slices.Concat(rules, others)
}

// refer notes the IP sets that rules refer to after the change.
func (d *differ) refer(sets map[string]bool) {
	for _, rules := range d.left {
		for _, rule := range rules {
			for _, set := range setsOf(rule) {
				sets[set] = true
			}
		}
	}
}

type what uint8

const (
	keep what = iota
	drop
	insert
)

// edit is one step from one list to another. Index is that of the old list for drop and keep, of the new one for insert.
type edit struct {
	do    what
	index int
}

// maxCompared bounds the work of comparing lists: of longer ones the part that differs is replaced as a whole.
const maxCompared = 1 << 20

// compare returns the shortest way from one list to another.
func compare(old, wanted []string) []edit {
	head := 0
	for head < len(old) && head < len(wanted) && old[head] == wanted[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(wanted)-head && old[len(old)-1-tail] == wanted[len(wanted)-1-tail] {
		tail++
	}
	var out []edit
	for i := range head {
		out = append(out, edit{keep, i})
	}
	a, b := old[head:len(old)-tail], wanted[head:len(wanted)-tail]
	for _, e := range common(a, b) {
		out = append(out, edit{e.do, e.index + head})
	}
	for i := len(old) - tail; i < len(old); i++ {
		out = append(out, edit{keep, i})
	}
	return out
}

// common is compare without what begins and ends alike, by the table of the longest common subsequences.
func common(a, b []string) []edit {
	var out []edit
	i, j := 0, 0
	if len(a)*len(b) <= maxCompared {
		table := make([][]int, len(a)+1)
		for n := range table {
			table[n] = make([]int, len(b)+1)
		}
		for n := len(a) - 1; n >= 0; n-- {
			for m := len(b) - 1; m >= 0; m-- {
				if a[n] == b[m] {
					table[n][m] = table[n+1][m+1] + 1
				} else {
					table[n][m] = max(table[n+1][m], table[n][m+1])
				}
			}
		}
		for i < len(a) && j < len(b) {
			switch {
			case a[i] == b[j]:
				out = append(out, edit{keep, i})
				i++
				j++
			case table[i+1][j] >= table[i][j+1]:
				out = append(out, edit{drop, i})
				i++
			default:
				out = append(out, edit{insert, j})
				j++
			}
		}
	}
	for ; i < len(a); i++ {
		out = append(out, edit{drop, i})
	}
	for ; j < len(b); j++ {
		out = append(out, edit{insert, j})
	}
	return out
}
