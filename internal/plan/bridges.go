// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/agent"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// bridges are copies of the flow tables, that the agent may change.
type bridges struct {
	mu  sync.Mutex
	all map[string]*bridge
}

type bridge struct {
	before, now map[openflow.Key]openflow.Entry
	// metersBefore and meters are the same for meters, of which there can be as many as features say.
	metersBefore, meters map[uint32]openflow.MeterDesc
	features             openflow.MeterFeatures
	flushes              int
	over                 bool  // the agent has ended
	conn                 *conn // nil before the agent connects
	links                chan agent.Link
}

func newBridge(flows []openflow.Entry, meters []openflow.MeterDesc) *bridge {
	// Nobody else closes its connection, so two links wait at most: one not read yet and the one after a flush.
	b := &bridge{
		before: map[openflow.Key]openflow.Entry{}, metersBefore: map[uint32]openflow.MeterDesc{}, links: make(chan agent.Link, 2),
	}
	for _, e := range flows {
		b.before[e.Key()] = e
	}
	for _, m := range meters {
		b.metersBefore[m.ID] = m
	}
	b.now, b.meters = maps.Clone(b.before), maps.Clone(b.metersBefore)
	return b
}

// link is for the agent's configuration.
func (s *bridges) link(ctx context.Context, name string) <-chan agent.Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.all[name]
	if b == nil { // made meanwhile
		b = newBridge(nil, nil)
		for _, other := range s.all { // bridges of one switch can do the same
			b.features = other.features
		}
		s.all[name] = b
	}
	s.connect(b)
	context.AfterFunc(ctx, func() { s.disconnect(b) }) // which waits for nothing but the lock
	return b.links
}

func (s *bridges) connect(b *bridge) {
	b.conn = &conn{s: s, b: b, done: make(chan struct{})}
	b.links <- agent.Link{Conn: b.conn}
}

// committed takes a change of the database: the first controller of a bridge makes the switch forget its flows.
func (s *bridges) committed(b *ovsdb.Batch) {
	for _, d := range b.Bridges {
		if d.New != nil && len(d.New.Controllers) > 0 && (d.Old == nil || len(d.Old.Controllers) == 0) {
			s.flush(d.New.Name)
		}
	}
}

// flush does what the switch does when a bridge gets its first controller: its flows are gone, and so are connections.
func (s *bridges) flush(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.all[name]
	if b == nil || b.flushes > 0 || b.over || len(b.now) == 0 {
		return // not there yet, or made a moment ago: without flows
	}
	b.flushes++
	clear(b.now)
	if b.conn != nil {
		close(b.conn.done)
		s.connect(b)
	}
}

// disconnect ends the connection that there is, and says that there will be no other.
func (s *bridges) disconnect(b *bridge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.over = true
	close(b.conn.done)
	close(b.links)
}

// flushed names the bridges that lost flows.
func (s *bridges) flushed() []string {
	var out []string
	for name, b := range s.all {
		if b.flushes > 0 && len(b.before) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// tables are those that have flows, by bridge.
func (s *bridges) tables() map[string]map[uint8]bool {
	out := map[string]map[uint8]bool{}
	for name, b := range s.all {
		out[name] = map[uint8]bool{}
		for k := range b.now {
			out[name][k.Table()] = true
		}
	}
	return out
}

// entries are the flows that a bridge had.
func (s *bridges) entries(name string) []openflow.Entry {
	if b := s.all[name]; b != nil {
		return slices.Collect(maps.Values(b.before))
	}
	return nil
}

// conn is a connection to a copy.
type conn struct {
	s    *bridges
	b    *bridge
	done chan struct{}
}

var errFlushed = errors.New("the switch set the bridge up anew")

// Monitor has nothing to report: nobody else changes a copy.
func (c *conn) Monitor(context.Context, uint32, openflow.Filter, bool) error { return nil }

// EnablePacketIns and PacketIns: no packets come by.
func (c *conn) EnablePacketIns(context.Context, uint16) error { return nil }

func (c *conn) PacketIns() <-chan *openflow.PacketIn {
	none := make(chan *openflow.PacketIn)
	close(none)
	return none
}

func (c *conn) MeterFeatures(context.Context) (openflow.MeterFeatures, error) {
	return c.b.features, nil
}

func (c *conn) Meters(context.Context) ([]openflow.MeterDesc, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return slices.Collect(maps.Values(c.b.meters)), nil
}

// Send is for meters.
func (c *conn) Send(_ context.Context, msgs []openflow.Message) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, m := range msgs {
		mod, ok := m.(openflow.MeterMod)
		switch {
		case !ok:
			return fmt.Errorf("a plan does not know what %s does", m.AppendText(nil))
		case mod.Command == openflow.Delete:
			delete(c.b.meters, mod.Meter.ID)
		default:
			c.b.meters[mod.Meter.ID] = mod.Meter
		}
	}
	return nil
}

func (c *conn) Events() <-chan openflow.Event { return nil }
func (c *conn) Done() <-chan struct{}         { return c.done }
func (c *conn) Close() error                  { return nil }

func (c *conn) ended() error {
	select {
	case <-c.done:
		return errFlushed
	default:
		return nil
	}
}

// Flows has no error to tell: what was read over a connection that has ended is not counted.
func (c *conn) Flows(context.Context, openflow.Filter) ([]openflow.Entry, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return slices.Collect(maps.Values(c.b.now)), nil
}

func (c *conn) Commit(_ context.Context, msgs []openflow.Message) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.ended(); err != nil {
		return err
	}
	for _, m := range msgs {
		mod, ok := m.(openflow.FlowMod)
		switch {
		case ok && mod.Command == openflow.Add:
			c.b.now[mod.Entry.Key()] = mod.Entry
		case ok && mod.Command == openflow.DeleteStrict:
			delete(c.b.now, mod.Entry.Key())
		default:
			return fmt.Errorf("a plan does not know what %s does", m.AppendText(nil))
		}
	}
	return nil
}

// text writes match and actions of a flow. Ports that have no number yet stand there by their names, as ovs-ofctl would
// write them.
func text(e openflow.Entry, madeUp map[uint32]string) (match, actions string) {
	f, err := e.Flow()
	if err != nil { // not decodable: what there is
		return e.String(), ""
	}
	name := func(s string) string {
		return portInText.ReplaceAllStringFunc(s, func(m string) string {
			sub := portInText.FindStringSubmatch(m)
			n, err := strconv.ParseUint(sub[2], 10, 32)
			if name := madeUp[uint32(n)]; err == nil && name != "" {
				return sub[1] + strconv.Quote(name)
			}
			return m
		})
	}
	return name(f.Match.String()), name(string(openflow.AppendActions(nil, f.Actions)))
}

// portInText finds the numbers of ports.
var portInText = regexp.MustCompile(`\b(in_port=|output:)(\d+)\b`)
