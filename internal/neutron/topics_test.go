// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"slices"
	"testing"
)

// TestPossibleTopics: a server that may be of several releases pushes objects in the versions of one of them.
func TestPossibleTopics(t *testing.T) {
	for releases, want := range map[string][]string{
		"21 to 22":    {"neutron-vo-Port-1.7", "neutron-vo-Subnet-1.1"},
		"23 to 26":    {"neutron-vo-Port-1.8", "neutron-vo-Subnet-1.1", "neutron-vo-Port-1.9", "neutron-vo-Port-1.10", "neutron-vo-Subnet-1.2"},
		"27 or later": {"neutron-vo-Port-1.10", "neutron-vo-Subnet-1.2", "neutron-vo-Port-1.11"},
		"29 or later": {"neutron-vo-Port-1.11", "neutron-vo-Subnet-1.2"},
	} {
		got := PossibleTopics(releases, parseSpan(releases)[0].versions, false, KindPort, KindSubnet)
		if got = slices.DeleteFunc(got, func(t string) bool { return t == TopicTunnelUpdate || t == TopicTunnelDelete || t == TopicDVRUpdate }); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", releases, got, want)
		}
	}
	newer := parseSpan("27 or later")[0].versions.with(Versions{KindPort: "1.12"})
	if got := PossibleTopics("27 or later", newer, false, KindPort); slices.Contains(got, "neutron-vo-Port-1.11") {
		t.Errorf("a server with Port 1.12 does not push an older one: %q", got)
	}
}
