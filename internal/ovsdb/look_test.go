// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestAttach(t *testing.T) {
	const answer = `[
	{"rows":[{"name":"br-int","ports":["set",[["uuid","p1"],["uuid","p2"]]]},{"name":"br-tun","ports":["uuid","p3"]}]},
	{"rows":[
	 {"_uuid":["uuid","p1"],"name":"tap","interfaces":["uuid","i1"],"tag":7,"vlan_mode":["set",[]],"other_config":["map",[["tag","8"]]]},
	 {"_uuid":["uuid","p2"],"name":"patch","interfaces":["uuid","i2"],"tag":["set",[]],"vlan_mode":["set",[]],"other_config":["map",[]]},
	 {"_uuid":["uuid","p3"],"name":"vx","interfaces":["uuid","i3"],"tag":["set",[]],"vlan_mode":["set",[]],"other_config":["map",[]]}]},
	{"rows":[
	 {"_uuid":["uuid","i1"],"name":"tap","type":"","ofport":3,"options":["map",[]],"external_ids":["map",[["iface-id","x"]]],"error":["set",[]],"mtu":1400,"admin_state":"up","link_state":"down"},
	 {"_uuid":["uuid","i2"],"name":"patch","type":"patch","ofport":["set",[]],"options":["map",[["peer","q"]]],"external_ids":["map",[]],"error":"no","mtu":["set",[]],"admin_state":"down","link_state":["set",[]]},
	 {"_uuid":["uuid","i3"],"name":"vx","type":"vxlan","ofport":2,"options":["map",[["remote_ip","10.0.0.1"]]],"external_ids":["map",[]],"error":["set",[]],"mtu":["set",[]],"admin_state":"up","link_state":"up"}]}]`
	results, err := decodeResults(json.RawMessage(answer))
	if err != nil {
		t.Fatal(err)
	}
	list, err := attach(results)
	if err != nil || len(list) != 3 {
		t.Fatalf("%d attachments, %v", len(list), err)
	}
	tap, patch, vx := list[0], list[1], list[2]
	if tap.Bridge != "br-int" || *tap.Port.Tag != 7 || tap.Port.OtherConfig["tag"] != "8" || *tap.Interface.OFPort != 3 || tap.MTU != 1400 || !tap.LinkDown || tap.AdminDown {
		t.Errorf("tap: %+v", tap)
	}
	if patch.Interface.OFPort != nil || patch.Interface.Options["peer"] != "q" || patch.Interface.Error != "no" || !patch.AdminDown || patch.Port.Tag != nil {
		t.Errorf("patch: %+v", patch)
	}
	if vx.Bridge != "br-tun" || vx.Interface.Options["remote_ip"] != "10.0.0.1" {
		t.Errorf("tunnel: %+v", vx)
	}
	results, _ = decodeResults(json.RawMessage(strings.Replace(answer, `"mtu":1400`, `"mtu":"x"`, 1)))
	if _, err := attach(results); err == nil {
		t.Error("a text was taken for a number")
	}
	if _, err := attach(results[:2]); err == nil {
		t.Error("two answers were enough")
	}
}
