// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net/netip"
	"path/filepath"
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
					if release == oldest && i > 0 { // it deletes the sets of address groups, since it has no rules for them
						want.Sets = maps.Clone(want.Sets)
						maps.DeleteFunc(want.Sets, func(set string, _ []netip.Prefix) bool { return addressSet.MatchString(set) })
					}
					compareSets(t, s.Steps[i].Do, want, have, i == 0)
				}
			})
		}
	}
}

// difference makes of a rule of ours those that the Python agent has in its place. The rules about address groups and about the word ipip are
// all that differ between releases.
func difference(release, name string) func(rule string) string {
	switch {
	case name == "stateless-without-rules":
		// With the first rule of the group tracking is switched off. The rules that set the zone are forgotten, and stay in front.
		return func(rule string) string {
			if rule != notrack(withBridge) {
				return rule
			}
			return strings.Join([]string{setZone(withBridge), setZone(fromBridge), setZone(withTap), rule}, "\n")
		}
	case release != oldest:
	case strings.HasPrefix(name, "address-group"):
		// Before 21.2.1 a rule with an address group is written without it: it is open to all.
		return func(rule string) string { return addresses.ReplaceAllString(rule, "") }
	case strings.HasPrefix(name, "protocols-by-name"):
		// Before 21.2.1 ipip is taken for the protocol that /etc/protocols calls so, which is 94.
		return func(rule string) string { return strings.ReplaceAll(rule, "-p ipencap ", "-p ipip ") }
	}
	return func(rule string) string { return rule }
}

// The address groups of the scenarios, as rules with and without sets name them.
var (
	addressSet = regexp.MustCompile(`^NIPv[46]c(4402510|5513621)-`)
	addresses  = regexp.MustCompile(`-m set --match-set NIPv[46]c(4402510|5513621)-\S* (src|dst) |-[sd] (192\.0\.2\.0/24|2001:db8:9::/48) `)
)

// What the rules of the table raw ask of a packet of the first port, in their order.
const (
	withBridge = "-m physdev --physdev-in qvb5e0b7a10-33 "
	fromBridge = "-i qvb5e0b7a10-33 "
	withTap    = "-m physdev --physdev-in tap5e0b7a10-33 "
)

func setZone(match string) string {
	return match + comment("Set zone for 5e0b7a10-33c2-4f5e-9d1a-000000000001") + "-j CT --zone 4097"
}

func notrack(match string) string {
	return match + comment("Make 5e0b7a10-33c2-4f5e-9d1a-000000000001 stateless") + "-j CT --notrack"
}

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

// TestRecordings finds every step of every scenario recorded, of each release. A part of a recording would be compared as if it were all.
func TestRecordings(t *testing.T) {
	const enough = 60
	all := scenarios(t)
	for _, release := range []string{oldest, newest} {
		files, err := filepath.Glob(filepath.Join("testdata", "recordings", release, "*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) < enough || len(files) != len(all) {
			t.Errorf("%s: %d recordings of %d scenarios; at least %d have to be there", release, len(files), len(all), enough)
		}
		for _, s := range all {
			if steps := len(recorded(t, release, s.Name)); steps != len(s.Steps) {
				t.Errorf("%s: of %s %d steps are recorded, not %d", release, s.Name, steps, len(s.Steps))
			}
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
			var left [2]string
			if s.Name == "stateless-without-rules" { // see difference
				first := "-D " + chainPrerouting + " 1\n"
				left = [2]string{first + first + first, "*raw\n" + first + first + first + "COMMIT\n"}
			}
			c.Rules[0] = strings.Replace(c.Rules[0], left[0], "", 1)
			if c.Rules[1] != left[1] || c.Sets != "" || len(c.Connections) > 0 {
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
