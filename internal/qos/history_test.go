// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/parity"
)

// host is a world with the extension over a database in memory, and what is wanted so far, as the agent has it.
type host struct {
	t     extensiontest.Failer
	w     *world.World
	set   extension.Set
	make  extension.New
	db    *ovsdb.Rehearsal
	first *ovsdb.Batch
	wants map[world.Object]pipeline.Want
}

func newHost(t extensiontest.Failer) *host {
	number := func(n int) *int { return &n }
	b := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial, OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", Bridges: []ovsdb.UUID{"br-ex", "br-int"}}}}}
	add := func(bridge string, ports ...[2]string) {
		row := &ovsdb.Bridge{UUID: ovsdb.UUID(bridge), Name: bridge}
		for i, p := range ports {
			id := ovsdb.UUID("p-" + p[0])
			b.Interfaces = append(b.Interfaces, ovsdb.Diff[ovsdb.Interface]{New: &ovsdb.Interface{UUID: "i-" + id, Name: p[0], Type: p[1], OFPort: number(i + 1)}})
			b.Ports = append(b.Ports, ovsdb.Diff[ovsdb.Port]{New: &ovsdb.Port{UUID: id, Name: p[0], Interfaces: []ovsdb.UUID{"i-" + id}}})
			row.Ports = append(row.Ports, id)
		}
		slices.Sort(row.Ports)
		b.Bridges = append(b.Bridges, ovsdb.Diff[ovsdb.Bridge]{New: row})
	}
	add("br-int", [2]string{"int-br-ex", "patch"})
	add("br-ex", [2]string{"phy-br-ex", "patch"}, [2]string{"eth0", ""})
	h := &host{t: t, make: qos.New, db: ovsdb.NewRehearsal(b), first: b, wants: map[world.Object]pipeline.Want{}}
	h.db.OnCommit = func(b *ovsdb.Batch) {
		h.w.Switch(b)
		h.set.OnRows(b)
	}
	h.begin(b)
	return h
}

// begin makes a new agent over the database.
func (h *host) begin(b *ovsdb.Batch) {
	h.w = world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int", Physical: map[string]string{"physnet1": "br-ex"}})
	h.set = extension.Make(h.w, []extension.New{h.make})
	h.w.MaxMeters["br-int"] = 1000
	h.w.Switch(b)
	h.set.OnRows(b)
	h.wants = map[world.Object]pipeline.Want{}
	h.compile(h.set.Resolve(h.w.Everything()))
}

// restart is an agent that remembers what the last one wrote down. It does not know yet how many meters there can be.
func (h *host) restart() {
	memory, err := h.set.Save()
	if err != nil {
		h.t.Fatal(err)
	}
	ports := h.w.Memory()
	all := ovsdb.Whole(h.w.View)
	h.w = world.New(h.w.Config)
	h.set = extension.Make(h.w, []extension.New{h.make})
	h.w.Recall(ports)
	if err := h.set.Load(memory); err != nil {
		h.t.Fatal(err)
	}
	h.w.Switch(all)
	h.set.OnRows(all)
	h.wants = map[world.Object]pipeline.Want{}
	h.compile(h.set.Resolve(h.w.Everything()))
}

// count has the switch say how many meters there can be.
func (h *host) count() {
	h.w.MaxMeters["br-int"] = 1000
	h.settle()
}

func (h *host) compile(objects []world.Object) {
	for _, o := range objects {
		want, err := h.set.Compile(o, func() pipeline.Want { return pipeline.Compile(h.w, &pipeline.Settings{}, o) })
		if err != nil || want.Err != nil {
			h.t.Fatal(err, want.Err)
		}
		h.wants[o] = want
	}
}

// settle does what the agent does about what has changed, but asks nothing.
func (h *host) settle() {
	for range 20 {
		changed := h.set.Resolve(h.w.Resolve())
		h.compile(changed)
		if tx := extensiontest.Unwritten(h.w.View, h.wants); tx != nil {
			_, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx})
			if errs[0] != nil {
				h.t.Fatal(errs[0])
			}
		} else if len(changed) == 0 {
			return
		}
	}
	h.t.Fatal("does not come to rest")
}

func (h *host) commit(change func(tx *ovsdb.Tx)) {
	tx := ovsdb.NewTx(h.w.View)
	change(tx)
	if _, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx}); errs[0] != nil {
		h.t.Fatal(errs[0])
	}
}

func (h *host) plug(id string) {
	if h.w.View.PortByName("tap"+id) == nil {
		h.commit(func(tx *ovsdb.Tx) {
			tx.EnsurePort(ovsdb.PortSpec{
				Bridge: "br-int", Name: "tap" + id, ExternalIDs: map[string]string{"iface-id": id, "attached-mac": "fa:16:3e:00:00:0" + id},
			})
		})
	}
}

func (h *host) unplug(id string) {
	if p := h.w.View.PortByName("tap" + id); p != nil {
		h.commit(func(tx *ovsdb.Tx) { tx.DeletePort(p.UUID) })
		h.settle()
	}
}

// text is what is wanted and what is in the database, without the numbers of this run.
func (h *host) text() []string {
	names := parity.NewNames()
	for _, s := range h.w.Segments.All() { // first: a dead port has the VLAN that its network had before written down
		names.VLAN(s.VLAN, s.Key.String())
	}
	names.Learn(h.w.View)
	flows := map[string]map[openflow.Key]openflow.Flow{"br-int": {}, "br-ex": {}}
	var meters []openflow.MeterDesc
	for _, want := range h.wants {
		for _, f := range want.Flows {
			flow, err := f.Entry.Flow()
			if err != nil {
				h.t.Fatal(err)
			}
			flows[f.Bridge][f.Entry.Key()] = flow
		}
		for _, m := range want.Meters {
			meters = append(meters, m.MeterDesc)
		}
	}
	return names.Wanted(h.w.View, flows, meters)
}

// server is what is true.
type server struct {
	revision int
	policies map[string][]extensiontest.Rule
	told     map[string][]string // what was pushed about a policy
	ports    map[string]*facts
	networks map[string]string // policies
}

type facts struct {
	Policy, Network, Owner string
	Up                     bool
	revision               int
}

func (s *server) policy(id string) string {
	var rules []string
	for _, r := range s.policies[id] {
		rules = append(rules, r.Object())
	}
	return fmt.Sprintf(`{"id":%q,"name":"n-%s","revision_number":%d,"rules":[%s]}`, id, id, s.revision, strings.Join(rules, ","))
}

func (s *server) port(id string) neutron.Port {
	f := s.ports[id]
	text := func(v string) string {
		if v == "" {
			return "null"
		}
		return `"` + v + `"`
	}
	segment := fmt.Sprintf(`"network_type":"vlan","physical_network":"physnet1","segmentation_id":%d`, 100+len(f.Network))
	if f.Network == "local" {
		segment = `"network_type":"local"`
	}
	var p neutron.Port
	data := fmt.Sprintf(`{"id":%q,"network_id":%q,"admin_state_up":%t,"device_owner":%q,"revision_number":%d,
		"qos_policy_id":%s,"qos_network_policy_id":%s,
		"bindings":[{"versioned_object.data":{"host":"hv1","status":"ACTIVE"}}],
		"binding_levels":[{"versioned_object.data":{"segment":{"versioned_object.data":{%s}}}}]}`,
		id, f.Network, f.Up, f.Owner, f.revision, text(f.Policy), text(s.networks[f.Network]), segment)
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		panic(err)
	}
	return p
}

func (s *server) network(id string) string {
	policy := "null"
	if s.networks[id] != "" {
		policy = `"` + s.networks[id] + `"`
	}
	return fmt.Sprintf(`{"id":%q,"revision_number":%d,"qos_policy_id":%s}`, id, s.revision, policy)
}

func (h *host) push(kind neutron.Kind, data string) {
	p := &neutron.Push{Kind: kind, Event: neutron.Updated, Objects: []neutron.Primitive{{Name: string(kind), Data: []byte(data)}}}
	if err := h.w.Push(p, time.Unix(0, 0)); err != nil {
		h.t.Fatal(err)
	}
	if err := h.set.OnPush(p); err != nil {
		h.t.Fatal(err)
	}
}

// tell answers everything that is asked.
func (h *host) tell(s *server) {
	for range 10 {
		h.settle()
		missing := h.w.Missing()
		var found []neutron.Port
		for _, id := range missing {
			if s.ports[id] != nil {
				found = append(found, s.port(id))
			}
		}
		h.w.Ports(missing, found)
		items := h.set[0].Missing()
		for _, item := range items {
			h.answer(item, s)
		}
		if len(missing)+len(items) == 0 {
			return
		}
	}
	h.t.Fatal("asks for ever")
}

func (h *host) answer(item extension.Item, s *server) {
	data := s.network(item.ID)
	if item.Kind == neutron.KindQosPolicy {
		if data = s.policy(item.ID); s.policies[item.ID] == nil {
			if err := h.set[0].Puller.OnPulled(item.Kind, []string{item.ID}, nil); err != nil {
				h.t.Fatal(err)
			}
			return
		}
	}
	if err := h.set[0].Puller.OnPulled(item.Kind, []string{item.ID}, []neutron.Primitive{{Name: string(item.Kind), Data: []byte(data)}}); err != nil {
		h.t.Fatal(err)
	}
}

// Any order of the same news, with late and repeated ones, gaps and restarts, ends in the same flows, meters and rows as when
// only the end is told; and when everything is unplugged nothing is left.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHost(t)
		s := &server{
			policies: map[string][]extensiontest.Rule{"q1": {}, "q2": {}}, told: map[string][]string{}, networks: map[string]string{}, ports: map[string]*facts{},
		}
		plugged := map[string]bool{}
		h.settle()
		base := h.text()
		ids, policies := []string{"1", "2", "3"}, []string{"q1", "q2", ""}
		for range rapid.IntRange(1, 50).Draw(t, "events") {
			id := rapid.SampledFrom(ids).Draw(t, "port")
			s.revision++
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1:
				plugged[id] = true
				h.plug(id)
			case 2:
				delete(plugged, id)
				h.unplug(id)
			case 3, 4:
				s.ports[id] = &facts{
					Policy: rapid.SampledFrom(policies).Draw(t, "policy"), Network: rapid.SampledFrom([]string{"n", "nn"}).Draw(t, "network"),
					Owner: rapid.SampledFrom([]string{"compute:nova", "compute:nova", "network:dhcp", "network:router_gateway"}).Draw(t, "owner"),
					Up:    rapid.IntRange(0, 4).Draw(t, "up") > 0, revision: s.revision,
				}
				p := s.port(id)
				data, err := json.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				h.push(neutron.KindPort, string(data))
			case 5:
				q := rapid.SampledFrom([]string{"q1", "q2"}).Draw(t, "changed")
				s.policies[q] = extensiontest.DrawRules(t)
				h.push(neutron.KindQosPolicy, s.policy(q))
				if old := s.told[q]; len(old) > 0 && rapid.Bool().Draw(t, "overtaken") {
					h.push(neutron.KindQosPolicy, rapid.SampledFrom(old).Draw(t, "old"))
				}
				s.told[q] = append(s.told[q], s.policy(q))
			case 6:
				n := rapid.SampledFrom([]string{"n", "nn"}).Draw(t, "network")
				s.networks[n] = rapid.SampledFrom(policies).Draw(t, "policy")
				h.push(neutron.KindNetwork, s.network(n))
			case 7:
				h.tell(s)
			case 8:
				h.count()
			case 9:
				if rapid.Bool().Draw(t, "restart") {
					h.make = qos.New
					if rapid.Bool().Draw(t, "qos_meter_bandwidth") {
						h.make = qos.NewMetered
					}
					h.restart()
				} else {
					h.w.Resync()
					h.set.Resync()
				}
			}
		}
		h.tell(s)
		h.count()
		fresh := newHost(t)
		fresh.make = h.make
		fresh.begin(fresh.first)
		for _, id := range slices.Sorted(maps.Keys(plugged)) {
			fresh.plug(id)
		}
		fresh.tell(s)
		if got, want := h.text(), fresh.text(); !slices.Equal(got, want) {
			t.Fatalf("after its history:\n%s\ntold the end only:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for id := range plugged {
			h.unplug(id)
		}
		h.tell(s)
		if got := h.text(); !slices.Equal(got, base) {
			t.Fatalf("left over:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(base, "\n"))
		}
	})
}
