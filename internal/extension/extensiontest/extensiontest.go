// SPDX-License-Identifier: Apache-2.0

// Package extensiontest plays scripts (package script) to extensions, on a host in memory: an integration bridge br-int, the rows of its
// database, and a server that knows every port. It takes the steps of the agent: it resolves, compiles, writes rows and pulls. It makes no
// calls and no time passes; package trunk shows how these are tested. Only tests import it.
//
// A script says what happens, and asks for the outcome:
//
//	port 1 {"name":"web"}       what the server says about port 1 besides its binding; no spaces in the JSON
//	port 1 {} vlan:physnet1:7   the same on a network that is not local
//	plug 1 quiet=true           the interface tap1 of port 1, with external_ids; ofports go down from 65279
//	unplug 1
//	firewall                    a new host, whose flows filter ports by their groups
//	object SecurityGroup g {…}  a group with its rules; members are the ports that the script names
//	deleted Log l               an object of the server is deleted
//	object QosPolicy q {"id":"q"}   an object of the server: it is pushed, and found when it is pulled
//	resync                      messages may have been lost
//	restart                     another agent over the same rows, with what the last one saved
//	restart without 1           the same, and port 1 was unplugged while no agent ran
//	device eth0 MAC…            a network device, with these addresses in its forwarding table
//	nodevice eth0               it is gone
//	bridge br-meta              the bridge of physical network meta
//	row tap1 provider_ip=1.2.3.4   other_config of the row of a port, before an agent has seen it or after
//	unsynced, synced            not everything is known that could want an entry of such a table, or it is again
//	$ flows                     what the extensions add to the flows of the core: object, reason and flow
//	$ forwarding                changes of forwarding tables since this was last asked, as commands
//	$ service                   what the service is to be
//	$ row tap1                  other_config of the row of a port
//	$ explain 1                 what the extensions say about port 1
package extensiontest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/script"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

const hostname, bridge = "hv1", "br-int"

// Run plays the scripts that a pattern names, each to extensions of its own. With update the files get the answers.
func Run(t *testing.T, pattern string, update bool, makers ...extension.New) {
	t.Helper()
	script.Run(t, pattern, update, func(t *testing.T) script.Player { return newHost(t, makers) })
}

// host is an agent's world and extensions over a database in memory.
type host struct {
	t       *testing.T
	makers  []extension.New
	db      *ovsdb.Rehearsal
	w       *world.World
	set     extension.Set
	wants   map[world.Object]pipeline.Want
	adds    map[world.Object][]pipeline.Flow // of these, what the extensions add
	ports   map[string]neutron.Port          // what the server says about those that a script names
	objects map[extension.Item]neutron.Primitive
	devices
	filter bool
}

func newHost(t *testing.T, makers []extension.New) *host {
	first := &ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial,
		OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "root", Bridges: []ovsdb.UUID{bridge}}}},
		Bridges:     []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{UUID: bridge, Name: bridge}}},
	}
	h := &host{t: t, makers: makers, db: ovsdb.NewRehearsal(first), ports: map[string]neutron.Port{}, objects: map[extension.Item]neutron.Primitive{},
		devices: devices{tables: forwarding.Tables{}}}
	h.db.OnCommit = h.rows
	h.start(first, func() {})
	return h
}

// start makes an agent over rows. Load gives it what an earlier one saved.
func (h *host) start(rows *ovsdb.Batch, load func()) {
	h.w = world.New(world.Config{Host: hostname, IntegrationBridge: bridge, Physical: map[string]string{"physnet1": "br-ex", "physnet2": "br-two", "meta": "br-meta"}, Filter: h.filter, FilterTables: h.filter})
	h.set = extension.Make(h.w, h.makers)
	h.wants, h.adds = map[world.Object]pipeline.Want{}, map[world.Object][]pipeline.Flow{}
	load()
	h.rows(rows)
	h.compile(h.set.Resolve(h.w.Everything()))
}

func (h *host) rows(b *ovsdb.Batch) {
	h.w.Switch(b)
	h.set.OnRows(b)
}

var commands = regexp.MustCompile(`^((port|plug|unplug|object|deleted|row|device|nodevice) [^ :]+|firewall|resync|restart|synced|unsynced)( |$)|^bridge [^ :]+$`)

// Commands implements script.Player.
func (h *host) Commands() *regexp.Regexp { return commands }

// Tell implements script.Player.
func (h *host) Tell(words []string) {
	switch name := "tap" + strings.Join(words[1:min(2, len(words))], ""); words[0] {
	case "port":
		p := bound(words[1])
		h.check(json.Unmarshal([]byte(words[2]), &p))
		if len(words) > 3 {
			p.BindingLevels[0].Segment.Value = segment(words[3])
		}
		h.ports[p.ID] = p
		h.w.Resync() // so that it is pulled again
	case "plug":
		ids := map[string]string{"iface-id": words[1], "attached-mac": "fa:16:3e:00:00:01"}
		for _, pair := range words[2:] {
			k, v, _ := strings.Cut(pair, "=")
			ids[k] = v
		}
		h.commit(func(tx *ovsdb.Tx) { tx.EnsurePort(ovsdb.PortSpec{Bridge: bridge, Name: name, ExternalIDs: ids}) })
	case "unplug":
		h.commit(func(tx *ovsdb.Tx) { tx.DeletePort(h.w.View.PortByName(name).UUID) })
	case "object":
		kind, o := neutron.Kind(words[1]), neutron.Primitive{Name: words[1], Data: []byte(words[3])}
		h.objects[extension.Item{Kind: kind, ID: words[2]}] = o
		p := &neutron.Push{Kind: kind, Event: neutron.Updated, Objects: []neutron.Primitive{o}}
		h.check(h.w.Push(p, time.Unix(0, 0)))
		h.check(h.set.OnPush(p))
	case "deleted":
		item := extension.Item{Kind: neutron.Kind(words[1]), ID: words[2]}
		p := &neutron.Push{Kind: item.Kind, Event: neutron.Deleted, Objects: []neutron.Primitive{h.objects[item]}}
		delete(h.objects, item)
		h.check(h.w.Push(p, time.Unix(0, 0)))
		h.check(h.set.OnPush(p))
	case "firewall":
		h.filter = true
		h.start(ovsdb.Whole(h.w.View), func() {})
	case "bridge":
		h.commit(func(tx *ovsdb.Tx) { tx.EnsureBridge(ovsdb.BridgeSpec{Name: words[1]}) })
	case "row":
		k, v, _ := strings.Cut(words[2], "=")
		h.commit(func(tx *ovsdb.Tx) {
			tx.EnsurePort(ovsdb.PortSpec{Bridge: bridge, Name: words[1], OtherConfig: map[string]string{k: v}})
		})
	case "resync":
		h.set.Resync()
	case "restart":
		saved, err := h.set.Save()
		h.check(err)
		ports := h.w.Memory()
		if len(words) > 2 {
			h.commit(func(tx *ovsdb.Tx) { tx.DeletePort(h.w.View.PortByName("tap" + words[2]).UUID) })
		}
		h.start(ovsdb.Whole(h.w.View), func() {
			h.w.Recall(ports)
			h.check(h.set.Load(saved))
		})
	default:
		if !h.devices.tell(words, h.set) {
			h.t.Fatalf("unknown command %q", words)
		}
	}
	h.resolve()
}

// Ask implements script.Player.
func (h *host) Ask(words []string) []string {
	switch words[0] {
	case "flows":
		var out []string
		for _, o := range world.SortedObjects(h.adds) {
			for _, f := range h.adds[o] {
				cookie := fmt.Sprintf(",cookie=%#x", pipeline.Cookie)
				out = append(out, o.String()+": "+f.Reason, "  "+strings.Replace(f.Entry.String(), cookie, "", 1))
			}
		}
		return out
	case "forwarding":
		return h.devices.takeLines()
	case "service":
		var out []string
		for _, m := range h.set {
			if m.Server != nil {
				out = append(out, strings.Split(m.Server.Service().String(), "\n")...)
			}
		}
		return out
	case "row":
		var out []string
		p := h.w.View.PortByName(words[1])
		for _, k := range slices.Sorted(maps.Keys(p.OtherConfig)) {
			out = append(out, k+"="+p.OtherConfig[k])
		}
		return out
	case "explain":
		return h.set.Explain(world.PortObject(words[1]))
	}
	h.t.Fatalf("unknown question %q", words)
	return nil
}

func (h *host) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) commit(add func(*ovsdb.Tx)) {
	tx := ovsdb.NewTx(h.w.View)
	add(tx)
	_, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx})
	h.check(errs[0])
}

func (h *host) compile(objects []world.Object) {
	for _, o := range objects {
		core := pipeline.Compile(h.w, &pipeline.Settings{}, o)
		want, err := h.set.Compile(o, func() pipeline.Want { return pipeline.Compile(h.w, &pipeline.Settings{}, o) })
		h.check(err)
		h.wants[o] = want
		h.adds[o] = slices.DeleteFunc(slices.Clone(want.Flows), func(f pipeline.Flow) bool { return slices.Contains(core.Flows, f) })
	}
}

// resolve takes the agent's steps until nothing changes any more.
func (h *host) resolve() {
	for range 100 {
		changed := h.set.Resolve(h.w.Resolve())
		h.compile(changed)
		if pulled := h.pull(); !h.write() && !h.devices.work(h.set) && !pulled && len(changed) == 0 {
			return
		}
	}
	h.t.Fatal("does not come to rest")
}

// write commits the rows of one object that are not as wanted, and says whether there was one.
func (h *host) write() bool {
	tx := Unwritten(h.w.View, h.wants)
	if tx == nil {
		return false
	}
	_, errs := h.db.CommitAll(context.Background(), []*ovsdb.Tx{tx})
	h.check(errs[0])
	return true
}

// bound returns a port that is bound to this host, on a local network.
func bound(id string) neutron.Port {
	local := neutron.Maybe[neutron.Segment]{Value: &neutron.Segment{NetworkType: "local"}}
	return neutron.Port{
		ID: id, NetworkID: "net", AdminStateUp: true, DeviceOwner: "compute:nova",
		Bindings:      neutron.List[neutron.Binding]{{Host: hostname, Status: "ACTIVE"}},
		BindingLevels: neutron.List[neutron.BindingLevel]{{Host: hostname, Segment: local}},
	}
}

// pull has the server answer, and says whether something was asked.
func (h *host) pull() bool {
	missing := h.w.Missing()
	ports := make([]neutron.Port, len(missing))
	for i, id := range missing {
		p, known := h.ports[id]
		if ports[i] = p; !known {
			ports[i] = bound(id)
		}
	}
	h.w.Ports(missing, ports)
	asked := len(missing) > 0 || h.answerGroups()
	for _, m := range h.set {
		for _, item := range m.Missing() {
			h.check(m.Puller.OnPulled(item.Kind, []string{item.ID}, h.found(item)))
			asked = true
		}
	}
	return asked
}

// found returns the objects of the server that an item asks for.
func (h *host) found(item extension.Item) []neutron.Primitive {
	if item.By == "" {
		if o, ok := h.objects[item]; ok {
			return []neutron.Primitive{o}
		}
		return nil
	}
	var out []neutron.Primitive
	by, conditions, _ := strings.Cut(item.By, "&")
	field, value, limited := strings.Cut(conditions, "=")
	for _, k := range slices.SortedFunc(maps.Keys(h.objects), func(a, b extension.Item) int { return strings.Compare(a.ID, b.ID) }) {
		var fields map[string]any
		h.check(json.Unmarshal(h.objects[k].Data, &fields))
		if k.Kind == item.Kind && fields[by] == item.ID && (!limited || fields[field] == value) {
			out = append(out, h.objects[k])
		}
	}
	return out
}
