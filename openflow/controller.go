// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

// A Reason says why a packet came to the controller.
type Reason uint8

// Reasons for a packet-in.
const (
	ReasonNoMatch    Reason = 0
	ReasonAction     Reason = 1
	ReasonInvalidTTL Reason = 2
	ReasonActionSet  Reason = 3
	ReasonGroup      Reason = 4
	ReasonPacketOut  Reason = 5
)

var reasonNames = []string{"no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"}

// String returns the name that ovs-ofctl gives to the reason.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return string(appendDec(nil, uint64(r)))
}

// Controller sends the packet to the controllers. ToController makes one with
// the usual reason.
type Controller struct {
	MaxLen   uint16 // bytes of the packet to send; 0xffff is all
	ID       uint16 // controller id
	Reason   Reason // ReasonAction unless there is a special one
	Meter    uint32 // meter that limits the packets, 0 for none
	Pause    bool   // wait for a resume with the packet-in's continuation
	Userdata string // bytes that come back in the packet-in
}

// ToController returns the action that sends up to maxLen bytes of the packet
// to the controller.
func ToController(maxLen uint16) Controller {
	return Controller{MaxLen: maxLen, Reason: ReasonAction}
}

func (a Controller) plain() bool {
	return a.ID == 0 && a.Reason == ReasonAction && a.Meter == 0 && !a.Pause && a.Userdata == ""
}

func (a Controller) appendWire(b []byte) ([]byte, error) {
	if a.plain() {
		return appendOutput(b, PortController, a.MaxLen), nil
	}
	if a.Userdata == "" && !a.Pause && a.Meter == 0 {
		b, start := beginNX(b, nxController)
		b = binary.BigEndian.AppendUint16(b, a.MaxLen)
		b = binary.BigEndian.AppendUint16(b, a.ID)
		b = append(b, byte(a.Reason), 0)
		return endAction(b, start)
	}
	b, start := beginNX(b, nxController2)
	b = appendZeros(b, 6)
	if a.MaxLen != 0xffff {
		b = append(b, 0, 0, 0, 8, byte(a.MaxLen>>8), byte(a.MaxLen), 0, 0)
	}
	if a.ID != 0 {
		b = append(b, 0, 1, 0, 8, byte(a.ID>>8), byte(a.ID), 0, 0)
	}
	if a.Reason != ReasonAction {
		b = append(b, 0, 2, 0, 5, byte(a.Reason), 0, 0, 0)
	}
	if a.Userdata != "" {
		n := 4 + len(a.Userdata)
		if n > 0xffff {
			return b, errTooLong
		}
		b = append(b, 0, 3, byte(n>>8), byte(n))
		b = append(b, a.Userdata...)
		b = appendZeros(b, pad8(n))
	}
	if a.Pause {
		b = append(b, 0, 4, 0, 4, 0, 0, 0, 0)
	}
	if a.Meter != 0 {
		b = append(b, 0, 5, 0, 8)
		b = binary.BigEndian.AppendUint32(b, a.Meter)
	}
	return endAction(b, start)
}

func (a Controller) appendText(b []byte) []byte {
	if a.plain() {
		return appendDec(append(b, "CONTROLLER:"...), uint64(a.MaxLen))
	}
	b = append(b, "controller("...)
	start := len(b)
	if a.Reason != ReasonAction {
		b = append(append(append(b, "reason="...), a.Reason.String()...), ',')
	}
	if a.MaxLen != 0xffff {
		b = append(appendDec(append(b, "max_len="...), uint64(a.MaxLen)), ',')
	}
	if a.ID != 0 {
		b = append(appendDec(append(b, "id="...), uint64(a.ID)), ',')
	}
	if a.Userdata != "" {
		b = append(appendHexBytes(append(b, "userdata="...), a.Userdata), ',')
	}
	if a.Pause {
		b = append(b, "pause,"...)
	}
	if a.Meter != 0 {
		b = append(appendDec(append(b, "meter_id="...), uint64(a.Meter)), ',')
	}
	return closeList(b, start)
}

// closeList replaces the last comma of a list that began at start by a
// closing parenthesis.
func closeList(b []byte, start int) []byte {
	if len(b) > start && b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, ')')
}
