// SPDX-License-Identifier: Apache-2.0

// Package mirror is the extension taas: packets of a port are copied to another port of the host (a tap flow, to the port of a tap service), or into a GRE or
// ERSPAN tunnel (a tap mirror). What is copied goes its way as if nobody looked: mirrors are rows of Open vSwitch (rows.go), and the flows that filter packets
// of ports know nothing of them.
//
// The server's tap-as-a-service plugin sends casts to all agents, with the host that each is meant for. It keeps no list that could be asked for: an
// agent that starts has it send what is active once more (server.go). What is known is a set of tap services, tap flows and tap mirrors, which the snapshot
// keeps; rows follow from it and from how ports are plugged in now. Tap flows that cannot be carried out are reported as such, with the reason (decide.go).
package mirror

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
)

// name is that in agent.extensions.
const name = "taas"

// mark is the key in external_ids of rows that the extension makes. Its value is the id of the tap service or tap mirror.
const mark = "patchbay-tap"

// Mirrors is the extension. It belongs to the agent's loop.
type Mirrors struct {
	w *world.World
	known

	users    map[string]map[string]bool // by port: ids of the tap services and tap mirrors whose rows depend on it
	doomed   map[string]bool            // ids of which no row may be left
	room     map[string]bool            // names of mirrors for which the bridge has room
	complete map[string]bool            // ids whose rows are as wanted
	touched  map[string]bool            // ids to look at again
	due      map[report]string          // what the server has to be told

	asking  bool      // the server is to send what is active
	settle  time.Time // when it has sent everything
	round   uint64    // counts how often it was asked
	failing bool      // it did not answer

	warned   map[string]string // what was said about a tap
	warnings []string
}

// known is what the server has said, by id. The snapshot has it.
type known struct {
	Services map[string]*service `json:"services"`
	Flows    map[string]*flow    `json:"flows"`
	Tunnels  map[string]*tunnel  `json:"mirrors"`
}

// item is what the server and the agent know of each other's mind about a tap service or a tap flow.
type item struct {
	Told  string `json:"told"`           // the status that the server has
	Gone  bool   `json:"gone,omitempty"` // it is deleted, and the server has to be told that nothing is left of it
	round uint64 // in which it was heard of last
}

// service is a tap service: the port that copies go to.
type service struct {
	Port   string `json:"port"`
	Hybrid bool   `json:"hybrid,omitempty"` // the port is behind a Linux bridge
	item
}

// flow is a tap flow: packets of the port Source are copied to the port of a tap service.
type flow struct {
	Service   string `json:"service"`
	Source    string `json:"source"`
	Port      string `json:"port"`      // of the tap service
	Host      string `json:"host"`      // of that port
	Direction string `json:"direction"` // IN, OUT or BOTH
	Hybrid    bool   `json:"hybrid,omitempty"`
	item
}

// tunnel is a tap mirror.
type tunnel struct {
	Port       string                      `json:"port"`
	Remote     string                      `json:"remote"`
	Type       string                      `json:"type"`
	Directions map[string]neutron.TunnelID `json:"directions"`
}

// New makes the extension.
func New(w *world.World) extension.Extension {
	return &Mirrors{
		w: w, known: known{map[string]*service{}, map[string]*flow{}, map[string]*tunnel{}}, users: map[string]map[string]bool{}, doomed: map[string]bool{},
		room: map[string]bool{}, complete: map[string]bool{}, touched: map[string]bool{}, due: map[report]string{}, warned: map[string]string{}, asking: true, round: 1,
	}
}

// Name implements extension.Extension.
func (*Mirrors) Name() string { return name }

// Topics implements extension.CastHandler.
func (*Mirrors) Topics() []string { return []string{neutron.TopicTap} }

// OnCast implements extension.CastHandler. Every agent gets every message. One about another host matters only if the tap was on this one before.
func (m *Mirrors) OnCast(method string, args []byte) error {
	msg, err := neutron.DecodeTap(method, args)
	if err != nil || msg == nil {
		return err
	}
	here := msg.Host == m.w.Config.Host && msg.Port.VNIC == "normal" // others are for the SR-IOV agent of the host
	switch {
	case msg.Service != nil:
		m.onService(msg, here)
	case msg.Flow != nil:
		m.onFlow(msg, here)
	case msg.Mirror != nil:
		m.onMirror(msg, here)
	}
	return nil
}

func (m *Mirrors) onService(msg *neutron.TapMessage, here bool) {
	id := msg.Service.ID
	s := m.Services[id]
	m.touched[id] = true
	switch {
	case !msg.Deleted && here:
		m.Services[id] = &service{Port: msg.Port.ID, Hybrid: msg.Port.Details.Hybrid, item: item{Told: msg.Service.Status, round: m.round}}
		delete(m.doomed, id)
	case msg.Deleted:
		maps.DeleteFunc(m.Flows, func(_ string, f *flow) bool { return f.Service == id }) // as the server does
		if s == nil && here {
			s = &service{Port: msg.Port.ID}
			m.Services[id] = s
		}
		if s != nil { // whoever has it says so: a port that is gone has no host
			s.Gone = true
		}
		m.doom(id)
	case s != nil: // it has moved
		delete(m.Services, id)
		m.doom(id)
	}
}

func (m *Mirrors) onFlow(msg *neutron.TapMessage, here bool) {
	id := msg.Flow.ID
	f := m.Flows[id]
	m.touched[msg.Flow.Service] = true
	switch {
	case !msg.Deleted && here:
		m.Flows[id] = &flow{
			Service: msg.Flow.Service, Source: msg.Port.ID, Port: msg.To.ID, Host: msg.To.Host, Direction: msg.Flow.Direction, Hybrid: msg.To.Details.Hybrid,
			item: item{Told: msg.Flow.Status, round: m.round},
		}
		delete(m.doomed, msg.Flow.Service)
	case msg.Deleted && (here || f != nil):
		if f == nil {
			f = &flow{Service: msg.Flow.Service, Source: msg.Port.ID, Port: msg.To.ID}
			m.Flows[id] = f
		}
		f.Gone = true
	case f != nil: // it has moved
		delete(m.Flows, id)
		m.doom(f.Service)
	}
}

func (m *Mirrors) onMirror(msg *neutron.TapMessage, here bool) {
	id := msg.Mirror.ID
	m.touched[id] = true
	if !msg.Deleted && here {
		m.Tunnels[id] = &tunnel{Port: msg.Port.ID, Remote: msg.Mirror.Remote, Type: msg.Mirror.Type, Directions: msg.Mirror.Directions}
		delete(m.doomed, id)
		return
	}
	delete(m.Tunnels, id)
	m.doom(id)
}

// doom has the rows of a tap service or a tap mirror deleted, unless it is still known.
func (m *Mirrors) doom(id string) {
	m.touched[id] = true
	if !m.isKnown(id) {
		m.doomed[id] = true
	}
}

// OnRows implements extension.RowHandler.
func (m *Mirrors) OnRows(b *ovsdb.Batch) {
	touch := func(ids map[string]string) {
		if id := ids[mark]; id != "" {
			m.touched[id] = true
		}
	}
	for _, d := range b.Mirrors {
		for _, row := range []*ovsdb.Mirror{d.Old, d.New} {
			if row != nil {
				touch(row.ExternalIDs) // of others there may be more or less now, which changes the bridge
			}
		}
	}
	for _, d := range b.Interfaces {
		for _, row := range []*ovsdb.Interface{d.Old, d.New} {
			if row != nil {
				touch(row.ExternalIDs)
			}
		}
	}
	for _, d := range b.Ports {
		if d.New != nil {
			for _, id := range d.New.Interfaces {
				if i := m.w.View.Interface(id); i != nil {
					touch(i.ExternalIDs)
				}
			}
		}
	}
}

func (m *Mirrors) touchAll() {
	for _, id := range m.ids() {
		m.touched[id] = true
	}
}

// ids lists the tap services and tap mirrors that rows are made for, sorted.
func (m *Mirrors) ids() []string {
	all := map[string]bool{}
	for id := range m.Services {
		all[id] = true
	}
	for _, f := range m.Flows {
		all[f.Service] = true
	}
	for id := range m.Tunnels {
		all[id] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// own names the extension's objects: tap services and tap mirrors by their ids.
const own extension.Objects[string] = name

// Resolve implements extension.Extension.
func (m *Mirrors) Resolve(changed []world.Object) []world.Object {
	for _, o := range changed {
		if id, ok := world.PortID(o); ok {
			for tap := range m.users[id] {
				m.touched[tap] = true
			}
		} else if o == world.BridgeObject(m.w.Config.IntegrationBridge) {
			m.touchAll()
		}
	}
	if len(m.touched) == 0 {
		return nil
	}
	m.index()
	m.admit()
	out := make([]world.Object, 0, len(m.touched))
	for id := range m.touched {
		out = append(out, own.Object(id))
		if m.complete[id] = m.isComplete(id); m.doomed[id] && m.complete[id] {
			delete(m.doomed, id)
		}
		if !m.isKnown(id) {
			delete(m.complete, id)
		}
	}
	clear(m.touched)
	m.report()
	return out
}

// isKnown says whether an id is that of a tap service, also one that only tap flows name, or of a tap mirror.
func (m *Mirrors) isKnown(id string) bool {
	if m.Services[id] != nil || m.Tunnels[id] != nil {
		return true
	}
	for _, f := range m.Flows {
		if f.Service == id {
			return true
		}
	}
	return false
}

// index notes which ports matter.
func (m *Mirrors) index() {
	clear(m.users)
	use := func(port, id string) {
		if m.users[port] == nil {
			m.users[port] = map[string]bool{}
		}
		m.users[port][id] = true
	}
	for id, s := range m.Services {
		use(s.Port, id)
	}
	for _, f := range m.Flows {
		use(f.Source, f.Service)
		use(f.Port, f.Service)
	}
	for id, t := range m.Tunnels {
		use(t.Port, id)
	}
}

// Save implements extension.Saver.
func (m *Mirrors) Save() any {
	if len(m.Services)+len(m.Flows)+len(m.Tunnels) == 0 {
		return nil
	}
	out := known{map[string]*service{}, map[string]*flow{}, map[string]*tunnel{}}
	for id, s := range m.Services {
		c := *s
		out.Services[id] = &c
	}
	for id, f := range m.Flows {
		c := *f
		out.Flows[id] = &c
	}
	for id, t := range m.Tunnels {
		c := *t // directions do not change
		out.Tunnels[id] = &c
	}
	return out
}

// Load implements extension.Saver.
func (m *Mirrors) Load(data json.RawMessage) error {
	saved := known{map[string]*service{}, map[string]*flow{}, map[string]*tunnel{}}
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	maps.DeleteFunc(saved.Services, func(_ string, s *service) bool { return s == nil })
	maps.DeleteFunc(saved.Flows, func(_ string, f *flow) bool { return f == nil })
	maps.DeleteFunc(saved.Tunnels, func(_ string, t *tunnel) bool { return t == nil })
	m.known = saved
	m.touchAll()
	return nil
}

// Warnings implements extension.Warner.
func (m *Mirrors) Warnings() []string {
	out := m.warnings
	m.warnings = nil
	return out
}

// warn says something about a tap once.
func (m *Mirrors) warn(tap, sentence string) {
	if sentence != "" && m.warned[tap] != sentence {
		m.warnings = append(m.warnings, sentence)
	}
	if sentence == "" {
		delete(m.warned, tap)
	} else {
		m.warned[tap] = sentence
	}
}
