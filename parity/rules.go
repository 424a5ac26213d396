// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-sdn/patchbay/internal/iptables"
)

// Bridged names what a host has of a port behind a Linux bridge of its own: devices, chains, and the device that stands for it in the note of
// the zones.
func (n *Names) Bridged(id, name string) {
	const part, chain = 11, 10
	for _, prefix := range []string{"tap", "qvb", "qvo"} {
		n.Text(prefix+id[:part], prefix+"-"+name)
	}
	for _, prefix := range []string{"i", "o", "s"} {
		n.Text("neutron-openvswi-"+prefix+id[:chain], "neutron-openvswi-"+prefix+"-"+name)
	}
	n.Text("tap"+id[3:3+part], "note-"+name)
}

// Group names the IP sets of a security group or an address group.
func (n *Names) Group(id, name string) {
	for _, version := range []uint8{4, 6} {
		n.Text(iptables.SetName(id, version), fmt.Sprintf("NIPv%d-%s", version, name))
	}
}

var (
	sourceMAC = regexp.MustCompile(`--mac-source \S+`)
	zoneOf    = regexp.MustCompile(`"Set zone for (\S+)" -j CT --zone (\d+)$`)
	zone      = regexp.MustCompile(`--zone (\d+)`)
	comment   = regexp.MustCompile(`-m comment --comment ("[^"]*"|\S+) `)
)

// Rules writes the rules of iptables and the IP sets of a host, one a line and sorted, and chains without rules. Zones are named by the ports that
// they are for. The order of rules and their comments are left out: package iptables compares them with recordings of its own.
func (n *Names) Rules(s *iptables.State) []string {
	zones := n.zones(s)
	var lines []string
	for i, tables := range s.Rules {
		for table, chains := range tables {
			for name, rules := range chains {
				if strings.ToUpper(name) != name && len(rules) == 0 { // not one of the kernel's own
					lines = append(lines, n.Apply(fmt.Sprintf("%s %s -N %s", families[i], table, name)))
				}
				for _, rule := range rules {
					rule = comment.ReplaceAllString(rule, "")
					rule = sourceMAC.ReplaceAllStringFunc(rule, strings.ToLower)
					rule = zone.ReplaceAllStringFunc(rule, func(word string) string {
						return "--zone " + zones[strings.TrimPrefix(word, "--zone ")]
					})
					lines = append(lines, n.Apply(fmt.Sprintf("%s %s -A %s %s", families[i], table, name, rule)))
				}
			}
		}
	}
	for name, set := range s.Sets {
		lines = append(lines, n.Apply(fmt.Sprintf("ipset %s %s %s", name, set.Type, set.Family)))
		for member := range set.Members {
			lines = append(lines, n.Apply(fmt.Sprintf("ipset %s %s", name, member)))
		}
	}
	slices.Sort(lines)
	return lines
}

var families = [2]string{"iptables", "ip6tables"}

// zones are the names of conntrack's zones by their numbers.
func (n *Names) zones(s *iptables.State) map[string]string {
	of := map[string]map[string]bool{}
	for _, tables := range s.Rules {
		for _, rules := range tables["raw"] {
			for _, rule := range rules {
				if m := zoneOf.FindStringSubmatch(rule); m != nil {
					if of[m[2]] == nil {
						of[m[2]] = map[string]bool{}
					}
					of[m[2]][n.Apply(m[1])] = true
				}
			}
		}
	}
	names := map[string]string{}
	for number, ports := range of {
		names[number] = strings.Join(slices.Sorted(maps.Keys(ports)), "+") // more than one would be two ports in one zone
	}
	return names
}
