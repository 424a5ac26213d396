// SPDX-License-Identifier: Apache-2.0

package extension_test

import (
	"encoding/json"
	"fmt"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/world"
	of "github.com/patchbay-sdn/patchbay/openflow"
)

// quiet is a whole extension: a port whose interface has the tag external_ids:quiet=true sends no broadcasts or multicasts
// but ARP.
type quiet struct {
	extension.Nothing
	w *world.World
}

func newQuiet(w *world.World) extension.Extension { return &quiet{w: w} }

// Name implements extension.Extension.
func (*quiet) Name() string { return "quiet" }

// Settle is not needed: a port is compiled again whenever its interface changes.

// Compile implements extension.Extension.
func (q *quiet) Compile(o world.Object, want *pipeline.Want) {
	if o.Kind != world.KindPort || !q.tagged(o.ID) {
		return
	}
	br, from := q.w.Config.IntegrationBridge, of.FromPort(q.w.Port(o.ID).VIF.OFPort)
	group := of.Masked(of.EthDst, of.MAC{1}.Value(), of.MAC{1}.Value())
	want.Flow(br, "a quiet port may ask for addresses", of.Flow{
		Table: 0, Priority: 301, Match: of.Match{from, of.Num(of.EthType, 0x0806), group}, Actions: []of.Action{of.GotoTable(pipeline.TableRateLimit)},
	})
	want.Flow(br, "a quiet port sends to one receiver at a time", of.Flow{Table: 0, Priority: 300, Match: of.Match{from, group}})
}

// Explain implements extension.Extension.
func (q *quiet) Explain(o world.Object) []string {
	if o.Kind != world.KindPort || !q.tagged(o.ID) {
		return nil
	}
	return []string{"quiet: sends no broadcasts or multicasts, because its interface has the tag quiet"}
}

func (q *quiet) tagged(port string) bool {
	p := q.w.Port(port)
	if p == nil || p.Wiring.State != world.Wired {
		return false
	}
	i := q.w.View.Interface(p.VIF.Interface)
	return i != nil && i.ExternalIDs["quiet"] == "true"
}

// An extension needs no switch and no server to be tried: tell a world about rows and ports, and look at what is wanted.
func Example() {
	w := world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int"})
	set := extension.Make(w, []extension.New{newQuiet})
	w.Switch(switchWith("tap1", map[string]string{"iface-id": "port-1", "attached-mac": "fa:16:3e:00:00:01", "quiet": "true"}))
	set.Settle(w.Everything())
	w.Ports(w.Missing(), []neutron.Port{boundPort("port-1")})

	for _, o := range set.Settle(w.Settle()) {
		want, err := set.Compile(o, func() pipeline.Want { return pipeline.Compile(w, &pipeline.Settings{}, o) })
		if err != nil {
			fmt.Println(err)
		}
		for _, f := range want.Flows {
			fmt.Printf("%s: %s\n  %s\n", o, f.Reason, f.Entry)
		}
		for _, line := range set.Explain(o) {
			fmt.Println(line)
		}
	}
	// Output:
	// port port-1: a quiet port may ask for addresses
	//   table=0,priority=301,cookie=0x5061746368626179,arp,in_port=7,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=goto_table:59
	// port port-1: a quiet port sends to one receiver at a time
	//   table=0,priority=300,cookie=0x5061746368626179,in_port=7,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=drop
	// quiet: sends no broadcasts or multicasts, because its interface has the tag quiet
}

// switchWith is a switch with one interface on the integration bridge.
func switchWith(name string, ids map[string]string) *ovsdb.Batch {
	number := 7
	return &ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial,
		Bridges:    []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "b", Name: "br-int", Ports: []ovsdb.UUID{"p"}}}},
		Ports:      []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: "p", Name: name, Interfaces: []ovsdb.UUID{"i"}}}},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{UUID: "i", Name: name, OFPort: &number, ExternalIDs: ids}}},
	}
}

// boundPort is what the server says about a port that is bound to this host.
func boundPort(id string) neutron.Port {
	var p neutron.Port
	data := `{"id":"` + id + `","network_id":"net","admin_state_up":true,
		"bindings":[{"versioned_object.data":{"host":"hv1","status":"ACTIVE"}}],
		"binding_levels":[{"versioned_object.data":{"segment":{"versioned_object.data":{"network_type":"local"}}}}]}`
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		panic(err)
	}
	return p
}
