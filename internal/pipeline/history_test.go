// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// host is a world under test together with the database it looks at and the flows compiled from it so far, object by
// object, as the agent does it.
type host struct {
	w     *world.World
	s     *Settings
	seq   uint64
	flows map[world.Object][]Flow
}

func newHost(cfg world.Config) *host {
	h := &host{w: world.New(cfg), s: &Settings{DatapathType: "netdev", MACTableSize: 50000, VXLANPort: 4789, DontFragment: true}, flows: map[world.Object][]Flow{}}
	batch := &ovsdb.Batch{Kind: ovsdb.Initial}
	batch.OpenVSwitch = []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root"}}}
	number := 1
	for _, br := range []struct {
		name  string
		ports []string
	}{{"br-int", []string{"patch-tun", "int-br-ex"}}, {"br-tun", []string{"patch-int"}}, {"br-ex", []string{"phy-br-ex"}}} {
		row := &ovsdb.Bridge{UUID: ovsdb.UUID(br.name), Name: br.name}
		for _, p := range br.ports {
			h.addPort(batch, row, p, number, nil)
			number++
		}
		batch.Bridges = append(batch.Bridges, ovsdb.Diff[ovsdb.Bridge]{New: row})
	}
	h.apply(batch)
	return h
}

func (h *host) apply(b *ovsdb.Batch) {
	h.seq++
	b.Seq = h.seq
	h.w.Switch(b)
}

func (h *host) addPort(b *ovsdb.Batch, br *ovsdb.Bridge, name string, ofport int, ids map[string]string) {
	i := &ovsdb.Interface{UUID: ovsdb.UUID("i" + name), Name: name, OFPort: &ofport, ExternalIDs: ids}
	p := &ovsdb.Port{UUID: ovsdb.UUID("p" + name), Name: name, Interfaces: []ovsdb.UUID{i.UUID}}
	b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: i})
	b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{New: p})
	br.Ports = append(slices.Clone(br.Ports), p.UUID)
	slices.Sort(br.Ports)
}

// plug and unplug change the integration bridge as a hypervisor does.
func (h *host) plug(id string, ofport int) {
	name := "tap" + id
	if h.w.View.PortByName(name) != nil {
		return
	}
	old := h.w.View.BridgeByName("br-int")
	br := *old
	b := &ovsdb.Batch{Kind: ovsdb.Update}
	h.addPort(b, &br, name, ofport, map[string]string{"iface-id": id, "attached-mac": mac(id)})
	b.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{Old: old, New: &br}}
	h.apply(b)
}

func (h *host) unplug(id string) {
	p := h.w.View.PortByName("tap" + id)
	if p == nil {
		return
	}
	old := h.w.View.BridgeByName("br-int")
	br := *old
	br.Ports = slices.DeleteFunc(slices.Clone(br.Ports), func(u ovsdb.UUID) bool { return u == p.UUID })
	h.apply(&ovsdb.Batch{
		Kind: ovsdb.Update, Bridges: []ovsdb.Diff[ovsdb.Bridge]{{Old: old, New: &br}},
		Ports:      []ovsdb.Diff[ovsdb.Port]{{Old: p}},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{{Old: h.w.View.Interface(p.Interfaces[0])}},
	})
}

// tunnelPort gives an endpoint's port a number, or takes the port away, as the switch does after the agent's transaction.
func (h *host) tunnelPort(e world.Endpoint, ofport int) {
	name := world.TunnelName(e)
	old := h.w.View.BridgeByName("br-tun")
	br := *old
	b := &ovsdb.Batch{Kind: ovsdb.Update}
	if p := h.w.View.PortByName(name); p != nil {
		if h.w.Wanted(e) {
			return
		}
		br.Ports = slices.DeleteFunc(slices.Clone(br.Ports), func(u ovsdb.UUID) bool { return u == p.UUID })
		b.Ports = []ovsdb.Diff[ovsdb.Port]{{Old: p}}
		b.Interfaces = []ovsdb.Diff[ovsdb.Interface]{{Old: h.w.View.Interface(p.Interfaces[0])}}
	} else {
		if !h.w.Wanted(e) {
			return
		}
		h.addPort(b, &br, name, ofport, nil)
	}
	b.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{Old: old, New: &br}}
	h.apply(b)
}

// settle compiles what the world says has changed.
func (h *host) settle(t failer) { h.compile(t, h.w.Settle()) }

func (h *host) compile(t failer, objects []world.Object) {
	for _, o := range objects {
		want := Compile(h.w, h.s, o)
		if want.Err != nil {
			t.Fatal(want.Err)
		}
		h.flows[o] = want.Flows
	}
}

// text is all flows, as a sorted list with the local VLANs replaced by what they stand for.
func (h *host) text() []string {
	names := map[uint16]string{}
	for _, s := range h.w.Segments() {
		names[s.VLAN] = s.Key.String()
	}
	set := map[string]bool{}
	for _, flows := range h.flows {
		for _, f := range flows {
			line := f.Bridge + " " + f.Entry.String()
			for vlan, name := range names {
				line = strings.ReplaceAll(line, fmt.Sprintf("dl_vlan=%d,", vlan), "dl_vlan="+name+",")
				line = strings.ReplaceAll(line, fmt.Sprintf("set_field:%d->vlan_vid", vlan|0x1000), "vlan:="+name)
				line = strings.ReplaceAll(line, fmt.Sprintf("reg6=%#x,", vlan), "reg6="+name+",")
				line = strings.ReplaceAll(line, fmt.Sprintf("set_field:%#x->reg6", vlan), "reg6:="+name)
				line = strings.ReplaceAll(line, fmt.Sprintf("ct_zone=%d,", vlan), "ct_zone="+name+",")
			}
			set[line] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func mac(id string) string { return "fa:16:3e:00:00:0" + id }

// facts is what is true in the end; a fresh host that is told just these must come to the same flows.
type facts struct {
	plugged map[string]int    // ofport
	details map[string]string // object data; "" is unknown to the server
	fdb     map[string]bool   // "net seg type endpoint mac ip"
	tunnels map[world.Endpoint]bool
}

var segments = []struct {
	network, kind, physnet string
	id                     int
}{
	{"n1", "vxlan", "", 101}, {"n2", "gre", "", 102}, {"n3", "vlan", "physnet1", 103}, {"n4", "flat", "physnet1", -1}, {"n5", "local", "", -1},
	{"n1", "vlan", "physnet1", 104},
}

func drawDetails(t *rapid.T, id string, revision int) string {
	s := segments[rapid.IntRange(0, len(segments)-1).Draw(t, "segment")]
	number := "null"
	if s.id >= 0 {
		number = fmt.Sprint(s.id)
	}
	host := rapid.SampledFrom([]string{"hv1", "hv1", "hv1", "hv2"}).Draw(t, "host")
	pairs := rapid.SampledFrom([]string{"", `{"versioned_object.data":{"mac_address":"fa:16:3e:11:11:11","ip_address":"10.1.0.0/16"}}`,
		`{"versioned_object.data":{"mac_address":"fa:16:3e:11:11:12","ip_address":"0.0.0.0/0"}}`}).Draw(t, "pairs")
	return fmt.Sprintf(`{"id":%q,"network_id":%q,"mac_address":%q,"admin_state_up":%t,"device_owner":%q,"revision_number":%d,
		"security":{"versioned_object.data":{"port_security_enabled":%t}},
		"fixed_ips":[{"versioned_object.data":{"ip_address":"10.0.0.%s"}},{"versioned_object.data":{"ip_address":"2001:db8::%s"}}],
		"allowed_address_pairs":[%s],"bindings":[{"versioned_object.data":{"host":%q,"status":"ACTIVE","profile":"{}"}}],
		"binding_levels":[{"versioned_object.data":{"host":%q,"level":0,"segment":{"versioned_object.data":
		{"network_type":%q,"physical_network":%q,"segmentation_id":%s}}}}]}`,
		id, s.network, mac(id), rapid.Bool().Draw(t, "up"), rapid.SampledFrom([]string{"compute:nova", "network:dhcp"}).Draw(t, "owner"), revision,
		rapid.Bool().Draw(t, "security"), id, id, pairs, host, host, s.kind, s.physnet, number)
}

func decode(t *rapid.T, data string) neutron.Port {
	var p neutron.Port
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func message(line string) map[string]neutron.FDBNetwork {
	f := strings.Fields(line)
	var id int
	_, _ = fmt.Sscan(f[1], &id)
	m, _ := neutron.ParseMAC(f[4])
	return map[string]neutron.FDBNetwork{f[0]: {
		NetworkType: f[2], SegmentationID: &id,
		Ports: map[netip.Addr][]neutron.FDBEntry{netip.MustParseAddr(f[3]): {{MAC: m, IP: netip.MustParseAddr(f[5])}}},
	}}
}

// Any order of the same news, with repetitions, late and failed answers, ends in the flows that a host comes to which is
// told only how things are in the end; and the flows compiled bit by bit are those of a compile from nothing.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := world.Config{
			Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
			Physical: map[string]string{"physnet1": "br-ex"}, LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan", "gre"},
			L2Population: rapid.Bool().Draw(t, "l2pop"), AntiSpoof: rapid.Bool().Draw(t, "antispoof"),
		}
		cfg.ARPResponder = cfg.L2Population && rapid.Bool().Draw(t, "responder")
		h := newHost(cfg)
		f := facts{map[string]int{}, map[string]string{}, map[string]bool{}, map[world.Endpoint]bool{}}
		now := time.Unix(0, 0)
		endpoints := []world.Endpoint{
			{Type: "vxlan", IP: netip.MustParseAddr("10.0.0.2")}, {Type: "vxlan", IP: netip.MustParseAddr("10.0.0.3")},
			{Type: "gre", IP: netip.MustParseAddr("10.0.0.2")},
		}
		ports := func() {
			h.settle(t)
			for i, e := range endpoints {
				h.tunnelPort(e, 50+i)
			}
			h.settle(t)
		}
		revision := 0
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			id := rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "port")
			switch rapid.IntRange(0, 8).Draw(t, "event") {
			case 0, 1:
				n := rapid.SampledFrom([]int{10, 20}).Draw(t, "base") + int(id[0]-'0')
				if f.plugged[id] == 0 {
					f.plugged[id] = n
					h.plug(id, n)
				}
			case 2:
				delete(f.plugged, id)
				h.unplug(id)
				h.settle(t) // a port that is gone is forgotten
			case 3: // the server answers, or does not know the port
				if f.plugged[id] != 0 {
					h.settle(t)
					if f.details[id] == "" {
						h.w.Ports([]string{id}, nil)
					} else {
						h.w.Ports([]string{id}, []neutron.Port{decode(t, f.details[id])})
					}
				}
			case 4: // a port changes, and the push arrives, perhaps twice, perhaps after an older one
				revision++
				old := f.details[id]
				f.details[id] = drawDetails(t, id, revision)
				for _, data := range []string{f.details[id], old, f.details[id]} {
					if data != "" {
						h.settle(t)
						push := &neutron.Push{Kind: neutron.KindPort, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: "Port", Data: []byte(data)}}}
						if err := h.w.Push(push, now); err != nil {
							t.Fatal(err)
						}
					}
				}
			case 5, 6: // stations come and go
				s := segments[rapid.IntRange(0, 1).Draw(t, "tunnelled")]
				e := rapid.SampledFrom([]string{"10.0.0.2", "10.0.0.3"}).Draw(t, "endpoint")
				entry := rapid.SampledFrom([]string{"00:00:00:00:00:00 0.0.0.0", "fa:16:3e:22:22:22 10.0.0.99"}).Draw(t, "entry")
				line := fmt.Sprintf("%s %d %s %s %s", s.network, s.id, s.kind, e, entry)
				h.settle(t)
				if rapid.Bool().Draw(t, "add") {
					h.w.FDBAdd(&neutron.FDBAdd{Networks: message(line)})
				} else {
					h.w.FDBRemove(&neutron.FDBRemove{Networks: message(line)})
				}
			case 7:
				e := rapid.SampledFrom(endpoints).Draw(t, "tunnel")
				if rapid.Bool().Draw(t, "announce") {
					f.tunnels[e] = true
					h.w.TunnelUp(e)
				} else {
					delete(f.tunnels, e)
					h.w.TunnelGone(e)
				}
			case 8:
				ports()
			}
		}
		ports()
		got := h.text()

		// The same world, compiled from nothing.
		again := &host{w: h.w, s: h.s, flows: map[world.Object][]Flow{}}
		for _, o := range h.w.Everything() {
			again.flows[o] = Compile(h.w, h.s, o).Flows
		}
		if want := again.text(); !slices.Equal(got, want) {
			t.Fatalf("compiled bit by bit:\n%s\nfrom nothing:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		compareFresh(t, cfg, f, h, endpoints)

		// Emptied, only the base is left.
		for id := range f.plugged {
			h.unplug(id)
		}
		for e := range f.tunnels {
			h.w.TunnelGone(e)
		}
		ports()
		if base := newBase(t, cfg); !slices.Equal(h.text(), base) {
			t.Fatalf("left over in an empty world:\n%s\nwant:\n%s", strings.Join(h.text(), "\n"), strings.Join(base, "\n"))
		}
	})
}

func newBase(t *rapid.T, cfg world.Config) []string {
	h := newHost(cfg)
	for _, o := range h.w.Everything() {
		h.flows[o] = Compile(h.w, h.s, o).Flows
	}
	h.settle(t)
	return h.text()
}

// compareFresh tells a new host how things are and compares. With l2population what the server told about stations
// depends on when it told it, so the entries are taken from the old host's segments.
func compareFresh(t *rapid.T, cfg world.Config, f facts, h *host, endpoints []world.Endpoint) {
	if cfg.L2Population {
		return
	}
	fresh := newHost(cfg)
	for _, o := range fresh.w.Everything() {
		fresh.flows[o] = Compile(fresh.w, fresh.s, o).Flows
	}
	for e := range f.tunnels {
		fresh.w.TunnelUp(e)
	}
	for id, n := range f.plugged {
		fresh.plug(id, n)
	}
	fresh.settle(t)
	for id := range f.plugged {
		p := h.w.Port(id)
		switch {
		case p.Details != nil:
			fresh.w.Ports([]string{id}, []neutron.Port{*p.Details})
		case p.Wiring.State == world.Dead:
			fresh.w.Ports([]string{id}, nil)
		}
	}
	fresh.settle(t)
	for i, e := range endpoints {
		fresh.tunnelPort(e, 50+i)
	}
	fresh.settle(t)
	if got, want := h.text(), fresh.text(); !slices.Equal(got, want) {
		t.Fatalf("after its history:\n%s\ntold the end only:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
