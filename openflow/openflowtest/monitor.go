// SPDX-License-Identifier: Apache-2.0

package openflowtest

import (
	"encoding/binary"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// A flow monitor as Open vSwitch 3.1 has it. To the connection that makes a change it is reported as its own, once for each
// message or bundle. Everybody else gets the flow: as added also when it took the place of another, as modified only if actions
// changed. While a monitor is paused, because its connection is slow, only deletions of flows are reported that were there
// before; what else changed follows at its end, own changes too.

// Flags of a monitor.
const (
	monitorInitial      = 1 << 0
	monitorAdd          = 1 << 1
	monitorRemoved      = 1 << 2
	monitorModify       = 1 << 3
	monitorInstructions = 1 << 4
	monitorNoAbbrev     = 1 << 5
	monitorOnlyOwn      = 1 << 6

	monitorCommandAdd, monitorCommandDelete = 0, 2
)

type monitor struct {
	flags  uint16
	filter filter
}

// update is a report to one connection, not sent yet.
type update struct {
	event  openflow.MonitorEvent
	reason openflow.RemovedReason
	entry  openflow.Entry
	xid    uint32
}

// monitor takes a request. A refusal has transaction id 0, as Open vSwitch's own mostly has.
func (c *Conn) monitor(xid uint32, b []byte) {
	if c.sw.WithoutMonitor {
		c.SendError(xid, badMultipart().err())
		return
	}
	if len(b) < 20 {
		c.SendError(0, badLength().err())
		return
	}
	be := binary.BigEndian
	id, m := be.Uint32(b), monitor{flags: be.Uint16(b[12:])}
	match, ok := readMatch(b[16:])
	if !ok {
		c.SendError(0, badLength().err())
		return
	}
	m.filter = filter{table: b[14], outPort: be.Uint32(b[4:]), outGroup: be.Uint32(b[8:]), match: match}
	c.sw.mu.Lock()
	defer c.sw.mu.Unlock()
	_, there := c.monitors[id]
	switch command := b[15]; {
	case command == monitorCommandDelete && !there:
		c.SendError(0, unknownMonitor().err())
	case command == monitorCommandDelete:
		delete(c.monitors, id)
	case command != monitorCommandAdd || there:
		c.SendError(0, monitorExists().err())
	default:
		c.monitors[id] = m
		var list []update
		if m.flags&monitorInitial != 0 {
			for _, e := range c.sw.selects(m.filter) {
				list = append(list, update{event: openflow.FlowInitial, entry: e})
			}
		}
		c.sendUpdates(xid, list)
	}
}

// report notes a change for everybody who watches. Flush sends it.
func (s *Switch) report(by *Conn, xid uint32, event openflow.MonitorEvent, reason openflow.RemovedReason, e openflow.Entry) {
	for c := range s.conns {
		c.report(c == by, xid, event, reason, e)
	}
}

func (c *Conn) report(own bool, xid uint32, event openflow.MonitorEvent, reason openflow.RemovedReason, e openflow.Entry) {
	abbreviated, watched := true, false
	flag := map[openflow.MonitorEvent]uint16{
		openflow.FlowAdded: monitorAdd, openflow.FlowDeleted: monitorRemoved, openflow.FlowModified: monitorModify,
	}[event]
	for _, m := range c.monitors {
		if m.flags&flag != 0 && (own || m.flags&monitorOnlyOwn == 0) && m.filter.selects(e) {
			watched = true
			abbreviated = abbreviated && m.flags&monitorNoAbbrev == 0
		}
	}
	switch {
	case !watched:
	case c.paused:
		c.hold(event, reason, e)
	case own && abbreviated && !c.told:
		c.told = true
		c.pending = append(c.pending, update{event: openflow.FlowOwn, xid: xid})
	case !own || !abbreviated:
		c.pending = append(c.pending, update{event: event, reason: reason, entry: e})
	}
}

// hold notes that a flow changed during a pause; zero stands for one that is new since.
func (c *Conn) hold(event openflow.MonitorEvent, reason openflow.RemovedReason, e openflow.Entry) {
	k := e.Key()
	was, noted := c.held[k]
	fresh := noted && was.IsZero() || !noted && event == openflow.FlowAdded
	switch {
	case event == openflow.FlowDeleted && fresh:
		delete(c.held, k)
	case event == openflow.FlowDeleted:
		delete(c.held, k)
		c.pending = append(c.pending, update{event: event, reason: reason, entry: e})
	case fresh:
		c.held[k] = openflow.Entry{}
	default:
		c.held[k] = e
	}
}

// flush sends what was noted, one message to each connection.
func (s *Switch) flush() {
	for c := range s.conns {
		c.sendUpdates(0, c.pending)
		c.pending, c.told = nil, false
	}
}

// Pause holds reports back, as the switch does for a connection that does not read; Resume sends what changed.
func (s *Switch) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if len(c.monitors) > 0 && !c.paused {
			c.paused, c.held = true, map[openflow.Key]openflow.Entry{}
			c.sendUpdates(0, []update{{event: openflow.FlowsPaused}})
		}
	}
}

// Resume ends a Pause.
func (s *Switch) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !c.paused {
			continue
		}
		var list []update
		for k, was := range c.held {
			event := openflow.FlowModified
			if was.IsZero() {
				event = openflow.FlowAdded
			}
			if e, there := s.flows[k]; there {
				list = append(list, update{event: event, entry: e})
			}
		}
		c.paused, c.held = false, nil
		c.sendUpdates(0, append(list, update{event: openflow.FlowsResumed}))
	}
}

// maxPart bounds the updates in one message.
const maxPart = 60000

func (c *Conn) sendUpdates(xid uint32, list []update) {
	var b []byte
	for _, u := range list {
		next := encodeUpdate(u)
		if len(b)+len(next) > maxPart {
			c.part(xid, MultipartFlowMonitor, xid != 0, b)
			b = nil
		}
		b = append(b, next...)
	}
	if len(b) > 0 || xid != 0 {
		c.part(xid, MultipartFlowMonitor, false, b)
	}
}
