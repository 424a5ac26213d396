// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// filterHistory is a cloud whose news reach the host in any order: pushes, pushes once more, pushes that are overtaken by
// newer ones, and answers that were given long before they arrive.
type filterHistory struct {
	*cloud
	t        *rapid.T
	revision int
	number   int // of the last rule
	texts    map[string][]string
	// late are answers on their way, each as the server gave it.
	late  []lateAnswer
	onWay onWay
}

type lateAnswer struct{ arrive, lose func() }

// onWay is when a question left that is on its way, by what it is about.
type onWay map[string]uint64

// ask says whether to ask now: no question is on its way whose answer will count.
func (o onWay) ask(what string, now, since uint64) bool {
	if at, ok := o[what]; ok && at >= since {
		return false
	}
	o[what] = now
	return true
}

// land takes that a question came to its end.
func (o onWay) land(what string, asked uint64) {
	if o[what] == asked {
		delete(o, what)
	}
}

// object is one object of a message.
func object(data string) string { return `{"versioned_object.data":` + data + `}` }

func objects(list []string) string {
	for i := range list {
		list[i] = object(list[i])
	}
	return "[" + strings.Join(list, ",") + "]"
}

func quoted(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// push tells the host about an object, perhaps twice, perhaps once more what was told before.
func (h *filterHistory) push(kind neutron.Kind, id string, event neutron.Event, data string) {
	key := string(kind) + " " + id
	send := func(data string, event neutron.Event) {
		push := &neutron.Push{Kind: kind, Event: event, Objects: []neutron.Primitive{{Name: string(kind), Data: []byte(data)}}}
		if err := h.w.Push(push, time.Unix(0, 0)); err != nil {
			h.t.Fatal(err)
		}
		if rapid.Bool().Draw(h.t, "settle") {
			h.settle(h.t)
		}
	}
	send(data, event)
	if old := h.texts[key]; len(old) > 0 && rapid.Bool().Draw(h.t, "overtaken") {
		send(rapid.SampledFrom(old).Draw(h.t, "old"), neutron.Updated)
	}
	if rapid.IntRange(0, 5).Draw(h.t, "twice") == 0 {
		send(data, event)
	}
	if event == neutron.Updated {
		h.texts[key] = append(h.texts[key], data)
	}
}

// decodeAs reads an object as the host does.
func decodeAs[T any](t failer, kind neutron.Kind, data string) *T {
	var v T
	p := neutron.Primitive{Name: string(kind), Data: []byte(data)}
	if err := p.Decode(kind, &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

var (
	historyPorts  = []string{"A", "B", "C", "D", "E"} // D and E are on other hosts
	historyGroups = []string{"g1", "g2", "g3"}
	historyLists  = []string{"a1", "a2"}
)

// changePort makes a port, or changes it in the server.
func (h *filterHistory) changePort(id string) {
	t := h.t
	h.revision++
	s := segments[rapid.IntRange(0, len(segments)-1).Draw(t, "segment")]
	number := "null"
	if s.id >= 0 {
		number = fmt.Sprint(s.id)
	}
	last := strings.ToLower(id)
	var ips, pairs []string
	for _, ip := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"10.0.0.1" + fmt.Sprint(id[0]), "2001:db8::" + last, "10.0.0.99"}), rapid.ID).Draw(t, "ips") {
		ips = append(ips, `{"ip_address":`+quoted(ip)+`}`)
	}
	for _, ip := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.9.0.0/16", "0.0.0.0/0", "10.0.0.99", "::/0"}), 0, 2, rapid.ID).Draw(t, "pairs") {
		mac := rapid.SampledFrom([]string{"fa:16:3e:00:00:0" + last, "00:00:5e:00:01:01"}).Draw(t, "mac")
		pairs = append(pairs, fmt.Sprintf(`{"mac_address":%q,"ip_address":%q}`, mac, ip))
	}
	data := fmt.Sprintf(`{"id":%q,"network_id":%q,"mac_address":"fa:16:3e:00:00:0%s","admin_state_up":%t,"device_owner":%q,"revision_number":%d,
		"security":%s,"fixed_ips":%s,"allowed_address_pairs":%s,"security_group_ids":%s,"bindings":%s,"binding_levels":%s}`,
		id, s.network, last, rapid.IntRange(0, 5).Draw(t, "up") > 0, rapid.SampledFrom([]string{"compute:nova", "compute:nova", "network:dhcp"}).Draw(t, "owner"), h.revision,
		object(fmt.Sprintf(`{"port_security_enabled":%t}`, rapid.IntRange(0, 4).Draw(t, "security") > 0)), objects(ips), objects(pairs),
		quoted(rapid.SliceOfDistinct(rapid.SampledFrom(historyGroups), rapid.ID).Draw(t, "groups")),
		objects([]string{`{"host":"hv1","status":"ACTIVE","profile":"{}"}`}),
		objects([]string{`{"host":"hv1","level":0,"segment":` + object(fmt.Sprintf(`{"network_type":%q,"physical_network":%q,"segmentation_id":%s}`, s.kind, s.physnet, number)) + `}`}))
	h.ports[id] = decodeAs[neutron.Port](t, neutron.KindPort, data)
	h.push(neutron.KindPort, id, neutron.Updated, data)
}

// addRule and dropRule change a group in the server.
func (h *filterHistory) addRule(group string) {
	t := h.t
	h.number++
	id := fmt.Sprintf("r%d", h.number)
	version := rapid.SampledFrom([]string{"IPv4", "IPv6"}).Draw(t, "version")
	remote := rapid.SampledFrom([]string{
		"", `,"remote_group_id":"g1"`, `,"remote_group_id":"g2"`, `,"remote_group_id":"g3"`,
		`,"remote_address_group_id":"a1"`, `,"remote_address_group_id":"a2"`, `,"remote_ip_prefix":"10.0.0.0/8"`,
	}).Draw(t, "remote")
	if strings.Contains(remote, "10.0.0.0") {
		version = "IPv4"
	}
	what := rapid.SampledFrom([]string{
		"", `,"protocol":"icmp"`, `,"protocol":"icmp","port_range_min":8`, `,"protocol":"icmp","port_range_min":8,"port_range_max":0`, `,"protocol":"tcp"`,
		`,"protocol":"tcp","port_range_min":80,"port_range_max":90`, `,"protocol":"tcp","port_range_min":85,"port_range_max":95`, `,"protocol":"112"`,
	}).Draw(t, "what")
	data := fmt.Sprintf(`{"id":%q,"security_group_id":%q,"direction":%q,"ethertype":%q%s%s}`,
		id, group, rapid.SampledFrom([]string{"ingress", "ingress", "egress"}).Draw(t, "direction"), version, what, remote)
	h.groups[group].Rules = append(slices.Clone(h.groups[group].Rules), *decodeAs[neutron.SecurityGroupRule](t, neutron.KindSecurityGroupRule, data))
	h.push(neutron.KindSecurityGroupRule, id, neutron.Updated, data)
}

func (h *filterHistory) dropRule(group string) {
	rules := h.groups[group].Rules
	if len(rules) == 0 {
		return
	}
	i := rapid.IntRange(0, len(rules)-1).Draw(h.t, "rule")
	id := rules[i].ID
	h.groups[group].Rules = slices.Delete(slices.Clone(rules), i, i+1)
	h.push(neutron.KindSecurityGroupRule, id, neutron.Deleted, fmt.Sprintf(`{"id":%q,"security_group_id":%q}`, id, group))
}

// pushGroup tells the host about a group with all of its rules, as the server does when the group is renamed.
func (h *filterHistory) pushGroup(group string) {
	var rules []string
	for _, r := range h.groups[group].Rules {
		rules = append(rules, h.texts["SecurityGroupRule "+r.ID][0])
	}
	h.push(neutron.KindSecurityGroup, group, neutron.Updated, fmt.Sprintf(`{"id":%q,"rules":%s}`, group, objects(rules)))
}

func (h *filterHistory) changeAddresses(id string) {
	h.revision++
	var list []string
	for _, x := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"192.0.2.0/24", "10.0.0.99", "0.0.0.0/0", "2001:db8::/32"}), rapid.ID).Draw(h.t, "addresses") {
		list = append(list, `{"address":`+quoted(x)+`}`)
	}
	data := fmt.Sprintf(`{"id":%q,"revision_number":%d,"addresses":%s}`, id, h.revision, objects(list))
	h.addresses[id] = decodeAs[neutron.AddressGroup](h.t, neutron.KindAddressGroup, data)
	h.push(neutron.KindAddressGroup, id, neutron.Updated, data)
}

// ask has the host ask for what it misses. The server answers with what it knows now, and the answer arrives some time.
func (h *filterHistory) ask() {
	h.settle(h.t)
	now := h.w.Now()
	missing := slices.DeleteFunc(h.w.Missing(), func(id string) bool { return !h.onWay.ask(id, now, h.w.Port(id).Since()) })
	if len(missing) > 0 {
		then := h.snapshot()
		lose := func() {
			for _, id := range missing {
				h.onWay.land(id, now)
			}
		}
		h.late = append(h.late, lateAnswer{func() { lose(); then.answerPortsAsked(now, missing) }, lose})
	}
	for _, item := range h.w.MissingItems() {
		if _, since := h.w.Standing(item); !h.onWay.ask(item.String(), now, since) {
			continue
		}
		then := h.snapshot()
		lose := func() { h.onWay.land(item.String(), now) }
		h.late = append(h.late, lateAnswer{func() { lose(); then.answerItems([]world.Item{item}) }, lose})
	}
	h.w.Members.KeepRevisions(len(h.late) > 0)
}

// snapshot is the server as it is now, with the host of then.
func (h *filterHistory) snapshot() *cloud {
	c := *h.cloud
	c.ports, c.addresses, c.groups = maps.Clone(c.ports), maps.Clone(c.addresses), map[string]*neutron.SecurityGroup{}
	for id, g := range h.groups {
		group := *g
		c.groups[id] = &group
	}
	return &c
}

// arrive lets an answer arrive, or has it lost.
func (h *filterHistory) arrive(i int) {
	answer := h.late[i]
	h.late = slices.Delete(h.late, i, i+1)
	if rapid.IntRange(0, 4).Draw(h.t, "lost") == 0 {
		answer.lose()
	} else {
		answer.arrive()
	}
	if rapid.Bool().Draw(h.t, "settle") {
		h.settle(h.t)
	}
}

func (h *filterHistory) step() {
	t := h.t
	id := rapid.SampledFrom(historyPorts).Draw(t, "port")
	group := rapid.SampledFrom(historyGroups).Draw(t, "group")
	switch rapid.IntRange(0, 11).Draw(t, "event") {
	case 0, 1:
		if name := "tap" + id; id < "D" && h.w.View.PortByName(name) == nil {
			n := rapid.SampledFrom([]int{10, 20}).Draw(t, "base") + int(id[0]-'A')
			h.plugInto(name, n, map[string]string{"iface-id": id, "attached-mac": "fa:16:3e:00:00:0" + strings.ToLower(id)})
		}
	case 2:
		h.unplug(id)
		h.settle(t) // a port that is gone is forgotten
	case 3, 4:
		h.changePort(id)
	case 5, 6:
		h.addRule(group)
	case 7:
		h.dropRule(group)
	case 8:
		h.pushGroup(group)
	case 9:
		h.changeAddresses(rapid.SampledFrom(historyLists).Draw(t, "list"))
	case 10:
		if len(h.late) > 0 {
			h.arrive(rapid.IntRange(0, len(h.late)-1).Draw(t, "answer"))
		}
	case 11:
		h.w.Resync()
	}
	h.ask() // the agent does, after every event
}

// Any order of news about ports, groups, rules, members and address groups ends in the flows of a host that is told only how
// things are in the end; and the flows compiled bit by bit are those of a compile from nothing.
func TestAnyFilterHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := filterConfig()
		cfg.FailClosed = rapid.Bool().Draw(t, "fail closed")
		cfg.EgressDirect = rapid.Bool().Draw(t, "direct")
		h := &filterHistory{cloud: newCloud(cfg), t: t, texts: map[string][]string{}, onWay: onWay{}}
		for _, id := range historyGroups {
			h.groups[id] = &neutron.SecurityGroup{ID: id}
		}
		for _, id := range historyLists {
			h.addresses[id] = &neutron.AddressGroup{ID: id}
		}
		h.compile(t, h.w.Everything())
		for i, id := range []string{"A", "B"} { // something is in force at first
			h.plugInto("tap"+id, 10+i, map[string]string{"iface-id": id, "attached-mac": "fa:16:3e:00:00:0" + strings.ToLower(id)})
		}
		for _, id := range historyPorts {
			h.changePort(id)
		}
		for range 4 {
			h.addRule(rapid.SampledFrom(historyGroups).Draw(t, "group"))
		}
		h.converge(t)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			h.step()
		}
		for len(h.late) > 0 {
			h.arrive(rapid.IntRange(0, len(h.late)-1).Draw(t, "answer"))
		}
		h.converge(t)
		got := h.text()

		again := &host{w: h.w, s: h.s, flows: map[world.Object][]Flow{}}
		again.compile(t, h.w.Everything())
		same(t, "compiled bit by bit", got, "from nothing", again.text())

		fresh := &cloud{host: newHost(cfg), ports: h.ports, groups: h.groups, addresses: h.addresses}
		for _, id := range historyPorts {
			if p := h.w.View.PortByName("tap" + id); p != nil {
				i := h.w.View.Interface(p.Interfaces[0])
				fresh.plugInto(i.Name, *i.OFPort, i.ExternalIDs)
			}
		}
		fresh.converge(t)
		same(t, "after its history", got, "told the end only", fresh.text())
		h.all(t, func(world.Object) bool { return true }) // no two flows in each other's place

		for _, id := range historyPorts {
			h.unplug(id)
		}
		h.converge(t)
		same(t, "emptied", h.text(), "want", newBase(t, cfg))
	})
}

func same(t *rapid.T, a string, got []string, b string, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	var diff []string
	for _, line := range got {
		if !slices.Contains(want, line) {
			diff = append(diff, a+" only: "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			diff = append(diff, b+" only: "+line)
		}
	}
	t.Fatal(strings.Join(diff, "\n"))
}
