// SPDX-License-Identifier: Apache-2.0

package extension_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/extension/extensiontest"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/trunk"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
	"github.com/patchbay-sdn/patchbay/parity"
)

// host is a world with all extensions over a database in memory, and what is wanted so far, as the agent has it: its loop without
// the outside. Questions and their answers are apart, so that anything can happen in between.
type host struct {
	t       extensiontest.Failer
	server  *server
	w       *world.World
	set     extension.Set
	db      *ovsdb.Rehearsal
	wants   map[world.Object]pipeline.Want
	plugged map[string]bool
	booted  bool                // the VM with a trunk
	flights map[string]*flight  // questions on their way, by what they are about
	pushed  map[string][]string // what was pushed about an object
}

// flight is a question, with the answer that the server has given it. One from before a gap, or about something that is not asked for
// any more, is old: the loop drops the answer.
type flight struct {
	arrive func()
	lose   func()
	old    bool
	asked  uint64
}

func makers() []extension.New { return []extension.New{dvr.New, trunk.New, qos.New} }

func newHost(t extensiontest.Failer, cfg world.Config, s *server) *host {
	number := 1
	first := &ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial,
		OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", Bridges: []ovsdb.UUID{"br-ex"}}}},
		Bridges:     []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "br-ex", Name: "br-ex", Ports: []ovsdb.UUID{"p-eth0"}}}},
		Ports:       []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: "p-eth0", Name: "eth0", Interfaces: []ovsdb.UUID{"i-eth0"}}}},
		Interfaces:  []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{UUID: "i-eth0", Name: "eth0", OFPort: &number}}},
	}
	h := &host{t: t, server: s, db: ovsdb.NewRehearsal(first), plugged: map[string]bool{}, pushed: map[string][]string{}}
	h.db.OnCommit = func(b *ovsdb.Batch) {
		h.w.Switch(b)
		h.set.OnRows(b)
	}
	h.begin(cfg, first, func() {})
	return h
}

// begin makes an agent over the rows of the database.
func (h *host) begin(cfg world.Config, rows *ovsdb.Batch, recall func()) {
	h.w = world.New(cfg)
	h.w.Time = time.Now()
	h.set = extension.Make(h.w, makers())
	h.wants, h.flights = map[world.Object]pipeline.Want{}, map[string]*flight{}
	recall()
	h.w.Switch(rows)
	h.set.OnRows(rows)
	h.compile(h.set.Resolve(h.w.Everything()))
	h.w.MaxMeters["br-int"] = 1000 // known when the bridge is connected
}

// restart is an agent that remembers what the last one wrote down.
func (h *host) restart() {
	memory, err := h.set.Save()
	if err != nil {
		h.t.Fatal(err)
	}
	ports := h.w.Memory()
	h.begin(h.w.Config, ovsdb.Whole(h.w.View), func() {
		h.w.Recall(ports)
		if err := h.set.Load(memory); err != nil {
			h.t.Fatal(err)
		}
	})
}

func (h *host) compile(objects []world.Object) {
	settings := &pipeline.Settings{DatapathType: "netdev", MACTableSize: 50000, VXLANPort: 4789, DontFragment: true}
	for _, o := range objects {
		want, err := h.set.Compile(o, func() pipeline.Want { return pipeline.Compile(h.w, settings, o) })
		if err != nil || want.Err != nil {
			h.t.Fatal(o, err, want.Err)
		}
		h.wants[o] = want
	}
}

// settle does what the loop does about what has changed, and asks for what is missing. The answers do not arrive yet.
func (h *host) settle() {
	for range 100 {
		h.onTime()
		changed := h.set.Resolve(h.w.Resolve())
		h.compile(changed)
		h.ask()
		if !h.write() && len(changed) == 0 {
			return
		}
	}
	h.t.Fatal("does not come to rest")
}

// write commits the rows of one object that are not as wanted: each sees what the others did.
func (h *host) write() bool {
	tx := extensiontest.Unwritten(h.w.View, h.wants)
	if tx != nil {
		h.commit(tx)
	}
	return tx != nil
}

func (h *host) commit(tx *ovsdb.Tx) {
	h.t.Helper()
	if _, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx}); errs[0] != nil {
		h.t.Fatal(errs[0])
	}
}

func (h *host) plug(id string) {
	h.settle()
	h.plugged[id] = true
	if h.w.View.PortByName("tap"+id) == nil {
		tx := ovsdb.NewTx(h.w.View)
		tx.EnsurePort(ovsdb.PortSpec{
			Bridge: "br-int", Name: "tap" + id, ExternalIDs: map[string]string{"iface-id": id, "attached-mac": macOf(id).String()},
		})
		h.commit(tx)
	}
}

func (h *host) unplug(id string) {
	delete(h.plugged, id)
	if p := h.w.View.PortByName("tap" + id); p != nil {
		tx := ovsdb.NewTx(h.w.View)
		tx.DeletePort(p.UUID)
		h.commit(tx)
		h.settle() // a port that is gone is forgotten
	}
}

// The VM with a trunk, as whoever plugs it in sees it: its bridge, and its interface on it.
const trunkBridge, trunkTap = "tbr-trunk", "tap" + trunkParent

// boot plugs the VM with a trunk in. halt takes its interface away, and with dispose the bridge as well: who else does it, the agent.
func (h *host) boot() {
	h.settle()
	h.booted = true
	tx := ovsdb.NewTx(h.w.View)
	if h.w.View.BridgeByName(trunkBridge) == nil {
		tx.EnsureBridge(ovsdb.BridgeSpec{Name: trunkBridge, DatapathType: "netdev"})
	}
	if h.w.View.PortByName(trunkTap) == nil {
		tx.EnsurePort(ovsdb.PortSpec{
			Bridge: trunkBridge, Name: trunkTap, ExternalIDs: map[string]string{"iface-id": trunkParent, "attached-mac": macOf(trunkParent).String()},
		})
	}
	h.commit(tx)
}

func (h *host) halt(dispose bool) {
	h.booted = false
	tx := ovsdb.NewTx(h.w.View)
	if b := h.w.View.BridgeByName(trunkBridge); b != nil && dispose {
		tx.DeleteBridge(b.UUID)
	} else if p := h.w.View.PortByName(trunkTap); p != nil {
		tx.DeletePort(p.UUID)
	}
	h.commit(tx)
	h.settle()
}

// push tells about an object; repeat does so once more, or tells again what was true before.
func (h *host) push(kind neutron.Kind, id, data string) {
	h.pushAs(neutron.Updated, kind, data)
	h.pushed[string(kind)+id] = append(h.pushed[string(kind)+id], data)
}

func (h *host) pushAs(event neutron.Event, kind neutron.Kind, data string) {
	p := &neutron.Push{Kind: kind, Event: event, Objects: []neutron.Primitive{{Name: string(kind), Data: []byte(data)}}}
	if err := h.w.Push(p, time.Now()); err != nil {
		h.t.Fatal(err)
	}
	if err := h.set.OnPush(p); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) repeat(t *rapid.T, kind neutron.Kind, id string) {
	if rapid.Bool().Draw(t, "settle") {
		h.settle()
	}
	if rapid.IntRange(0, 2).Draw(t, "overtaken") == 0 {
		h.push(kind, id, rapid.SampledFrom(h.pushed[string(kind)+id]).Draw(t, "old"))
	}
}

// cast sends the router addresses of all hosts, as they are without some.
func (h *host) cast(without ...string) {
	for _, name := range without {
		delete(h.server.macs, name)
	}
	body, err := json.Marshal(map[string]any{"dvr_macs": h.server.call("get_dvr_mac_address_list", nil)})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.set.OnCast("dvr_mac_address_update", body); err != nil {
		h.t.Fatal(err)
	}
}

// doubt says that news may have been missed.
func (h *host) doubt() {
	h.w.Resync()
	h.set.Resync()
	for _, f := range h.flights {
		f.old = true
	}
}

// onTime tells extensions that their deadlines have passed.
func (h *host) onTime() {
	for _, e := range h.set {
		if e.Timed == nil {
			continue
		}
		if at := e.Timed.Deadline(); !at.IsZero() && !at.After(time.Now()) {
			e.Timed.OnTime(time.Now())
		}
	}
}

// deadline is the first time that an extension waits for.
func (h *host) deadline() (first time.Time) {
	for _, e := range h.set {
		if e.Timed == nil {
			continue
		}
		if at := e.Timed.Deadline(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// listed are the questions and calls of extensions, by name.
func (h *host) listed() (items map[string]extension.Item, calls map[string]extension.Call, of map[string]extension.Member) {
	items, calls, of = map[string]extension.Item{}, map[string]extension.Call{}, map[string]extension.Member{}
	for _, e := range h.set {
		for _, i := range e.Missing() {
			key := fmt.Sprint(e.Name(), " ", i.Kind, " ", i.ID)
			items[key], of[key] = i, e
		}
		for _, c := range e.Calls() {
			key := e.Name() + " " + c.Key.String()
			calls[key], of[key] = c, e
		}
	}
	return items, calls, of
}

// age marks questions about what is not asked for any more.
func (h *host) age() {
	items, calls, _ := h.listed()
	for key, f := range h.flights {
		_, item := items[key]
		if _, call := calls[key]; !item && !call && key[:2] != "p " {
			f.old = true
		}
	}
}

// ask sends what is to be asked now, and has the server answer.
func (h *host) ask() {
	s := h.server
	h.age()
	missing := h.w.Missing()
	now := h.w.Now()
	for _, id := range missing {
		if f := h.flights["p "+id]; f != nil && f.asked >= h.w.Port(id).Since() {
			continue
		}
		var found []neutron.Port
		if data, ok := s.pull(neutron.KindPort, id); ok {
			found = []neutron.Port{decodePort(h.t, data)}
		}
		h.flights["p "+id] = &flight{asked: now, lose: func() {}, arrive: func() { h.w.PortsAsked(now, []string{id}, found) }}
	}
	items, calls, of := h.listed()
	for key, item := range items {
		if h.flights[key] != nil {
			continue
		}
		var found []neutron.Primitive
		if data, ok := s.pull(item.Kind, item.ID); ok {
			found = []neutron.Primitive{{Name: string(item.Kind), Data: []byte(data)}}
		}
		h.flights[key] = &flight{lose: func() {}, arrive: func() {
			if err := of[key].Puller.OnPulled(item.Kind, []string{item.ID}, found); err != nil {
				h.t.Fatal(err)
			}
		}}
	}
	for key, call := range calls {
		if h.flights[key] != nil {
			continue
		}
		result, err := call.Run(context.Background(), neutron.NewServer(caller{s}, "hv1"))
		h.flights[key] = &flight{
			arrive: func() { of[key].Caller.OnCall(call.Key, result, err) }, lose: func() { of[key].Caller.OnCall(call.Key, nil, messaging.ErrTimeout) },
		}
	}
}

// arrive lets one answer arrive, or get lost.
func (h *host) arrive(t *rapid.T) {
	if len(h.flights) == 0 {
		return
	}
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(h.flights))).Draw(t, "answer")
	h.land(key, rapid.IntRange(0, 4).Draw(t, "lost") == 0)
	h.settle()
}

func (h *host) land(key string, lost bool) {
	f := h.flights[key]
	delete(h.flights, key)
	switch {
	case lost:
		f.lose()
	case !f.old || key[:2] == "p ": // the world sees by itself what is old
		f.arrive()
	}
}

// tell answers everything that is asked, until nobody waits for anything, however long that takes.
func (h *host) tell() {
	for range 50 {
		h.settle()
		if len(h.flights) == 0 {
			next := h.deadline()
			if next.IsZero() {
				return
			}
			time.Sleep(time.Until(next))
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(h.flights)) {
			h.land(key, false)
		}
	}
	h.t.Fatal("asks for ever")
}

// caller is a connection to the server.
type caller struct{ s *server }

func (c caller) Call(_ context.Context, _ messaging.Target, method string, args, result any) error {
	var all map[string]any
	data, err := json.Marshal(args)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	if data, err = json.Marshal(c.s.call(method, all)); err != nil || result == nil {
		return err
	}
	return json.Unmarshal(data, result)
}

// text is what is wanted and what is in the database, without the numbers of this run.
func (h *host) text() []string {
	names := parity.NewNames()
	names.Learn(h.w.View)
	for p := range h.w.View.Ports() { // a port that is off keeps the VLAN of a segment that is gone
		if tag, err := strconv.ParseUint(p.OtherConfig["tag"], 10, 12); err == nil {
			names.VLAN(uint16(tag), "gone")
		}
	}
	for _, s := range h.w.Segments.All() {
		names.VLAN(s.VLAN, s.Key.String())
	}
	flows := map[string]map[openflow.Key]openflow.Flow{}
	for _, bridge := range h.w.Bridges() {
		flows[bridge] = map[openflow.Key]openflow.Flow{}
	}
	var meters []openflow.MeterDesc
	for _, o := range slices.Backward(world.SortedObjects(h.wants)) { // of two that want a flow the first counts
		for _, f := range h.wants[o].Flows {
			flow, err := f.Entry.Flow()
			if err != nil {
				h.t.Fatal(err)
			}
			flows[f.Bridge][f.Entry.Key()] = flow
		}
		for _, m := range h.wants[o].Meters {
			meters = append(meters, m.MeterDesc)
		}
	}
	return names.Wanted(h.w.View, flows, meters)
}
