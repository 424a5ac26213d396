// SPDX-License-Identifier: Apache-2.0

//go:build integration

package conntrack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// TestLimitsOfARealSwitch: only what differs is changed, other zones and the default stay, and all of ours go.
func TestLimitsOfARealSwitch(t *testing.T) {
	sw := vswitch.New(t)
	if _, err := sw.Vsctl(t.Context(), "add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev"); err != nil {
		t.Fatal(err)
	}
	appctl := func(args ...string) string {
		t.Helper()
		out, err := sw.Appctl(t.Context(), "ovs-vswitchd", args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	appctl("dpctl/ct-set-limits", "netdev@ovs-netdev", "default=7", "zone=5000,limit=9")
	l := NewLimiter("netdev", sw.Dir(), filepath.Join(t.TempDir(), "marker"))
	for _, s := range []struct {
		want    map[uint16]uint32
		prune   bool
		changed int
		has     string
	}{
		{map[uint16]uint32{1: 100, 2: 100}, false, 2, "zone=1,limit=100 zone=2,limit=100"},
		{map[uint16]uint32{1: 100, 2: 100}, true, 0, "zone=1,limit=100 zone=2,limit=100"},
		{map[uint16]uint32{1: 200}, false, 1, "zone=1,limit=200 zone=2,limit=100"},
		{map[uint16]uint32{1: 200}, true, 1, "zone=1,limit=200"},
		{nil, false, 0, "zone=1,limit=200"},
		{nil, true, 1, ""},
	} {
		changed, err := l.SetLimits(t.Context(), s.want, s.prune)
		if err != nil || changed != s.changed {
			t.Errorf("%v: %d changed, want %d: %v", s.want, changed, s.changed, err)
		}
		text := appctl("dpctl/ct-get-limits", "netdev@ovs-netdev")
		var ours []string
		for line := range strings.Lines(text) {
			if zone, _, ok := strings.Cut(strings.TrimSpace(line), ",count"); ok && zone != "zone=5000,limit=9" {
				ours = append(ours, zone)
			}
		}
		if got := strings.Join(ours, " "); got != s.has {
			t.Errorf("%v: the switch has %q, want %q", s.want, got, s.has)
		}
		if !strings.Contains(text, "default limit=7") || !strings.Contains(text, "zone=5000,limit=9") {
			t.Errorf("%v: what is not ours was changed:\n%s", s.want, text)
		}
	}
	if _, err := os.Stat(l.Marker); err == nil {
		t.Error("the marker is left")
	}
}
