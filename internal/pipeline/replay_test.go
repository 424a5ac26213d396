// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dvr"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/pipeline"
	"github.com/patchbay-sdn/patchbay/internal/qos"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/parity"
)

const recordings = "../../parity/testdata"

// TestReplay gives every recorded scenario's inputs to world and pipeline, and compares the flows with those that the
// Python agent made of the same inputs. It needs no server and no switch. Rows and calls, and fail_closed, are compared in
// package agent.
func TestReplay(t *testing.T) {
	all, err := parity.LoadAll(recordings)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := parity.LoadAccepted("../../parity/accepted.md")
	if err != nil {
		t.Fatal(err)
	}
	pins, err := parity.LoadPins(filepath.Join(recordings, parity.PinsFile))
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]*parity.Recording{}
	for _, r := range all {
		if r.IsConfig() {
			configs[r.Config] = r
		}
	}
	for _, r := range all {
		t.Run(r.Name, func(t *testing.T) {
			for _, host := range r.Hosts {
				h := newReplay(t, r, host)
				if !r.IsConfig() {
					for _, s := range configs[r.Config].Stages {
						h.play(s.Events)
					}
				}
				for _, s := range r.Stages {
					h.play(s.Events)
					h.strays()
					want := s.Want.Select(func(line string) bool { return strings.HasPrefix(line, host+" ") && isFlow(line) })
					if h.w.Config.Filter && !h.w.Config.Hybrid {
						want = want.Plus(shared(host))
					}
					d := parity.Compare(want, h.lines().Select(isFlow), accepted.At(r.Name, s.Checkpoint))
					wrong := pins.AtMost(parity.Place{Scenario: r.Name, Checkpoint: s.Checkpoint, Host: host}, d.Counts())
					for _, x := range d.Unexplained() {
						wrong = append(wrong, x.String())
					}
					if len(wrong) > 0 {
						t.Errorf("%s at %q after %q:\n%s", host, s.Checkpoint, s.Steps, strings.Join(wrong, "\n"))
					}
					h.recalls(t)
				}
			}
		})
	}
}

// shared are the flows that the Python agent makes with its first filtered port and never takes away; here they are part of the
// bridge from the start.
func shared(host string) parity.Snapshot {
	var lines []string
	for _, table := range []string{"72", "82"} {
		lines = append(lines, host+" br-int table="+table+" priority=50 ct_state=+inv+trk actions=resubmit(,93)")
	}
	return parity.NewSnapshot(lines)
}

// isFlow keeps the flows of the bridges that an agent programs.
func isFlow(line string) bool {
	fields := strings.Fields(line)
	return len(fields) > 2 && (strings.HasPrefix(fields[2], "table=") || strings.HasPrefix(fields[2], "meter=")) && slices.Contains([]string{"br-int", "br-tun", "br-ex"}, fields[1])
}

// replay is one host of a recording.
type replay struct {
	t       *testing.T
	r       *parity.Recording
	host    string
	w       *world.World
	s       *pipeline.Settings
	db      *parity.Database
	server  *parity.Server
	flows   map[world.Object][]pipeline.Flow
	meters  map[world.Object][]pipeline.Meter
	makers  []extension.New
	set     extension.Set
	started bool
}

func newReplay(t *testing.T, r *parity.Recording, host string) *replay {
	cfg, err := r.World(host)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := r.Settings()
	if err != nil {
		t.Fatal(err)
	}
	cfg.FailClosed = false // as the Python agent
	var makers []extension.New
	if r.Option("agent.enable_distributed_routing") == "true" {
		makers = append(makers, dvr.New)
	}
	for _, name := range r.Extensions() {
		makers = append(makers, map[string]extension.New{"qos": qos.New}[name])
	}
	w := newWorld(cfg)
	return &replay{
		meters: map[world.Object][]pipeline.Meter{}, makers: makers, set: extension.Make(w, makers),
		t: t, r: r, host: host, w: w, db: parity.NewDatabase(), server: parity.NewServer(), flows: map[world.Object][]pipeline.Flow{},
		s: &settings,
	}
}

// newWorld is a world whose integration bridge can have meters.
func newWorld(cfg world.Config) *world.World {
	w := world.New(cfg)
	w.MaxMeters[cfg.IntegrationBridge] = 1 << 16
	return w
}

// rows takes changed rows.
func (h *replay) rows(b *ovsdb.Batch) {
	h.w.Switch(b)
	h.set.OnRows(b)
}

// play takes events as they came, and lets what the agent would do about each happen before the next.
func (h *replay) play(events []parity.Event) {
	for _, e := range events {
		if err := h.server.Apply(e); err != nil {
			h.t.Fatal(err)
		}
		if !slices.Contains(e.Hosts, h.host) {
			continue
		}
		switch {
		case len(e.Rows) > 0:
			h.rows(h.db.Apply(e.Rows))
			if !h.started {
				h.started = true
				for _, o := range h.set.Resolve(h.w.Everything()) {
					h.compile(o)
				}
			}
		case e.Cast != "":
			h.cast(e)
		case e.Call == "tunnel_sync":
			h.synced(e)
		}
		h.converge()
	}
}

func (h *replay) cast(e parity.Event) {
	m, err := neutron.DecodeMessage(e.Topic, e.Cast, e.Args)
	if err != nil {
		h.t.Fatal(err)
	}
	switch m := m.(type) {
	case *neutron.Push:
		err = errors.Join(h.w.Push(m, time.Unix(0, 0)), h.set.OnPush(m))
	case *neutron.TunnelUpdate:
		h.w.Tunnels.Up(world.Endpoint{Type: m.Type, IP: m.IP})
	case *neutron.TunnelDelete:
		h.w.Tunnels.Gone(world.Endpoint{Type: m.Type, IP: m.IP})
	case *neutron.FDBAdd:
		h.w.Tunnels.FDBAdd(m)
	case *neutron.FDBRemove:
		h.w.Tunnels.FDBRemove(m)
	case *neutron.FDBChange:
		h.w.Tunnels.FDBChange(m)
	default:
		err = h.set.OnCast(e.Cast, e.Args)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *replay) synced(e parity.Event) {
	var args struct {
		Type string `json:"tunnel_type"`
	}
	var result struct{ Tunnels []neutron.Tunnel }
	if json.Unmarshal(e.Args, &args) != nil || json.Unmarshal(e.Result, &result) != nil {
		h.t.Fatalf("cannot read %s", e.Result)
	}
	for _, t := range result.Tunnels {
		h.w.Tunnels.Up(world.Endpoint{Type: args.Type, IP: t.IP})
	}
}

// converge does what the agent's loop does until nothing is left to do: compile, ask, write rows.
func (h *replay) converge() {
	asked := map[world.Item]bool{}
	for range 20 {
		busy := false
		for _, o := range h.set.Resolve(h.w.Resolve()) {
			busy = true
			h.compile(o)
		}
		if ids := h.w.Missing(); len(ids) > 0 {
			busy = true
			h.w.Ports(ids, decoded[neutron.Port](h, neutron.KindPort, h.pulled(neutron.KindPort, "id", ids...)))
		}
		if h.answer(asked) || h.answerExtensions() {
			busy = true
		}
		if !busy {
			return
		}
	}
	h.t.Fatal("does not come to rest")
}

func (h *replay) compile(o world.Object) {
	if id, ok := world.PortID(o); ok && h.w.Config.Hybrid && h.w.Port(id) != nil {
		h.w.SetGuard(id, world.Admitted) // rules of iptables are in place at once
	}
	core := pipeline.Compile(h.w, h.s, o)
	want, err := h.set.Compile(o, func() pipeline.Want { return pipeline.Compile(h.w, h.s, o) })
	if err = errors.Join(core.Err, err); err != nil {
		h.t.Fatal(err)
	}
	h.flows[o], h.meters[o] = want.Flows, want.Meters
	for _, row := range append(core.Rows, core.After...) {
		h.write(row)
	}
}

// answerExtensions gives the extensions what they ask for.
func (h *replay) answerExtensions() bool {
	busy := false
	for _, e := range h.set {
		for _, item := range e.Missing() {
			busy = true
			if err := e.Puller.OnPulled(item.Kind, []string{item.ID}, h.pulled(item.Kind, "id", item.ID)); err != nil {
				h.t.Fatal(err)
			}
		}
		for _, call := range e.Calls() {
			result, err := call.Run(h.t.Context(), neutron.NewServer(h.server, h.host))
			e.Caller.OnCall(call.Key, result, err)
			busy = busy || err == nil
		}
	}
	return busy
}

// strays takes away patches of trunks whose other ends are gone, which the Python agent leaves; see package trunk.
func (h *replay) strays() {
	var names []string
	for p := range h.db.View().Ports() {
		if kind, id, ok := strings.Cut(p.Name, "i-"); ok && (kind == "tp" || kind == "sp") && h.db.View().PortByName(kind+"t-"+id) == nil {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		h.rows(h.db.DeletePort(name))
	}
	h.converge()
}

// write makes the rows that a wish stands for, as far as flows depend on them: ports and their numbers, tags.
func (h *replay) write(row ovsdb.Spec) {
	r := pipeline.Describe(row, h.db.View())
	if r.Port == "" {
		if h.db.View().BridgeByName(r.Bridge) == nil {
			h.rows(h.db.SetBridge(r.Bridge, func(*ovsdb.Bridge) {}))
		}
		return
	}
	if ovsdb.DiffRows(h.db.View(), row).Len() == 0 {
		return
	}
	exists := h.db.View().PortByName(r.Port) != nil
	switch {
	case r.Gone:
		h.rows(h.db.DeletePort(r.Port))
	case r.Tag != nil:
		h.rows(h.db.SetPort("br-int", r.Port, func(p *ovsdb.Port, _ *ovsdb.Interface) {
			if p.Tag, p.VLANMode, p.Trunks = r.Tag, "", nil; *r.Tag == world.DeadVLAN {
				p.VLANMode, p.Trunks = "trunk", []int{world.DeadVLAN}
			}
			if r.Config != nil {
				p.OtherConfig = r.Config
			}
		}))
	case !exists:
		h.rows(h.db.SetPort(r.Bridge, r.Port, func(_ *ovsdb.Port, i *ovsdb.Interface) { i.Type = r.Type }))
	}
}

// lines are the flows in the words of the recording.
func (h *replay) lines() parity.Snapshot {
	names := h.r.NamesOf()
	names.Learn(h.db.View())
	for _, s := range h.w.Segments.All() {
		id := "None"
		if s.Key.ID >= 0 {
			id = s.Key.String()[len(s.Key.Network)+1:]
		}
		names.VLAN(s.VLAN, parity.VLANName(names.Apply(s.Key.Network), id))
	}
	byBridge := map[string]map[openflow.Key]openflow.Flow{}
	for _, flows := range h.flows {
		for _, f := range flows {
			flow, err := f.Entry.Flow()
			if err != nil {
				h.t.Fatal(err)
			}
			if byBridge[f.Bridge] == nil {
				byBridge[f.Bridge] = map[openflow.Key]openflow.Flow{}
			}
			byBridge[f.Bridge][f.Entry.Key()] = flow
		}
	}
	var lines []string
	var meters []openflow.MeterDesc
	for o, list := range h.meters {
		port, _ := world.PortID(o)
		for _, m := range list {
			direction := "_egress"
			if strings.Contains(m.Reason, " to the port") {
				direction = "_ingress"
			}
			names.Meter(m.ID, port+direction)
			meters = append(meters, m.MeterDesc)
		}
	}
	for _, line := range names.Meters("br-int", meters) {
		lines = append(lines, h.host+" "+line)
	}
	for bridge, flows := range byBridge {
		for _, line := range names.Flows(bridge, slices.Collect(maps.Values(flows))) {
			lines = append(lines, h.host+" "+line)
		}
	}
	return parity.NewSnapshot(lines)
}
