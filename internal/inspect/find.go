// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// ErrAmbiguous says that a name could be that of several things.
var ErrAmbiguous = errors.New("ambiguous")

// FindPort finds a port by what an operator has at hand: its id or name, that of its interface or of its VM, one of its
// addresses, or the beginning of an id, name or interface that only one port has.
func FindPort(ports []Port, ref string) (Port, error) {
	return find(ports, ref, "port",
		func(p *Port) []string {
			return append([]string{p.ID, p.Name, p.Interface, p.Device, p.MAC}, p.Addresses...)
		},
		func(p *Port) []string { return []string{p.ID, p.Name, p.Interface} },
		func(p *Port) string { return label(p.ID, p.Name) })
}

// FindGroup finds a group by its id or name, or the beginning of one that only one group has.
func FindGroup(groups []Group, ref string) (Group, error) {
	names := func(g *Group) []string { return []string{g.ID, g.Name} }
	return find(groups, ref, "security group", names, names, func(g *Group) string { return label(g.ID, g.Name) })
}

func label(id, name string) string {
	if name == "" {
		return id
	}
	return id + " (" + name + ")"
}

// maxCandidates bounds how many are named when a name is ambiguous.
const maxCandidates = 8

func find[T any](all []T, ref, what string, exact, beginnings func(*T) []string, name func(*T) string) (T, error) {
	var none T
	if ref == "" {
		return none, fmt.Errorf("%w: a %s has to be named", ErrNotFound, what)
	}
	is := func(s string) bool { return s == ref }
	begins := func(s string) bool { return strings.HasPrefix(s, ref) }
	hits := matching(all, exact, is)
	if len(hits) == 0 {
		hits = matching(all, beginnings, begins)
	}
	switch {
	case len(hits) == 0:
		return none, fmt.Errorf("%w: no %s here is called %q", ErrNotFound, what, ref)
	case len(hits) == 1:
		return *hits[0], nil
	}
	names := make([]string, 0, maxCandidates)
	for _, h := range hits[:min(len(hits), maxCandidates)] {
		names = append(names, name(h))
	}
	more := ""
	if len(hits) > maxCandidates {
		more = fmt.Sprintf(" and %d more", len(hits)-maxCandidates)
	}
	return none, fmt.Errorf("%w: %q could be each of %s%s", ErrAmbiguous, ref, strings.Join(names, ", "), more)
}

func matching[T any](all []T, names func(*T) []string, is func(string) bool) []*T {
	var hits []*T
	for i := range all {
		if slices.ContainsFunc(names(&all[i]), is) {
			hits = append(hits, &all[i])
		}
	}
	return hits
}

// Printable is a name that tenants chose, on one line and without what a terminal would obey.
func Printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, name)
}
