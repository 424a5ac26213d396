// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func oneBridgeView(t *testing.T) *ovsdb.View {
	t.Helper()
	v := ovsdb.NewView()
	if _, err := v.Advance([]byte(oneBridge), true); err != nil {
		t.Fatal(err)
	}
	return v
}

// What is sent, in the order in which it is sent: preconditions first.
func TestTransactionsOnTheWire(t *testing.T) {
	where := `"where":[["_uuid","==",["uuid","ID"]]]`
	at := func(id string) string { return strings.ReplaceAll(where, "ID", id) }
	exists := func(table, id string) string {
		return `{"op":"wait","table":"` + table + `","rows":[{"_uuid":["uuid","` + id + `"]}],"columns":["_uuid"],"timeout":0,` + at(id) + `,"until":"=="}`
	}
	free := func(table, name string) string {
		return `{"op":"wait","table":"` + table + `","rows":[{"name":"` + name + `"}],"columns":["name"],"timeout":0,"where":[["name","==","` + name + `"]],"until":"!="}`
	}
	for _, c := range []struct {
		name  string
		build func(*ovsdb.Tx)
		want  []string
	}{
		{"bind a port", func(tx *ovsdb.Tx) {
			tx.Port(portID).Verify("tag").SetTag(7).SetVLANMode("").SetTrunks().MergeOtherConfig(map[string]string{"tag": "7"})
		}, []string{
			exists("Port", portID),
			`{"op":"wait","table":"Port","rows":[{"tag":5}],"columns":["tag"],"timeout":0,` + at(portID) + `,"until":"=="}`,
			`{"op":"update","table":"Port","row":{"tag":7,"trunks":["set",[]],"vlan_mode":["set",[]]},` + at(portID) + `}`,
			`{"op":"mutate","table":"Port","mutations":[["other_config","delete","tag"],["other_config","insert",["map",[["tag","7"]]]]],` + at(portID) + `}`,
		}},
		{"one row edited twice is one operation", func(tx *ovsdb.Tx) {
			tx.Interface(ifID).SetIngressPolicing(1000, 800)
			tx.Interface(ifID).SetType("internal")
		}, []string{
			exists("Interface", ifID),
			`{"op":"update","table":"Interface","row":{"ingress_policing_burst":800,"ingress_policing_rate":1000,"type":"internal"},` + at(ifID) + `}`,
		}},
		{"a port", func(tx *ovsdb.Tx) {
			tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "patch-tun", Type: "patch", Options: map[string]string{"peer": "patch-int"}})
		}, []string{
			free("Port", "patch-tun"), exists("Bridge", brID),
			`{"op":"insert","table":"Interface","row":{"external_ids":["map",[]],"name":"patch-tun","options":["map",[["peer","patch-int"]]],"type":"patch"},"uuid-name":"row1"}`,
			`{"op":"insert","table":"Port","row":{"interfaces":["named-uuid","row1"],"name":"patch-tun","other_config":["map",[]],"tag":["set",[]],"trunks":["set",[]],"vlan_mode":["set",[]]},"uuid-name":"row2"}`,
			`{"op":"mutate","table":"Bridge","mutations":[["ports","insert",["named-uuid","row2"]]],` + at(brID) + `}`,
		}},
		{"no port", func(tx *ovsdb.Tx) { tx.DeletePort(portID) }, []string{
			exists("Port", portID), exists("Bridge", brID),
			`{"op":"mutate","table":"Bridge","mutations":[["ports","delete",["uuid","` + portID + `"]]],` + at(brID) + `}`,
		}},
		{"as the view shows them", func(tx *ovsdb.Tx) {
			tx.Bridge(brID).Verify("name").Verify("name")
			tx.Interface(ifID).Verify("type", "ofport")
		}, []string{
			exists("Bridge", brID), `{"op":"wait","table":"Bridge","rows":[{"name":"br-int"}],"columns":["name"],"timeout":0,` + at(brID) + `,"until":"=="}`,
			exists("Interface", ifID), `{"op":"wait","table":"Interface","rows":[{"ofport":["set",[]],"type":""}],"columns":["type","ofport"],"timeout":0,` + at(ifID) + `,"until":"=="}`,
		}},
		{"no queue", func(tx *ovsdb.Tx) { tx.DeleteQueue(ifID) }, []string{exists("Queue", ifID), `{"op":"delete","table":"Queue",` + at(ifID) + `}`}},
		{"no bridge", func(tx *ovsdb.Tx) { tx.DeleteBridge(brID) }, []string{
			exists("Bridge", brID), exists("Open_vSwitch", rootID),
			`{"op":"mutate","table":"Open_vSwitch","mutations":[["bridges","delete",["uuid","` + brID + `"]]],` + at(rootID) + `}`,
		}},
		{"a bridge and a port of it", func(tx *ovsdb.Tx) {
			tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-tun", FailMode: "secure", Protocols: []string{"OpenFlow14"}})
			tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-tun", Name: "vxlan-1", Type: "vxlan"})
		}, []string{
			free("Bridge", "br-tun"), exists("Open_vSwitch", rootID), free("Port", "vxlan-1"),
			`{"op":"insert","table":"Interface","row":{"external_ids":["map",[]],"name":"br-tun","options":["map",[]],"type":"internal"},"uuid-name":"row1"}`,
			`{"op":"insert","table":"Port","row":{"interfaces":["named-uuid","row1"],"name":"br-tun","other_config":["map",[]],"tag":["set",[]],"trunks":["set",[]],"vlan_mode":["set",[]]},"uuid-name":"row2"}`,
			`{"op":"insert","table":"Bridge","row":{"datapath_type":"","external_ids":["map",[]],"fail_mode":"secure","name":"br-tun","other_config":["map",[]],"ports":["set",[["named-uuid","row2"],["named-uuid","row5"]]],"protocols":"OpenFlow14"},"uuid-name":"row3"}`,
			`{"op":"mutate","table":"Open_vSwitch","mutations":[["bridges","insert",["named-uuid","row3"]]],` + at(rootID) + `}`,
			`{"op":"insert","table":"Interface","row":{"external_ids":["map",[]],"name":"vxlan-1","options":["map",[]],"type":"vxlan"},"uuid-name":"row4"}`,
			`{"op":"insert","table":"Port","row":{"interfaces":["named-uuid","row4"],"name":"vxlan-1","other_config":["map",[]],"tag":["set",[]],"trunks":["set",[]],"vlan_mode":["set",[]]},"uuid-name":"row5"}`,
		}},
		{"what is in line already", func(tx *ovsdb.Tx) {
			five := 5
			tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int", FailMode: "secure", OtherConfig: map[string]string{"mac-table-size": "50000"}})
			tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "tap0", Tag: &five, ExternalIDs: map[string]string{"iface-id": "x"}})
		}, nil},
		{"what is not in line", func(tx *ovsdb.Tx) {
			six := 6
			tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int", DatapathType: "netdev", FailMode: "standalone", Protocols: []string{"OpenFlow14"}})
			tx.EnsurePort(ovsdb.PortSpec{
				Bridge: "br-int", Name: "tap0", Type: "internal", Tag: &six, VLANMode: "trunk", Trunks: []int{4095},
				OtherConfig: map[string]string{"a": "b"}, Options: map[string]string{"peer": "x"},
			})
		}, []string{
			exists("Bridge", brID), exists("Port", portID), exists("Interface", ifID),
			`{"op":"update","table":"Bridge","row":{"datapath_type":"netdev","fail_mode":"standalone"},` + at(brID) + `}`,
			`{"op":"mutate","table":"Bridge","mutations":[["protocols","insert","OpenFlow14"]],` + at(brID) + `}`,
			`{"op":"update","table":"Port","row":{"tag":6,"trunks":4095,"vlan_mode":"trunk"},` + at(portID) + `}`,
			`{"op":"mutate","table":"Port","mutations":[["other_config","delete","a"],["other_config","insert",["map",[["a","b"]]]]],` + at(portID) + `}`,
			`{"op":"update","table":"Interface","row":{"type":"internal"},` + at(ifID) + `}`,
			`{"op":"mutate","table":"Interface","mutations":[["options","delete","peer"],["options","insert",["map",[["peer","x"]]]]],` + at(ifID) + `}`,
		}},
	} {
		tx := ovsdb.NewTx(oneBridgeView(t))
		c.build(tx)
		got, err := tx.JSON()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// ovs-vswitchd closes the connections of a bridge when its protocols or its datapath type change, and for nothing else here.
func TestDisconnects(t *testing.T) {
	for name, c := range map[string]struct {
		build func(*ovsdb.Tx)
		want  bool
	}{
		"nothing": {func(*ovsdb.Tx) {}, false},
		"in line": {func(tx *ovsdb.Tx) { tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int", FailMode: "secure"}) }, false},
		"protocols": {func(tx *ovsdb.Tx) {
			tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int", Protocols: []string{"OpenFlow14"}})
		}, true},
		"datapath type": {func(tx *ovsdb.Tx) { tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int", DatapathType: "netdev"}) }, true},
		"others": {func(tx *ovsdb.Tx) {
			tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int", FailMode: "standalone", OtherConfig: map[string]string{"a": "b"}})
			tx.Bridge(brID).SetMcastSnooping(true)
		}, false},
		"another bridge": {func(tx *ovsdb.Tx) {
			tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-ex", DatapathType: "netdev", Protocols: []string{"OpenFlow14"}})
		}, false},
	} {
		tx := ovsdb.NewTx(oneBridgeView(t))
		c.build(tx)
		if got := tx.Disconnects(brID); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMistakesInTransactions(t *testing.T) {
	for name, c := range map[string]struct {
		build func(*ovsdb.Tx)
		want  error
	}{
		"no such bridge":                      {func(tx *ovsdb.Tx) { tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-tun", Name: "x"}) }, ovsdb.ErrConflict},
		"on another bridge":                   {func(tx *ovsdb.Tx) { tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-tun", Name: "tap0"}) }, ovsdb.ErrConstraint},
		"verify of a lost row":                {func(tx *ovsdb.Tx) { tx.Port(brID).Verify("tag") }, ovsdb.ErrConflict},
		"verify of a column that is not read": {func(tx *ovsdb.Tx) { tx.Port(portID).Verify("statistics") }, ovsdb.ErrConstraint},
		"delete of a port on no bridge":       {func(tx *ovsdb.Tx) { tx.DeletePort(brID) }, ovsdb.ErrConflict},
	} {
		tx := ovsdb.NewTx(oneBridgeView(t))
		c.build(tx)
		if _, err := tx.JSON(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := tx.Printed().JSON(); !errors.Is(err, c.want) {
			t.Errorf("%s, printed: %v", name, err)
		}
	}
	for name, build := range map[string]func(*ovsdb.Tx){
		"a bridge":  func(tx *ovsdb.Tx) { tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int"}) },
		"no bridge": func(tx *ovsdb.Tx) { tx.DeleteBridge(brID) },
	} {
		tx := ovsdb.NewTx(ovsdb.NewView())
		build(tx)
		if text, err := tx.JSON(); !errors.Is(err, ovsdb.ErrConflict) || len(text) != 0 {
			t.Errorf("%s without the root row: %q, %v", name, text, err)
		}
	}
}

// What a row is called that is made, or is there.
func TestRefs(t *testing.T) {
	tx := ovsdb.NewTx(oneBridgeView(t))
	for want, ref := range map[string]ovsdb.Ref{
		`["uuid","` + brID + `"]`:   tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int"}),
		`["uuid","` + portID + `"]`: tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "tap0"}),
		`["named-uuid","row2"]`:     tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "tap1"}),
		`["named-uuid","row5"]`:     tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-tun"}),
		`["named-uuid","row7"]`:     tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-tun", Name: "tap2"}),
		`["uuid",""]`:               tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-ex", Name: "tap3"}), // there is no such bridge
	} {
		if text, err := json.Marshal(ref); err != nil || string(text) != want {
			t.Errorf("%s, want %s, %v", text, want, err)
		}
	}
}

// What was printed stays as it was, whatever becomes of the transaction.
func TestPrinted(t *testing.T) {
	tx := ovsdb.NewTx(oneBridgeView(t))
	tx.Owner = "port x"
	tx.Port(portID).SetTag(7)
	before, err := tx.JSON()
	if err != nil {
		t.Fatal(err)
	}
	printed := tx.Printed()
	tx.Port(portID).SetTag(8)
	if after, err := printed.JSON(); err != nil || printed.Owner != "port x" || len(before) != 2 || !slices.Equal(before, after) {
		t.Errorf("%q of %s, %v, want %q", after, printed.Owner, err, before)
	}
}

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]struct {
		address string
		here    bool
	}{
		"tcp:127.0.0.1:6640": {"127.0.0.1:6640", true},
		"tcp:127.0.0.1":      {"127.0.0.1:6640", true},
		"tcp:127.0.0.2":      {"127.0.0.2:6640", true}, // of no interface, and here all the same
		"tcp:[::1]:6641":     {"[::1]:6641", true},
		"tcp:[::1]":          {"[::1]:6640", true},
		"tcp:192.0.2.1":      {"192.0.2.1:6640", false}, // an address for documentation
		"tcp:example.net":    {"example.net:6640", false},
	} {
		if got, here, err := ovsdb.OnThisHost(text); err != nil || got != want.address || here != want.here {
			t.Errorf("%s: %q, on this host %v, %v, want %+v", text, got, here, err, want)
		}
	}
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  ovsdb.Config
		want string
	}{
		"nothing":      {ovsdb.Config{}, "want unix:PATH"},
		"no path":      {ovsdb.Config{Endpoint: "unix:"}, "want unix:PATH"},
		"scheme":       {ovsdb.Config{Endpoint: "http://x"}, `unknown scheme "http"`},
		"no files":     {ovsdb.Config{Endpoint: "ssl:127.0.0.1:6640"}, "is required"},
		"missing file": {ovsdb.Config{Endpoint: "ssl:127.0.0.1:6640", SSL: ovsdb.SSL{PrivateKey: dir + "/a", Certificate: dir + "/b", CACert: dir + "/c"}}, "no such file"},
		"junk":         {ovsdb.Config{Endpoint: "ssl:127.0.0.1:6640", SSL: ovsdb.SSL{PrivateKey: junk, Certificate: junk, CACert: junk}}, "configuring ssl"},
	} {
		if _, err := ovsdb.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
