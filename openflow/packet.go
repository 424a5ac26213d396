// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Subtypes of Nicira's messages.
const (
	nxtSetPacketInFormat = 16
	nxtSetControllerID   = 20
	nxtResume            = 28
	nxtPacketIn2         = 30
)

// A PacketIn is a packet that the switch sent to the controller.
type PacketIn struct {
	Packet       []byte // may be cut, see Total
	Total        int    // length of the packet in the switch
	Table        uint8
	Cookie       uint64
	Reason       Reason
	Metadata     Match  // InPort, registers, tunnel and other metadata
	Userdata     []byte // from the Controller action
	Continuation []byte // to be sent back with Resume if the action paused
}

// InPort returns the port by which the packet came in, 0 if unknown.
func (p *PacketIn) InPort() uint32 {
	t, _ := p.Metadata.Lookup(InPort)
	return uint32(t.Value.Lo)
}

// decodePacketIn decodes a packet-in of the standard.
func decodePacketIn(b []byte) (*PacketIn, error) {
	if len(b) < 16+8 {
		return nil, malformed("packet-in", "%d bytes", len(b))
	}
	be := binary.BigEndian
	p := &PacketIn{
		Total: int(be.Uint16(b[4:])), Reason: Reason(b[6]), Table: b[7], Cookie: be.Uint64(b[8:]),
	}
	terms, rest, err := cutMatch(b[16:])
	if err != nil {
		return nil, err
	}
	if p.Metadata, err = decodeTerms(terms); err != nil {
		return nil, err
	}
	if len(rest) < 2 {
		return nil, malformed("packet-in", "no packet")
	}
	p.Packet = append([]byte(nil), rest[2:]...)
	return p, nil
}

// Properties of a packet-in of Nicira's second format.
const (
	pinPacket = iota
	pinFullLen
	pinBufferID
	pinTable
	pinCookie
	pinReason
	pinMetadata
	pinUserdata
	pinContinuation
)

// decodePacketIn2 decodes the properties of a PACKET_IN2.
func decodePacketIn2(b []byte) (*PacketIn, error) {
	p := new(PacketIn)
	for len(b) > 0 {
		typ, payload, rest, ok := cutProp(b)
		if !ok {
			return nil, malformed("packet-in", "property in the last %d bytes", len(b))
		}
		b = rest
		var err error
		switch {
		case typ == pinPacket:
			p.Packet = append([]byte(nil), payload...)
		case typ == pinFullLen && len(payload) >= 4:
			p.Total = int(binary.BigEndian.Uint32(payload))
		case typ == pinTable && len(payload) >= 1:
			p.Table = payload[0]
		case typ == pinCookie && len(payload) >= 12: // after four bytes of padding
			p.Cookie = binary.BigEndian.Uint64(payload[4:])
		case typ == pinReason && len(payload) >= 1:
			p.Reason = Reason(payload[0])
		case typ == pinMetadata:
			p.Metadata, err = decodeTerms(payload)
		case typ == pinUserdata:
			p.Userdata = append([]byte(nil), payload...)
		case typ == pinContinuation:
			p.Continuation = append([]byte(nil), payload...)
		}
		if err != nil {
			return nil, err
		}
	}
	if p.Total == 0 {
		p.Total = len(p.Packet)
	}
	return p, nil
}

// Resume lets a packet go on that a Controller action with Pause has stopped.
// Packet and metadata may be changed before.
type Resume struct{ PacketIn *PacketIn }

// AppendMessage appends the message with its header.
func (m Resume) AppendMessage(b []byte, v Version, xid uint32) ([]byte, error) {
	p := m.PacketIn
	if p == nil || len(p.Continuation) == 0 {
		return b, fmt.Errorf("openflow: packet-in has no continuation to resume")
	}
	b, start := beginNXT(b, v, nxtResume, xid)
	b = appendProp(b, pinPacket, p.Packet)
	b = append(b, 0, pinReason, 0, 5, byte(p.Reason), 0, 0, 0)
	b = append(b, 0, pinTable, 0, 5, p.Table, 0, 0, 0)
	b = append(b, 0, pinCookie, 0, 16, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, p.Cookie)
	terms, err := p.Metadata.appendTerms(nil)
	if err != nil {
		return b, err
	}
	b = appendProp(b, pinMetadata, terms)
	b = appendProp(b, pinContinuation, p.Continuation)
	return endMessage(b, start)
}

// AppendText appends the message in a form for people.
func (m Resume) AppendText(b []byte) []byte {
	return append(b, "resume"...)
}

func appendProp(b []byte, typ uint16, payload []byte) []byte {
	n := 4 + len(payload)
	b = append(b, byte(typ>>8), byte(typ), byte(n>>8), byte(n))
	b = append(b, payload...)
	return appendZeros(b, pad8(n))
}

// beginNXT begins a message of Nicira's.
func beginNXT(b []byte, v Version, subtype uint32, xid uint32) ([]byte, int) {
	b, start := beginMessage(b, v, typeExperimenter, xid)
	b = binary.BigEndian.AppendUint32(b, experimenterNicira)
	return binary.BigEndian.AppendUint32(b, subtype), start
}

// A PacketOut sends a packet through the switch.
type PacketOut struct {
	InPort  uint32 // port to pretend, 0 for the controller
	Actions []Action
	Packet  []byte
}

// AppendMessage appends the message with its header.
func (m PacketOut) AppendMessage(b []byte, v Version, xid uint32) ([]byte, error) {
	b, start := beginMessage(b, v, typePacketOut, xid)
	b = append(b, 0xff, 0xff, 0xff, 0xff)
	port := m.InPort
	if port == 0 {
		port = PortController
	}
	b = binary.BigEndian.AppendUint32(b, port)
	lenAt := len(b)
	b = appendZeros(b, 8)
	at := len(b)
	b, err := appendActions(b, m.Actions)
	if err != nil {
		return b, err
	}
	if len(b)-at > maxMessage {
		return b, errTooLong
	}
	binary.BigEndian.PutUint16(b[lenAt:], uint16(len(b)-at))
	return endMessage(append(b, m.Packet...), start)
}

// AppendText appends the message in a form for people.
func (m PacketOut) AppendText(b []byte) []byte {
	b = appendDec(append(b, "packet_out of "...), uint64(len(m.Packet)))
	return AppendActions(append(b, " bytes, actions="...), m.Actions)
}

// A RemovedReason says why a flow is gone.
type RemovedReason uint8

// Reasons for the end of a flow.
const (
	RemovedIdle RemovedReason = iota
	RemovedHard
	RemovedDelete
	RemovedGroup
	RemovedMeter
	RemovedEviction
)

// FlowRemoved is the event that a flow with SendFlowRem is gone.
type FlowRemoved struct {
	Key            Key
	Cookie         uint64
	Reason         RemovedReason
	Duration       time.Duration
	IdleTimeout    uint16
	HardTimeout    uint16
	Packets, Bytes uint64
}

func decodeFlowRemoved(b []byte) (*FlowRemoved, error) {
	if len(b) < 48 {
		return nil, malformed("flow removed", "%d bytes", len(b))
	}
	be := binary.BigEndian
	terms, _, err := cutMatch(b[40:])
	if err != nil {
		return nil, err
	}
	return &FlowRemoved{
		Key: makeKey(b[11], be.Uint16(b[8:]), terms), Cookie: be.Uint64(b), Reason: RemovedReason(b[10]),
		Duration: duration(be.Uint32(b[12:]), be.Uint32(b[16:])), IdleTimeout: be.Uint16(b[20:]),
		HardTimeout: be.Uint16(b[22:]), Packets: be.Uint64(b[24:]), Bytes: be.Uint64(b[32:]),
	}, nil
}

func makeKey(table uint8, priority uint16, terms []byte) Key {
	b := make([]byte, 0, keyHead+len(terms))
	b = binary.BigEndian.AppendUint16(b, uint16(len(terms)))
	b = append(b, table)
	b = binary.BigEndian.AppendUint16(b, priority)
	return Key{string(append(b, terms...))}
}
