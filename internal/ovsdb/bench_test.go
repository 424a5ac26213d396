// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func benchID(kind string, i int) string { return fmt.Sprintf("%s-0000-4000-8000-%012d", kind, i) }

// manyPorts returns the dump of a bridge with n ports as they are on a compute node.
func manyPorts(n int) []byte {
	var ids, ports, interfaces []string
	for i := range n {
		p, f := benchID("cccccccc", i), benchID("dddddddd", i)
		ids = append(ids, `["uuid","`+p+`"]`)
		ports = append(ports, fmt.Sprintf(`"%s":{"initial":{"name":"tap%d","interfaces":["uuid","%s"],"tag":%d,"other_config":["map",[["net_uuid","%s"],["network_type","vxlan"],["physical_network","None"],["segmentation_id","77"],["tag","%d"]]]}}`,
			p, i, f, i%4000+1, p, i%4000+1))
		interfaces = append(interfaces, fmt.Sprintf(`"%s":{"initial":{"name":"tap%d","ofport":%d,"external_ids":["map",[["iface-id","%s"],["attached-mac","fa:16:3e:00:00:01"],["iface-status","active"],["vm-uuid","%s"]]]}}`,
			f, i, i+1, p, f))
	}
	return []byte(`{"Bridge":{"` + brID + `":{"initial":{"name":"br-int","ports":["set",[` + strings.Join(ids, ",") + `]]}}},` +
		`"Port":{` + strings.Join(ports, ",") + `},"Interface":{` + strings.Join(interfaces, ",") + `}}`)
}

func BenchmarkDumpOf1000Ports(b *testing.B) {
	text := manyPorts(1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ovsdb.NewView().Advance(text, true); err != nil {
			b.Fatal(err)
		}
	}
}

// A port comes to and goes from a bridge of 1,000.
func BenchmarkPlugAndUnplugAmong1000(b *testing.B) {
	v, reader := ovsdb.NewView(), ovsdb.NewView()
	batch, err := v.Advance(manyPorts(1000), true)
	if err != nil {
		b.Fatal(err)
	}
	reader.Apply(batch)
	p, f := benchID("cccccccc", 5000), benchID("dddddddd", 5000)
	toggle := `"Bridge":{"` + brID + `":{"modify":{"ports":["uuid","` + p + `"]}}}`
	plug := []byte(`{` + toggle + `,"Port":{"` + p + `":{"insert":{"name":"tapx","interfaces":["uuid","` + f + `"]}}},` +
		`"Interface":{"` + f + `":{"insert":{"name":"tapx","external_ids":["map",[["iface-id","x"],["attached-mac","y"]]]}}}}`)
	unplug := []byte(`{` + toggle + `,"Port":{"` + p + `":{"delete":null}},"Interface":{"` + f + `":{"delete":null}}}`)
	b.ReportAllocs()
	for b.Loop() {
		for _, text := range [][]byte{plug, unplug} {
			if batch, err = v.Advance(text, false); err != nil {
				b.Fatal(err)
			}
			reader.Apply(batch)
		}
	}
}

// What the agent's loop asks for every port it looks at.
func BenchmarkLookup(b *testing.B) {
	v := ovsdb.NewView()
	if _, err := v.Advance(manyPorts(1000), true); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		i := v.InterfaceByName("tap500")
		if v.BridgeOf(v.PortOf(i.UUID).UUID) == nil {
			b.Fatal("not found")
		}
	}
}
