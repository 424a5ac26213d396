// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/script"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

var update = flag.Bool("update", false, "write testdata")

// Ids as long as real ones: names are cut from them.
const (
	trunk1  = "11111111-aaaa-4000-8000-000000000001"
	trunk2  = "22222222-aaaa-4000-8000-000000000002"
	parent1 = "10000000-bbbb-4000-8000-000000000001"
	parent2 = "20000000-bbbb-4000-8000-000000000002"
	sub1    = "a0000000-cccc-4000-8000-000000000001"
	sub2    = "b0000000-cccc-4000-8000-000000000002"
	sub3    = "c0000000-cccc-4000-8000-000000000003"
)

// host is a switch whose rows are played through, a server, and the extension between them.
type host struct {
	t     *testing.T
	now   time.Time
	db    *ovsdb.Rehearsal
	w     *world.World
	x     *trunks
	set   extension.Set
	wants map[world.Object]pipeline.Want
	// commits counts transactions of the extension.
	commits int

	// The server.
	trunks  map[string]*neutron.Trunk // by parent
	refuses map[string]bool           // sub-ports that it does not bind
	macs    map[string]neutron.MAC    // of sub-ports; those that are missing follow from the id
	away    bool
	calls   []string
	words   []string // the calls as recordings spell them
}

func newHost(t *testing.T) *host {
	one := 1
	initial := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial,
		OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", Bridges: []ovsdb.UUID{"br-int"}}}},
		Bridges:     []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: "br-int", Name: "br-int", Ports: []ovsdb.UUID{"port"}}}},
		Ports:       []ovsdb.Diff[ovsdb.Port]{{New: &ovsdb.Port{UUID: "port", Name: "br-int", Interfaces: []ovsdb.UUID{"interface"}}}},
		Interfaces:  []ovsdb.Diff[ovsdb.Interface]{{New: &ovsdb.Interface{UUID: "interface", Name: "br-int", OFPort: &one}}},
	}
	h := &host{t: t, now: time.Unix(1e9, 0), db: ovsdb.NewRehearsal(initial), trunks: map[string]*neutron.Trunk{}, refuses: map[string]bool{}, macs: map[string]neutron.MAC{}}
	h.db.OnCommit = func(b *ovsdb.Batch) { h.rows(b) }
	h.boot(initial)
	return h
}

// boot starts an agent that sees the rows for the first time.
func (h *host) boot(rows *ovsdb.Batch) {
	h.w = world.New(world.Config{Host: "hv1", IntegrationBridge: "br-int"})
	h.x = newTrunks(h.w, func() time.Time { return h.now })
	h.set = extension.Set{extension.NewMember(h.x)}
	h.wants = map[world.Object]pipeline.Want{}
	h.rows(rows)
}

// restart starts another agent.
func (h *host) restart() {
	h.boot(ovsdb.Whole(h.w.View))
}

func (h *host) rows(b *ovsdb.Batch) {
	h.w.Switch(b)
	h.x.OnRows(b)
}

// others changes rows as somebody else.
func (h *host) others(change func(tx *ovsdb.Tx)) {
	h.t.Helper()
	tx := ovsdb.NewTx(h.w.View)
	change(tx)
	if _, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx}); errs[0] != nil {
		h.t.Fatal(errs[0])
	}
}

// plug does what os-vif does with the parent of a trunk.
func (h *host) plug(trunk, parent string) {
	h.t.Helper()
	h.others(func(tx *ovsdb.Tx) {
		tx.EnsureBridge(ovsdb.BridgeSpec{Name: bridgeName(trunk)})
		tx.EnsurePort(ovsdb.PortSpec{Bridge: bridgeName(trunk), Name: tap(parent), ExternalIDs: map[string]string{
			"iface-id": parent, "attached-mac": macOf(parent).String(), "iface-status": "active",
		}})
	})
}

func tap(port string) string { return patchName("tap", port) }

func (h *host) unplug(parent string) {
	h.t.Helper()
	h.others(func(tx *ovsdb.Tx) { tx.DeletePort(h.w.View.PortByName(tap(parent)).UUID) })
}

func (h *host) deleteBridge(trunk string) {
	h.t.Helper()
	h.others(func(tx *ovsdb.Tx) { tx.DeleteBridge(h.w.View.BridgeByName(bridgeName(trunk)).UUID) })
}

func macOf(port string) neutron.MAC {
	m := neutron.MAC{0xfa, 0x16, 0x3e, 0, 0, port[0]}
	return m
}

// The server.

func (h *host) trunk(id, parent string, subs ...neutron.SubPort) {
	h.trunks[parent] = &neutron.Trunk{ID: id, PortID: parent, Status: "DOWN", SubPorts: subs}
}

func sub(trunk, port string, vlan int) neutron.SubPort {
	return neutron.SubPort{PortID: port, TrunkID: trunk, SegmentationType: "vlan", SegmentationID: vlan}
}

// push tells hosts about a sub-port.
func (h *host) push(event neutron.Event, s neutron.SubPort) {
	h.t.Helper()
	data, err := json.Marshal(s)
	if err == nil {
		err = h.set.OnPush(&neutron.Push{Kind: neutron.KindSubPort, Event: event, Objects: []neutron.Primitive{{Name: "SubPort", Version: "1.0", Data: data}}})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// add and remove change a trunk on the server, and tell.
func (h *host) add(parent string, s neutron.SubPort) {
	h.trunks[parent].SubPorts = append(slices.Clone(h.trunks[parent].SubPorts), s)
	h.trunks[parent].Status = "DOWN"
	h.push(neutron.Created, s)
}

func (h *host) remove(parent string, s neutron.SubPort) {
	h.trunks[parent].SubPorts = slices.DeleteFunc(slices.Clone(h.trunks[parent].SubPorts), func(o neutron.SubPort) bool { return o == s })
	h.trunks[parent].Status = "DOWN"
	h.push(neutron.Deleted, s)
}

var errAway = errors.New("no answer")

// Call implements neutron.Caller.
func (h *host) Call(_ context.Context, target messaging.Target, method string, args, result any) error {
	if h.away {
		return errAway
	}
	all := args.(map[string]any)
	var answer any
	switch method {
	case "bulk_pull":
		found := []any{}
		ports := all["filter_kwargs"].(map[string]any)["port_id"].([]string)
		for _, port := range ports {
			if tr := h.trunks[port]; tr != nil {
				subs := []any{}
				for _, s := range tr.SubPorts {
					subs = append(subs, map[string]any{"versioned_object.name": "SubPort", "versioned_object.data": s})
				}
				found = append(found, map[string]any{"versioned_object.name": "Trunk", "versioned_object.version": "1.1", "versioned_object.data": map[string]any{
					"id": tr.ID, "port_id": tr.PortID, "status": tr.Status, "sub_ports": subs,
				}})
			}
		}
		answer = found
		h.calls = append(h.calls, fmt.Sprintf("%s %s by %d parents", method, all["resource_type"], len(ports)))
	case "update_subport_bindings":
		bound, names := map[string][]neutron.BoundSubPort{}, []string{}
		for _, s := range all["subports"].([]neutron.SubPort) {
			names = append(names, s.PortID[:1])
			mac, ok := h.macs[s.PortID]
			if !ok {
				mac = macOf(s.PortID)
			}
			if h.word("update_subport_bindings port=%s", s.PortID); !h.refuses[s.PortID] {
				bound[s.TrunkID] = append(bound[s.TrunkID], neutron.BoundSubPort{ID: s.PortID, MAC: mac})
			}
			for _, tr := range h.trunks {
				if tr.ID == s.TrunkID {
					tr.Status = "BUILD"
				}
			}
		}
		slices.Sort(names)
		answer = bound
		h.calls = append(h.calls, fmt.Sprintf("%s:%s %s", target.Namespace, method, strings.Join(names, " ")))
	case "update_trunk_status":
		for _, tr := range h.trunks {
			if tr.ID == all["trunk_id"] {
				tr.Status = all["status"].(string)
			}
		}
		h.word("update_trunk_status %s status=%s", all["trunk_id"], all["status"])
		h.calls = append(h.calls, fmt.Sprintf("%s:%s %.8s %s", target.Namespace, method, all["trunk_id"], all["status"]))
		return nil
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, result)
}

// word takes down a call as recordings spell it.
func (h *host) word(format string, args ...any) {
	h.words = append(h.words, "call "+fmt.Sprintf(format, args...))
}

// The loop.

func (h *host) resolve() {
	for _, o := range h.set.Resolve(h.w.Resolve()) {
		want, err := h.set.Compile(o, func() pipeline.Want { return pipeline.Want{} })
		if err != nil || len(want.Flows)+len(want.After)+len(want.Meters) > 0 {
			h.t.Fatal(o, err, want)
		}
		h.wants[o] = want
	}
}

// apply writes the rows of one object that are not as wanted, and says whether there was one.
func (h *host) apply() bool {
	for _, o := range slices.SortedFunc(func(yield func(world.Object) bool) {
		for o := range h.wants {
			if !yield(o) {
				return
			}
		}
	}, world.CompareObjects) {
		if tx := ovsdb.DiffRows(h.w.View, h.wants[o].Rows...); tx.Len() > 0 {
			h.commits++
			if _, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx}); errs[0] != nil {
				h.t.Fatal(o, errs[0])
			}
			return true
		}
	}
	return false
}

// onTime tells the extension that its deadline has passed, and says whether it has.
func (h *host) onTime() bool {
	at := h.x.Deadline()
	if at.IsZero() || at.After(h.now) {
		return false
	}
	h.x.OnTime(h.now)
	return true
}

func (h *host) run(call extension.Call) (any, error) {
	return call.Run(context.Background(), neutron.NewServer(h, "hv1"))
}

// converge does everything that is to be done.
func (h *host) converge() {
	h.t.Helper()
	for range 100 {
		h.resolve()
		if h.apply() || h.onTime() {
			continue
		}
		calls := h.x.Calls()
		if len(calls) == 0 || h.away {
			return
		}
		result, err := h.run(calls[0])
		h.x.OnCall(calls[0].Key, result, err)
	}
	h.t.Fatalf("does not come to rest: %v", h.calls)
}

func (h *host) pass(d time.Duration) {
	h.t.Helper()
	h.now = h.now.Add(d)
	h.converge()
}

// said returns the calls since it was asked last.
func (h *host) said() string {
	out := strings.Join(h.calls, "\n")
	h.calls = nil
	return out
}

func (h *host) expect(what string, want ...string) {
	h.t.Helper()
	if got := h.said(); got != strings.Join(want, "\n") {
		h.t.Errorf("%s: said\n%s\nwant\n%s", what, got, strings.Join(want, "\n"))
	}
}

// dump is all rows but those of the bridges themselves.
func (h *host) dump() string {
	var lines []string
	v := h.w.View
	for b := range v.Bridges() {
		lines = append(lines, "bridge "+b.Name)
		for _, i := range v.InterfacesOn(b) {
			p := v.PortOf(i.UUID)
			if i.Name == b.Name {
				continue
			}
			line := fmt.Sprintf("%s %s type=%q", b.Name, i.Name, i.Type)
			if p.Tag != nil {
				line += fmt.Sprintf(" tag=%d", *p.Tag)
			}
			lines = append(lines, fmt.Sprintf("%s mode=%q options=%v ids=%v", line, p.VLANMode, i.Options, i.ExternalIDs))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func (h *host) golden(name string) {
	h.t.Helper()
	script.Golden(h.t, filepath.Join("testdata", name+".rows"), *update, h.dump())
}

func TestWired(t *testing.T) {
	h := newHost(t)
	h.trunk(trunk1, parent1, sub(trunk1, sub1, 101), sub(trunk1, sub2, 102))
	h.plug(trunk1, parent1)
	h.converge()
	h.golden("wired")
	h.expect("plugged", "bulk_pull Trunk by 1 parents", "trunk:update_subport_bindings a b", "trunk:update_trunk_status 11111111 ACTIVE")
	if len(h.x.busy) != 0 || h.commits != 2 {
		t.Errorf("%d commits, want the parent's and the sub-ports'; busy with %v", h.commits, h.x.busy)
	}
	h.x.Resync()
	h.converge()
	h.expect("after doubt", "bulk_pull Trunk by 1 parents")
}

// A parent is not up, and not reported as one of another bridge, from the moment on in which its VM is plugged in until the patches are there, or the
// server has said that it has no trunk.
func TestParentWaitsForItsPatches(t *testing.T) {
	waits := func(h *host) bool { return h.wants[world.PortObject(parent1)].Waiting != "" }
	h := newHost(t)
	h.trunk(trunk1, parent1)
	h.plug(trunk1, parent1)
	h.resolve()
	if !waits(h) {
		t.Error("the server has not answered, and nothing waits")
	}
	calls := h.x.Calls()
	answer, err := h.run(calls[0])
	h.x.OnCall(calls[0].Key, answer, err)
	h.resolve()
	if !waits(h) {
		t.Error("the patches are not there, and nothing waits")
	}
	h.converge()
	if waits(h) {
		t.Error("waits for patches that are there")
	}
	h = newHost(t)
	h.plug(trunk1, parent1)
	h.converge()
	if waits(h) {
		t.Error("waits for a trunk that the server does not know")
	}
}

func TestSubPortsComeAndGo(t *testing.T) {
	h := newHost(t)
	h.trunk(trunk1, parent1)
	h.plug(trunk1, parent1)
	h.converge()
	h.expect("without any", "bulk_pull Trunk by 1 parents", "trunk:update_trunk_status 11111111 ACTIVE")
	h.golden("parent")
	h.add(parent1, sub(trunk1, sub1, 101))
	h.converge()
	h.expect("one", "trunk:update_subport_bindings a", "trunk:update_trunk_status 11111111 ACTIVE")
	h.add(parent1, sub(trunk1, sub2, 102))
	h.converge()
	h.expect("two", "trunk:update_subport_bindings b", "trunk:update_trunk_status 11111111 ACTIVE")
	h.golden("wired")
	h.remove(parent1, sub(trunk1, sub1, 101))
	h.add(parent1, sub(trunk1, sub1, 201))
	h.converge()
	h.expect("another VLAN", "trunk:update_subport_bindings a", "trunk:update_trunk_status 11111111 ACTIVE")
	if got := h.dump(); !strings.Contains(got, patchName(subOuter, sub1)+` type="patch" tag=201`) {
		t.Error(got)
	}
	h.remove(parent1, sub(trunk1, sub1, 201))
	h.remove(parent1, sub(trunk1, sub2, 102))
	h.converge()
	h.expect("none", "trunk:update_trunk_status 11111111 ACTIVE")
	h.golden("parent")
	h.push(neutron.Created, sub(trunk2, sub3, 7))
	if h.converge(); h.said() != "" {
		t.Error("a sub-port of another host matters")
	}
}

// Either the agent takes the bridge away, or whoever made it.
func TestUnplugged(t *testing.T) {
	for _, osvif := range []bool{false, true} {
		h := newHost(t)
		empty := h.dump()
		h.trunk(trunk1, parent1, sub(trunk1, sub1, 101))
		h.plug(trunk1, parent1)
		h.converge()
		h.said()
		h.unplug(parent1)
		if osvif {
			h.deleteBridge(trunk1)
		}
		h.converge()
		before := h.dump()
		h.pass(patchGrace - time.Second)
		if got := h.dump(); got != before {
			t.Errorf("unwired too early:\n%s", got)
		}
		h.pass(time.Second)
		got := h.dump()
		if strings.Contains(got, "patch") || strings.Contains(got, bridgePrefix) == osvif {
			t.Errorf("os-vif %v: after the grace:\n%s", osvif, got)
		}
		h.pass(bridgeGrace)
		if got := h.dump(); got != empty {
			t.Errorf("os-vif %v: left behind:\n%s", osvif, got)
		}
		if h.said() != "" || len(h.x.bridges)+len(h.x.parents)+len(h.x.strays)+len(h.x.busy) != 0 || len(h.x.Calls()) != 0 || !h.x.Deadline().IsZero() {
			t.Errorf("os-vif %v: remembered %v %v %v", osvif, h.x.bridges, h.x.parents, h.x.strays)
		}
	}
}

// A VM that is reset is unplugged and plugged in again, with the bridge or without: its ports stay where they are.
func TestPluggedAgain(t *testing.T) {
	for _, osvif := range []bool{false, true} {
		h := newHost(t)
		h.trunk(trunk1, parent1, sub(trunk1, sub1, 101), sub(trunk1, sub2, 102))
		h.plug(trunk1, parent1)
		h.converge()
		h.said()
		id := h.w.View.PortByName(patchName(subInner, sub1)).UUID
		h.unplug(parent1)
		if osvif {
			h.deleteBridge(trunk1)
		}
		h.pass(3 * time.Second)
		h.plug(trunk1, parent1)
		h.converge()
		h.expect("again", "bulk_pull Trunk by 1 parents", "trunk:update_subport_bindings a b", "trunk:update_trunk_status 11111111 ACTIVE")
		h.pass(2 * bridgeGrace)
		h.golden("wired")
		if h.w.View.PortByName(patchName(subInner, sub1)).UUID != id {
			t.Error("the sub-port on the integration bridge was made anew")
		}
	}
}

func TestBridgeWithoutVM(t *testing.T) {
	h := newHost(t)
	empty := h.dump()
	h.others(func(tx *ovsdb.Tx) { tx.EnsureBridge(ovsdb.BridgeSpec{Name: bridgeName(trunk1)}) })
	h.converge()
	h.pass(bridgeGrace - time.Second)
	if calls := h.x.Calls(); len(calls) != 0 || h.dump() == empty {
		t.Errorf("not waited for the VM: %v", calls)
	}
	h.pass(time.Second)
	if got := h.dump(); got != empty || h.said() != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// A bridge that gets its VM in the moment in which it would be deleted stays.
func TestPluggedInTheLastMoment(t *testing.T) {
	h := newHost(t)
	h.trunk(trunk1, parent1)
	h.others(func(tx *ovsdb.Tx) { tx.EnsureBridge(ovsdb.BridgeSpec{Name: bridgeName(trunk1)}) })
	h.converge()
	row := unjoined("br-int", bridgeName(trunk1), true)
	ops, err := ovsdb.DiffRows(h.w.View, row).JSON()
	if err != nil || !strings.Contains(strings.Join(ops, "\n"), `"columns":["ports"]`) {
		t.Errorf("%v: the bridge is deleted whoever is on it: %v", err, ops)
	}
	h.plug(trunk1, parent1)
	if ovsdb.DiffRows(h.w.View, row).Len() != 0 {
		t.Error("a bridge with a VM is deleted")
	}
}

// A start over what an earlier run left changes nothing, and removes what is not the trunk's any more, once the server says so.
func TestRestart(t *testing.T) {
	h := newHost(t)
	h.trunk(trunk1, parent1, sub(trunk1, sub1, 101), sub(trunk1, sub2, 102))
	h.plug(trunk1, parent1)
	h.converge()
	h.said()
	memory, err := h.set.Save()
	if err != nil {
		t.Fatal(err)
	}
	h.commits = 0
	h.restart()
	h.converge()
	h.expect("start", "bulk_pull Trunk by 1 parents", "trunk:update_subport_bindings a b", "trunk:update_trunk_status 11111111 ACTIVE")
	if h.golden("wired"); h.commits != 0 {
		t.Errorf("%d commits of a start with nothing to change", h.commits)
	}

	h.trunks[parent1].SubPorts = h.trunks[parent1].SubPorts[1:]
	h.restart()
	h.away = true
	if err := h.set.Load(memory); err != nil {
		t.Fatal(err)
	}
	h.converge()
	if h.golden("wired"); h.commits != 0 {
		t.Errorf("%d commits without a server", h.commits)
	}
	h.others(func(tx *ovsdb.Tx) { tx.DeletePort(h.w.View.PortByName(patchName(subOuter, sub1)).UUID) })
	h.converge()
	h.golden("wired") // what was remembered is put right
	h.away = false
	h.converge()
	if got := h.dump(); strings.Contains(got, sub1) || !strings.Contains(got, sub2) {
		t.Errorf("the sub-port that went meanwhile:\n%s", got)
	}
	h.unplug(parent1)
	h.restart() // the VM went while nobody looked
	h.pass(bridgeGrace)
	h.pass(bridgeGrace)
	if got := h.dump(); got != "bridge br-int\n" {
		t.Errorf("left behind:\n%s", got)
	}
}

// Nothing is done about a bridge as long as nobody knows what it is.
func TestUnknown(t *testing.T) {
	h := newHost(t)
	h.plug(trunk1, parent1)
	before := h.dump()
	h.converge()
	h.expect("unknown", "bulk_pull Trunk by 1 parents")
	h.trunk(trunk2, parent1, sub(trunk2, sub1, 101)) // its bridge is another one
	h.x.Resync()
	h.pass(2 * bridgeGrace)
	if got := h.dump(); got != before {
		t.Errorf("changed to:\n%s", got)
	}
	port := world.PortObject(parent1)
	if got := h.set.Explain(port); len(got) != 1 || !strings.Contains(got[0], "knows no trunk") {
		t.Error(got)
	}
}

// What an earlier run knew counts until the server has answered, and not once more after that.
func TestRecalledOnce(t *testing.T) {
	h := newHost(t)
	h.trunk(trunk1, parent1, sub(trunk1, sub1, 101))
	h.plug(trunk1, parent1)
	h.converge()
	memory, err := h.set.Save()
	if err != nil {
		t.Fatal(err)
	}
	h.restart()
	if err := h.set.Load(memory); err != nil {
		t.Fatal(err)
	}
	delete(h.trunks, parent1) // the server knows it no more
	h.converge()
	h.away = true
	for _, port := range []string{patchName(subInner, sub1), patchName(subOuter, sub1)} {
		h.others(func(tx *ovsdb.Tx) { tx.DeletePort(h.w.View.PortByName(port).UUID) })
	}
	h.unplug(parent1)
	h.converge()
	h.plug(trunk1, parent1)
	h.converge()
	if got := h.dump(); strings.Contains(got, sub1) {
		t.Errorf("a sub-port of a trunk that is gone:\n%s", got)
	}
}

// What the server has bound for a VM that was plugged in anew since counts no more: sub-ports are bound again.
func TestBoundForAnEarlierLife(t *testing.T) {
	h := newHost(t)
	h.trunk(trunk1, parent1, sub(trunk1, sub1, 101))
	h.plug(trunk1, parent1)
	h.resolve()
	answer := func() extension.Call { // of which trunks there are; what is listed then
		calls := h.x.Calls()
		result, err := h.run(calls[0])
		h.x.OnCall(calls[0].Key, result, err)
		h.resolve()
		if calls = h.x.Calls(); len(calls) != 1 || calls[0].Key != extension.Key(bindCall{bridgeName(trunk1)}) {
			t.Fatalf("%v", calls)
		}
		return calls[0]
	}
	call := answer()
	early, err := h.run(call)
	h.unplug(parent1)
	h.resolve()
	h.plug(trunk1, parent1)
	h.resolve()
	answer()
	h.x.OnCall(call.Key, early, err)
	h.resolve()
	if calls := h.x.Calls(); len(calls) != 1 || calls[0].Key != call.Key {
		t.Errorf("the binding of an earlier life counts: %v", calls)
	}
	h.said()
	h.converge()
	h.expect("in the end", "trunk:update_subport_bindings a", "trunk:update_trunk_status 11111111 ACTIVE")
}

// A sub-port that the server cannot bind does not keep the others from being wired. The server knows of it, and is not told
// that the trunk is fine.
func TestRefused(t *testing.T) {
	h := newHost(t)
	h.refuses[sub1] = true
	h.trunk(trunk1, parent1, sub(trunk1, sub1, 101), sub(trunk1, sub2, 102))
	h.plug(trunk1, parent1)
	h.converge()
	h.expect("refused", "bulk_pull Trunk by 1 parents", "trunk:update_subport_bindings a b")
	if got := h.dump(); strings.Contains(got, sub1) || !strings.Contains(got, patchName(subInner, sub2)) {
		t.Error(got)
	}
	delete(h.refuses, sub1)
	h.x.Resync()
	h.converge()
	h.expect("another try", "bulk_pull Trunk by 1 parents", "trunk:update_subport_bindings a", "trunk:update_trunk_status 11111111 ACTIVE")
	h.golden("wired")
}

// A sub-port under a number that is no VLAN is not wired: tag 0 would be the parent's own packets, and a number that the database
// does not take would keep the others from being wired too. The server is not told that the trunk is fine.
func TestNoVLAN(t *testing.T) {
	for _, id := range []int{-1, 0, 4095, 4096, 4096 + 101, 1 << 16} {
		h := newHost(t)
		h.trunk(trunk1, parent1, sub(trunk1, sub1, id), sub(trunk1, sub2, 102))
		h.plug(trunk1, parent1)
		h.converge()
		h.expect(fmt.Sprint(id), "bulk_pull Trunk by 1 parents", "trunk:update_subport_bindings b")
		if got := h.dump(); strings.Contains(got, sub1) || !strings.Contains(got, patchName(subInner, sub2)) {
			t.Errorf("%d: %s", id, got)
		}
		if got := h.set.Explain(world.PortObject(parent1)); len(got) != 3 || !strings.Contains(got[1], "VLANs are 1 to 4094") {
			t.Errorf("%d: %v", id, got)
		}
	}
}

// What a Python agent left is kept, but for the parent's patch, which takes any VLAN there.
func TestTakeover(t *testing.T) {
	h := newHost(t)
	h.trunk(trunk1, parent1, sub(trunk1, sub1, 101), sub(trunk1, sub2, 102))
	h.plug(trunk1, parent1)
	h.converge()
	h.others(func(tx *ovsdb.Tx) {
		i := h.w.View.InterfaceByName(tap(parent1))
		tx.Interface(i.UUID).MergeExternalIDs(map[string]string{"subport_ids": fmt.Sprintf("[%q, %q]", sub2, sub1)})
	})
	h.commits = 0
	h.restart()
	if h.converge(); h.commits != 0 {
		t.Errorf("%d commits", h.commits)
	}
	h.others(func(tx *ovsdb.Tx) {
		tx.Port(h.w.View.PortByName(patchName(parentOuter, parent1)).UUID).ClearTag().SetVLANMode("")
	})
	h.restart()
	if h.converge(); h.commits != 1 {
		t.Errorf("%d commits", h.commits)
	}
}

func TestExplain(t *testing.T) {
	h := newHost(t)
	h.plug(trunk1, parent1)
	h.resolve()
	parent, passenger := world.PortObject(parent1), world.PortObject(sub1)
	if got := h.set.Explain(parent); len(got) != 1 || !strings.Contains(got[0], "has not told") {
		t.Error(got)
	}
	h.refuses[sub2] = true
	h.trunk(trunk1, parent1, sub(trunk1, sub1, 101), sub(trunk1, sub2, 102))
	h.converge()
	if got := h.set.Explain(parent); len(got) != 3 || !strings.Contains(got[0], trunk1) || !strings.Contains(got[2], "could not bind") {
		t.Error(got)
	}
	if got := h.set.Explain(passenger); len(got) != 1 || !strings.Contains(got[0], "VLAN 101") {
		t.Error(got)
	}
}

// What happens in any order, with answers that cross news, ends the same, and when all VMs are gone nothing is left.
func TestAnyOrder(t *testing.T) {
	want := ""
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(7, seed)) //nolint:gosec // repeatable
		h := newHost(t)
		empty := h.dump()
		h.trunk(trunk1, parent1, sub(trunk1, sub1, 101))
		h.trunk(trunk2, parent2, sub(trunk2, sub2, 102))
		type answer struct {
			key    extension.Key
			result any
			err    error
		}
		var onTheWay []answer
		// churn lets the loop, the server and time do something at random.
		churn := func() {
			for range r.IntN(6) {
				switch r.IntN(4) {
				case 0:
					h.resolve()
				case 1:
					h.resolve()
					h.apply()
				case 2:
					h.resolve()
					h.onTime()
					if calls := h.x.Calls(); len(calls) > 0 {
						call := calls[r.IntN(len(calls))]
						if !slices.ContainsFunc(onTheWay, func(a answer) bool { return a.key == call.Key }) {
							h.away = r.IntN(5) == 0
							result, err := h.run(call)
							h.away = false
							onTheWay = append(onTheWay, answer{call.Key, result, err})
						}
					}
				case 3:
					if len(onTheWay) > 0 {
						h.x.OnCall(onTheWay[0].key, onTheWay[0].result, onTheWay[0].err)
						onTheWay = onTheWay[1:]
					}
				}
			}
		}
		rest := func() {
			for _, a := range onTheWay {
				h.x.OnCall(a.key, a.result, a.err)
			}
			onTheWay = nil
			h.converge()
		}
		steps := [][]func(){
			{func() { h.plug(trunk1, parent1) }, func() { h.unplug(parent1) }, func() { h.plug(trunk1, parent1) }},
			{func() { h.plug(trunk2, parent2) }, func() { h.x.Resync() }},
			{func() { h.add(parent1, sub(trunk1, sub3, 103)) }, func() { h.remove(parent1, sub(trunk1, sub1, 101)) }, func() { h.add(parent1, sub(trunk1, sub1, 201)) }},
			{func() { h.remove(parent2, sub(trunk2, sub2, 102)) }},
		}
		for len(steps) > 0 {
			i := r.IntN(len(steps))
			steps[i][0]()
			if steps[i] = steps[i][1:]; len(steps[i]) == 0 {
				steps = slices.Delete(steps, i, i+1)
			}
			churn()
		}
		rest()
		if got := h.dump(); want == "" {
			want = got
			h.golden("any-order")
		} else if got != want {
			t.Fatalf("seed %d:\n%s\nwant\n%s", seed, got, want)
		}
		for _, tr := range h.trunks {
			if tr.Status != neutron.TrunkActive {
				t.Fatalf("seed %d: trunk %s is %s", seed, tr.ID, tr.Status)
			}
		}
		for _, parent := range []string{parent1, parent2} {
			h.unplug(parent)
			churn()
		}
		if r.IntN(2) == 0 {
			h.deleteBridge(trunk1)
		}
		rest()
		h.pass(patchGrace)
		h.pass(bridgeGrace)
		if got := h.dump(); got != empty {
			t.Fatalf("seed %d leaves\n%s", seed, got)
		}
	}
}

// TestAnswersStayAsTheyCame: pushes change what is known of a trunk, not the answer that it came with.
func TestAnswersStayAsTheyCame(t *testing.T) {
	s1, s2 := sub("t1", "s1", 1), sub("t1", "s2", 2)
	b := &bridge{name: bridgeName("t1"), parent: parent{id: "p"}, bound: map[string]bool{}, macs: map[string]neutron.MAC{}}
	x := &trunks{bridges: map[string]*bridge{b.name: b}, touched: map[string]bool{}}
	answer := trunksPulled{[]question{{bridge: b.name, parent: "p"}}, []neutron.Trunk{{ID: "t1", PortID: "p", SubPorts: []neutron.SubPort{s1, s2}}}}
	x.OnCall(trunksCall{}, answer, nil)
	data, err := json.Marshal(s1)
	if err == nil {
		err = x.OnPush(&neutron.Push{Kind: neutron.KindSubPort, Event: neutron.Deleted, Objects: []neutron.Primitive{{Name: "SubPort", Version: "1.0", Data: data}}})
	}
	if err != nil || !slices.Equal(b.trunk.SubPorts, []neutron.SubPort{s2}) {
		t.Fatalf("%v, %v", b.trunk.SubPorts, err)
	}
	if got := answer.trunks[0].SubPorts; !slices.Equal(got, []neutron.SubPort{s1, s2}) {
		t.Errorf("the answer has %v now", got)
	}
}
