// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func id(n int) ovsdb.UUID { return ovsdb.UUID(fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012x", n)) }

// rehearsal is one on a database with one bridge, br-ex, that has a port and no controller.
func rehearsal() (*ovsdb.Rehearsal, *ovsdb.View) {
	one, two := 1, 2
	initial := &ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial,
		OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: id(1), Bridges: []ovsdb.UUID{id(2)}}}},
		Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{
			UUID: id(2), Name: "br-ex", DatapathID: "0000000000000002", Ports: []ovsdb.UUID{id(3), id(5)},
			OtherConfig: map[string]string{"a": "1", "b": "2"}, Protocols: []string{"OpenFlow13"},
		}}},
		Ports: []ovsdb.Diff[ovsdb.Port]{
			{New: &ovsdb.Port{UUID: id(3), Name: "ext0", Interfaces: []ovsdb.UUID{id(4)}}},
			{New: &ovsdb.Port{UUID: id(5), Name: "ext1", Interfaces: []ovsdb.UUID{id(6)}}},
		},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{
			{New: &ovsdb.Interface{UUID: id(4), Name: "ext0", OFPort: &one}}, {New: &ovsdb.Interface{UUID: id(6), Name: "ext1", OFPort: &two}},
		},
	}
	v := ovsdb.NewView()
	v.Apply(initial)
	return ovsdb.NewRehearsal(initial), v
}

// deliver moves a view on by everything that was committed.
func deliver(t *testing.T, r *ovsdb.Rehearsal, v *ovsdb.View, upTo uint64) {
	t.Helper()
	go r.Run(t.Context())
	for v.Seq() < upTo {
		if b := <-r.Changes(); b.Kind != ovsdb.Initial {
			v.Apply(b)
		}
	}
}

func TestARehearsalDoesWhatTheSwitchWould(t *testing.T) {
	r, v := rehearsal()
	tx, other, bad := ovsdb.NewTx(v), ovsdb.NewTx(v), ovsdb.NewTx(v)
	tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int", DatapathType: "netdev", Protocols: []string{"OpenFlow13", "OpenFlow14"}})
	tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "int-br-ex", Type: "patch", Options: map[string]string{"peer": "phy-br-ex"}})
	tx.Owner = "bridge br-int"
	probe := 10_000_000
	b := v.BridgeByName("br-ex")
	other.EnsureBridge(ovsdb.BridgeSpec{Name: "br-ex", FailMode: "secure", Protocols: []string{"OpenFlow13", "OpenFlow14"}, OtherConfig: map[string]string{"b": "3"}})
	other.Bridge(b.UUID).SetControllers(ovsdb.Controller{Target: "tcp:127.0.0.1:6633", ConnectionMode: "out-of-band", InactivityProbe: &probe})
	other.Port(id(3)).SetTag(7).MergeOtherConfig(map[string]string{"tag": "7"})
	other.DeletePort(id(5))
	bad.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "x"}) // there is no such bridge in its view
	result, errs := r.CommitAll(t.Context(), []*ovsdb.Tx{tx, other, bad})
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], ovsdb.ErrConflict) {
		t.Fatal(errs)
	}
	_, after := rehearsal()
	deliver(t, r, after, result.Seq)

	made := after.InterfaceByName("int-br-ex")
	if made == nil || made.OFPort == nil || !r.MadeUp(*made.OFPort) || r.MadeUp(1) || made.Options["peer"] != "phy-br-ex" {
		t.Errorf("new interface %+v", made)
	}
	if p := after.PortOf(made.UUID); p == nil || after.BridgeOf(p.UUID).Name != "br-int" || r.Owner(p.UUID) != "bridge br-int" {
		t.Errorf("new port %+v", p)
	}
	if br := after.BridgeByName("br-int"); br.DatapathID == "" || br.DatapathType != "netdev" || len(br.Ports) != 2 || !slices.Contains(after.Root().Bridges, br.UUID) {
		t.Errorf("new bridge %+v", br)
	}
	ex := after.BridgeByName("br-ex")
	if !maps.Equal(ex.OtherConfig, map[string]string{"a": "1", "b": "3"}) || !slices.Equal(ex.Protocols, []string{"OpenFlow13", "OpenFlow14"}) ||
		ex.FailMode != "secure" || len(ex.Controllers) != 1 || *after.Controller(ex.Controllers[0]).InactivityProbe != probe {
		t.Errorf("changed bridge %+v", ex)
	}
	if after.PortByName("ext1") != nil || after.InterfaceByName("ext1") != nil {
		t.Error("rows that nothing refers to are still there")
	}
	if v.BridgeByName("br-ex").FailMode != "" || v.PortByName("ext0").Tag != nil {
		t.Error("rows were changed that somebody else holds")
	}
}

func TestCompareNamesWhatDiffers(t *testing.T) {
	r, before := rehearsal()
	tx := ovsdb.NewTx(before)
	tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-ex", Name: "p", Type: "patch", Options: map[string]string{"peer": "q"}})
	tx.Port(id(3)).SetTag(7).MergeOtherConfig(map[string]string{"tag": "7"})
	tx.DeletePort(id(5))
	if _, errs := r.CommitAll(t.Context(), []*ovsdb.Tx{tx}); errs[0] != nil {
		t.Fatal(errs)
	}
	var got []string
	r.Look(func(after *ovsdb.View) {
		for _, c := range ovsdb.Compare(before, after) {
			got = append(got, fmt.Sprintf("%s %s %s %s %v", c.Bridge, c.Change, c.Table, c.Name, c.Values))
		}
		if same := ovsdb.Compare(after, after); len(same) > 0 {
			t.Errorf("a view differs from itself: %v", same)
		}
	})
	want := []string{
		"br-ex changed Port ext0 [{other_config:tag  7} {tag  7}]",
		"br-ex removed Port ext1 []",
		"br-ex added Port p []",
		"br-ex removed Interface ext1 []",
		"br-ex added Interface p [{options:peer  q} {type  patch}]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestTheSecondOfTwoThatWantANameWaits(t *testing.T) {
	r, v := rehearsal()
	one, two := ovsdb.NewTx(v), ovsdb.NewTx(v)
	for _, tx := range []*ovsdb.Tx{one, two} {
		tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-ex", Name: "p", Type: "patch"})
	}
	if _, errs := r.CommitAll(t.Context(), []*ovsdb.Tx{one, two}); errs[0] != nil || !errors.Is(errs[1], ovsdb.ErrConflict) {
		t.Error(errs)
	}
}
