// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func ptr[T any](v T) *T { return &v }

// begin are the rows that the specs below are about.
func begin() *Batch {
	ids := map[string]string{"port": "tap", "type": "limit"}
	return &Batch{
		Seq: 1, Kind: Initial, OpenVSwitch: []Diff[OpenVSwitch]{{New: &OpenVSwitch{UUID: "root", Bridges: []UUID{"br", "tr"}}}},
		Bridges: []Diff[Bridge]{
			{New: &Bridge{UUID: "br", Name: "br-int", Ports: []UUID{"p", "q", "r"}, Mirrors: []UUID{"m"}, OtherConfig: map[string]string{"mark": "true", "other": "x"}}},
			{New: &Bridge{UUID: "tr", Name: "tbr-1", Ports: []UUID{"o"}}},
		},
		Ports: []Diff[Port]{
			{New: &Port{UUID: "p", Name: "tap", Interfaces: []UUID{"pi"}, VLANMode: "trunk", Trunks: []int{4095}, QoS: "qos", OtherConfig: map[string]string{"old": "1"}}},
			{New: &Port{UUID: "q", Name: "spi-1", Interfaces: []UUID{"qi"}}}, {New: &Port{UUID: "r", Name: "spi-2", Interfaces: []UUID{"ri"}}},
			{New: &Port{UUID: "o", Name: "spt-1", Interfaces: []UUID{"oi"}}},
		},
		Interfaces: []Diff[Interface]{
			{New: &Interface{UUID: "pi", Name: "tap", ExternalIDs: map[string]string{"iface-id": "1", "mark": "1"}}},
			{New: &Interface{UUID: "qi", Name: "spi-1", Type: "patch", Options: map[string]string{"peer": "spt-1"}}},
			{New: &Interface{UUID: "ri", Name: "spi-2", Type: "patch", Options: map[string]string{"peer": "spt-2"}}},
			{New: &Interface{UUID: "oi", Name: "spt-1", Type: "patch", Options: map[string]string{"peer": "spi-1"}}},
		},
		Mirrors: []Diff[Mirror]{{New: &Mirror{UUID: "m", Name: "m1", SelectAll: true, SelectSrc: []UUID{"p"}, Output: "q", ExternalIDs: map[string]string{"mark": "1"}}}},
		QoS:     []Diff[QoS]{{New: &QoS{UUID: "qos", Queues: map[int]UUID{0: "queue"}, ExternalIDs: map[string]string{"id": "gone"}}}},
		Queues:  []Diff[Queue]{{New: &Queue{UUID: "queue", ExternalIDs: ids, OtherConfig: map[string]string{"burst": "1"}}}},
	}
}

// specs returns one of each kind, or more, and what its transaction does: operations and tables. Each call makes them anew.
func specs() map[string]struct {
	spec Spec
	want string
} {
	return map[string]struct {
		spec Spec
		want string
	}{
		"a new bridge": {BridgeSpec{Name: "br-new", Create: true, FailMode: "secure", FirstController: &Controller{Target: "t"}},
			"insert Interface, insert Port, insert Bridge, mutate Open_vSwitch; update Bridge, insert Controller"},
		"a bridge that nobody may create": {BridgeSpec{Name: "br-ex", Protocols: []string{"OpenFlow14"}}, ""},
		"a bridge": {BridgeSpec{Name: "br-int", FailMode: "secure", FirstController: &Controller{Target: "t"}, McastSnooping: ptr(true),
			RemoveConfig: []string{"mark", "none"}}, "update Bridge, mutate Bridge, insert Controller"},
		"a new port":                  {PortSpec{Bridge: "br-int", Name: "patch", Type: "patch", Initial: &VLANs{Tag: 7, Mode: "access"}}, "insert Interface, insert Port, mutate Bridge"},
		"a port":                      {PortSpec{Bridge: "br-int", Name: "tap", Tag: ptr(7), Initial: &VLANs{Tag: 8}}, "update Port"},
		"a port to keep":              {PortSpec{Bridge: "br-int", Name: "tap", Tag: ptr(7), KeepIfPresent: true}, ""},
		"a port of no bridge":         {PortSpec{Bridge: "br-tun", Name: "vxlan-1"}, ""},
		"a port in a VLAN":            {AccessSpec{Port: "p", Tag: 3, OtherConfig: map[string]string{"tag": "3"}}, "update Port, mutate Port"},
		"a port that is gone":         {AccessSpec{Port: "gone", Tag: 3}, ""},
		"a port in no network":        {IsolationSpec{Port: "p", VLAN: 4095}, "update Port"},
		"no port, by identity":        {AbsentPort{Port: "p"}, "mutate Bridge"},
		"no port, by name":            {AbsentPort{Bridge: "br-int", Name: "tap"}, "mutate Bridge"},
		"no port, of another":         {AbsentPort{Bridge: "br-tun", Name: "tap"}, ""},
		"while a row exists":          {When{Bridges: []string{"br-int"}, Ports: []UUID{"p"}, Interfaces: []UUID{"pi"}, Specs: []Spec{AbsentPort{Port: "p"}}}, "mutate Bridge"},
		"while no bridge exists":      {When{Bridges: []string{"br-tun"}, Specs: []Spec{AbsentPort{Port: "p"}}}, ""},
		"while no port exists":        {When{Ports: []UUID{"gone"}, Specs: []Spec{AbsentPort{Port: "p"}}}, ""},
		"while no interface exists":   {When{Interfaces: []UUID{"gone"}, Specs: []Spec{AbsentPort{Port: "p"}}}, ""},
		"an interface":                {InterfaceSpec{Interface: "pi", Policing: &Policing{1, 2}, ExternalIDs: map[string]string{"trunk_id": "1"}, List: &IDList{Key: "ids", IDs: []string{"b"}, Present: map[string]string{"spt-1": "a", "spt-9": "c"}, Bridge: "tbr-1"}}, "update Interface, mutate Interface"},
		"no patches":                  {AbsentPatches{Bridge: "tbr-1", Prefixes: []string{"spt-"}, PeerBridge: "br-int", PeerPrefixes: []string{"spi-"}, IfEmpty: []string{"spt-"}}, "mutate Bridge, mutate Bridge"},
		"no patches but one":          {AbsentPatches{Bridge: "tbr-1", Prefixes: []string{"spt-"}, Keep: []string{"spt-1"}, PeerBridge: "br-int"}, ""},
		"no patches if it were empty": {AbsentPatches{Bridge: "tbr-1", Prefixes: []string{"spt-"}, IfEmpty: []string{"tpt-"}}, ""},
		"no patches and no bridge":    {AbsentPatches{Bridge: "tbr-1", Prefixes: []string{"spt-"}, PeerBridge: "br-int", PeerPrefixes: []string{"spi-"}, WithBridge: true}, "mutate Bridge, mutate Open_vSwitch"},
		"a patch with a peer":         {StrayPatch{Bridge: "br-int", Name: "spi-1", PeerPrefixes: []string{"spt-"}}, ""},
		"a patch without a peer":      {StrayPatch{Bridge: "br-int", Name: "spi-2", PeerPrefixes: []string{"spt-"}}, "mutate Bridge"},
		"a new mirror":                {MirrorSpec{Bridge: "br-int", Name: "m2", ExternalIDs: map[string]string{"mark": "2"}, Src: []string{"tap"}, Dst: []string{"tap", "spt-1"}, Output: "spi-1"}, "insert Mirror, mutate Bridge"},
		"a mirror":                    {MirrorSpec{Bridge: "br-int", Name: "m1", ExternalIDs: map[string]string{"mark": "1"}, Src: []string{"spi-2", "tap"}, Dst: []string{"tap"}, Output: "spi-1"}, "update Mirror"},
		"another mirror for the same": {MirrorSpec{Bridge: "br-int", Name: "m2", ExternalIDs: map[string]string{"mark": "1"}, Output: "spi-1"}, "insert Mirror, mutate Bridge"},
		"a mirror of others":          {MirrorSpec{Bridge: "br-int", Name: "m1", ExternalIDs: map[string]string{"mark": "2"}, Output: "spi-1"}, "insert Mirror, mutate Bridge"},
		"a mirror to no port":         {MirrorSpec{Bridge: "br-int", Name: "m3", Output: "spt-1"}, ""},
		"a mirror of no bridge":       {MirrorSpec{Bridge: "br-tun", Name: "m3", Output: "spi-1"}, ""},
		"nothing marked":              {AbsentMarked{Bridge: "br-int", Key: "mark", Value: "1"}, "mutate Bridge"},
		"nothing marked otherwise":    {AbsentMarked{Bridge: "br-int", Key: "mark", Value: "2"}, ""},
		"nothing unmarked":            {AbsentMarked{Bridge: "br-int", Key: "mark"}, ""},
		"nothing marked elsewhere":    {AbsentMarked{Bridge: "br-tun", Key: "mark", Value: "1"}, ""},
		"config":                      {ConfigSpec{Port: "p", Set: map[string]string{"new": "1"}, Remove: map[string]string{"old": "2", "none": ""}}, "mutate Port"},
		"config that may stay":        {ConfigSpec{Port: "p", Remove: map[string]string{"old": "1"}}, ""},
		"a port's QoS": {PortQoS{Port: "p", Key: QoSKey{ExternalIDs: map[string]string{"id": "tap"}}, New: QoS{Type: "linux-htb", ExternalIDs: map[string]string{"id": "tap"}},
			Queue: &QueueSpec{Key: map[string]string{"port": "tap", "type": "limit"}, OtherConfig: map[string]string{"max-rate": "1"}, RemoveConfig: []string{"burst"}}},
			"mutate Queue, update Port, insert QoS"},
		"no QoS":       {PortQoS{Port: "p", Absent: true, Key: QoSKey{ExternalIDs: map[string]string{"id": "gone"}}, Queue: &QueueSpec{Key: map[string]string{"port": "tap"}}}, "update Port, delete QoS, delete Queue"},
		"orphaned QoS": {OrphanedQoS{Rows: []QoSKey{{Pairs: 1}}, RowPort: "id", Queues: map[string]string{"type": "limit"}, QueuePort: "port"}, ""}, // a port has it
		"shared QoS": {SharedQoS{Bridges: []string{"br-int"}, Key: QoSKey{ExternalIDs: map[string]string{"_type": "minimum"}}, New: QoS{ExternalIDs: map[string]string{"_type": "minimum"}},
			Queues: []QueueSpec{{Number: 9, Key: map[string]string{"port": "1", "type": "minimum"}}}, Kind: map[string]string{"type": "minimum"}, UnknownKey: "port"},
			"insert Queue, insert QoS, update Port"},
	}
}

// does is what operations do, preconditions aside.
func does(t *testing.T, tx *Tx) string {
	t.Helper()
	ops, err := tx.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, op := range ops {
		if m := regexp.MustCompile(`"op":"(\w+)","table":"(\w+)"`).FindStringSubmatch(op); m[1] != "wait" {
			out = append(out, m[1]+" "+m[2])
		}
	}
	return strings.Join(out, ", ")
}

// TestSpecs: each kind writes what rows lack. When that is written, nothing is left to write, and nothing was written into the spec.
func TestSpecs(t *testing.T) {
	again := specs()
	for name, c := range specs() {
		db := NewRehearsal(begin())
		var rounds []string
		for range 3 {
			var tx *Tx
			db.Look(func(v *View) { tx = DiffRows(v, c.spec) })
			if tx.Len() == 0 {
				break
			}
			rounds = append(rounds, does(t, tx))
			if _, errs := db.CommitAll(context.Background(), []*Tx{tx}); errs[0] != nil {
				t.Fatal(name, errs[0])
			}
		}
		if got := strings.Join(rounds, "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if !reflect.DeepEqual(c.spec, again[name].spec) {
			t.Errorf("%s: the spec has become %+v", name, c.spec)
		}
	}
}

// TestWhatSpecsWrite: the rows as they are after that.
func TestWhatSpecsWrite(t *testing.T) {
	probe, limit := 5, 7
	controller := func(v *View, bridge string) *Controller {
		if b := v.BridgeByName(bridge); len(b.Controllers) == 1 {
			return v.Controller(b.Controllers[0])
		}
		return &Controller{}
	}
	id := func(v *View, key string) string { return v.Interface("pi").ExternalIDs[key] }
	for name, c := range map[string]struct {
		specs []Spec // one after the other
		holds func(*View) bool
	}{
		"a new port with VLANs": {[]Spec{PortSpec{Bridge: "br-int", Name: "new", Initial: &VLANs{Tag: 7, Mode: "trunk", Trunks: []int{7, 8}}}}, func(v *View) bool {
			p := v.PortByName("new")
			return *p.Tag == 7 && p.VLANMode == "trunk" && slices.Equal(p.Trunks, []int{7, 8})
		}},
		"a new port": {[]Spec{PortSpec{Bridge: "br-int", Name: "new", Tag: ptr(3), Type: "internal", OtherConfig: map[string]string{"a": "b"}, ExternalIDs: map[string]string{"c": "d"}}}, func(v *View) bool {
			p, i := v.PortByName("new"), v.InterfaceByName("new")
			return *p.Tag == 3 && p.OtherConfig["a"] == "b" && i.Type == "internal" && i.ExternalIDs["c"] == "d" && v.BridgeOf(p.UUID).Name == "br-int"
		}},
		"a port that is there": {[]Spec{PortSpec{Bridge: "br-int", Name: "tap", Initial: &VLANs{Tag: 7}}}, func(v *View) bool { return v.Port("p").Tag == nil }},
		"a port in a VLAN": {[]Spec{AccessSpec{Port: "p", Tag: 3, OtherConfig: map[string]string{"tag": "3"}}}, func(v *View) bool {
			p := v.Port("p")
			return *p.Tag == 3 && p.VLANMode == "" && p.Trunks == nil && p.OtherConfig["tag"] == "3" && p.OtherConfig["old"] == "1"
		}},
		"a port in no network": {[]Spec{IsolationSpec{Port: "q", VLAN: 4095}}, func(v *View) bool {
			p := v.Port("q")
			return *p.Tag == 4095 && p.VLANMode == "trunk" && slices.Equal(p.Trunks, []int{4095})
		}},
		"limits": {[]Spec{InterfaceSpec{Interface: "pi", Policing: &Policing{1, 2}}}, func(v *View) bool {
			i := v.Interface("pi")
			return i.IngressPolicingRate == 1 && i.IngressPolicingBurst == 2
		}},
		"one limit":   {[]Spec{InterfaceSpec{Interface: "pi", Policing: &Policing{0, 2}}}, func(v *View) bool { return v.Interface("pi").IngressPolicingBurst == 2 }},
		"steering":    {[]Spec{InterfaceSpec{Interface: "pi", Steering: ptr(Steering("hash"))}}, func(v *View) bool { return SteeringOf(v.Interface("pi")) == "hash" }},
		"no steering": {[]Spec{InterfaceSpec{Interface: "pi", Steering: ptr(Steering("hash"))}, InterfaceSpec{Interface: "pi", Steering: ptr(Steering(""))}}, func(v *View) bool { return len(v.Interface("pi").OtherConfig) == 0 }},
		"one id":      {[]Spec{InterfaceSpec{Interface: "pi", ExternalIDs: map[string]string{"a": "b", "iface-id": "1"}}}, func(v *View) bool { return id(v, "a") == "b" && id(v, "iface-id") == "1" }},
		"a list": {[]Spec{InterfaceSpec{Interface: "pi", List: &IDList{Key: "ids", IDs: []string{"b", "a", "b"}, Present: map[string]string{"spt-1": "c", "spi-1": "d"}, Bridge: "tbr-1"}}}, func(v *View) bool {
			return id(v, "ids") == `["a", "b", "c"]`
		}},
		"a list in another order": {[]Spec{
			InterfaceSpec{Interface: "pi", ExternalIDs: map[string]string{"ids": `["b","a"]`}}, InterfaceSpec{Interface: "pi", List: &IDList{Key: "ids", IDs: []string{"a", "b"}}},
		}, func(v *View) bool { return id(v, "ids") == `["b","a"]` }},
		"an interface that is gone": {[]Spec{InterfaceSpec{Interface: "gone", Policing: &Policing{1, 2}}}, func(v *View) bool { return v.Interface("gone") == nil }},
		"config": {[]Spec{ConfigSpec{Port: "p", Set: map[string]string{"new": "1"}, Remove: map[string]string{"old": "2", "none": ""}}, ConfigSpec{Port: "gone", Set: map[string]string{"a": "b"}}}, func(v *View) bool {
			return len(v.Port("p").OtherConfig) == 1 && v.Port("p").OtherConfig["new"] == "1"
		}},
		"a bridge": {[]Spec{BridgeSpec{
			Name: "br-int", FailMode: "secure", DatapathType: "netdev", Protocols: []string{"OpenFlow14"}, RemoveConfig: []string{"mark"}, McastSnooping: ptr(true),
			ExternalIDs: map[string]string{"a": "b"}, FirstController: &Controller{Target: "t", InactivityProbe: &probe, RateLimit: &limit},
		}}, func(v *View) bool {
			b, c := v.BridgeByName("br-int"), controller(v, "br-int")
			return b.FailMode == "secure" && b.DatapathType == "netdev" && slices.Equal(b.Protocols, []string{"OpenFlow14"}) && len(b.OtherConfig) == 1 && b.OtherConfig["other"] == "x" &&
				b.McastSnoopingEnable && b.ExternalIDs["a"] == "b" && c.Target == "t" && *c.InactivityProbe == 5 && *c.RateLimit == 7 && c.BurstLimit == nil
		}},
		"protocols and config": {[]Spec{BridgeSpec{Name: "br-int", Protocols: []string{"OpenFlow14"}, OtherConfig: map[string]string{"a": "b"}}}, func(v *View) bool {
			b := v.BridgeByName("br-int")
			return len(b.Protocols) == 1 && b.OtherConfig["a"] == "b" && b.OtherConfig["other"] == "x"
		}},
		"protocols and ids": {[]Spec{BridgeSpec{Name: "br-int", Protocols: []string{"OpenFlow14"}, ExternalIDs: map[string]string{"a": "b"}}}, func(v *View) bool {
			b := v.BridgeByName("br-int")
			return len(b.Protocols) == 1 && b.ExternalIDs["a"] == "b"
		}},
		"a bridge that somebody has set up": {[]Spec{BridgeSpec{Name: "br-int", FailMode: "secure"}, BridgeSpec{Name: "br-int", FailMode: "secure", FirstController: &Controller{Target: "t"}}}, func(v *View) bool {
			return len(v.BridgeByName("br-int").Controllers) == 0
		}},
		"a bridge with a controller": {[]Spec{
			BridgeSpec{Name: "br-int", FailMode: "secure", FirstController: &Controller{Target: "t"}}, BridgeSpec{Name: "br-int", FailMode: "standalone", FirstController: &Controller{Target: "u"}},
		}, func(v *View) bool {
			return controller(v, "br-int").Target == "t" && v.BridgeByName("br-int").FailMode == "standalone"
		}},
	} {
		db := NewRehearsal(begin())
		for _, spec := range c.specs {
			var tx *Tx
			db.Look(func(v *View) { tx = DiffRows(v, spec) })
			if _, errs := db.CommitAll(context.Background(), []*Tx{tx}); errs[0] != nil {
				t.Fatal(name, errs[0])
			}
		}
		db.Look(func(v *View) {
			if !c.holds(v) {
				t.Errorf("%s: %v", name, Compare(NewView(), v))
			}
			if left := DiffRows(v, c.specs[len(c.specs)-1]).Len(); left != 0 {
				t.Errorf("%s: %d operations are left", name, left)
			}
		})
	}
}

// TestWhatIsWaitedFor: flows come after a first controller, which flushes them, and after a port is isolated.
func TestWhatIsWaitedFor(t *testing.T) {
	v := NewView()
	v.Apply(begin())
	for name, c := range map[string]struct {
		spec Spec
		want bool
	}{
		"a first controller": {BridgeSpec{Name: "br-int", FailMode: "secure", FirstController: &Controller{Target: "t"}}, true}, "no controller": {BridgeSpec{Name: "br-int", FailMode: "secure"}, false},
		"an isolated port": {IsolationSpec{Port: "p", VLAN: 4095}, true}, "a port in a VLAN": {AccessSpec{Port: "p", Tag: 3}, false},
	} {
		if tx := DiffRows(v, c.spec); tx.applied != c.want {
			t.Errorf("%s is waited for: %v", name, tx.applied)
		}
	}
	for network, want := range map[string]bool{"tcp": true, "unix": false} { // a socket of this host that refuses is the one that there is
		e := endpoint{network: network}
		if e.refused(syscall.ECONNREFUSED) != want || e.refused(syscall.EHOSTUNREACH) {
			t.Errorf("%s: refused %v", network, e.refused(syscall.ECONNREFUSED))
		}
	}
}

// TestControllers: the row of a target is kept and changed, others go and come.
func TestControllers(t *testing.T) {
	db := NewRehearsal(begin())
	set := func(want ...Controller) (ids map[string]UUID) {
		var tx *Tx
		db.Look(func(v *View) { tx = NewTx(v) })
		tx.Bridge("br").SetControllers(want...)
		if _, errs := db.CommitAll(context.Background(), []*Tx{tx}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		ids = map[string]UUID{}
		db.Look(func(v *View) {
			for _, id := range v.Bridge("br").Controllers {
				c := v.Controller(id)
				ids[fmt.Sprint(c.Target, " ", c.ConnectionMode)] = id
			}
		})
		return ids
	}
	first := set(Controller{Target: "a", ConnectionMode: "in-band"}, Controller{Target: "b"})
	next := set(Controller{Target: "b", ConnectionMode: "out-of-band"}, Controller{Target: "c"})
	if len(first) != 2 || len(next) != 2 || first["b "] == "" || first["b "] != next["b out-of-band"] || next["c "] == "" {
		t.Errorf("first %v, then %v", first, next)
	}
	if none := set(); len(none) != 0 {
		t.Errorf("in the end %v", none)
	}
}

// TestMirrors: what a mirror has when it is as the spec says, and what is left of it when a port goes.
func TestMirrors(t *testing.T) {
	db := NewRehearsal(begin())
	write := func(specs ...Spec) {
		t.Helper()
		var tx *Tx
		db.Look(func(v *View) { tx = DiffRows(v, specs...) })
		if _, errs := db.CommitAll(context.Background(), []*Tx{tx}); errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	check := func(want ...Mirror) {
		t.Helper()
		db.Look(func(v *View) {
			var got []Mirror
			for _, m := range v.MirrorsOn(v.BridgeByName("br-int")) {
				got = append(got, Mirror{Name: m.Name, SelectAll: m.SelectAll, SelectSrc: m.SelectSrc, SelectDst: m.SelectDst, Output: m.Output})
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	spec := MirrorSpec{Bridge: "br-int", Name: "m1", ExternalIDs: map[string]string{"mark": "1"}, Src: []string{"tap", "spi-2", "spt-1"}, Dst: []string{"tap", "tap"}, Output: "spi-1"}
	write(spec)
	check(Mirror{Name: "m1", SelectSrc: []UUID{"p", "r"}, SelectDst: []UUID{"p"}, Output: "q"})
	write(AbsentPort{Port: "p"})
	check(Mirror{Name: "m1", SelectSrc: []UUID{"r"}, Output: "q"})
	write(AbsentPort{Port: "q"})
	check(Mirror{Name: "m1", SelectSrc: []UUID{"r"}})
	spec.Name, spec.Output = "m2", "spi-2"
	write(spec)
	write(AbsentMarked{Bridge: "br-int", Key: "mark", Value: "1"})
	check()
}

// TestIsolation: in which VLANs a port may stay that is to be in no network.
func TestIsolation(t *testing.T) {
	for tag, stays := range map[int][]int{0: nil, 5: {5, AnyVLAN}, 4095: nil} {
		b := begin()
		if tag != 0 {
			b.Ports[0].New.Tag, b.Ports[0].New.Trunks = &tag, nil
		}
		v := NewView()
		v.Apply(b)
		for _, keep := range []int{NoVLAN, AnyVLAN, 5, 6} {
			want := "update Port"
			for _, s := range stays {
				if keep == s {
					want = ""
				}
			}
			if got := does(t, DiffRows(v, IsolationSpec{Port: "p", VLAN: 4095, Keep: keep})); got != want {
				t.Errorf("tag %d, keep %d: %q", tag, keep, got)
			}
		}
	}
}

// TestSpecsAreData: a spec has no functions, nor anything that hides state, and TestSpecs has each kind.
func TestSpecsAreData(t *testing.T) {
	tested := map[string]bool{}
	for name, c := range specs() {
		kind := reflect.TypeOf(c.spec)
		tested[kind.Name()] = true
		if why := hides(kind, map[reflect.Type]bool{}); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
	files, err := filepath.Glob("spec*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func \(s (\w+)\) diff\(`).FindAllStringSubmatch(string(text), -1) {
			if found++; !tested[m[1]] {
				t.Errorf("%s is in no test", m[1])
			}
		}
	}
	if found != len(tested) {
		t.Errorf("%d kinds are in files, %d are tested", found, len(tested))
	}
}

func hides(t reflect.Type, seen map[reflect.Type]bool) string {
	if seen[t] {
		return ""
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return fmt.Sprintf("%v is no data", t)
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return hides(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); !f.IsExported() {
				return fmt.Sprintf("field %s of %v is hidden", f.Name, t)
			} else if why := hides(f.Type, seen); why != "" {
				return why
			}
		}
	}
	return ""
}
