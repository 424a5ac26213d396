// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

const (
	setType        = "hash:net"
	maxSetName     = 29
	defaultMaxElem = 65536 // what ipset takes when it is not told
	// swapSuffix ends the name of the set that takes a set's place. The Python agent uses -n, and merges what it finds under that name
	// into the live set.
	swapSuffix = "-t"
)

// SetName returns the name of the IP set of a group or address group.
func SetName(group string, version uint8) string {
	return cut(fmt.Sprintf("NIPv%d%s", version, group), maxSetName)
}

func ownSet(name string) bool {
	return strings.HasPrefix(name, "NIPv4") || strings.HasPrefix(name, "NIPv6")
}

func setFamily(name string) string {
	if strings.HasPrefix(name, "NIPv6") {
		return "inet6"
	}
	return "inet"
}

// setsWanted returns the members of the sets that rules of filtered ports refer to, by name.
func setsWanted(ports []*Port, members map[string][]netip.Prefix) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for _, p := range ports {
		if p.Kind != Filtered {
			continue
		}
		for _, r := range p.Rules {
			if r.Remote == "" {
				continue
			}
			name := SetName(r.Remote, r.IPVersion)
			if _, done := out[name]; !done {
				out[name] = setMembers(members[r.Remote], r.IPVersion)
			}
		}
	}
	return out
}

// setMembers returns the addresses of one IP version as a set can hold them: a set takes no prefix of length 0.
func setMembers(all []netip.Prefix, version uint8) []netip.Prefix {
	out := []netip.Prefix{}
	for _, p := range all {
		switch {
		case versionOf(p.Addr()) != version:
		case p.Bits() == 0 && version == 4:
			out = append(out, netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/1"))
		case p.Bits() == 0:
			out = append(out, netip.MustParsePrefix("::/1"), netip.MustParsePrefix("8000::/1"))
		default:
			out = append(out, p.Masked())
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// memberText returns a member as ipset prints it.
func memberText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// setChanges are lines for ipset restore.
type setChanges struct {
	// before: members that are gone go first, then sets and members are added.
	before []string
	// gone are the members that before deletes, by set.
	gone map[string][]netip.Prefix
	// after are the sets that are wanted, as they are then.
	after map[string]Set
}

// diffSets returns what makes the sets as wanted. No set goes: rules may refer to it.
func diffSets(want map[string][]netip.Prefix, have map[string]Set) setChanges {
	out := setChanges{gone: map[string][]netip.Prefix{}, after: map[string]Set{}}
	var adds []string
	add := func(set string, members []netip.Prefix) {
		for _, m := range members {
			adds = append(adds, "add "+set+" "+memberText(m))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		members := want[name]
		set, there := have[name]
		gone := missing(set.Members, members)
		if len(gone) > 0 {
			out.gone[name] = gone
		}
		out.after[name] = setAfter(set, name, members, gone)
		switch {
		case !there:
			adds = append(adds, createSet(name, name, len(members)))
			add(name, members)
		case set.Type == setType && set.Family == setFamily(name) && set.MaxElem >= len(members):
			for _, m := range gone {
				out.before = append(out.before, "del "+name+" "+memberText(m))
			}
			for _, m := range members {
				if !set.Members[m] {
					add(name, []netip.Prefix{m})
				}
			}
		default:
			temporary := name + swapSuffix
			if _, left := have[temporary]; left {
				adds = append(adds, "destroy "+temporary)
			}
			adds = append(adds, createSet(temporary, name, len(members)))
			add(temporary, members)
			adds = append(adds, "swap "+temporary+" "+name, "destroy "+temporary)
		}
	}
	out.before = append(out.before, adds...)
	return out
}

// missing returns the members of a set that are not wanted, sorted. A set may have many thousands of members, of which few go.
func missing(have map[netip.Prefix]bool, want []netip.Prefix) []netip.Prefix {
	kept := 0
	for _, m := range want {
		if have[m] {
			kept++
		}
	}
	if kept == len(have) {
		return nil
	}
	var out []netip.Prefix
	for m := range have {
		if _, wanted := slices.BinarySearchFunc(want, m, netip.Prefix.Compare); !wanted {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// setAfter returns a set with the members, of the size that it has or that [createSet] gives it.
func setAfter(set Set, name string, members, gone []netip.Prefix) Set {
	after := Set{Type: setType, Family: setFamily(name), MaxElem: max(set.MaxElem, defaultMaxElem), Members: maps.Clone(set.Members)}
	if len(members) > after.MaxElem {
		after.MaxElem = 2 * len(members)
	}
	if after.Members == nil {
		after.Members = make(map[netip.Prefix]bool, len(members))
	}
	for _, m := range gone {
		delete(after.Members, m)
	}
	for _, m := range members {
		after.Members[m] = true
	}
	return after
}

func createSet(name, like string, members int) string {
	line := "create " + name + " " + setType + " family " + setFamily(like)
	if members > defaultMaxElem {
		line += fmt.Sprintf(" maxelem %d", 2*members)
	}
	return line
}

// destroySets returns the lines that delete the sets of the agent that nothing wants and no rule refers to, and what was left behind of an
// exchange of sets.
func destroySets(want map[string][]netip.Prefix, have map[string]Set, referred map[string]bool) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, wanted := want[name]; ownSet(name) && !wanted && !referred[name] {
			out = append(out, "destroy "+name)
		}
	}
	return out
}
