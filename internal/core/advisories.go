// SPDX-License-Identifier: Apache-2.0

package core

import "github.com/patchbay-sdn/patchbay/internal/ovsdb"

// What the log says of peers that leave a way in.
const (
	brokerUnverified = "the certificate of the broker is not verified: set [oslo_messaging_rabbit] ssl_ca_file"
	switchAdvisories = "this Open vSwitch has published vulnerabilities, see patchbay status and docs/explanation/security-model.md"
)

// advisories are what status names: what works, but leaves a way in.
func (s *seen) advisories() []string {
	var out []string
	if s.unverified {
		out = append(out, brokerUnverified+". Whoever is between can read the password")
	}
	if text := ovsdb.AdvisoryText(s.world.View.Capabilities().OVSVersion); text != "" {
		out = append(out, text)
	}
	return out
}

// warnOfSwitch writes the known holes of the switch down, once for each version of it.
func (s *seen) warnOfSwitch() {
	version := s.world.View.Capabilities().OVSVersion
	list := ovsdb.Advisories(version)
	if len(list) == 0 || version == s.warned {
		return
	}
	s.warned = version
	ids := make([]string, 0, len(list))
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	s.log.Warn(switchAdvisories, "version", version, "cves", ids, "unless", "your distribution has backported the fixes")
}
