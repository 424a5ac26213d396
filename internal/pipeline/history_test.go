// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
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
	name := world.TunnelNames(e)[0]
	old := h.w.View.BridgeByName("br-tun")
	br := *old
	b := &ovsdb.Batch{Kind: ovsdb.Update}
	if p := h.w.View.PortByName(name); p != nil {
		if h.w.Tunnels.Wanted(e) {
			return
		}
		br.Ports = slices.DeleteFunc(slices.Clone(br.Ports), func(u ovsdb.UUID) bool { return u == p.UUID })
		b.Ports = []ovsdb.Diff[ovsdb.Port]{{Old: p}}
		b.Interfaces = []ovsdb.Diff[ovsdb.Interface]{{Old: h.w.View.Interface(p.Interfaces[0])}}
	} else {
		if !h.w.Tunnels.Wanted(e) {
			return
		}
		h.addPort(b, &br, name, ofport, nil)
	}
	b.Bridges = []ovsdb.Diff[ovsdb.Bridge]{{Old: old, New: &br}}
	h.apply(b)
}

// settle compiles what the world says has changed.
func (h *host) settle(t failer) { h.compile(t, h.w.Resolve()) }

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
	for _, s := range h.w.Segments.All() {
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

// server is what is true in Neutron, whatever the host has heard of it. A fresh host is told just this.
type server struct {
	ports    map[string]string // object data, by id
	deleted  map[string]bool   // an id does not come back
	stations map[string]map[neutron.MAC]place
	tunnels  map[world.Endpoint]bool
}

// place is where a station of a network is, on another host.
type place struct {
	endpoint netip.Addr
	ips      []netip.Addr
}

var segments = []struct {
	network, kind, physnet string
	id                     int
}{
	{"n1", "vxlan", "", 101}, {"n2", "gre", "", 102}, {"n3", "vlan", "physnet1", 103}, {"n4", "flat", "physnet1", -1}, {"n5", "local", "", -1},
	{"n1", "vlan", "physnet1", 104},
}

func drawDetails(t *rapid.T, id string, revision int) string {
	s := segments[rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3, 4, 5}).Draw(t, "segment")]
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

// entry is one forwarding entry of a network.
type entry struct {
	endpoint netip.Addr
	neutron.FDBEntry
}

// entries are those of a network: each host that has stations gets broadcasts, too.
func (s *server) entries(network string) map[entry]bool {
	out := map[entry]bool{}
	for mac, at := range s.stations[network] {
		out[entry{at.endpoint, neutron.FDBEntry{IP: netip.IPv4Unspecified()}}] = true
		for _, ip := range at.ips {
			out[entry{at.endpoint, neutron.FDBEntry{MAC: mac, IP: ip}}] = true
		}
	}
	return out
}

// answer is what the server says about ports now.
func (s *server) answer(t *rapid.T, ids []string) []neutron.Port {
	var found []neutron.Port
	for _, id := range ids {
		if data := s.ports[id]; data != "" {
			found = append(found, *decodeAs[neutron.Port](t, neutron.KindPort, data))
		}
	}
	return found
}

// endpoints is the server's list of one type.
func (s *server) endpoints(tunnelType string) []netip.Addr {
	var out []netip.Addr
	for e := range s.tunnels {
		if e.Type == tunnelType {
			out = append(out, e.IP)
		}
	}
	return out
}

// networkOf is a message about entries of a tunnelled network.
func networkOf(network string, entries map[entry]bool) map[string]neutron.FDBNetwork {
	for _, s := range segments {
		if s.network == network {
			ports := map[netip.Addr][]neutron.FDBEntry{}
			for e := range entries {
				ports[e.endpoint] = append(ports[e.endpoint], e.FDBEntry)
			}
			return map[string]neutron.FDBNetwork{network: {NetworkType: s.kind, SegmentationID: &s.id, Ports: ports}}
		}
	}
	return nil
}

// historyEndpoints are those that other hosts may have; each has its port in the tunnel bridge.
var historyEndpoints = []world.Endpoint{
	{Type: "vxlan", IP: netip.MustParseAddr("10.0.0.2")}, {Type: "vxlan", IP: netip.MustParseAddr("10.0.0.3")},
	{Type: "gre", IP: netip.MustParseAddr("10.0.0.2")}, {Type: "gre", IP: netip.MustParseAddr("10.0.0.3")},
}

// history is a host and a server whose news are on their way to it.
//
// Pushes and answers overtake each other in any way: each says which revision it is about, or when it was asked for. Messages about
// forwarding entries and endpoints say neither, so that nobody could tell which came last, and keep their order.
type history struct {
	*host
	*server
	t        *rapid.T
	plugged  map[string]int // numbers
	revision int

	pushes  []func()
	casts   []func()
	answers []lateAnswer

	onWay onWay                     // ports and types of tunnels
	told  map[world.SegmentKey]bool // segments whose ports were reported: the server has sent their entries
	spoke map[world.SegmentKey]bool // segments of which the host has heard since it has them
	// lossy: messages are lost, and there is another host in every network. A server that has nothing to say about a network sends
	// nothing, and what was known stays.
	lossy bool
}

func newHistory(t *rapid.T, cfg world.Config, s *server) *history {
	h := &history{
		host: newHost(cfg), server: s, t: t, plugged: map[string]int{}, onWay: onWay{}, told: map[world.SegmentKey]bool{}, spoke: map[world.SegmentKey]bool{},
	}
	h.compile(t, h.w.Everything())
	return h
}

func (h *history) draw(n int, what string) int { return rapid.IntRange(0, n-1).Draw(h.t, what) }

// one takes a message out of a list, in any order, or the first of it.
func one[T any](h *history, list *[]T, any bool) T {
	i := 0
	if any {
		i = h.draw(len(*list), "which")
	}
	x := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return x
}

// work compiles what has changed, and notes which segments are gone.
func (h *history) work() {
	h.settle(h.t)
	for _, known := range []map[world.SegmentKey]bool{h.told, h.spoke} {
		maps.DeleteFunc(known, func(key world.SegmentKey, _ bool) bool { return h.w.Segments.Get(key) == nil })
	}
}

// bridges has the switch make the ports of tunnels and remove them.
func (h *history) bridges() {
	h.work()
	for i, e := range historyEndpoints {
		h.tunnelPort(e, 50+i)
	}
	h.work()
}

// push has the server tell about a port.
func (h *history) push(event neutron.Event, data string) {
	h.pushes = append(h.pushes, func() {
		push := &neutron.Push{Kind: neutron.KindPort, Event: event, Objects: []neutron.Primitive{{Name: "Port", Data: []byte(data)}}}
		if err := h.w.Push(push, time.Unix(0, 0)); err != nil {
			h.t.Fatal(err)
		}
	})
}

// changeStations changes where stations of a network are, and tells everybody what is different.
func (h *history) changeStations() {
	network := segments[h.draw(2, "tunnelled")].network
	mac, _ := neutron.ParseMAC(rapid.SampledFrom([]string{"fa:16:3e:22:22:22", "fa:16:3e:22:22:23"}).Draw(h.t, "station"))
	before, was := h.entries(network), h.stations[network][mac]
	ips := rapid.SliceOfNDistinct(rapid.SampledFrom([]netip.Addr{netip.MustParseAddr("10.0.0.98"), netip.MustParseAddr("10.0.0.99")}), 1, 2, rapid.ID).Draw(h.t, "ips")
	at := place{historyEndpoints[h.draw(2, "endpoint")].IP, ips}
	if delete(h.stations[network], mac); h.draw(3, "gone") > 0 {
		h.stations[network][mac] = at
	}
	after := h.entries(network)
	added, removed := maps.Clone(after), maps.Clone(before)
	maps.DeleteFunc(added, func(e entry, _ bool) bool { return before[e] })
	maps.DeleteFunc(removed, func(e entry, _ bool) bool { return after[e] })
	if h.stations[network][mac].endpoint == was.endpoint && was.endpoint.IsValid() { // its addresses have changed
		change := neutron.IPChange{}
		for _, ip := range was.ips {
			change.Before = append(change.Before, neutron.FDBEntry{MAC: mac, IP: ip})
		}
		for _, ip := range at.ips {
			change.After = append(change.After, neutron.FDBEntry{MAC: mac, IP: ip})
		}
		keep := func(e neutron.FDBEntry) bool {
			return slices.Contains(change.Before, e) && slices.Contains(change.After, e)
		}
		both := slices.DeleteFunc(slices.Clone(change.Before), func(e neutron.FDBEntry) bool { return !keep(e) })
		change.Before = slices.DeleteFunc(change.Before, func(e neutron.FDBEntry) bool { return slices.Contains(both, e) })
		change.After = slices.DeleteFunc(change.After, func(e neutron.FDBEntry) bool { return slices.Contains(both, e) })
		m := &neutron.FDBChange{Networks: map[string]map[netip.Addr]neutron.IPChange{network: {at.endpoint: change}}}
		h.casts = append(h.casts, func() { h.w.Tunnels.FDBChange(m) })
		return
	}
	messages := []func(){h.adding(network, added), h.removing(network, removed)}
	if rapid.Bool().Draw(h.t, "first removed") {
		slices.Reverse(messages)
	}
	h.casts = append(h.casts, messages...)
}

// announceElsewhere: a host whose endpoint the server took back has another address now. Its stations are announced there, and nobody
// takes back that they were behind the old one.
func (h *history) announceElsewhere(e world.Endpoint) {
	to := historyEndpoints[0].IP
	if to == e.IP {
		to = historyEndpoints[1].IP
	}
	for _, s := range segments {
		if s.kind != e.Type {
			continue
		}
		before := h.entries(s.network)
		for mac, at := range h.stations[s.network] {
			if at.endpoint == e.IP {
				h.stations[s.network][mac] = place{to, at.ips}
			}
		}
		added := h.entries(s.network)
		maps.DeleteFunc(added, func(e entry, _ bool) bool { return before[e] })
		h.casts = append(h.casts, h.adding(s.network, added))
	}
}

// adding is a message that adds entries. Without entries the server sends none.
func (h *history) adding(network string, entries map[entry]bool) func() {
	m := &neutron.FDBAdd{Networks: networkOf(network, entries)}
	return func() {
		if len(entries) == 0 {
			return
		}
		if key := (world.SegmentKey{Network: network, ID: *m.Networks[network].SegmentationID}); h.w.Segments.Get(key) != nil {
			h.spoke[key] = true
		}
		h.w.Tunnels.FDBBroadcast(m)
		h.w.Tunnels.FDBAdd(m)
	}
}

// removing is a message that removes entries. A list that the server has read before may come after it.
func (h *history) removing(network string, entries map[entry]bool) func() {
	late := maps.Clone(entries)
	if maps.DeleteFunc(late, func(e entry, _ bool) bool { return e.Flood() }); len(late) > 0 && !rapid.Bool().Draw(h.t, "a late list") {
		late = nil
	}
	return func() {
		m := networkOf(network, entries)
		h.w.Tunnels.FDBRemove(&neutron.FDBRemove{Networks: m})
		if len(late) > 0 && h.spoke[world.SegmentKey{Network: network, ID: *m[network].SegmentationID}] {
			h.w.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: networkOf(network, late)})
		}
	}
}

// ask asks for what is missing and reports what is new, as the agent does after every event unless the server is away. The server looks
// now, its answer comes later or not at all.
func (h *history) ask() {
	h.work()
	now := h.w.Now()
	ids := slices.DeleteFunc(h.w.Missing(), func(id string) bool { return !h.onWay.ask(id, now, h.w.Port(id).Since()) })
	if len(ids) > 0 {
		found := h.answer(h.t, ids)
		lose := func() {
			for _, id := range ids {
				h.onWay.land(id, now)
			}
		}
		h.answers = append(h.answers, lateAnswer{func() { lose(); h.w.PortsAsked(now, ids, found) }, lose})
	}
	for _, kind := range h.w.Config.TunnelTypes {
		if h.w.Tunnels.Listed(kind) || !h.onWay.ask(kind, now, h.w.Missed()) {
			continue
		}
		list, lose := h.endpoints(kind), func() { h.onWay.land(kind, now) }
		h.answers = append(h.answers, lateAnswer{func() { lose(); h.w.Tunnels.Sync(kind, list, now) }, lose})
	}
	for _, s := range h.w.Segments.All() {
		if s.Tunnelled() && !h.told[s.Key] {
			h.told[s.Key] = true
			h.casts = append(h.casts, h.adding(s.Key.Network, h.entries(s.Key.Network)))
		}
	}
}

func (h *history) arrive() {
	if answer := one(h, &h.answers, true); h.draw(4, "lost") == 0 {
		answer.lose()
	} else {
		answer.arrive()
	}
}

// miss loses all messages that are on their way, and those about what happens while nobody listens; the host hears that it has missed some.
func (h *history) miss() {
	for range 1 + h.draw(3, "unheard") {
		h.changeStations()
	}
	h.pushes, h.casts = nil, nil
	h.w.Resync()
	clear(h.told)
}

func (h *history) step() {
	id := rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(h.t, "port")
	switch h.draw(14, "event") {
	case 0, 1:
		n := rapid.SampledFrom([]int{10, 20}).Draw(h.t, "base") + int(id[0]-'0')
		if h.plugged[id] == 0 {
			h.plugged[id] = n
			h.plug(id, n)
		}
	case 2:
		delete(h.plugged, id)
		h.unplug(id)
		h.work() // a port that is gone is forgotten
	case 3, 4:
		if !h.deleted[id] {
			h.revision++
			h.ports[id] = drawDetails(h.t, id, h.revision)
			h.push(neutron.Updated, h.ports[id])
		}
	case 5:
		if data := h.ports[id]; data != "" && h.draw(2, "delete") == 0 {
			delete(h.ports, id)
			h.deleted[id] = true
			h.push(neutron.Deleted, data)
		}
	case 6, 7:
		h.changeStations()
	case 8:
		e := rapid.SampledFrom(historyEndpoints).Draw(h.t, "tunnel")
		if h.tunnels[e] {
			delete(h.tunnels, e)
			h.casts = append(h.casts, func() { h.w.Tunnels.Gone(e) })
			h.announceElsewhere(e)
		} else {
			h.tunnels[e] = true
			h.casts = append(h.casts, func() { h.w.Tunnels.Up(e) })
		}
	case 9:
		if len(h.pushes) > 0 {
			deliver := one(h, &h.pushes, true)
			if deliver(); h.draw(3, "twice") == 0 {
				h.pushes = append(h.pushes, deliver)
			}
		}
	case 10:
		for range h.draw(len(h.casts)+1, "messages") {
			one(h, &h.casts, false)()
		}
	case 11:
		if len(h.answers) > 0 {
			h.arrive()
		}
	case 12:
		h.bridges()
	case 13:
		if h.lossy {
			h.miss()
		}
	}
	if rapid.Bool().Draw(h.t, "settle") {
		h.work()
	}
	if h.draw(3, "ask") > 0 {
		h.ask()
	}
}

// converge has everything arrive that is on its way, and what is missing answered at once.
func (h *history) converge() {
	for len(h.pushes)+len(h.casts)+len(h.answers) > 0 {
		switch n := h.draw(len(h.pushes)+len(h.casts)+len(h.answers), "next"); {
		case n < len(h.pushes):
			one(h, &h.pushes, true)()
		case n < len(h.pushes)+len(h.casts):
			one(h, &h.casts, false)()
		default:
			h.arrive()
		}
	}
	for again := true; again; again = len(h.casts)+len(h.answers) > 0 {
		for len(h.casts) > 0 {
			one(h, &h.casts, false)()
		}
		for len(h.answers) > 0 {
			one(h, &h.answers, false).arrive()
		}
		h.ask()
	}
	h.w.Confirmed()
	h.bridges()
}

// Any order of the same news, with repetitions, late and failed answers, and lost messages, ends in the flows that a host comes to which
// is told only what the server knows in the end; and the flows compiled bit by bit are those of a compile from nothing.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := world.Config{
			Host: "hv1", IntegrationBridge: "br-int", TunnelBridge: "br-tun", IntPatch: "patch-tun", TunPatch: "patch-int",
			Physical: map[string]string{"physnet1": "br-ex"}, LocalIP: netip.MustParseAddr("10.0.0.1"), TunnelTypes: []string{"vxlan", "gre"},
			L2Population: rapid.Bool().Draw(t, "l2pop"), AntiSpoof: rapid.Bool().Draw(t, "antispoof"),
		}
		cfg.ARPResponder = cfg.L2Population && rapid.Bool().Draw(t, "responder")
		h := newHistory(t, cfg, &server{
			ports: map[string]string{}, deleted: map[string]bool{}, tunnels: map[world.Endpoint]bool{},
			stations: map[string]map[neutron.MAC]place{"n1": {}, "n2": {}},
		})
		if h.lossy = rapid.Bool().Draw(t, "lossy"); h.lossy {
			for _, stations := range h.stations {
				stations[neutron.MAC{0xfa, 0x16, 0x3e, 0x33, 0x33, 0x33}] = place{historyEndpoints[0].IP, []netip.Addr{netip.MustParseAddr("10.0.0.97")}}
			}
		}
		for i, id := range []string{"1", "2", "3"} { // all is well at first
			h.ports[id] = drawDetails(t, id, i)
			h.plugged[id] = 11 + i
			h.plug(id, h.plugged[id])
		}
		h.revision = 10
		h.converge()
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			h.step()
		}
		h.converge()
		got := h.text()

		// The same world, compiled from nothing.
		again := &host{w: h.w, s: h.s, flows: map[world.Object][]Flow{}}
		again.compile(t, h.w.Everything())
		same(t, "compiled bit by bit", got, "from nothing", again.text())

		// Another host, told only the end.
		fresh := newHistory(t, cfg, h.server)
		for id, n := range h.plugged {
			fresh.plug(id, n)
		}
		fresh.converge()
		for key := range h.spoke {
			fresh.hear(key)
		}
		same(t, "after its history", got, "told the end only", fresh.text())

		// Emptied, only the base is left.
		for id := range h.plugged {
			h.unplug(id)
		}
		for e := range h.tunnels {
			h.w.Tunnels.Gone(e)
		}
		h.bridges()
		same(t, "emptied", h.text(), "want", newBase(t, cfg))
	})
}

// hear makes up for a network of which a host has heard before it became empty: its broadcasts go nowhere, where those of a network of
// which nobody told go everywhere.
func (h *history) hear(key world.SegmentKey) {
	if len(h.stations[key.Network]) == 0 {
		e := map[entry]bool{{historyEndpoints[0].IP, neutron.FDBEntry{IP: netip.IPv4Unspecified()}}: true}
		h.w.Tunnels.FDBAdd(&neutron.FDBAdd{Networks: networkOf(key.Network, e)})
		h.w.Tunnels.FDBRemove(&neutron.FDBRemove{Networks: networkOf(key.Network, e)})
		h.bridges()
	}
}

func newBase(t *rapid.T, cfg world.Config) []string {
	h := newHost(cfg)
	for _, o := range h.w.Everything() {
		h.flows[o] = Compile(h.w, h.s, o).Flows
	}
	h.settle(t)
	return h.text()
}
