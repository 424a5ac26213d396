// SPDX-License-Identifier: Apache-2.0

// Package plan finds out what starting the agent would change on this host, and changes nothing.
//
// [Make] runs the agent's own loop (package agent) between stand-ins. The rows and flows of the switch are read once; from
// then on the loop writes to copies of them (package ovsdb's Rehearsal, and tables here). Questions to the server that
// have no effect there are passed on; whatever would have one is answered here, as the server would. When the loop has
// nothing left to do, the copies are compared with what was read, and the difference is the plan: whatever the agent would
// do in several rounds, such as making a port and then flows that refer to its number, is in it.
//
// The server tells tunnel endpoints and forwarding entries only to agents that register. They are taken from the tunnels
// and flows that are on the switch, see entries.go.
//
// In: the agent's configuration, a way to read the switch, a broker or none. Out: [Plan], plain data.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Input is what a plan is made from.
type Input struct {
	// Agent is the configuration that the agent would have. What acts in it is not used: Link, Conntrack, Snapshot and
	// Notifier.
	Agent agent.Config
	// Filtered says whether the agent would have connection tracking.
	Filtered bool
	// Database reads the switch's rows. It is run until it has them.
	Database Database
	// Dial connects to a bridge, whose flows are read, and nothing else.
	Dial func(ctx context.Context, bridge string) (Dumper, error)
	// Open makes the broker's client. Nil: no server is asked, as if none answered.
	Open func(onEvent func(messaging.Event)) (agent.Broker, error)
	// Look reads a network device of the host, for an extension that has one.
	Look func(ctx context.Context, device string) (metaproxy.Link, error)
}

// Database is what is used of *ovsdb.Client.
type Database interface {
	Run(ctx context.Context)
	Changes() <-chan *ovsdb.Batch
}

// Dumper is what is used of *openflow.Conn.
type Dumper interface {
	Flows(ctx context.Context, fl openflow.Filter) ([]openflow.Entry, error)
	Meters(ctx context.Context) ([]openflow.MeterDesc, error)
	MeterFeatures(ctx context.Context) (openflow.MeterFeatures, error)
	Close() error
}

// Plan is what a start would change.
type Plan struct {
	Host    string    `json:"host"`
	Made    time.Time `json:"made"`
	Seconds float64   `json:"seconds"` // that it took
	Offline bool      `json:"offline"` // no server was asked
	// Complete: the agent would be in sync after these changes. Otherwise Missing says what keeps it from that, and there
	// may be more changes.
	Complete bool     `json:"complete"`
	Missing  []string `json:"missing,omitempty"`
	Rows     []Row    `json:"rows"`
	Flows    []Flow   `json:"flows"`
	Meters   []Meter  `json:"meters,omitempty"`
	// Flushed are bridges whose flows the switch forgets for a moment, because they get their first controller.
	Flushed []string `json:"flushed_bridges,omitempty"`
	// Rules are the lines for ipset restore, iptables-restore and ip6tables-restore.
	Rules []string `json:"iptables,omitempty"`
	// Device is what the device of the metadata proxy lacks, as commands.
	Device []string `json:"device,omitempty"`
	// Forwarding are entries of forwarding tables of devices, as commands.
	Forwarding []string `json:"forwarding,omitempty"`
	// Zones of connection tracking that are emptied, because they have a new owner.
	Zones []uint16 `json:"emptied_zones,omitempty"`
	// Assumed is what the server tells only to an agent that starts, and was taken from the switch.
	Assumed Assumed `json:"assumed"`
	// Reported are ports whose status the server would be told.
	Reported Reported `json:"reported"`
	// Compared counts what there was to compare.
	Compared Compared `json:"compared"`
	// Tables are those that have flows, by bridge.
	Tables map[string]map[uint8]bool `json:"-"`
	// Ports are the names of ports that are there, by bridge and number.
	Ports map[string]map[uint32]string `json:"-"`
}

// Row is a row that changes, and for whom.
type Row struct {
	ovsdb.RowChange
	Owner string `json:"owner,omitempty"`
}

// Flow is a flow that changes.
type Flow struct {
	Change   string `json:"change"` // added, removed or changed
	Bridge   string `json:"bridge"`
	Table    uint8  `json:"table"`
	Priority uint16 `json:"priority"`
	Match    string `json:"match"`
	Actions  string `json:"actions"` // of a removed flow those that it has
	// Before are the actions that a changed flow has.
	Before string `json:"actions_before,omitempty"`
	Cookie string `json:"cookie"` // as it is, or would be
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason"`
}

// Meter is a meter that changes.
type Meter struct {
	Change string `json:"change"` // added, removed or changed
	Bridge string `json:"bridge"`
	ID     uint32 `json:"id"`
	Meter  string `json:"meter"`            // as ovs-ofctl writes it
	Before string `json:"before,omitempty"` // of a changed one
}

// Assumed counts what was taken from the switch.
type Assumed struct {
	Tunnels int `json:"tunnels"`
	Entries int `json:"forwarding_entries"`
}

// Reported counts ports.
type Reported struct {
	Up   int `json:"up"`
	Down int `json:"down"`
}

// Compared counts what was read.
type Compared struct {
	Bridges int `json:"bridges"`
	Ports   int `json:"ports"`
	Flows   int `json:"flows"`
}

// Empty says whether nothing would change.
func (p *Plan) Empty() bool {
	return len(p.Rows)+len(p.Flows)+len(p.Meters)+len(p.Flushed)+len(p.Rules)+len(p.Forwarding)+len(p.Device)+len(p.Zones) == 0
}

// fdbGrace is how long the rehearsed server takes to tell about forwarding entries: it does so before it answers.
const fdbGrace = 50 * time.Millisecond

// Make makes a plan. Ctx bounds the time it may take; what is known by then is returned, as a plan that is not complete.
func Make(ctx context.Context, in Input) (*Plan, error) {
	p, _, _, err := rehearse(ctx, in)
	return p, err
}

// rehearse makes a plan, and shows the switch as it would be.
func rehearse(ctx context.Context, in Input) (*Plan, *ovsdb.Rehearsal, *bridges, error) {
	p := &Plan{Host: in.Agent.Host, Made: time.Now(), Offline: in.Open == nil}
	initial, err := ovsdb.ReadAll(ctx, in.Database)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the switch's database: %w", err)
	}
	before := ovsdb.NewView()
	before.Apply(initial)
	names := world.New(in.Agent.World).Bridges()
	bridges, err := readFlows(ctx, in.Dial, before, names)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, b := range bridges.all {
		p.Compared.Flows += len(b.before)
	}
	p.Compared.Bridges = len(bridges.all)

	rows := ovsdb.NewRehearsal(initial)
	rows.OnCommit = bridges.committed
	server := newServer(before, &in.Agent.World, bridges.entries(in.Agent.World.TunnelBridge))
	zones := &zones{}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var last agent.Progress // written by the loop, read when it is over
	cfg := in.Agent
	cfg.Link, cfg.PacketLink, cfg.Snapshot, cfg.ReportInterval, cfg.FDBGrace = bridges.link, nil, "", 0, fdbGrace
	cfg.Notifier = observe.NewNotifier(func(string) string { return "" }, os.Getpid())
	cfg.Conntrack = nil
	if in.Filtered {
		cfg.Conntrack = zones
	}
	rules := &rules{Rules: in.Agent.Rules}
	if cfg.Rules != nil {
		cfg.Rules = rules
	}
	tables := &tables{Forwarding: in.Agent.Forwarding}
	cfg.Forwarding = tables
	proxy := &service{look: in.Look}
	cfg.Metadata = proxy
	cfg.Progress = func(now agent.Progress) {
		if last = now; now.Complete || p.Offline && now.Idle {
			stop()
		}
	}
	a, err := agent.New(cfg, rows, func(onEvent func(messaging.Event)) (agent.Broker, error) {
		if in.Open == nil {
			return server, nil
		}
		var err error
		server.real, err = in.Open(onEvent)
		return server, err
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the broker: %w", err)
	}
	if err := a.Run(running); err != nil {
		return nil, nil, nil, err
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, nil, nil, context.Cause(ctx)
	}
	p.Complete = last.Complete || p.Offline && last.Idle
	if !p.Complete {
		p.Missing = append(last.Missing, server.failures()...)
	}
	p.Rules, p.Forwarding = rules.lines, tables.lines
	if p.Device, err = proxy.lines(ctx); err != nil {
		return nil, nil, nil, err
	}
	p.Zones, p.Reported, p.Assumed = zones.sorted(), server.reported(), server.assumed
	p.Flushed = bridges.flushed()
	madeUp := map[uint32]string{}
	rows.Look(func(after *ovsdb.View) {
		for _, c := range ovsdb.Compare(before, after) {
			p.Rows = append(p.Rows, Row{RowChange: c})
		}
		for i := range after.Interfaces() {
			if before.Interface(i.UUID) == nil && i.OFPort != nil {
				madeUp[uint32(*i.OFPort)] = i.Name
			}
		}
	})
	for i := range p.Rows {
		p.Rows[i].Owner = rows.Owner(p.Rows[i].ID)
	}
	p.Flows, p.Tables = bridges.compare(a, madeUp), bridges.tables()
	p.Meters = bridges.compareMeters()
	p.Ports = portNames(before, names)
	for _, ports := range p.Ports {
		p.Compared.Ports += len(ports)
	}
	p.Seconds = time.Since(p.Made).Seconds()
	return p, rows, bridges, nil
}

// readFlows dumps the bridges that exist.
func readFlows(ctx context.Context, dial func(context.Context, string) (Dumper, error), v *ovsdb.View, names []string) (*bridges, error) {
	out := &bridges{all: map[string]*bridge{}}
	for _, name := range names {
		if b := v.BridgeByName(name); b == nil || b.DatapathID == "" {
			continue
		}
		c, err := dial(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("reading the flows of %s: %w", name, err)
		}
		flows, err := c.Flows(ctx, openflow.Filter{Table: openflow.AllTables})
		var meters []openflow.MeterDesc
		features, featuresErr := c.MeterFeatures(ctx)
		if featuresErr == nil && features.Max > 0 && err == nil { // else it has none
			meters, err = c.Meters(ctx)
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return nil, fmt.Errorf("reading the flows of %s: %w", name, err)
		}
		out.all[name] = newBridge(flows, meters)
		out.all[name].features = features
	}
	return out, nil
}

func portNames(v *ovsdb.View, bridges []string) map[string]map[uint32]string {
	out := map[string]map[uint32]string{}
	for i := range v.Interfaces() {
		p := v.PortOf(i.UUID)
		if p == nil || i.OFPort == nil || *i.OFPort <= 0 {
			continue
		}
		if b := v.BridgeOf(p.UUID); b != nil && slices.Contains(bridges, b.Name) {
			if out[b.Name] == nil {
				out[b.Name] = map[uint32]string{}
			}
			out[b.Name][uint32(*i.OFPort)] = i.Name
		}
	}
	return out
}

// compare lists the flows that are not as they were.
func (s *bridges) compare(a *agent.Agent, madeUp map[uint32]string) []Flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Flow
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		b := s.all[name]
		keys := maps.Clone(b.before)
		maps.Copy(keys, b.now)
		for _, k := range slices.SortedFunc(maps.Keys(keys), openflow.Key.Compare) {
			before, now := b.before[k], b.now[k]
			f := Flow{Bridge: name, Table: k.Table(), Priority: k.Priority()}
			shown := now
			switch {
			case before.IsZero():
				f.Change = "added"
			case now.IsZero():
				f.Change, shown = "removed", before
				f.Reason = "nothing wants it"
				if b.flushes > 0 {
					f.Reason = "the switch forgets it when the bridge gets its first controller"
				}
			case before.SameActions(now):
				continue
			default:
				f.Change = "changed"
				_, f.Before = text(before, madeUp)
			}
			f.Match, f.Actions = text(shown, madeUp)
			f.Cookie = fmt.Sprintf("%#x", shown.Cookie())
			if owner, reason, ok := a.Why(name, k); ok {
				f.Owner, f.Reason = owner.String(), reason
			}
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Flow) int { return cmp.Compare(a.Bridge, b.Bridge) })
	return out
}

// compareMeters lists the meters that are not as they were.
func (s *bridges) compareMeters() []Meter {
	var out []Meter
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		b := s.all[name]
		ids := maps.Clone(b.metersBefore)
		maps.Copy(ids, b.meters)
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			before, was := b.metersBefore[id]
			now, is := b.meters[id]
			m := Meter{Bridge: name, ID: id, Change: "changed", Meter: string(now.AppendText(nil))}
			switch {
			case !was:
				m.Change = "added"
			case !is:
				m.Change, m.Meter = "removed", string(before.AppendText(nil))
			case reflect.DeepEqual(before, now):
				continue
			default:
				m.Before = string(before.AppendText(nil))
			}
			out = append(out, m)
		}
	}
	return out
}
