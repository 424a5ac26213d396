// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func ptr[T any](v T) *T { return &v }

// begin are the rows that the specs below are about.
func begin() *Batch {
	ids := map[string]string{"port": "tap", "type": "limit"}
	return &Batch{
		Seq: 1, Kind: Initial, OpenVSwitch: []Diff[OpenVSwitch]{{New: &OpenVSwitch{UUID: "root", Bridges: []UUID{"br", "tr"}}}},
		Bridges: []Diff[Bridge]{
			{New: &Bridge{UUID: "br", Name: "br-int", Ports: []UUID{"p", "q", "r"}, OtherConfig: map[string]string{"mark": "true", "other": "x"}}},
			{New: &Bridge{UUID: "tr", Name: "tbr-1", Ports: []UUID{"o"}}},
		},
		Ports: []Diff[Port]{
			{New: &Port{UUID: "p", Name: "tap", Interfaces: []UUID{"pi"}, VLANMode: "trunk", Trunks: []int{4095}, QoS: "qos", OtherConfig: map[string]string{"old": "1"}}},
			{New: &Port{UUID: "q", Name: "spi-1", Interfaces: []UUID{"qi"}}}, {New: &Port{UUID: "r", Name: "spi-2", Interfaces: []UUID{"ri"}}},
			{New: &Port{UUID: "o", Name: "spt-1", Interfaces: []UUID{"oi"}}},
		},
		Interfaces: []Diff[Interface]{
			{New: &Interface{UUID: "pi", Name: "tap", ExternalIDs: map[string]string{"iface-id": "1"}}},
			{New: &Interface{UUID: "qi", Name: "spi-1", Type: "patch", Options: map[string]string{"peer": "spt-1"}}},
			{New: &Interface{UUID: "ri", Name: "spi-2", Type: "patch", Options: map[string]string{"peer": "spt-2"}}},
			{New: &Interface{UUID: "oi", Name: "spt-1", Type: "patch", Options: map[string]string{"peer": "spi-1"}}},
		},
		QoS:    []Diff[QoS]{{New: &QoS{UUID: "qos", Queues: map[int]UUID{0: "queue"}, ExternalIDs: map[string]string{"id": "gone"}}}},
		Queues: []Diff[Queue]{{New: &Queue{UUID: "queue", ExternalIDs: ids, OtherConfig: map[string]string{"burst": "1"}}}},
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
