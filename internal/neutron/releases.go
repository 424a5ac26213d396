// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// release is a release of Neutron and what its server is known by from outside.
type release struct {
	number   int
	versions Versions // of its own objects
	// first is a question that this release answers and earlier ones refuse. None: it cannot be told from the one before by asking.
	first probe
}

// releases lists them, oldest first. Sources: the VERSION constants of Neutron's tagged releases.
func releases() []release {
	v17 := Versions{
		KindPort: "1.5", KindNetwork: "1.1", KindSubnet: "1.1", KindSecurityGroup: "1.2", KindSecurityGroupRule: "1.0",
		KindQosPolicy: "1.8", KindTrunk: "1.1", KindSubPort: "1.0", KindLog: "1.0", KindPortForwarding: "1.2",
		KindConntrackHelper: "1.0",
	}
	v18 := v17.with(Versions{
		KindPort: "1.7", KindSecurityGroup: "1.4", KindSecurityGroupRule: "1.2", KindAddressGroup: "1.2",
	})
	v19 := v18.with(Versions{KindQosPolicy: "1.9"})
	v20 := v19.with(Versions{KindQosPolicy: "1.10", KindSecurityGroup: "1.5", KindLocalIPAssociation: "1.0"})
	v21 := v20.with(Versions{KindPortForwarding: "1.3", KindNDPProxy: "1.0", KindAgent: "1.1"})
	v23 := v21.with(Versions{KindPort: "1.8"})
	v24 := v23.with(Versions{KindPort: "1.9", KindSecurityGroup: "1.6", KindSecurityGroupRule: "1.3"})
	v25 := v24.with(Versions{KindPort: "1.10", KindSubnet: "1.2"})
	v26 := v25.with(Versions{KindNetwork: "1.2"})
	v29 := v26.with(Versions{KindPort: "1.11", KindNetwork: "1.3"})
	return []release{
		{17, v17, nil},
		{18, v18, hasKind(KindAddressGroup, "id")},
		{19, v19, hasPlugin("1.9")},
		{20, v20, hasKind(KindLocalIPAssociation, "fixed_port_id")},
		{21, v21, hasKind(KindNDPProxy, "id")},
		{22, v21, nil},
		{23, v23, hasReports("1.3")},
		{24, v24, nil},
		{25, v25, nil},
		{26, v26, nil},
		{27, v26, hasReports("1.4")},
		{28, v26, nil},
		{29, v29, nil},
	}
}

// with returns a copy in which newer entries replace or join the old ones.
func (v Versions) with(newer Versions) Versions {
	out := maps.Clone(v)
	maps.Copy(out, newer)
	return out
}

// span is a run of releases: a server is of one of them.
type span []release

// String names the span for logs: "17", "21 to 23", "29 or later".
func (s span) String() string {
	first, last := s[0].number, s[len(s)-1].number
	all := releases()
	switch {
	case last == all[len(all)-1].number:
		return fmt.Sprintf("%d or later", first)
	case first == last:
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d to %d", first, last)
}

// parseSpan reads what String wrote.
func parseSpan(text string) span {
	from, to, ranged := strings.Cut(text, " to ")
	from, later := strings.CutSuffix(from, " or later")
	first, err := strconv.Atoi(from)
	if err != nil {
		return nil
	}
	last := first
	if ranged {
		last, _ = strconv.Atoi(to)
	}
	var s span
	for _, r := range releases() {
		if r.number >= first && (later || r.number <= last) {
			s = append(s, r)
		}
	}
	return s
}

// tells says whether releases of the span differ in their version of a kind.
func (s span) tells(k Kind) bool { return s[0].versions[k] != s[len(s)-1].versions[k] }

// with returns those releases whose own version of a kind is the given one. A version that nobody knows is one of a release after
// the newest, or of one between two: what is left are the releases that come closest to it from below.
func (s span) with(k Kind, version string) span {
	best := ""
	for _, r := range s {
		if v := r.versions[k]; compareVersions(v, version) <= 0 {
			best = v
		}
	}
	var left span
	for _, r := range s {
		if r.versions[k] == best {
			left = append(left, r)
		}
	}
	if len(left) == 0 {
		return s[:1]
	}
	return left
}

// differ says whether the releases of the span on the two sides of a cut have different objects.
func (s span) differ(cut int) bool {
	before, since := s.at(cut)
	return len(before) > 0 && len(since) > 0 && !maps.Equal(before[0].versions, since[len(since)-1].versions)
}

// at cuts the span at the release with a number.
func (s span) at(number int) (before, since span) {
	for i, r := range s {
		if r.number >= number {
			return s[:i], s[i:]
		}
	}
	return s, nil
}

// compareVersions orders versions of an object, as "1.9" before "1.10". What is no version comes first.
func compareVersions(a, b string) int {
	split := func(v string) (major, minor int) {
		x, y, _ := strings.Cut(v, ".")
		major, _ = strconv.Atoi(x)
		minor, _ = strconv.Atoi(y)
		return major, minor
	}
	xa, ya := split(a)
	xb, yb := split(b)
	return cmp.Or(cmp.Compare(xa, xb), cmp.Compare(ya, yb))
}
