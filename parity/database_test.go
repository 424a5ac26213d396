// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func TestDatabaseFollowsEvents(t *testing.T) {
	d := NewDatabase()
	other := ovsdb.NewView() // that of a client, which knows nothing but the batches
	follow := func(b *ovsdb.Batch) { other.Apply(b) }
	number, cleared := 3, -1
	names := testNames()
	follow(d.Apply([]RowChange{
		{Table: "Bridge", Name: "br-ex", DatapathType: "netdev"},
		{Table: "Port", Name: "tapb0000001-00", Bridge: "br-int", Type: "internal", OFPort: &number,
			ExternalIDs: map[string]string{"iface-id": "b0000001-0000-4000-8000-000000000000"}},
	}))
	follow(d.SetPort("br-int", "patch-tun", func(_ *ovsdb.Port, i *ovsdb.Interface) {
		i.Type, i.Options = "patch", map[string]string{"peer": "patch-int"}
	}))
	tag := 3
	follow(d.SetPort("br-int", "tapb0000001-00", func(p *ovsdb.Port, _ *ovsdb.Interface) { p.Tag = &tag }))
	want := []string{
		"Bridge br-ex datapath_type=netdev",
		"Interface patch-tun ofport=yes", "Interface patch-tun options:peer=patch-int", "Interface patch-tun type=patch",
		"Interface tap-A external_ids:iface-id=A", "Interface tap-A ofport=yes", "Interface tap-A type=internal",
		"Port patch-tun bridge=br-int", "Port tap-A bridge=br-int", "Port tap-A tag=N1/201",
	}
	if diff := cmp.Diff(want, names.Rows(other)); diff != "" {
		t.Error(diff)
	}
	if got := *other.InterfaceByName("patch-tun").OFPort; got == number {
		t.Errorf("port number %d was given twice", got)
	}
	before := other.PortByName("tapb0000001-00").UUID
	follow(d.Apply([]RowChange{{Table: "Port", Name: "tapb0000001-00", Tag: &cleared}}))
	if other.PortByName("tapb0000001-00").Tag != nil {
		t.Error("the tag was not cleared")
	}
	follow(d.Apply([]RowChange{
		{Table: "Port", Name: "tapb0000001-00", Incarnation: 1, Deleted: true},
		{Table: "Port", Name: "tapb0000001-00", Incarnation: 2, Bridge: "br-int", Type: "internal"},
	}))
	after := other.PortByName("tapb0000001-00")
	if after == nil || after.UUID == before || other.InterfaceByName("tapb0000001-00").OFPort != nil {
		t.Errorf("replugged: %+v", after)
	}
	follow(d.Apply([]RowChange{{Table: "Bridge", Name: "br-int", Deleted: true}}))
	if diff := cmp.Diff(want[:1], names.Rows(other)); diff != "" {
		t.Error(diff)
	}
	if other.Seq() != d.View().Seq() {
		t.Errorf("batch %d and %d", other.Seq(), d.View().Seq())
	}
}
