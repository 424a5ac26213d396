// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"testing"
)

// FuzzParseRules reads dumps that no iptables prints: what is read can be compared.
func FuzzParseRules(f *testing.F) {
	f.Add("*filter\n:INPUT ACCEPT [0:0]\n:neutron-openvswi-INPUT - [0:0]\n[1:2] -A INPUT -j neutron-openvswi-INPUT\nCOMMIT\n")
	f.Add("*raw\n:x - [0:0]\n-A x -m physdev --physdev-in tapab -j CT --zone 7\n-A x -s 10.0.0.1 -m comment --comment \"a\\\"b\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseRules(text)
		if err != nil {
			return
		}
		filter := New(Config{})
		filter.Set(Port{ID: port1, Kind: Open})
		_ = fmt.Sprint(filter.Next(State{Rules: [2]Ruleset{rules, rules}}, true))
	})
}

// FuzzParseSets reads dumps that no ipset prints.
func FuzzParseSets(f *testing.F) {
	f.Add("create NIPv4x hash:net family inet hashsize 1024 maxelem 65536\nadd NIPv4x 10.0.0.1\nadd NIPv4x 10.0.0.0/8\n")
	f.Fuzz(func(t *testing.T, text string) {
		if sets, err := ParseSets(text); err == nil {
			_ = diffSets(setsWanted(nil, nil), sets)
			_ = destroySets(nil, sets, nil)
		}
	})
}
