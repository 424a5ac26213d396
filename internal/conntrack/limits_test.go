// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/fake"
)

func TestParseLimits(t *testing.T) {
	for text, want := range map[string]map[uint16]uint32{
		"":                  {},
		"default limit=0\n": {},
		"default limit=10\nzone=0,limit=7,count=0\nzone=4094,limit=4294967295,count=3\nzone=5,limit=0,count=2\n": {0: 7, 4094: 4294967295},
	} {
		if got, err := parseLimits(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"zone=x,limit=1", "zone=70000,limit=1,count=0", "zone=1,count=3"} {
		if got, err := parseLimits(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestDiffLimits(t *testing.T) {
	have := map[uint16]uint32{0: 1, 1: 100, 2: 50, 3: 100, 4095: 9}
	want := map[uint16]uint32{1: 100, 2: 100, 7: 100}
	set, remove := diffLimits(have, want, true)
	if !reflect.DeepEqual(set, []uint16{2, 7}) || !reflect.DeepEqual(remove, []uint16{3}) {
		t.Errorf("set %v, remove %v", set, remove)
	}
	if _, remove := diffLimits(have, want, false); remove != nil {
		t.Errorf("removed before all networks are known: %v", remove)
	}
	if set, remove := diffLimits(want, want, true); set != nil || remove != nil {
		t.Errorf("what is right is changed: %v %v", set, remove)
	}
}

// Without the marker nothing of ours can be set, so the switch is not even asked.
func TestNoLimitsAreTouchedThatAreNotOurs(t *testing.T) {
	dir := t.TempDir()
	l := NewLimiter("netdev", filepath.Join(dir, "nowhere"), filepath.Join(dir, "marker"))
	if n, err := l.SetLimits(context.Background(), nil, true); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := os.WriteFile(l.Marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.SetLimits(context.Background(), nil, true); err == nil {
		t.Error("limits of an earlier run are left without a look")
	}
	if _, err := os.Stat(l.Marker); err != nil {
		t.Errorf("the marker is gone although the limits may be there: %v", err)
	}
}

// TestFragmentsAreDropped in releases that could let them out, whether or not there are limits, and before these.
func TestFragmentsAreDropped(t *testing.T) {
	const disabled = "dpctl/ipf-set-disabled netdev@ovs-netdev "
	for _, c := range []struct {
		version string
		drop    bool
		refused string
		want    []string
	}{
		{"3.1.0", true, "", []string{disabled + "v4", disabled + "v6"}},
		{"3.7.1", true, "", []string{disabled + "v4", disabled + "v6"}},
		{"4.0.0", true, "", nil},
		{"3.1.0", false, "", nil},
		{"3.1.0", true, disabled + "v4", []string{disabled + "v4"}},
	} {
		var asked []string
		dir := t.TempDir()
		f, err := fake.NewControl(dir, func(args []string) (string, error) {
			call := strings.Join(args, " ")
			if asked = append(asked, call); call == c.refused {
				return "", errors.New("not now")
			}
			return "", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		f.Version = c.version
		l := NewLimiter("netdev", dir, filepath.Join(dir, "marker"))
		l.DropFragments = c.drop
		_, err = l.SetLimits(t.Context(), nil, true)
		f.Close()
		if !reflect.DeepEqual(asked, c.want) || (err != nil) != (c.refused != "") {
			t.Errorf("%+v: asked %q, %v", c, asked, err)
		}
	}
}
