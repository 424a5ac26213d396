// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// maxDepth bounds how deep actions may be nested; a deeper one stays raw.
const maxDepth = 16

// decodeActions decodes a list of actions on its own.
func decodeActions(b []byte) ([]Action, error) { return new(decoder).actions(nil, b, 0) }

// decoder holds the memory that decoding uses again and again.
type decoder struct{ scratch []byte }

// actions decodes a list of actions and appends them to list. At the outermost
// level every action is encoded again and compared, so that decoding loses
// nothing: what would come out differently stays raw.
func (d *decoder) actions(list []Action, b []byte, depth int) ([]Action, error) {
	if len(b) == 0 {
		return list, nil
	}
	count := 0
	for rest := b; len(rest) > 0; count++ {
		n, err := actionLen(rest, "action")
		if err != nil {
			return list, err
		}
		rest = rest[n:]
	}
	list = slices.Grow(list, count)
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint16(b[2:]))
		a := d.action(b[:n], depth)
		if a == nil || depth == 0 && !d.encodesTo(a, b[:n]) {
			a = RawAction(b[:n])
		}
		list = append(list, a)
		b = b[n:]
	}
	return list, nil
}

// encodesTo reports whether a is encoded as the bytes b.
func (d *decoder) encodesTo(a Action, b []byte) bool {
	got, err := a.appendWire(d.scratch[:0])
	d.scratch = got[:0]
	return err == nil && bytes.Equal(got, b)
}

// action decodes one action of which the outer length has been checked. It
// returns nil for what it does not know.
func (d *decoder) action(b []byte, depth int) Action {
	be := binary.BigEndian
	switch typ := be.Uint16(b); typ {
	case actOutput:
		if len(b) != 16 {
			return nil
		}
		port, maxLen := be.Uint32(b[4:]), be.Uint16(b[8:])
		switch {
		case port == PortController:
			return ToController(maxLen)
		case maxLen != 0:
			return OutputLen{Port: port, MaxLen: maxLen}
		}
		return Output(port)
	case actSetField:
		return decodeSetField(b)
	case actExp:
		if len(b) < 16 || be.Uint32(b[4:]) != experimenterNicira {
			return nil
		}
		return d.nx(be.Uint16(b[8:]), b, depth)
	default:
		if len(b) != 8 {
			return nil
		}
		switch typ {
		case actPushVLAN:
			return PushVLAN(be.Uint16(b[4:]))
		case actPopVLAN:
			return PopVLAN{}
		case actPushMPLS:
			return PushMPLS(be.Uint16(b[4:]))
		case actPopMPLS:
			return PopMPLS(be.Uint16(b[4:]))
		case actDecMPLSTTL:
			return DecMPLSTTL{}
		case actSetQueue:
			return SetQueue(be.Uint32(b[4:]))
		case actGroup:
			return Group(be.Uint32(b[4:]))
		case actSetNwTTL:
			return SetTTL(b[4])
		case actDecNwTTL:
			return DecTTL{}
		}
	}
	return nil
}

func decodeSetField(b []byte) Action {
	hdr := binary.BigEndian.Uint32(b[4:])
	f := fieldByHeader(hdr, 0)
	if f == 0 || f.info().oxmHdr != hdr || f.info().exp != 0 {
		return nil
	}
	size := int(f.info().size)
	if len(b) < 8+size {
		return nil
	}
	return SetField{Field: f, Value: readValue(b[8 : 8+size])}
}
