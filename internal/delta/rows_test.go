// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// TestRows: which of an owner's rows count, before and after its flows are in place.
func TestRows(t *testing.T) {
	bridge := func(config map[string]string) *ovsdb.View {
		v := ovsdb.NewView()
		v.Apply(&ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "br", Name: "br-int", OtherConfig: config}}}})
		return v
	}
	row := func(key string) []ovsdb.Spec {
		return []ovsdb.Spec{ovsdb.BridgeSpec{Name: "br-int", OtherConfig: map[string]string{key: "1"}}}
	}
	r, o := NewRows(), world.PortObject("a")
	if r.Retry(o) || r.Pending(o) {
		t.Error("rows are pending that nobody wants")
	}
	r.Want(o, WantedRows{Always: row("always"), Until: row("until"), After: row("after")})
	for _, c := range []struct {
		have    map[string]string
		applied bool
		left    int
	}{
		{nil, false, 1}, {nil, true, 1},
		{map[string]string{"always": "1"}, false, 1}, {map[string]string{"always": "1"}, true, 1},
		{map[string]string{"always": "1", "until": "1"}, false, 0}, {map[string]string{"always": "1", "until": "1"}, true, 1},
		{map[string]string{"always": "1", "after": "1"}, false, 1}, {map[string]string{"always": "1", "after": "1"}, true, 0},
		{map[string]string{"until": "1", "after": "1"}, true, 1}, {map[string]string{"until": "1", "after": "1"}, false, 1},
	} {
		if got := r.Diff(bridge(c.have), o, c.applied).Len(); got != c.left {
			t.Errorf("%v, applied %v: %d operations, want %d", c.have, c.applied, got, c.left)
		}
	}
	if r.Done(o); r.Pending(o) || len(r.Owners()) > 0 {
		t.Error("rows are pending that are as wanted")
	}
	if !r.Retry(o) || !r.Pending(o) {
		t.Error("rows are not compared again")
	}
	r.Want(o, WantedRows{Waiting: "for details"})
	if w, ok := r.Wanted(o); !ok || w.Waiting != "for details" || !r.Pending(o) {
		t.Errorf("%+v", w)
	}
	r.Want(o, WantedRows{})
	if _, ok := r.Wanted(o); ok || r.Pending(o) {
		t.Error("an owner that wants nothing is kept")
	}
}
