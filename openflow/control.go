// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

// A Role is the role of a controller among several.
type Role uint32

// Roles. A connection starts as RoleEqual.
const (
	RoleNoChange Role = iota
	RoleEqual
	RolePrimary
	RoleSecondary
)

func appendRole(b []byte, v Version, xid uint32, r Role, generation uint64) []byte {
	body := binary.BigEndian.AppendUint32(nil, uint32(r))
	body = append(body, 0, 0, 0, 0)
	body = binary.BigEndian.AppendUint64(body, generation)
	return appendSimple(b, v, typeRoleRequest, xid, body)
}

func decodeRole(b []byte) (Role, error) {
	if len(b) < 16 {
		return 0, malformed("role reply", "%d bytes", len(b))
	}
	return Role(binary.BigEndian.Uint32(b)), nil
}

// Async says which asynchronous messages the switch sends, as bit masks of
// reasons: first for the roles equal and primary, then for secondary.
type Async struct {
	PacketIn    [2]uint32
	PortStatus  [2]uint32
	FlowRemoved [2]uint32
}

// masks lists the masks in the order of the wire's property pairs.
func (a *Async) masks() [3]*[2]uint32 {
	return [3]*[2]uint32{&a.PacketIn, &a.PortStatus, &a.FlowRemoved}
}

func (a Async) appendBody(b []byte, v Version) []byte {
	for i, m := range a.masks() {
		if v < OpenFlow14 {
			b = binary.BigEndian.AppendUint32(b, m[0])
			b = binary.BigEndian.AppendUint32(b, m[1])
			continue
		}
		// Each pair is secondary (even type) then primary (odd type).
		b = append(b, 0, byte(2*i), 0, 8)
		b = binary.BigEndian.AppendUint32(b, m[1])
		b = append(b, 0, byte(2*i+1), 0, 8)
		b = binary.BigEndian.AppendUint32(b, m[0])
	}
	return b
}

func decodeAsync(v Version, b []byte) (Async, error) {
	var a Async
	masks := a.masks()
	if v < OpenFlow14 {
		if len(b) < 24 {
			return a, malformed("async reply", "%d bytes", len(b))
		}
		for i, m := range masks {
			m[0], m[1] = binary.BigEndian.Uint32(b[8*i:]), binary.BigEndian.Uint32(b[8*i+4:])
		}
		return a, nil
	}
	for len(b) > 0 {
		typ, payload, rest, ok := cutProp(b)
		if !ok {
			return a, malformed("async reply", "property in the last %d bytes", len(b))
		}
		if typ < 6 && len(payload) >= 4 {
			masks[typ/2][1-typ%2] = binary.BigEndian.Uint32(payload)
		}
		b = rest
	}
	return a, nil
}

// SwitchConfig is how the switch treats fragments and how many bytes of a
// packet that matches no flow it sends to the controller.
type SwitchConfig struct {
	Flags       uint16
	MissSendLen uint16
}

func (s SwitchConfig) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, s.Flags)
	return binary.BigEndian.AppendUint16(b, s.MissSendLen)
}

func decodeConfig(b []byte) (SwitchConfig, error) {
	if len(b) < 4 {
		return SwitchConfig{}, malformed("config reply", "%d bytes", len(b))
	}
	return SwitchConfig{Flags: binary.BigEndian.Uint16(b), MissSendLen: binary.BigEndian.Uint16(b[2:])}, nil
}

// control is a message without an argument worth a type of its own.
type control struct {
	name   string
	append func(b []byte, v Version, xid uint32) []byte
}

func (m control) AppendMessage(b []byte, v Version, xid uint32) ([]byte, error) {
	return m.append(b, v, xid), nil
}

func (m control) AppendText(b []byte) []byte { return append(b, m.name...) }

func setConfig(s SwitchConfig) control {
	return control{"set_config", func(b []byte, v Version, xid uint32) []byte {
		return appendSimple(b, v, typeSetConfig, xid, s.appendBody(nil))
	}}
}

func setAsync(a Async) control {
	return control{"set_async", func(b []byte, v Version, xid uint32) []byte {
		return appendSimple(b, v, typeSetAsync, xid, a.appendBody(nil, v))
	}}
}

// setPacketInFormat asks for packet-ins of Nicira's second format, the only
// ones with userdata and continuation.
func setPacketInFormat() control {
	return control{"set_packet_in_format", func(b []byte, v Version, xid uint32) []byte {
		b, start := beginNXT(b, v, nxtSetPacketInFormat, xid)
		b = append(b, 0, 0, 0, 2)
		binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
		return b
	}}
}

func setControllerID(id uint16) control {
	return control{"set_controller_id", func(b []byte, v Version, xid uint32) []byte {
		b, start := beginNXT(b, v, nxtSetControllerID, xid)
		b = appendZeros(b, 6)
		b = binary.BigEndian.AppendUint16(b, id)
		binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
		return b
	}}
}
