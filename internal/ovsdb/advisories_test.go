// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// CVE-2023-1668, CVE-2023-5366 and CVE-2020-35498 are in the switch, and named to whoever runs it.
func TestAdvisories(t *testing.T) {
	const padding, protocol, target = "CVE-2020-35498", "CVE-2023-1668", "CVE-2023-5366"
	for version, want := range map[string][]string{
		"2.4.0":        {padding, protocol, target}, // a branch that nobody mended
		"2.5.12":       {protocol, target},
		"2.13.2":       {padding, protocol, target},
		"2.13.11":      {target},
		"2.14.9":       {target},
		"2.15.0":       {protocol, target},
		"2.16.7":       {target},
		"2.17.5":       {protocol, target},
		"2.17.8":       {target},
		"2.17.9":       nil,
		"3.0.3":        {protocol, target},
		"3.0.6":        nil,
		"3.1.0":        {protocol, target},
		"3.1.3":        {target},
		"3.1.4":        nil,
		"3.2.0":        {target},
		"3.2.2":        nil,
		"3.3.0":        nil,
		"3.7.1":        nil,
		"4.0.0":        nil,
		"3.1.0-2.el9":  {protocol, target},
		"3.1.10":       nil,
		"":             nil,
		"unknown":      nil,
		"3.1":          nil,
		"99999999.1.1": nil,
	} {
		var got []string
		for _, a := range ovsdb.Advisories(version) {
			got = append(got, a.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
		text := ovsdb.AdvisoryText(version)
		if (text == "") != (len(want) == 0) || text != "" && !strings.Contains(text, "unless your distribution has backported the fix") {
			t.Errorf("%q: %q", version, text)
		}
		for _, id := range want {
			if !strings.Contains(text, id) {
				t.Errorf("%q: %q does not name %s", version, text, id)
			}
		}
	}
}
