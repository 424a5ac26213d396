// SPDX-License-Identifier: Apache-2.0

package neutron

import "testing"

// A cut tells releases apart only if there are some on both sides of it, and their objects are not the same.
func TestReleasesOnBothSidesOfACutDiffer(t *testing.T) {
	all := span(releases())
	first, last := all[0].number, all[len(all)-1].number
	for name, tt := range map[string]struct {
		of   span
		cut  int
		want bool
	}{
		"both sides":     {all, last, true},
		"none before":    {all, first, false},
		"none since":     {all, last + 1, false},
		"none at all":    {nil, first, false},
		"the same again": {span{all[0], {number: last, versions: all[0].versions}}, last, false},
	} {
		if got := tt.of.differ(tt.cut); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
