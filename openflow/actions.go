// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

// An Action is one step of what a flow does with a packet. As in ovs-ofctl the
// instructions (GotoTable, WriteMetadata, Meter, ClearActions, WriteActions)
// are listed among the actions of a flow; the encoder puts them into the order
// that OpenFlow prescribes.
type Action interface {
	// appendWire appends the action, a multiple of eight bytes long.
	appendWire(b []byte) ([]byte, error)
	// appendText appends the action in ovs-ofctl syntax.
	appendText(b []byte) []byte
}

// OpenFlow action types.
const (
	actOutput     = 0
	actDecMPLSTTL = 16
	actPushVLAN   = 17
	actPopVLAN    = 18
	actPushMPLS   = 19
	actPopMPLS    = 20
	actSetQueue   = 21
	actGroup      = 22
	actSetNwTTL   = 23
	actDecNwTTL   = 24
	actSetField   = 25
	actExp        = 0xffff
)

func action8(b []byte, typ uint16, arg uint32) []byte {
	b = append(b, byte(typ>>8), byte(typ), 0, 8)
	return binary.BigEndian.AppendUint32(b, arg)
}

// Output sends the packet to a port: a number or one of PortInPort, PortNormal,
// PortFlood, PortAll, PortLocal. To the controller use Controller.
type Output uint32

func (a Output) appendWire(b []byte) ([]byte, error) {
	return appendOutput(b, uint32(a), 0), nil
}

func appendOutput(b []byte, port uint32, maxLen uint16) []byte {
	b = append(b, 0, actOutput, 0, 16)
	b = binary.BigEndian.AppendUint32(b, port)
	b = binary.BigEndian.AppendUint16(b, maxLen)
	return appendZeros(b, 6)
}

func (a Output) appendText(b []byte) []byte {
	if uint32(a) < PortMax {
		b = append(b, "output:"...)
	}
	return appendPort(b, uint32(a))
}

// PushVLAN pushes a VLAN tag of the given Ethernet type, usually EtherVLAN.
type PushVLAN uint16

func (a PushVLAN) appendWire(b []byte) ([]byte, error) {
	return action8(b, actPushVLAN, uint32(a)<<16), nil
}

func (a PushVLAN) appendText(b []byte) []byte {
	return appendHex(append(b, "push_vlan:"...), uint64(a))
}

// PopVLAN removes the outer VLAN tag.
type PopVLAN struct{}

func (PopVLAN) appendWire(b []byte) ([]byte, error) { return action8(b, actPopVLAN, 0), nil }
func (PopVLAN) appendText(b []byte) []byte          { return append(b, "pop_vlan"...) }

// PushMPLS pushes an MPLS label of the given Ethernet type.
type PushMPLS uint16

func (a PushMPLS) appendWire(b []byte) ([]byte, error) {
	return action8(b, actPushMPLS, uint32(a)<<16), nil
}

func (a PushMPLS) appendText(b []byte) []byte {
	return appendHexPad(append(b, "push_mpls:"...), uint64(a), 4)
}

// PopMPLS removes the outer MPLS label; what follows has the given Ethernet
// type.
type PopMPLS uint16

func (a PopMPLS) appendWire(b []byte) ([]byte, error) {
	return action8(b, actPopMPLS, uint32(a)<<16), nil
}

func (a PopMPLS) appendText(b []byte) []byte {
	return appendHexPad(append(b, "pop_mpls:"...), uint64(a), 4)
}

// DecMPLSTTL decrements the time to live of the MPLS label.
type DecMPLSTTL struct{}

func (DecMPLSTTL) appendWire(b []byte) ([]byte, error) { return action8(b, actDecMPLSTTL, 0), nil }
func (DecMPLSTTL) appendText(b []byte) []byte          { return append(b, "dec_mpls_ttl"...) }

// SetQueue chooses the queue that the packet is output to.
type SetQueue uint32

func (a SetQueue) appendWire(b []byte) ([]byte, error) {
	return action8(b, actSetQueue, uint32(a)), nil
}

func (a SetQueue) appendText(b []byte) []byte {
	return appendDec(append(b, "set_queue:"...), uint64(a))
}

// Group hands the packet to a group.
type Group uint32

func (a Group) appendWire(b []byte) ([]byte, error) { return action8(b, actGroup, uint32(a)), nil }

func (a Group) appendText(b []byte) []byte {
	return appendDec(append(b, "group:"...), uint64(a))
}

// SetTTL sets the time to live of the IP header.
type SetTTL uint8

func (a SetTTL) appendWire(b []byte) ([]byte, error) {
	return action8(b, actSetNwTTL, uint32(a)<<24), nil
}

func (a SetTTL) appendText(b []byte) []byte {
	return appendDec(append(b, "mod_nw_ttl:"...), uint64(a))
}

// DecTTL decrements the time to live of the IP header. With controllers named,
// those are told of packets whose time is over.
type DecTTL struct{ Controllers []uint16 }

func (a DecTTL) appendWire(b []byte) ([]byte, error) {
	if len(a.Controllers) == 0 {
		return action8(b, actDecNwTTL, 0), nil
	}
	b, start := beginNX(b, nxDecTTLCntIDs)
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.Controllers)))
	b = appendZeros(b, 4)
	for _, id := range a.Controllers {
		b = binary.BigEndian.AppendUint16(b, id)
	}
	return endAction(b, start)
}

func (a DecTTL) appendText(b []byte) []byte {
	b = append(b, "dec_ttl"...)
	for i, id := range a.Controllers {
		b = append(b, "(,"[min(i, 1)])
		b = appendDec(b, uint64(id))
	}
	if len(a.Controllers) > 0 {
		b = append(b, ')')
	}
	return b
}

// SetField writes a whole field.
type SetField struct {
	Field Field
	Value Value
}

// Set returns the action that writes v to the whole of f.
func Set(f Field, v Value) SetField { return SetField{f, v} }

// SetVLAN returns the action that writes the VLAN id of a tagged packet.
func SetVLAN(vid uint16) SetField { return Set(VLANVID, Uint(uint64(vid&0xfff|VLANPresent))) }

func (a SetField) appendWire(b []byte) ([]byte, error) {
	fi := a.Field.info()
	if a.Field == 0 || a.Field >= RawField || !a.Value.fits(a.Field.fullMask()) {
		return b, badAction(a, "value does not fit the field")
	}
	start := len(b)
	b = append(b, 0, actSetField, 0, 0)
	b = binary.BigEndian.AppendUint32(b, fi.oxmHdr)
	if fi.exp != 0 {
		b = binary.BigEndian.AppendUint32(b, fi.exp)
	}
	b = appendValue(b, a.Value, int(fi.size))
	return endAction(b, start)
}

func (a SetField) appendText(b []byte) []byte {
	b = appendFieldValue(append(b, "set_field:"...), a.Field, a.Value)
	return append(append(b, "->"...), a.Field.info().name...)
}

// RawAction is an action that this package does not know, as it came.
type RawAction string

func (a RawAction) appendWire(b []byte) ([]byte, error) {
	if len(a) < 8 || len(a)%8 != 0 {
		return b, badAction(a, "not a whole action")
	}
	return append(b, a...), nil
}

func (a RawAction) appendText(b []byte) []byte { return appendRawText(b, string(a)) }

// appendActions appends a list of actions that may not hold instructions.
func appendActions(b []byte, list []Action) ([]byte, error) {
	var err error
	for _, a := range list {
		if a == nil {
			return b, badAction(nil, "is nil")
		}
		if _, ok := a.(instruction); ok {
			return b, badAction(a, "is an instruction and cannot stand inside another action")
		}
		if b, err = a.appendWire(b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// AppendActions appends a list of actions in ovs-ofctl syntax, "drop" if there
// are none.
func AppendActions(b []byte, list []Action) []byte {
	if len(list) == 0 {
		return append(b, "drop"...)
	}
	return appendActionList(b, list)
}

func appendActionList(b []byte, list []Action) []byte {
	for i, a := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if a != nil {
			b = a.appendText(b)
		}
	}
	return b
}

// endAction pads an action that began at start and writes its length.
func endAction(b []byte, start int) ([]byte, error) {
	b = appendZeros(b, pad8(len(b)-start))
	n := len(b) - start
	if n > 0xffff {
		return b, errTooLong
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(n))
	return b, nil
}
