// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bufio"
	"encoding/binary"
	"io"
	"sync/atomic"
)

// An Event is a message that the switch sent on its own: *PortStatus,
// *FlowRemoved, *MonitorUpdate or EventsLost.
type Event interface{ isEvent() }

func (*PortStatus) isEvent()    {}
func (*FlowRemoved) isEvent()   {}
func (*MonitorUpdate) isEvent() {}
func (EventsLost) isEvent()     {}

// EventsLost stands for events that were dropped because nobody read them in
// time. Whoever follows a state from events has to read it anew.
type EventsLost struct{}

// inbox takes the messages that the reader reads. It queues what the switch
// sends on its own, and hands replies to those who wait.
type inbox struct {
	version   Version
	pending   *pending
	received  atomic.Uint64 // messages, to see signs of life
	echoes    chan []byte   // payloads of echo requests to answer
	packetIns chan *PacketIn
	dropped   atomic.Uint64
	events    chan Event
	lost      bool // the last event queued is EventsLost; reader only
}

// readMessage reads one message. The body is memory of its own.
func readMessage(r *bufio.Reader) (head, []byte, error) {
	b, err := r.Peek(headerLen)
	if err != nil {
		return head{}, nil, err
	}
	h := parseHead(b)
	if h.length < headerLen {
		return h, nil, malformed("message", "length %d", h.length)
	}
	_, _ = r.Discard(headerLen)
	body := make([]byte, h.length-headerLen)
	_, err = io.ReadFull(r, body)
	return h, body, err
}

// dispatch handles a message. An error ends the connection: it is returned
// only for messages that make everything after them doubtful.
func (in *inbox) dispatch(h head, body []byte) error {
	switch h.typ {
	case typeEchoRequest:
		payload := binary.BigEndian.AppendUint32(nil, h.xid)
		select {
		case in.echoes <- append(payload, body...):
		default: // so many unanswered ones say that we cannot write anyway
		}
		return nil
	case typeError:
		e, err := decodeError(body)
		if err == nil {
			in.pending.refuse(h.xid, e)
		}
		return err
	case typePacketIn:
		return in.packetIn(decodePacketIn(body))
	case typePortStatus:
		s, err := decodePortStatus(in.version, body)
		if err != nil {
			return err
		}
		in.event(s)
		return nil
	case typeFlowRemoved:
		r, err := decodeFlowRemoved(body)
		if err != nil {
			return err
		}
		in.event(r)
		return nil
	case typeExperimenter:
		if done, err := in.dispatchExperimenter(body); done {
			return err
		}
	case typeMultipartReply:
		if done, err := in.dispatchUpdates(h, body); done {
			return err
		}
	}
	in.pending.reply(h, body)
	return nil
}

// dispatchExperimenter handles Nicira's and ONF's messages that are no
// replies.
func (in *inbox) dispatchExperimenter(b []byte) (done bool, err error) {
	if len(b) < 8 {
		return true, malformed("experimenter message", "%d bytes", len(b))
	}
	switch exp, typ := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]); {
	case exp == experimenterNicira && typ == nxtPacketIn2:
		return true, in.packetIn(decodePacketIn2(b[8:]))
	case exp == experimenterONF && typ == onfFlowMonitor+1:
		in.event(&MonitorUpdate{[]FlowUpdate{{Event: FlowsPaused}}})
		return true, nil
	case exp == experimenterONF && typ == onfFlowMonitor+2:
		in.event(&MonitorUpdate{[]FlowUpdate{{Event: FlowsResumed}}})
		return true, nil
	}
	return false, nil
}

// dispatchUpdates handles the replies of a flow monitor.
func (in *inbox) dispatchUpdates(h head, body []byte) (done bool, err error) {
	typ, _, rest, err := cutMultipart(body)
	if err != nil {
		return true, err
	}
	switch {
	case typ == mpFlowMonitor:
	case typ == mpExperimenter && len(rest) >= 8 && binary.BigEndian.Uint32(rest) == experimenterONF &&
		binary.BigEndian.Uint32(rest[4:]) == onfFlowMonitor:
		rest = rest[8:]
	default:
		return false, nil
	}
	list, err := decodeUpdates(in.version, rest, h.xid != 0)
	if err != nil {
		return true, err
	}
	if len(list) > 0 {
		in.event(&MonitorUpdate{list})
	}
	return true, nil
}

func (in *inbox) packetIn(p *PacketIn, err error) error {
	if err != nil {
		return err
	}
	select {
	case in.packetIns <- p:
	default:
		in.dropped.Add(1)
	}
	return nil
}

// event queues an event. The queue has one place more than it may hold events;
// that place is for EventsLost, so that the loss is always told.
func (in *inbox) event(ev Event) {
	if len(in.events) < cap(in.events)-1 {
		in.lost = false
		in.events <- ev
	} else if !in.lost {
		in.lost = true
		in.events <- EventsLost{}
	}
}
