// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

// instruction marks the actions that are instructions on the wire.
type instruction interface{ isInstruction() }

// Instruction types.
const (
	insGotoTable     = 1
	insWriteMetadata = 2
	insWriteActions  = 3
	insApplyActions  = 4
	insClearActions  = 5
	insMeter         = 6
)

// GotoTable continues in a later table.
type GotoTable uint8

func (GotoTable) isInstruction() {}

func (a GotoTable) appendWire(b []byte) ([]byte, error) {
	return append(b, 0, insGotoTable, 0, 8, byte(a), 0, 0, 0), nil
}

func (a GotoTable) appendText(b []byte) []byte {
	return appendDec(append(b, "goto_table:"...), uint64(a))
}

// WriteMetadata writes the bits of Mask of the metadata field.
type WriteMetadata struct{ Value, Mask uint64 }

func (WriteMetadata) isInstruction() {}

func (a WriteMetadata) appendWire(b []byte) ([]byte, error) {
	b = append(b, 0, insWriteMetadata, 0, 24, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, a.Value)
	return binary.BigEndian.AppendUint64(b, a.Mask), nil
}

func (a WriteMetadata) appendText(b []byte) []byte {
	b = appendHex(append(b, "write_metadata:"...), a.Value)
	if a.Mask != ^uint64(0) {
		b = appendHex(append(b, '/'), a.Mask)
	}
	return b
}

// Meter sends the packet through a meter, which may drop it.
type Meter uint32

func (Meter) isInstruction() {}

func (a Meter) appendWire(b []byte) ([]byte, error) {
	return binary.BigEndian.AppendUint32(append(b, 0, insMeter, 0, 8), uint32(a)), nil
}

func (a Meter) appendText(b []byte) []byte { return appendDec(append(b, "meter:"...), uint64(a)) }

// ClearActions empties the action set.
type ClearActions struct{}

func (ClearActions) isInstruction() {}

func (ClearActions) appendWire(b []byte) ([]byte, error) {
	return append(b, 0, insClearActions, 0, 8, 0, 0, 0, 0), nil
}

func (ClearActions) appendText(b []byte) []byte { return append(b, "clear_actions"...) }

// WriteActions merges actions into the action set.
type WriteActions struct{ Actions []Action }

func (WriteActions) isInstruction() {}

func (a WriteActions) appendWire(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, 0, insWriteActions, 0, 0, 0, 0, 0, 0)
	b, err := appendActions(b, a.Actions)
	if err != nil {
		return b, err
	}
	return endAction(b, start)
}

func (a WriteActions) appendText(b []byte) []byte {
	return append(AppendActions(append(b, "write_actions("...), a.Actions), ')')
}

// RawInstruction is an instruction that this package does not know.
type RawInstruction string

func (RawInstruction) isInstruction() {}

func (a RawInstruction) appendWire(b []byte) ([]byte, error) {
	if len(a) < 8 || len(a)%8 != 0 {
		return b, badAction(a, "not a whole instruction")
	}
	return append(b, a...), nil
}

func (a RawInstruction) appendText(b []byte) []byte { return appendRawText(b, string(a)) }

// instructionRank is the canonical order: meter, apply, clear, write,
// metadata, goto. Apply stands for all plain actions together.
func instructionRank(a Action) int {
	switch a.(type) {
	case Meter:
		return 0
	case ClearActions:
		return 2
	case WriteActions:
		return 3
	case WriteMetadata:
		return 4
	case GotoTable:
		return 5
	case RawInstruction:
		return 6
	}
	return 1
}

// appendInstructions appends a flow's actions as instructions in canonical
// order; no actions are no instructions, which drops the packet.
func appendInstructions(b []byte, list []Action) ([]byte, error) {
	var count [7]int
	for _, a := range list {
		if a == nil {
			return b, badAction(nil, "is nil")
		}
		count[instructionRank(a)]++
	}
	var err error
	for rank, n := range count {
		if n == 0 {
			continue
		}
		apply := len(b)
		if rank == 1 {
			b = append(b, 0, insApplyActions, 0, 0, 0, 0, 0, 0)
		} else if n > 1 && rank != 6 {
			return b, badAction(findRank(list, rank), "given twice")
		}
		for _, a := range list {
			if instructionRank(a) != rank {
				continue
			}
			if b, err = a.appendWire(b); err != nil {
				return b, err
			}
		}
		if rank == 1 {
			if b, err = endAction(b, apply); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

func findRank(list []Action, rank int) Action {
	for _, a := range list {
		if instructionRank(a) == rank {
			return a
		}
	}
	return nil
}

// decodeInstructions decodes the instructions of a flow into actions. What is
// not known, or not written as this package writes it, becomes a RawAction or
// RawInstruction; only broken lengths are an error, and then the actions
// before the break are returned with it.
func decodeInstructions(b []byte) ([]Action, error) { return new(decoder).instructions(nil, b) }

func (d *decoder) instructions(list []Action, b []byte) ([]Action, error) {
	for len(b) > 0 {
		n, err := actionLen(b, "instruction")
		if err != nil {
			return list, err
		}
		ins := b[:n]
		b = b[n:]
		if binary.BigEndian.Uint16(ins) == insApplyActions && binary.BigEndian.Uint32(ins[4:]) == 0 {
			if list, err = d.actions(list, ins[8:], 0); err != nil {
				return list, err
			}
			continue
		}
		list = append(list, d.instruction(ins))
	}
	return list, nil
}

func (d *decoder) instruction(b []byte) Action {
	var a Action
	switch typ := binary.BigEndian.Uint16(b); {
	case typ == insGotoTable && len(b) == 8:
		a = GotoTable(b[4])
	case typ == insWriteMetadata && len(b) == 24:
		a = WriteMetadata{Value: binary.BigEndian.Uint64(b[8:]), Mask: binary.BigEndian.Uint64(b[16:])}
	case typ == insMeter && len(b) == 8:
		a = Meter(binary.BigEndian.Uint32(b[4:]))
	case typ == insClearActions && len(b) == 8:
		a = ClearActions{}
	case typ == insWriteActions:
		if list, err := d.actions(nil, b[8:], 0); err == nil {
			a = WriteActions{Actions: list}
		}
	}
	if a == nil || !d.encodesTo(a, b) {
		return RawInstruction(b)
	}
	return a
}

// actionLen checks the header of an action or instruction and returns its
// length.
func actionLen(b []byte, what string) (int, error) {
	if len(b) < 8 {
		return 0, malformed(what, "%d bytes after the last one", len(b))
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n < 8 || n%8 != 0 || n > len(b) {
		return 0, malformed(what, "length %d in %d bytes", n, len(b))
	}
	return n, nil
}
