// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bufio"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Ruleset is what iptables-save printed: the rules of each chain of each table, without counters.
type Ruleset map[string]map[string][]string

// State is what the host has.
type State struct {
	// Rules are those for IPv4 and IPv6; nil without IPv6.
	Rules [2]Ruleset
	Sets  map[string]Set
	// Unbridged are the reasons why packets of bridges do not meet the rules, in sentences.
	Unbridged []string
}

// Parts are parts of port ids, as they are in the names of devices.
type Parts map[string]bool

// Has returns whether the part of a port id is among them.
func (p Parts) Has(id string) bool { return p[short(id)] }

// Guarded returns the ports whose packets meet rules of the agent, those of any time.
func (s *State) Guarded() Parts {
	var out Parts
	for _, rules := range s.Rules {
		if rules == nil {
			continue
		}
		these := Parts{}
		if filter := rules["filter"]; slices.Contains(filter["FORWARD"], "-j "+chainForward) {
			for _, rule := range filter[chainForward] {
				if part, ok := deviceOf(rule); ok && (out == nil || out[part]) {
					these[part] = true
				}
			}
		}
		out = these
	}
	return out
}

// Ours returns whether there is anything of the agent.
func (s *State) Ours() bool { return anyOurs(s.Rules[0]) || anyOurs(s.Rules[1]) }

// Set is an IP set. Members is nil for a set that is not the agent's.
type Set struct {
	Type, Family string
	MaxElem      int
	Members      map[netip.Prefix]bool
}

// maxLine bounds a line of a dump.
const maxLine = 1 << 20

// ParseRules reads what iptables-save or ip6tables-save printed. A dump that ends in the middle of a table is an error: what is missing in it
// would look like something that somebody has deleted.
func ParseRules(text string) (Ruleset, error) {
	out := Ruleset{}
	var table map[string][]string
	scan := bufio.NewScanner(strings.NewReader(text))
	scan.Buffer(nil, maxLine)
	for scan.Scan() {
		line := strings.TrimSpace(scan.Text())
		if strings.HasPrefix(line, "[") { // counters
			_, line, _ = strings.Cut(line, "] ")
		}
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '*':
			table = map[string][]string{}
			out[line[1:]] = table
		case table == nil:
			return nil, fmt.Errorf("reading rules: line outside of a table: %s", line)
		case line == "COMMIT":
			table = nil
		case line[0] == ':':
			name, _, _ := strings.Cut(line[1:], " ")
			table[name] = nil
		case strings.HasPrefix(line, "-A "):
			name, rule, _ := strings.Cut(line[3:], " ")
			if _, declared := table[name]; !declared {
				return nil, fmt.Errorf("reading rules: chain %s is not declared", name)
			}
			table[name] = append(table[name], rule)
		default:
			return nil, fmt.Errorf("reading rules: cannot read %s", line)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("reading rules: %w", err)
	}
	if table != nil {
		return nil, fmt.Errorf("reading rules: the dump ends before COMMIT")
	}
	return out, nil
}

// ParseSets reads what ipset save printed.
func ParseSets(text string) (map[string]Set, error) {
	out := map[string]Set{}
	scan := bufio.NewScanner(strings.NewReader(text))
	scan.Buffer(nil, maxLine)
	for scan.Scan() {
		words := strings.Fields(scan.Text())
		if len(words) == 0 {
			continue
		}
		if len(words) < 3 {
			return nil, fmt.Errorf("reading sets: cannot read %s", scan.Text())
		}
		switch words[0] {
		case "create":
			out[words[1]] = created(words)
		case "add":
			members := out[words[1]].Members
			if members == nil {
				continue
			}
			prefix, err := parseMember(words[2])
			if err != nil {
				return nil, fmt.Errorf("reading set %s: %w", words[1], err)
			}
			members[prefix] = true
		default:
			return nil, fmt.Errorf("reading sets: cannot read %s", scan.Text())
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("reading sets: %w", err)
	}
	return out, nil
}

// created reads the words of a line such as
//
//	create NIPv4911d92f9-da9c-41f6-a519- hash:net family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1
func created(words []string) Set {
	s := Set{Type: words[2]}
	for i := 3; i+1 < len(words); i++ {
		switch words[i] {
		case "family":
			s.Family = words[i+1]
		case "maxelem":
			s.MaxElem, _ = strconv.Atoi(words[i+1])
		}
	}
	if ownSet(words[1]) && s.Type == setType {
		s.Members = map[netip.Prefix]bool{}
	}
	return s
}

// parseMember reads an address, or a prefix.
func parseMember(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(ip, ip.BitLen()), nil
}
