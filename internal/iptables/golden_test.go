// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The releases whose driver was recorded: the oldest that a lab has, and the newest.
const oldest, newest = "21.0", "29.0"

var macs = regexp.MustCompile(`--mac-source \S+`)

// TestGolden compiles what the Python agent was told, and finds the text that iptables-save printed.
func TestGolden(t *testing.T) {
	for _, release := range []string{oldest, newest} {
		for _, s := range scenarios(t) {
			t.Run(release+"/"+s.Name, func(t *testing.T) {
				cfg := debian(t, &s)
				cfg.NoNAT = release == oldest
				f := New(cfg)
				var now step
				for i, have := range recorded(t, release, s.Name) {
					now = now.then(s.Steps[i])
					now.tell(t, f)
					f.zones.Read(have.Rules[0])
					want := f.wanted()
					compareRules(t, s.Steps[i].Do, cfg, want, have, difference(release, s.Name))
					if release != oldest || s.Name != "address-group" { // it deletes the set, since it has no rule for it
						compareSets(t, s.Steps[i].Do, want, have, i == 0)
					}
				}
			})
		}
	}
}

// difference makes of a rule of the newest release that of another. The rules about address groups and about the word ipip are all that differ.
func difference(release, name string) func(rule string) string {
	switch {
	case release != oldest:
	case name == "address-group":
		// Before 21.2.1 a rule with an address group is written without it: it is open to all.
		return func(rule string) string { return addressSets.ReplaceAllString(rule, "") }
	case name == "protocols-by-name":
		// Before 21.2.1 ipip is taken for the protocol that /etc/protocols calls so, which is 94.
		return func(rule string) string { return strings.ReplaceAll(rule, "-p ipencap ", "-p ipip ") }
	}
	return func(rule string) string { return rule }
}

var addressSets = regexp.MustCompile(`-m set --match-set NIPv[46]c4402510\S* (src|dst) `)

func compareRules(t *testing.T, do string, cfg Config, want Wanted, have State, difference func(string) string) {
	t.Helper()
	for f, tables := range want.Families {
		for _, table := range tables {
			got := map[string][]string{}
			d := &differ{protocols: cfg.Protocols, have: have.Rules[f][table.Name]}
			chains := slices.Clone(table.Ports)
			for _, s := range table.Shared {
				if s.Name != chainZones {
					chains = append(chains, s.chain())
				}
			}
			for _, c := range chains {
				c.Rules = slices.Clone(c.Rules)
				for i := range c.Rules {
					c.Rules[i] = difference(c.Rules[i])
				}
				got[c.Name] = d.arrange(c, d.normalAll(d.have[c.Name]))
			}
			for _, j := range table.Jumps {
				got[j.Chain] = append(got[j.Chain], j.Rule)
			}
			for _, name := range slices.Sorted(maps.Keys(got)) {
				there, ok := d.have[name]
				text := macs.ReplaceAllStringFunc(strings.Join(there, "\n"), func(s string) string {
					return "--mac-source " + strings.ToUpper(strings.TrimPrefix(s, "--mac-source "))
				})
				if mine := strings.Join(got[name], "\n"); !ok || mine != text {
					t.Errorf("%s: family %d, table %s, chain %s\n--- the Python agent\n%s\n--- here\n%s", do, f, table.Name, name, text, mine)
				}
			}
			for name := range d.have {
				if _, ok := got[name]; !ok && isOurs(name) {
					t.Errorf("%s: family %d, table %s: chain %s is missing", do, f, table.Name, name)
				}
			}
		}
	}
}

func compareSets(t *testing.T, do string, want Wanted, have State, first bool) {
	t.Helper()
	for name, members := range want.Sets {
		set, ok := have.Sets[name]
		if there := slices.SortedFunc(maps.Keys(set.Members), netip.Prefix.Compare); !ok || !slices.Equal(there, members) {
			t.Errorf("%s: set %s: the Python agent has %v (%v), here %v", do, name, there, ok, members)
		}
	}
	for name := range have.Sets {
		if _, ok := want.Sets[name]; !ok && first {
			t.Errorf("%s: set %s is missing", do, name)
		}
	}
}

// TestTakeOver starts on a host that the newest Python agent has written: nothing changes but the note of the zones, and what that agent
// leaves behind.
func TestTakeOver(t *testing.T) {
	for _, s := range scenarios(t) {
		t.Run(s.Name, func(t *testing.T) {
			var now step
			states := recorded(t, newest, s.Name)
			for i := range states {
				now = now.then(s.Steps[i])
			}
			f := New(debian(t, &s))
			now.tell(t, f)
			c := f.Next(states[len(states)-1], true)
			if c.Rules[1] != "" || c.Sets != "" || len(c.Connections) > 0 {
				t.Errorf("%+v", c)
			}
			for _, line := range strings.Split(strings.TrimSuffix(c.Rules[0], "\n"), "\n") {
				if line != "" && line != "*raw" && line != "COMMIT" && !strings.Contains(line, chainZones) {
					t.Errorf("%s", line)
				}
			}
		})
	}
}
