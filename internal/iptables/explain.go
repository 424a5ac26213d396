// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"
)

// Line is a rule in a chain of a port.
type Line struct {
	Version uint8 // of IP
	Chain   string
	Rule    string
	// Because are the ids of the security group rules that it is there for.
	Because []string
}

// Lines returns the rules in the chains of a port, as they are wanted.
func (f *Filter) Lines(id string) []Line {
	p, known := f.ports[id]
	if !known {
		return nil
	}
	var out []Line
	for i, chains := range f.compiled[id].chains {
		version := []uint8{4, 6}[i]
		because := map[string][]string{}
		for n := range p.Rules {
			r := &p.Rules[n]
			if r.IPVersion != version {
				continue
			}
			for _, text := range f.cfg.ruleText(r, p, f.members) {
				key := r.Direction.String() + text
				if !slices.Contains(because[key], r.ID) {
					because[key] = append(because[key], r.ID)
				}
			}
		}
		for _, chain := range chains {
			direction := map[string]string{ingressChain(id): "ingress", egressChain(id): "egress"}[chain.Name]
			for _, rule := range chain.Rules {
				out = append(out, Line{version, chain.Name, rule, because[direction+rule]})
			}
		}
	}
	return out
}

// String is the line as iptables-save prints it, with what it is there for.
func (l Line) String() string {
	program := map[uint8]string{4: "iptables", 6: "ip6tables"}[l.Version]
	out := program + " -A " + l.Chain + " " + l.Rule
	if len(l.Because) > 0 {
		out += "  # security group rule " + strings.Join(l.Because, ", ")
	}
	return out
}
