// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Advisory is a published hole of Open vSwitch in something that flows of the agent rely on.
type Advisory struct {
	ID string // its CVE
	// What a packet can do because of it.
	What string
	// fixed is the first release without it of each branch that was mended; later branches than the last never had it, others have it
	// for ever. Read from the NEWS of the releases.
	fixed []string
}

func advisories() []Advisory {
	return []Advisory{
		{"CVE-2020-35498", "a packet with much padding has others dropped by a wrong datapath flow",
			[]string{"2.5.12", "2.6.10", "2.7.13", "2.8.11", "2.9.9", "2.10.7", "2.11.6", "2.12.3", "2.13.3", "2.14.2"}},
		{"CVE-2023-1668", "a packet of IP protocol 0 has others treated by a wrong datapath flow",
			[]string{"2.13.11", "2.14.9", "2.15.8", "2.16.7", "2.17.6", "3.0.4", "3.1.1"}},
		{"CVE-2023-5366", "a neighbour advertisement passes though nd_target forbids it: a VM takes the IPv6 address of another",
			[]string{"2.17.9", "3.0.6", "3.1.4", "3.2.2"}},
	}
}

// release is a version of Open vSwitch as the database has it, "3.1.0", with or without something behind.
var release = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})\.(\d{1,4})(\D|$)`)

func parseRelease(version string) (r [3]int, ok bool) {
	m := release.FindStringSubmatch(version)
	if m == nil {
		return r, false
	}
	for i := range r {
		r[i], _ = strconv.Atoi(m[i+1]) // digits only, and few
	}
	return r, true
}

// FragmentsEscape returns whether the userspace datapath of a release lets fragments out with packets of another connection: it holds
// one until its datagram is complete, and 15 s later sends it to wherever the packet goes that it commits next. Found in 2.15.0, 3.1.0
// and 3.5.0, and not in 4.0.0; no release says so.
func FragmentsEscape(version string) bool {
	have, ok := parseRelease(version)
	return ok && have[0] < 4
}

// Advisories lists the holes that a release of Open vSwitch was published with; none for a version that cannot be read. Distributions
// mend a release without changing its number.
func Advisories(version string) []Advisory {
	have, ok := parseRelease(version)
	if !ok {
		return nil
	}
	var out []Advisory
	for _, a := range advisories() {
		if !a.mendedIn(have) {
			out = append(out, a)
		}
	}
	return out
}

func (a *Advisory) mendedIn(have [3]int) bool {
	last := [3]int{}
	for _, text := range a.fixed {
		first, _ := parseRelease(text)
		if first[0] == have[0] && first[1] == have[1] {
			return have[2] >= first[2]
		}
		last = first
	}
	return have[0] > last[0] || have[0] == last[0] && have[1] > last[1]
}

// AdvisoryText is one sentence about the holes of a release, for operators; empty when there are none.
func AdvisoryText(version string) string {
	list := Advisories(version)
	if len(list) == 0 {
		return ""
	}
	parts := make([]string, 0, len(list))
	for _, a := range list {
		parts = append(parts, fmt.Sprintf("%s (%s)", a.ID, a.What))
	}
	return fmt.Sprintf("Open vSwitch %s was published with %s, unless your distribution has backported the fix: see its changelog, or upgrade",
		version, strings.Join(parts, ", "))
}
