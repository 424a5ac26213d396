// SPDX-License-Identifier: Apache-2.0

// Package openflowtest is a bridge of Open vSwitch in memory, for tests of programs that speak OpenFlow 1.4 with one. It keeps
// flows and meters, takes bundles whole or not at all, reports changes to flow monitors as Open vSwitch does, and fails where a
// test tells it to. Package openflow's own tests and the agent's use it; what it does was compared with Open vSwitch 3.1.
//
// The encoding of messages is written down a second time here, beside package openflow's, so that one mistake does not hide
// behind the other.
package openflowtest

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// Switch is one bridge. It outlives its connections. The exported fields are set before the first connection.
type Switch struct {
	DatapathID uint64
	// Hello is the bitmap of versions that the switch offers, 0 for a hello without one.
	Hello uint32
	// MaxMeters is how many meters the switch can have, 0 for a datapath without meters.
	MaxMeters uint32
	// WithoutMonitor refuses flow monitors, as Open vSwitch before 3.0 does.
	WithoutMonitor bool

	mu        sync.Mutex
	flows     map[openflow.Key]openflow.Entry
	meters    map[uint32]openflow.MeterDesc
	conns     map[*Conn]bool
	before    func(c *Conn, m Message) (handled bool)
	refuse    func(openflow.FlowMod) *openflow.Error
	committed func(mods []Mod, wiped bool, after map[openflow.Key]openflow.Entry)
	wg        sync.WaitGroup
}

// Mod is what happened to one flow; without an entry it is gone.
type Mod struct {
	Key   openflow.Key
	Entry openflow.Entry
}

// New returns a switch without flows that speaks OpenFlow 1.0, 1.3 and 1.4 as far as its hello goes, and 1.4 in truth.
func New() *Switch {
	return &Switch{
		DatapathID: 7, Hello: 1<<1 | 1<<openflow.OpenFlow13 | 1<<openflow.OpenFlow14,
		flows: map[openflow.Key]openflow.Entry{}, meters: map[uint32]openflow.MeterDesc{}, conns: map[*Conn]bool{},
	}
}

// Dial connects to the switch without a socket.
func (s *Switch) Dial(ctx context.Context, cfg openflow.Config) (*openflow.Conn, error) {
	ours, theirs := net.Pipe()
	s.wg.Go(func() { s.Serve(theirs, nil) })
	return openflow.NewConn(ctx, ours, cfg)
}

// Accept serves the connections of a listener until it is closed.
func (s *Switch) Accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.Serve(nc, nil) })
	}
}

// Drop breaks all connections.
func (s *Switch) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *Switch) drop() {
	for c := range s.conns {
		c.Close()
	}
}

// Wait waits for the connections that Dial and Accept began.
func (s *Switch) Wait() { s.wg.Wait() }

// Inject sets what is done before a message is handled. A handled message goes no further. Nil ends it.
func (s *Switch) Inject(before func(c *Conn, m Message) (handled bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// Refuse sets which changes of flows the switch refuses, and with what; the transaction id is filled in. Nil ends it.
func (s *Switch) Refuse(refuse func(openflow.FlowMod) *openflow.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// OnCommit sets who is told what one change, bundle or restart did. After holds all flows; it is the switch's own and must neither
// be kept nor changed. The function must not call the switch.
func (s *Switch) OnCommit(committed func(mods []Mod, wiped bool, after map[openflow.Key]openflow.Entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = committed
}

// Flows returns all flows.
func (s *Switch) Flows() map[openflow.Key]openflow.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.flows)
}

// Meters returns all meters, by id.
func (s *Switch) Meters() []openflow.MeterDesc {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sortedMeters()
}

func (s *Switch) sortedMeters() []openflow.MeterDesc {
	return slices.SortedFunc(maps.Values(s.meters), func(a, b openflow.MeterDesc) int { return int(int64(a.ID) - int64(b.ID)) })
}

// Apply changes flows as somebody else would, with ovs-ofctl: every monitor reports it. It returns the error of the first change
// that is refused; none is made then.
func (s *Switch) Apply(mods ...openflow.FlowMod) error {
	list := make([]change, len(mods))
	for i, m := range mods {
		list[i] = change{mod: m}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.apply(nil, list); err != nil {
		return err
	}
	return nil
}

// Restart loses all flows, meters and connections, as ovs-vswitchd does when it ends.
func (s *Switch) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.flows)
	clear(s.meters)
	if s.committed != nil {
		s.committed(nil, true, s.flows)
	}
	s.drop()
}

// change is one flow_mod and the transaction that it came in.
type change struct {
	xid uint32
	mod openflow.FlowMod
}

// failure is an error of OpenFlow: its type and its code.
type failure [2]uint16

func (f failure) err() *openflow.Error { return &openflow.Error{Type: f[0], Code: f[1]} }

func incompatible() failure    { return failure{0, 0} }   // OFPHFC_INCOMPATIBLE
func badType() failure         { return failure{1, 1} }   // OFPBRC_BAD_TYPE
func badMultipart() failure    { return failure{1, 2} }   // OFPBRC_BAD_STAT
func badLength() failure       { return failure{1, 6} }   // OFPBRC_BAD_LEN
func badTable() failure        { return failure{5, 2} }   // OFPFMFC_BAD_TABLE_ID
func meterExists() failure     { return failure{12, 1} }  // OFPMMFC_METER_EXISTS
func invalidMeter() failure    { return failure{12, 2} }  // OFPMMFC_INVALID_METER
func unknownMeter() failure    { return failure{12, 3} }  // OFPMMFC_UNKNOWN_METER
func outOfMeters() failure     { return failure{12, 10} } // OFPMMFC_OUT_OF_METERS
func monitorExists() failure   { return failure{16, 1} }  // OFPMOFC_MONITOR_EXISTS
func unknownMonitor() failure  { return failure{16, 3} }  // OFPMOFC_UNKNOWN_MONITOR
func unknownBundle() failure   { return failure{17, 2} }  // OFPBFC_BAD_ID
func bundleExists() failure    { return failure{17, 3} }  // OFPBFC_BUNDLE_EXIST
func bundleMsgFailed() failure { return failure{17, 13} } // OFPBFC_MSG_FAILED

// internalTable is the one that Open vSwitch keeps for itself.
const internalTable = 254

// check says why a change cannot be made.
func (s *Switch) check(m openflow.FlowMod) *openflow.Error {
	adds := m.Command < openflow.Delete
	if s.refuse != nil {
		if err := s.refuse(m); err != nil {
			return err
		}
	}
	switch id, metered := meterOf(m.Entry); {
	case adds && m.Entry.Table() >= internalTable:
		return badTable().err()
	case adds && metered && len(s.meters[id].Bands) == 0:
		return invalidMeter().err()
	}
	return nil
}

// apply makes changes, all or none. By is the connection that makes them, nil for nobody who watches. It returns the index of the
// change that is refused.
func (s *Switch) apply(by *Conn, list []change) (int, *openflow.Error) {
	for i, c := range list {
		if err := s.check(c.mod); err != nil {
			return i, err
		}
	}
	var done []Mod
	for _, c := range list {
		done = append(done, s.flowMod(by, c)...)
	}
	s.flush()
	if s.committed != nil && len(list) > 0 {
		s.committed(done, false, s.flows)
	}
	return 0, nil
}

// flowMod makes one change that was checked.
func (s *Switch) flowMod(by *Conn, c change) []Mod {
	m, k := c.mod, c.mod.Entry.Key()
	if m.Command == openflow.Add {
		s.flows[k] = m.Entry
		s.report(by, c.xid, openflow.FlowAdded, 0, m.Entry)
		return []Mod{{k, m.Entry}}
	}
	var selected []openflow.Entry
	switch e, there := s.flows[k]; {
	case m.Command != openflow.DeleteStrict && m.Command != openflow.ModifyStrict:
		selected = s.selects(filterOf(m))
	case there && (e.Cookie()^m.Entry.Cookie())&m.CookieMask == 0:
		selected = []openflow.Entry{e}
	}
	done := make([]Mod, 0, len(selected))
	for _, e := range selected {
		k := e.Key()
		if m.Command >= openflow.Delete {
			delete(s.flows, k)
			done = append(done, Mod{Key: k})
			s.report(by, c.xid, openflow.FlowDeleted, openflow.RemovedDelete, e)
			continue
		}
		changed := withInstructions(e, m.Entry)
		s.flows[k] = changed
		done = append(done, Mod{k, changed})
		if changed != e {
			s.report(by, c.xid, openflow.FlowModified, 0, changed)
		}
	}
	return done
}

// meterMod changes a meter. Flows go with their meter, and that is reported in full to whoever deletes the meter, too.
func (s *Switch) meterMod(command uint16, m openflow.MeterDesc) *openflow.Error {
	_, there := s.meters[m.ID]
	switch {
	case command == meterAdd && there:
		return meterExists().err()
	case command == meterAdd && len(s.meters) >= int(s.MaxMeters):
		return outOfMeters().err()
	case command == meterModify && !there:
		return unknownMeter().err()
	case command < meterDelete:
		s.meters[m.ID] = m
		return nil
	}
	delete(s.meters, m.ID)
	if m.ID == openflow.AllMeters {
		clear(s.meters)
	}
	var gone []Mod
	for _, e := range s.selects(filter{table: openflow.AllTables}) {
		if id, ok := meterOf(e); ok && (id == m.ID || m.ID == openflow.AllMeters) {
			delete(s.flows, e.Key())
			gone = append(gone, Mod{Key: e.Key()})
			s.report(nil, 0, openflow.FlowDeleted, openflow.RemovedMeter, e)
		}
	}
	s.flush()
	if len(gone) > 0 && s.committed != nil {
		s.committed(gone, false, s.flows)
	}
	return nil
}

// meterOf is the meter that a flow refers to.
func meterOf(e openflow.Entry) (uint32, bool) {
	f, err := e.Flow()
	if err != nil {
		return 0, false
	}
	for _, a := range f.Actions {
		if m, ok := a.(openflow.Meter); ok {
			return uint32(m), true
		}
	}
	return 0, false
}
