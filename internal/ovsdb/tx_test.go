// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"errors"
	"os"
	"path/filepath"
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
	}
}

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]struct {
		address string
		here    bool
	}{
		"tcp:127.0.0.1:6640": {"127.0.0.1:6640", true},
		"tcp:127.0.0.1":      {"127.0.0.1:6640", true},
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
