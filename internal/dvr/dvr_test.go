// SPDX-License-Identifier: Apache-2.0

package dvr

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/script"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

var update = flag.Bool("update", false, "write testdata")

// cloud is a host with a tunnel bridge and a physical one, and what routing makes of its ports.
type cloud struct {
	t     *testing.T
	w     *world.World
	r     *routing
	set   extension.Set
	batch *ovsdb.Batch
	ports map[string]neutron.Port
	flows map[world.Object][]pipeline.Flow
	pairs map[string][]neutron.AddressPair // of ports
}

func newCloud(t *testing.T) *cloud {
	w := world.New(world.Config{
		Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
		Physical: map[string]string{"phys": "br-ex"}, TunnelTypes: []string{"vxlan"}, L2Population: true, ARPResponder: true,
	})
	c := &cloud{t: t, w: w, ports: map[string]neutron.Port{}, flows: map[world.Object][]pipeline.Flow{}}
	c.set = extension.Make(w, []extension.New{New})
	c.r = c.set[0].Extension.(*routing)
	return c
}

// start shows the switch: the bridges, their patches, and the interfaces of the ports given.
func (c *cloud) start(ports ...string) {
	bridges := map[string][]string{
		"br-int": append([]string{"patch-tun", world.IntPatchName("br-ex")}, ports...), "br-tun": {"patch-int"}, "br-ex": {world.PhysPatchName("br-ex")},
	}
	b, number := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}, 0
	for _, name := range []string{"br-int", "br-tun", "br-ex"} {
		row := &ovsdb.Bridge{UUID: ovsdb.UUID(name), Name: name}
		for _, port := range bridges[name] {
			number++
			n, ids := number, map[string]string(nil)
			if slices.Contains(ports, port) {
				ids = map[string]string{"iface-id": port, "attached-mac": macOf(port).String()}
			}
			row.Ports = append(row.Ports, ovsdb.UUID("port "+port))
			b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{
				UUID: ovsdb.UUID("port " + port), Name: port, Interfaces: []ovsdb.UUID{ovsdb.UUID(port)},
			}})
			b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{
				UUID: ovsdb.UUID(port), Name: port, OFPort: &n, ExternalIDs: ids,
			}})
		}
		b.Bridges = append(b.Bridges, ovsdb.Diff[ovsdb.Bridge]{New: row})
	}
	c.batch = b
	c.w.Switch(b)
	c.compile(c.set.Resolve(c.w.Everything()))
}

// unplug takes an interface away.
func (c *cloud) unplug(port string) {
	b := &ovsdb.Batch{Seq: 2, Kind: ovsdb.Update}
	for _, d := range c.batch.Interfaces {
		if d.New.Name == port {
			b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{Old: d.New})
		}
	}
	c.w.Switch(b)
	c.settle()
}

func (c *cloud) settle() { c.compile(c.set.Resolve(c.w.Resolve())) }

func (c *cloud) compile(objects []world.Object) {
	for _, o := range objects {
		want, err := c.set.Compile(o, func() pipeline.Want { return pipeline.Compile(c.w, &pipeline.Settings{}, o) })
		if err != nil || want.Err != nil {
			c.t.Fatal(o, err, want.Err)
		}
		c.flows[o] = want.Flows
	}
}

// macOf makes an address of a name.
func macOf(name string) neutron.MAC {
	m := neutron.MAC{0xfa, 0x16, 0x3e}
	copy(m[3:], fmt.Sprintf("%3s", name))
	return m
}

// answer tells about a port: its network, owner and addresses, each in the subnet that it is given with.
func (c *cloud) answer(id, network, owner string, ips ...string) {
	level := map[string]string{
		"tunnel": `"network_type":"vxlan","segmentation_id":77`, "vlan": `"network_type":"vlan","physical_network":"phys","segmentation_id":300`,
		"flat": `"network_type":"flat","physical_network":"phys"`, "local": `"network_type":"local"`,
	}[network]
	var p neutron.Port
	data := fmt.Sprintf(`{"id":%q,"network_id":%q,"device_owner":%q,"mac_address":%q,"admin_state_up":true,
		"bindings":[{"versioned_object.data":{"host":"hv1","status":"ACTIVE"}}],
		"binding_levels":[{"versioned_object.data":{"segment":{"versioned_object.data":{%s}}}}]}`, id, network, owner, macOf(id), level)
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i < len(ips); i += 2 {
		p.FixedIPs = append(p.FixedIPs, neutron.FixedIP{SubnetID: ips[i], IP: netip.MustParseAddr(ips[i+1])})
	}
	p.AllowedAddressPairs = c.pairs[id]
	c.w.Ports([]string{id}, []neutron.Port{p})
	c.settle()
}

func (c *cloud) macs(pairs ...string) {
	var m neutron.DVRUpdate
	for i := 0; i < len(pairs); i += 2 {
		m.MACs = append(m.MACs, neutron.DVRMAC{Host: pairs[i], MAC: macOf(pairs[i+1])})
	}
	c.r.OnCall(listCall{}, m.MACs, nil)
	c.settle()
}

// dump is all flows that routing adds or changes, with their reasons.
func (c *cloud) dump() string {
	var lines []string
	for o, flows := range c.flows {
		core := map[string]bool{}
		for _, f := range pipeline.Compile(c.w, &pipeline.Settings{}, o).Flows {
			core[f.Bridge+f.Entry.String()] = true
		}
		for _, f := range flows {
			if core[f.Bridge+f.Entry.String()] {
				continue
			}
			text := strings.Replace(f.Entry.String(), fmt.Sprintf("cookie=%#x,", uint64(pipeline.Cookie)), "", 1)
			for _, s := range c.w.Segments.All() { // local VLANs are given out in the order of arrival
				text = strings.ReplaceAll(text, fmt.Sprintf("dl_vlan=%d,", s.VLAN), "dl_vlan="+strings.ToUpper(s.Key.Network)+",")
				text = strings.ReplaceAll(text, fmt.Sprintf("set_field:%d->vlan_vid", 0x1000|s.VLAN), "set_field:"+strings.ToUpper(s.Key.Network)+"->vlan_vid")
			}
			lines = append(lines, fmt.Sprintf("%s %s  # %s", f.Bridge, text, f.Reason))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n") + "\n"
}

func (c *cloud) golden(name string) {
	c.t.Helper()
	script.Golden(c.t, filepath.Join("testdata", name+".flows"), *update, c.dump())
}

func due(r *routing) []string {
	var out []string
	for _, c := range r.Calls() {
		out = append(out, c.Key.String())
	}
	slices.Sort(out)
	return out
}

func TestRouters(t *testing.T) {
	for _, network := range []string{"tunnel", "vlan", "flat"} {
		t.Run(network, func(t *testing.T) {
			c := newCloud(t)
			c.start("gw4", "gw6", "vm1", "vm2", "sn4")
			c.macs("hv1", "me", "hv2", "you")
			c.answer("gw4", network, ownerGateway, "subnet4", "10.0.0.1")
			c.answer("gw6", network, ownerGateway, "subnet6", "fd00::1")
			c.answer("vm1", network, "compute:nova", "subnet4", "10.0.0.11", "subnet6", "fd00::11")
			c.answer("vm2", network, "compute:nova", "elsewhere", "10.9.0.12")
			c.answer("sn4", network, ownerSNAT, "subnet4", "10.0.0.5")
			c.golden(network)
			if got := due(c.r); len(got) != 0 {
				t.Errorf("still due: %v", got)
			}
		})
	}
}

func TestLocalNetworksAreNotRouted(t *testing.T) {
	c := newCloud(t)
	c.start("gw4", "vm1")
	c.macs("hv1", "me")
	before := c.dump()
	c.answer("gw4", "local", ownerGateway, "s", "10.0.0.1")
	c.answer("vm1", "local", "compute:nova", "s", "10.0.0.2")
	if got := c.dump(); got != before {
		t.Error(got)
	}
}

// Nothing of a router is left when it goes, and what comes in any order is the same.
func TestAnyOrder(t *testing.T) {
	steps := []func(*cloud){
		func(c *cloud) { c.macs("hv1", "me", "hv2", "you", "hv3", "her") },
		func(c *cloud) { c.answer("gw4", "tunnel", ownerGateway, "s4", "10.0.0.1") },
		func(c *cloud) { c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.11") },
		func(c *cloud) { c.answer("dhc", "tunnel", "network:dhcp", "s4", "10.0.0.2") },
		func(c *cloud) { c.answer("sn4", "tunnel", ownerSNAT, "s4", "10.0.0.5") },
		func(c *cloud) { c.answer("gwv", "vlan", ownerGateway, "sv", "10.1.0.1") },
		func(c *cloud) { c.answer("vmv", "vlan", "compute:nova", "sv", "10.1.0.7") },
	}
	ports := []string{"gw4", "vm1", "dhc", "sn4", "gwv", "vmv"}
	var first, empty string
	for i := range 60 {
		c := newCloud(t)
		c.start(ports...)
		order := rand.New(rand.NewPCG(1, uint64(i))).Perm(len(steps))
		for _, s := range order {
			steps[s](c)
			if s != order[0] && i%2 == 0 {
				steps[s](c) // told twice
			}
		}
		if got := c.dump(); first == "" {
			first = got
		} else if got != first {
			t.Fatalf("order %v:\n%s\nwant\n%s", order, got, first)
		}
		for _, p := range rand.New(rand.NewPCG(2, uint64(i))).Perm(len(ports)) {
			c.unplug(ports[p])
		}
		if got := c.dump(); empty == "" {
			if empty = got; strings.Contains(got, "gateway") || strings.Contains(got, "reach port") {
				t.Fatalf("left behind:\n%s", got)
			}
		} else if got != empty {
			t.Fatalf("order %v leaves\n%s\nwant\n%s", order, got, empty)
		}
		if len(c.r.ports)+len(c.r.subnets) != 0 {
			t.Fatalf("remembered: %v %v", c.r.ports, c.r.subnets)
		}
	}
}

func TestGatewayElsewhere(t *testing.T) {
	c := newCloud(t)
	c.start("sn4", "gw4", "vm1")
	c.macs("hv1", "me")
	c.answer("sn4", "tunnel", ownerSNAT, "s4", "10.0.0.5")
	c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.11")
	if got, want := due(c.r), []string{gatewayCall{"s4"}.String()}; !slices.Equal(got, want) {
		t.Fatalf("due %v, want %v", got, want)
	}
	c.r.OnCall(gatewayCall{"s4"}, neutron.MAC{}, errors.New("no answer"))
	if len(due(c.r)) != 1 {
		t.Fatal("a failed question is not asked again")
	}
	before := c.dump()
	c.r.OnCall(gatewayCall{"s4"}, macOf("far"), nil)
	c.settle()
	if got := c.dump(); len(due(c.r)) != 0 || got == before || !strings.Contains(got, macOf("far").String()) {
		t.Errorf("due %v\n%s", due(c.r), got)
	}
	if got := c.dump(); !strings.Contains(got, "reach port sn4") || strings.Contains(got, "reach port vm1") {
		t.Errorf("a subnet whose gateway is not here is routed for SNAT alone:\n%s", got)
	}
	c.answer("gw4", "tunnel", ownerGateway, "s4", "10.0.0.1")
	if got := c.dump(); strings.Contains(got, macOf("far").String()) || !strings.Contains(got, "reach port vm1") {
		t.Errorf("the gateway on this host counts:\n%s", got)
	}
	c.answer("vm1", "tunnel", "compute:nova", "elsewhere", "10.9.0.11", "s4", "10.0.0.11")
	if got := c.dump(); !strings.Contains(got, "reach port vm1") {
		t.Errorf("a subnet that is not routed here keeps the port's other one from it:\n%s", got)
	}
	if c.r.Resync(); !slices.Equal(due(c.r), []string{listCall{}.String()}) {
		t.Errorf("after doubt: %v", due(c.r))
	}
}

// While the server is asked for the gateway that has left the host, what was known stays in force.
func TestGatewayLeaves(t *testing.T) {
	c := newCloud(t)
	c.start("sn4", "gw4", "vm1")
	c.macs("hv1", "me")
	c.answer("sn4", "tunnel", ownerSNAT, "s4", "10.0.0.5")
	c.answer("gw4", "tunnel", ownerGateway, "s4", "10.0.0.1")
	c.unplug("gw4")
	if got := c.dump(); !strings.Contains(got, "reach port sn4") || !strings.Contains(got, macOf("gw4").String()) {
		t.Errorf("nothing reaches the SNAT port:\n%s", got)
	}
	c.r.OnCall(gatewayCall{"s4"}, macOf("far"), nil)
	c.settle()
	if got := c.dump(); !strings.Contains(got, macOf("far").String()) || strings.Contains(got, macOf("gw4").String()) {
		t.Errorf("the server's word does not count:\n%s", got)
	}
	c.r.Resync()
	c.r.OnCall(gatewayCall{"s4"}, neutron.MAC{}, nil)
	c.settle()
	if got := c.dump(); strings.Contains(got, "reach port sn4") {
		t.Errorf("the gateway is gone:\n%s", got)
	}
	calls := func() []string {
		return slices.DeleteFunc(due(c.r), func(call string) bool { return call == listCall{}.String() })
	}
	if got := calls(); len(got) != 0 {
		t.Errorf("the server, which knows no gateway, is asked again: %v", got)
	}
	c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.11")
	if got := calls(); !slices.Equal(got, []string{gatewayCall{"s4"}.String()}) {
		t.Errorf("the server, which knew no gateway, is not asked after a change: %v", got)
	}
	c.r.OnCall(gatewayCall{"s4"}, macOf("far"), nil)
	c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.12")
	if got := calls(); len(got) != 0 {
		t.Errorf("the server, which knows the gateway, is asked after a change: %v", got)
	}
}

// Two routers on one subnet: the one with the subnet's gateway address is it.
func TestTwoRouters(t *testing.T) {
	c := newCloud(t)
	c.start("ga4", "gb4", "vm1")
	c.macs("hv1", "me")
	c.answer("ga4", "tunnel", ownerGateway, "s4", "10.0.0.254")
	c.answer("gb4", "tunnel", ownerGateway, "s4", "10.0.0.1")
	c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.9")
	from := func() string { return c.r.subnets["s4"].mac.String() }
	if got := from(); got != macOf("ga4").String() || len(due(c.r)) != 1 {
		t.Errorf("gateway %s, due %v", got, due(c.r))
	}
	c.r.OnCall(gatewayCall{"s4"}, macOf("gb4"), nil)
	if got := from(); got != macOf("gb4").String() || len(due(c.r)) != 0 {
		t.Errorf("gateway %s, due %v", got, due(c.r))
	}
}

func TestHostsComeAndGo(t *testing.T) {
	c := newCloud(t)
	c.start()
	if got := due(c.r); !slices.Equal(got, []string{listCall{}.String()}) {
		t.Errorf("due %v", got)
	}
	c.macs("hv1", "me")
	alone := c.dump()
	cast := func(hosts ...string) {
		var m neutron.DVRUpdate
		for _, h := range hosts {
			m.MACs = append(m.MACs, neutron.DVRMAC{Host: h, MAC: macOf(h)})
		}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.r.OnCast("dvr_mac_address_update", data); err != nil {
			t.Fatal(err)
		}
		c.settle()
	}
	cast("hv2", "hv3")
	if got := strings.Count(c.dump(), otherHost); got != 8 {
		t.Errorf("%d flows for two hosts, want 8:\n%s", got, c.dump())
	}
	cast("hv3")
	if got := strings.Count(c.dump(), otherHost); got != 4 {
		t.Errorf("%d flows for one host, want 4", got)
	}
	cast()
	if got := c.dump(); got != alone {
		t.Errorf("left behind:\n%s", got)
	}
	if err := c.r.OnCast("dvr_mac_address_update", []byte("[")); err == nil {
		t.Error("nonsense is taken")
	}
}

// An answer that was given before the update of another host, and arrives after it, does not undo it.
func TestAnswerOvertakenByAnUpdate(t *testing.T) {
	c := newCloud(t)
	c.start()
	old := []neutron.DVRMAC{{Host: "hv1", MAC: macOf("me")}, {Host: "hv2", MAC: macOf("you")}}
	if err := c.r.OnCast("dvr_mac_address_update", []byte(`{"dvr_macs":[{"host":"hv3","mac_address":"`+macOf("her").String()+`"}]}`)); err != nil {
		t.Fatal(err)
	}
	if len(due(c.r)) == 0 {
		t.Error("this host's own address is not asked for")
	}
	c.r.OnCall(listCall{}, old, nil)
	c.settle()
	if !c.r.macs[macOf("her")] || c.r.macs[macOf("you")] || c.r.mac != macOf("me") || len(due(c.r)) != 0 {
		t.Errorf("own %v, others %v, due %v", c.r.mac, c.r.macs, due(c.r))
	}
}

// What was remembered gives the same flows without a server.
func TestMemory(t *testing.T) {
	tell := func(c *cloud) {
		c.answer("sn4", "tunnel", ownerSNAT, "s4", "10.0.0.5")
		c.answer("gwv", "vlan", ownerGateway, "sv", "10.1.0.1")
	}
	c := newCloud(t)
	c.start("sn4", "gwv")
	c.macs("hv1", "me", "hv2", "you")
	tell(c)
	c.r.OnCall(gatewayCall{"s4"}, macOf("far"), nil)
	c.settle()
	remembered, err := c.set.Save()
	if err != nil {
		t.Fatal(err)
	}
	again := newCloud(t)
	if err := again.set.Load(remembered); err != nil {
		t.Fatal(err)
	}
	again.start("sn4", "gwv")
	tell(again)
	if got := again.dump(); got != c.dump() {
		t.Errorf("recalled:\n%s\nwant\n%s", got, c.dump())
	}
	if len(due(again.r)) != 2 {
		t.Errorf("what is recalled is not asked for again: %v", due(again.r))
	}
	gone := newCloud(t)
	if err := gone.set.Load(remembered); err != nil {
		t.Fatal(err)
	}
	gone.start()
	if m := gone.r.Save().(memory); len(m.Gateways) != 0 {
		t.Errorf("gateways of subnets without ports are remembered for ever: %v", m.Gateways)
	}
	var report neutron.Configurations
	if again.r.AddState(&report); !report.InDistributedMode {
		t.Error("not in distributed mode")
	}
}

func TestExplain(t *testing.T) {
	c := newCloud(t)
	c.start("gw4", "vm1", "vm2", "sn4", "sn5", "etc")
	c.answer("gw4", "tunnel", ownerGateway, "s4", "10.0.0.1")
	c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.11", "s5", "10.5.0.11")
	c.answer("vm2", "tunnel", "compute:nova", "s5", "10.5.0.12")
	c.answer("sn4", "tunnel", ownerSNAT, "s4", "10.0.0.5")
	c.answer("sn5", "tunnel", ownerSNAT, "s5", "10.5.0.5")
	c.answer("etc", "tunnel", "network:router_gateway", "s4", "10.0.0.6")
	expect := func(port string, want ...string) {
		t.Helper()
		if got := c.r.Explain(world.PortObject(port)); !slices.EqualFunc(got, want, strings.Contains) {
			t.Errorf("%s: %q, want %q", port, got, want)
		}
	}
	expect("gw4", "has not told this host's router address")
	c.macs("hv1", "me")
	expect("gw4", "the gateway of subnet s4 on this host; its packets leave the host as "+macOf("me").String())
	expect("vm1", "routed packets of subnet s4 reach it as from its gateway "+macOf("gw4").String())
	expect("vm2")
	expect("sn4", "packets of subnet s4 leave for the outside here; its gateway is "+macOf("gw4").String())
	expect("sn5", "has not told the gateway of subnet s5")
	expect("etc")
	c.r.OnCall(gatewayCall{"s5"}, macOf("far"), nil)
	c.settle()
	expect("sn5", "packets of subnet s5 leave for the outside here; its gateway is "+macOf("far").String())
	expect("vm2") // it is routed for where its gateway is
}

// TestPatchesWithOtherNumbers: after a change of a bridge everything is compiled again that names its patches.
func TestPatchesWithOtherNumbers(t *testing.T) {
	c := newCloud(t)
	c.start("gw4", "vm1")
	c.macs("hv1", "me", "hv2", "you")
	c.answer("gw4", "tunnel", ownerGateway, "s4", "10.0.0.1")
	c.answer("vm1", "tunnel", "compute:nova", "s4", "10.0.0.11")
	got := c.r.Resolve([]world.Object{world.BridgeObject("br-tun")})
	for _, want := range []world.Object{own.Object(macOf("you")), world.PortObject("gw4"), world.PortObject("vm1")} {
		if !slices.Contains(got, want) {
			t.Errorf("%v is not compiled again: %v", want, got)
		}
	}
	if got := c.r.Resolve(nil); len(got) != 0 {
		t.Errorf("%v are compiled again without a reason", got)
	}
}

// TestFlowsOfANetwork: each flow of a network is led past the tables of routing, whatever stands before it, and no other flow is changed.
func TestFlowsOfANetwork(t *testing.T) {
	for _, network := range []string{"tunnel", "vlan"} {
		c := newCloud(t)
		c.start("vm1")
		c.answer("vm1", network, "compute:nova", "s4", "10.0.0.11")
		s := c.w.Segments.Get(c.w.Port("vm1").Wiring.Segment)
		core := pipeline.Compile(c.w, &pipeline.Settings{}, world.SegmentObject(s.Key))
		core.Flow("br-int", "of another table", openflow.Flow{Table: 99, Priority: 9})
		changed := func(flows []pipeline.Flow) int {
			want := pipeline.Want{Flows: slices.Clone(flows)}
			c.r.segment(s, &want)
			n := 0
			for i, f := range want.Flows {
				if f != flows[i] {
					n++
				}
			}
			return n
		}
		n := changed(core.Flows)
		slices.Reverse(core.Flows)
		if again := changed(core.Flows); n == 0 || n == len(core.Flows) || again != n {
			t.Errorf("%s: of %d flows %d are changed, and in another order %d", network, len(core.Flows), n, again)
		}
	}
}

// TestMissingPatches: no flow names a patch that is not there.
func TestMissingPatches(t *testing.T) {
	for _, patch := range []string{"", "patch-tun", "patch-int", world.IntPatchName("br-ex"), world.PhysPatchName("br-ex")} {
		c := newCloud(t)
		c.start("gw")
		c.macs("hv1", "fa:16:3f:00:00:01", "hv2", "fa:16:3f:00:00:02")
		c.settle()
		if patch != "" {
			c.unplug(patch)
		}
		from := func(bridge string, table uint8) int {
			n := 0
			for _, flows := range c.flows {
				for _, f := range flows {
					if text := f.Entry.String(); f.Bridge == bridge && f.Entry.Key().Table() == table && f.Reason == "packets of this host's ports" {
						n++
						if strings.Contains(text, "in_port=0,") {
							t.Errorf("without %s: %s", patch, text)
						}
					}
				}
			}
			return n
		}
		outer := patch == world.IntPatchName("br-ex") || patch == world.PhysPatchName("br-ex")
		if n := from("br-ex", physEntry); (n == 0) != outer {
			t.Errorf("without %q: %d flows on br-ex", patch, n)
		}
		if n := from("br-tun", tunEntry); (n == 0) != (patch == "patch-int") {
			t.Errorf("without %q: %d flows on br-tun", patch, n)
		}
	}
}
