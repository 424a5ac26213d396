// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

// A MonitorEvent says what happened to a flow.
type MonitorEvent uint8

// What a flow monitor reports.
const (
	FlowInitial  MonitorEvent = iota // was there when the monitor began
	FlowAdded                        // was added
	FlowDeleted                      // is gone
	FlowModified                     // got other actions or another cookie
	FlowOwn                          // some change that this connection made, see XID
	FlowsPaused                      // updates are held back: the switch's buffer is full
	FlowsResumed                     // updates go on, after all that were held back
)

var monitorEventNames = []string{"initial", "added", "deleted", "modified", "own", "paused", "resumed"}

// String returns the name of the event.
func (e MonitorEvent) String() string {
	if int(e) < len(monitorEventNames) {
		return monitorEventNames[e]
	}
	return string(appendDec(nil, uint64(e)))
}

// A FlowUpdate is one change that a flow monitor saw.
type FlowUpdate struct {
	Event  MonitorEvent
	Reason RemovedReason // for FlowDeleted
	XID    uint32        // for FlowOwn: the request that made the change
	// Entry is the flow for the first four events, without flags and
	// importance, which a monitor does not tell.
	Entry Entry
}

// MonitorUpdate is the event that flows changed.
type MonitorUpdate struct{ Updates []FlowUpdate }

const (
	monitorInitial      = 1 << 0
	monitorAdd          = 1 << 1
	monitorRemoved      = 1 << 2
	monitorModify       = 1 << 3
	monitorInstructions = 1 << 4
	monitorOwn13        = 1 << 5 // 1.3 only: own changes in full

	monitorCommandDelete = 2
)

// appendMonitor appends a request to monitor the flows that fl selects.
func appendMonitor(b []byte, v Version, xid, id uint32, fl *Filter, initial bool) ([]byte, error) {
	terms, err := fl.Match.appendTerms(nil)
	if err != nil {
		return b, err
	}
	flags := uint16(monitorAdd | monitorRemoved | monitorModify | monitorInstructions)
	if initial {
		flags |= monitorInitial
	}
	be := binary.BigEndian
	var body []byte
	if v >= OpenFlow14 {
		body = be.AppendUint32(body, id)
		body = be.AppendUint32(body, orAny(fl.OutPort))
		body = be.AppendUint32(body, orAny(fl.OutGroup))
		body = be.AppendUint16(body, flags)
		body = append(body, fl.Table, 0)
		return appendMultipart(b, v, mpFlowMonitor, xid, appendMatch(body, terms)), nil
	}
	body = be.AppendUint32(body, experimenterONF)
	body = be.AppendUint32(body, onfFlowMonitor)
	body = be.AppendUint32(body, id)
	body = be.AppendUint16(body, flags|monitorOwn13)
	body = be.AppendUint16(body, uint16(4+len(terms)))
	body = be.AppendUint32(body, orAny(fl.OutPort))
	body = append(body, fl.Table, 0, 0, 0)
	return appendMultipart(b, v, mpExperimenter, xid, appendMatch(body, terms)), nil
}

// appendMonitorCancel appends a request to end a monitor.
func appendMonitorCancel(b []byte, v Version, xid, id uint32) []byte {
	be := binary.BigEndian
	if v >= OpenFlow14 {
		body := be.AppendUint32(nil, id)
		body = be.AppendUint32(body, PortAny)
		body = be.AppendUint32(body, AnyGroup)
		body = append(body, 0, 0, AllTables, monitorCommandDelete)
		return appendMultipart(b, v, mpFlowMonitor, xid, appendMatch(body, nil))
	}
	b, start := beginMessage(b, v, typeExperimenter, xid)
	b = be.AppendUint32(b, experimenterONF)
	b = be.AppendUint32(b, onfFlowMonitor)
	b = be.AppendUint32(b, id)
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

// decodeUpdates decodes the updates in a multipart reply; body begins after
// the multipart header (and, in 1.3, after the experimenter's).
func decodeUpdates(v Version, b []byte, initial bool) ([]FlowUpdate, error) {
	var list []FlowUpdate
	for len(b) > 0 {
		if len(b) < 8 {
			return list, malformed("flow update", "%d bytes left", len(b))
		}
		n := int(binary.BigEndian.Uint16(b))
		if n < 8 || n%8 != 0 || n > len(b) {
			return list, malformed("flow update", "length %d in %d bytes", n, len(b))
		}
		u, err := decodeUpdate(v, b[:n], initial)
		if err != nil {
			return list, err
		}
		list, b = append(list, u), b[n:]
	}
	return list, nil
}

func decodeUpdate(v Version, b []byte, initial bool) (FlowUpdate, error) {
	be := binary.BigEndian
	event := be.Uint16(b[2:])
	if v < OpenFlow14 {
		if event > 3 {
			return FlowUpdate{}, malformed("flow update", "event %d", event)
		}
		event++ // 1.3 has no event for initial flows
		if event == uint16(FlowAdded) && initial {
			event = uint16(FlowInitial)
		}
	}
	u := FlowUpdate{Event: MonitorEvent(event)}
	switch u.Event {
	case FlowOwn:
		u.XID = be.Uint32(b[4:])
		return u, nil
	case FlowsPaused, FlowsResumed:
		return u, nil
	case FlowInitial, FlowAdded, FlowDeleted, FlowModified:
	default:
		return u, malformed("flow update", "event %d", event)
	}
	if len(b) < 24+8 {
		return u, malformed("flow update", "%d bytes", len(b))
	}
	terms, ins, err := cutMatch(b[24:])
	if err != nil {
		return u, err
	}
	s := FlowStat{Cookie: be.Uint64(b[16:]), Terms: terms, Instructions: ins}
	if v >= OpenFlow14 {
		s.Table, u.Reason = b[4], RemovedReason(b[5])
		s.IdleTimeout, s.HardTimeout, s.Priority = be.Uint16(b[6:]), be.Uint16(b[8:]), be.Uint16(b[10:])
	} else {
		u.Reason = RemovedReason(be.Uint16(b[4:]))
		s.Priority, s.IdleTimeout, s.HardTimeout = be.Uint16(b[6:]), be.Uint16(b[8:]), be.Uint16(b[10:])
		s.Table = b[14]
	}
	u.Entry = s.Entry()
	return u, nil
}
