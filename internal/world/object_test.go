// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// TestObjects: objects of equal ids and different kinds differ, print the names that people know, and have one order: by kind, then by text.
func TestObjects(t *testing.T) {
	mac := neutron.MAC{2, 0, 0, 0, 0, 1}
	want := []struct {
		object Object
		name   string
	}{
		{BridgeObject("a"), "bridge a"},
		{BridgeObject("z"), "bridge z"}, // of each kind the last is after the first of the next kind, as text
		{PortObject("a"), "port a"},
		{PortObject("b"), "port b"},
		{SegmentObject{"a", 10}, "segment a/10"}, // before 9, as text
		{SegmentObject{"a", 9}, "segment a/9"},
		{SegmentObject{"a", none}, "segment a/None"},
		{SegmentObject{"a-1", 1}, "segment a-1/1"}, // see below
		{SegmentObject{"z", 1}, "segment z/1"},
		{TunnelObject(endpoint("gre/10.0.0.1")), "tunnel gre/10.0.0.1"},
		{TunnelObject(endpoint("vxlan/10.0.0.1")), "tunnel vxlan/10.0.0.1"},
		{TunnelObject(endpoint("vxlan/2001:db8::1")), "tunnel vxlan/2001:db8::1"},
		{StationObject{SegmentKey{"a", 10}, mac}, "station a/10|02:00:00:00:00:01"},
		{StationObject{SegmentKey{"a", 9}, mac}, "station a/9|02:00:00:00:00:01"},
		{StationObject{SegmentKey{"z", 9}, mac}, "station z/9|02:00:00:00:00:01"},
		{PeerObject{segment7, peer("10.0.0.1/32")}, "peer n1/7|10.0.0.1/32|-"},
		{PeerObject{segment7, peer("9.0.0.1/32")}, "peer n1/7|9.0.0.1/32|-"},
		{PeerObject{segment7, Peer{netip.MustParsePrefix("::/0"), mac}}, "peer n1/7|::/0|02:00:00:00:00:01"},
		{InterfaceObject("a"), "interface a"},
		{InterfaceObject("z"), "interface z"},
		{ExtensionObject{"dvr", mac}, "dvr 02:00:00:00:00:01"},
		{ExtensionObject{"qos", "a"}, "qos a"},
		{GroupObject("a"), "group a"},
	}
	// A hyphen is less than the slash after the shorter name.
	segments := want[4:8]
	want = slices.Concat(want[:4], segments[3:], segments[:3], want[8:])

	all := map[Object]bool{nil: true}
	names := map[string]bool{}
	for i, w := range want {
		all[w.object], names[w.name] = true, true
		if got := fmt.Sprint(w.object); got != w.name || NameOf(w.object) != w.name || !strings.HasSuffix(w.name, IDOf(w.object)) || IDOf(w.object) == "" {
			t.Errorf("%#v is %q, want %q", w.object, got, w.name)
		}
		if i > 0 && (CompareObjects(want[i-1].object, w.object) >= 0 || CompareObjects(w.object, want[i-1].object) <= 0) {
			t.Errorf("%s is not before %s", want[i-1].name, w.name)
		}
	}
	if len(all) != len(want)+1 || len(names) != len(want) {
		t.Errorf("%d objects, %d names, of %d", len(all), len(names), len(want))
	}
	sorted := SortedObjects(all)
	for i, o := range sorted[1:] {
		if o != want[i].object {
			t.Errorf("%s is at the place of %s", o, want[i].name)
		}
	}
	if sorted[0] != nil || NameOf(nil) != "none" || CompareObjects(nil, nil) != 0 || CompareObjects(nil, want[0].object) >= 0 {
		t.Error("nil is not the first")
	}
}

// TestObjectsAreSmall: each of the 100,000 flows of a host has one.
func TestObjectsAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(Object(nil)); size > 24 {
		t.Errorf("an object is %d bytes", size)
	}
}

func TestPortID(t *testing.T) {
	for o, want := range map[Object]string{nil: "", PortObject("a"): "a", BridgeObject("a"): ""} {
		if id, ok := PortID(o); id != want || ok != (want != "") {
			t.Errorf("%v: %q, %v", o, id, ok)
		}
	}
}
