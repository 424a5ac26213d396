// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// clone copies a state.
func (s State) clone() State {
	out := State{Sets: map[string]Set{}, Unbridged: s.Unbridged}
	for i, rules := range s.Rules {
		if rules == nil {
			continue
		}
		out.Rules[i] = Ruleset{}
		for table, chains := range rules {
			out.Rules[i][table] = map[string][]string{}
			for name, list := range chains {
				out.Rules[i][table][name] = slices.Clone(list)
			}
		}
	}
	for name, set := range s.Sets {
		set.Members = maps.Clone(set.Members)
		out.Sets[name] = set
	}
	return out
}

// After returns the state that a host has after changes, without writing anything: it does what iptables-restore --noflush and ipset restore
// -exist do.
func (s State) After(c *Changes) (State, error) {
	out := s.clone()
	if err := out.restoreSets(c.Sets); err != nil {
		return s, err
	}
	for i, text := range c.Rules {
		if err := out.restoreRules(i, text); err != nil {
			return s, err
		}
	}
	return out, out.restoreSets(c.Unused)
}

func (s State) restoreRules(family int, text string) error {
	var table map[string][]string
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case line == "" || line == "COMMIT":
		case line[0] == '*':
			if table = s.Rules[family][line[1:]]; table == nil {
				table = map[string][]string{}
				s.Rules[family][line[1:]] = table
			}
		case line[0] == ':':
			name, _, _ := strings.Cut(line[1:], " ")
			table[name] = nil
		default:
			if err := s.restoreLine(table, line); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		}
	}
	return nil
}

// builtin are the chains of the kernel. iptables makes them when somebody writes into them first; until then nftables shows none.
var builtin = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

func (s State) restoreLine(table map[string][]string, line string) error {
	command, rest, _ := strings.Cut(line, " ")
	chain, rest, _ := strings.Cut(rest, " ")
	rules, ok := table[chain]
	if !ok && !slices.Contains(builtin, chain) {
		return fmt.Errorf("no chain %s", chain)
	}
	at, err := strconv.Atoi(strings.SplitN(rest, " ", 2)[0])
	switch command {
	case "-F":
		table[chain] = nil
		return nil
	case "-X":
		for name, others := range table {
			if slices.ContainsFunc(others, func(r string) bool { return target(r) == chain }) {
				return fmt.Errorf("%s refers to it", name)
			}
		}
		if len(rules) > 0 {
			return fmt.Errorf("it has rules")
		}
		delete(table, chain)
		return nil
	case "-D":
		if err != nil {
			at = slices.Index(rules, rest) + 1
		}
		if at < 1 || at > len(rules) {
			return fmt.Errorf("no such rule")
		}
		table[chain] = slices.Delete(slices.Clone(rules), at-1, at)
		return nil
	case "-I":
		if err != nil || at < 1 || at > len(rules)+1 {
			return fmt.Errorf("no such place")
		}
		_, rest, _ = strings.Cut(rest, " ")
		table[chain] = slices.Insert(slices.Clone(rules), at-1, rest)
	case "-A":
		table[chain] = append(slices.Clone(rules), rest)
	default:
		return fmt.Errorf("no such command")
	}
	if to := target(rest); isOurs(to) || to == chainTop {
		if _, ok := table[to]; !ok {
			return fmt.Errorf("no chain %s", to)
		}
	}
	for _, set := range setsOf(rest) {
		if _, ok := s.Sets[set]; !ok {
			return fmt.Errorf("no set %s", set)
		}
	}
	return nil
}

func (s State) restoreSets(text string) error {
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		set, there := s.Sets[words[1]]
		if words[0] != "create" && !there {
			return fmt.Errorf("%s: no such set", line)
		}
		var member netip.Prefix
		if words[0] == "add" || words[0] == "del" {
			var err error
			if member, err = parseMember(words[2]); err != nil {
				return err
			}
		}
		switch words[0] {
		case "create":
			if !there { // -exist
				made := created(words)
				if made.MaxElem == 0 {
					made.MaxElem = defaultMaxElem
				}
				s.Sets[words[1]] = made
			}
		case "add":
			set.Members[member] = true
		case "del":
			delete(set.Members, member)
		case "swap":
			s.Sets[words[1]], s.Sets[words[2]] = s.Sets[words[2]], set
		case "destroy":
			if s.refers(words[1]) {
				return fmt.Errorf("%s: a rule refers to it", line)
			}
			delete(s.Sets, words[1])
		}
	}
	return nil
}

// refers returns whether a rule refers to a set.
func (s State) refers(set string) bool {
	for _, rules := range s.Rules {
		for _, table := range rules {
			for _, list := range table {
				if slices.ContainsFunc(list, func(r string) bool { return slices.Contains(setsOf(r), set) }) {
					return true
				}
			}
		}
	}
	return false
}
