// SPDX-License-Identifier: Apache-2.0

package core

import "github.com/patchbay-sdn/patchbay/internal/ovsdb"

// What the log says of a switch that leaves a way in.
const (
	fragmentsEscape  = "this Open vSwitch lets fragments of a VM out into other networks, set [patchbay] drop_fragments or upgrade to 4.0, see docs/explanation/security-model.md"
	switchAdvisories = "this Open vSwitch has published vulnerabilities, see patchbay status and docs/explanation/security-model.md"
)

// advisories are what status names: what works, but leaves a way in. Dropped: the switch has been told to drop fragments.
func (s *seen) advisories(dropped bool) []string {
	var out []string
	if s.unverified {
		out = append(out, brokerUnverified+". Whoever is between can read the password")
	}
	if text := ovsdb.AdvisoryText(s.world.View.Capabilities().OVSVersion); text != "" {
		out = append(out, text)
	}
	if s.holdsFragments() && !dropped {
		out = append(out, fragmentsEscape)
	}
	return out
}

// holdsFragments returns whether the switch lets fragments out to others, unless it is told to drop them.
func (s *seen) holdsFragments() bool {
	return s.cfg.Conntrack && s.cfg.Configurations.DatapathType == "netdev" && ovsdb.FragmentsEscape(s.world.View.Capabilities().OVSVersion)
}

// warnOfSwitch writes the known holes of the switch down, once for each version of it.
func (s *seen) warnOfSwitch() {
	version := s.world.View.Capabilities().OVSVersion
	if version == s.warned {
		return
	}
	s.warned = version
	if s.holdsFragments() && !s.cfg.DropFragments {
		s.log.Warn(fragmentsEscape, "version", version)
	}
	list := ovsdb.Advisories(version)
	if len(list) == 0 {
		return
	}
	ids := make([]string, 0, len(list))
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	s.log.Warn(switchAdvisories, "version", version, "cves", ids, "unless", "your distribution has backported the fixes")
}
