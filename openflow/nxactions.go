// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"fmt"
)

// Subtypes of Nicira's actions.
const (
	nxResubmit       = 1
	nxPopQueue       = 5
	nxRegMove        = 6
	nxRegLoad        = 7
	nxNote           = 8
	nxMultipath      = 10
	nxBundle         = 12
	nxBundleLoad     = 13
	nxResubmitTable  = 14
	nxOutputReg      = 15
	nxLearn          = 16
	nxExit           = 17
	nxFinTimeout     = 19
	nxController     = 20
	nxDecTTLCntIDs   = 21
	nxStackPush      = 27
	nxStackPop       = 28
	nxSample         = 29
	nxConjunction    = 34
	nxCT             = 35
	nxNAT            = 36
	nxController2    = 37
	nxOutputTrunc    = 39
	nxClone          = 42
	nxCTClear        = 43
	nxResubmitCT     = 44
	nxLearn2         = 45
	nxCheckPktLarger = 49
)

// beginNX appends the header of a Nicira action of which the length is filled
// in by endAction.
func beginNX(b []byte, subtype uint16) ([]byte, int) {
	start := len(b)
	b = append(b, 0xff, 0xff, 0, 0)
	b = binary.BigEndian.AppendUint32(b, experimenterNicira)
	return binary.BigEndian.AppendUint16(b, subtype), start
}

func badAction(a Action, why string) error {
	if a == nil {
		return fmt.Errorf("openflow: action %s", why)
	}
	return fmt.Errorf("openflow: action %s: %s", a.appendText(nil), why)
}

// SameTable as the table of a Resubmit stands for the table of the flow.
const SameTable = 255

// Resubmit looks the packet up again.
type Resubmit struct {
	// Port is the input port to pretend, 0 for the one the packet has.
	Port uint16
	// Table to look in; SameTable for the flow's own.
	Table uint8
	// CT uses the packet's original 5-tuple from connection tracking.
	CT bool

	old bool // came in the form that has no table
}

// To returns the action that looks the packet up in another table.
func To(table uint8) Resubmit { return Resubmit{Table: table} }

// AsFrom returns the action that looks the packet up again in the table of its
// flow, as if it had come in by another port. It takes the form that has no
// table, which is what others write for it.
func AsFrom(port uint16) Resubmit { return Resubmit{Port: port, Table: SameTable, old: true} }

func (a Resubmit) appendWire(b []byte) ([]byte, error) {
	sub := uint16(nxResubmitTable)
	switch {
	case a.CT:
		sub = nxResubmitCT
	case a.old:
		sub = nxResubmit
	}
	b, start := beginNX(b, sub)
	port := a.Port
	if port == 0 {
		port = port16(PortInPort)
	}
	b = binary.BigEndian.AppendUint16(b, port)
	if a.old {
		b = append(b, 0, 0, 0, 0)
	} else {
		b = append(b, a.Table, 0, 0, 0)
	}
	return endAction(b, start)
}

func (a Resubmit) appendText(b []byte) []byte {
	if a.Port != 0 && a.Table == SameTable && !a.CT {
		return appendPort(append(b, "resubmit:"...), port32(a.Port))
	}
	b = append(b, "resubmit("...)
	if a.Port != 0 {
		b = appendPort(b, port32(a.Port))
	}
	b = append(b, ',')
	if a.Table != SameTable {
		b = appendDec(b, uint64(a.Table))
	}
	if a.CT {
		b = append(b, ",ct"...)
	}
	return append(b, ')')
}

// Conjunction makes the flow one clause of a conjunctive match.
type Conjunction struct {
	ID     uint32
	Clause uint8 // from 1
	Of     uint8 // number of clauses
}

func (a Conjunction) appendWire(b []byte) ([]byte, error) {
	if a.Clause == 0 || a.Clause > a.Of {
		return b, badAction(a, "clause out of range")
	}
	b, start := beginNX(b, nxConjunction)
	b = append(b, a.Clause-1, a.Of)
	b = binary.BigEndian.AppendUint32(b, a.ID)
	return endAction(b, start)
}

func (a Conjunction) appendText(b []byte) []byte {
	b = appendDec(append(b, "conjunction("...), uint64(a.ID))
	b = appendDec(append(b, ','), uint64(a.Clause))
	b = appendDec(append(b, '/'), uint64(a.Of))
	return append(b, ')')
}

// Load writes up to 64 bits of a field.
type Load struct {
	Value uint64
	To    Bits
}

func (a Load) appendWire(b []byte) ([]byte, error) {
	if !a.To.valid() || a.To.Len > 64 || !Uint(a.Value).fits(ones(int(a.To.Len))) {
		return b, badAction(a, "value or bits out of range")
	}
	b, start := beginNX(b, nxRegLoad)
	b = binary.BigEndian.AppendUint16(b, a.To.ofsNBits())
	b = binary.BigEndian.AppendUint32(b, a.To.Field.info().nxmHdr)
	b = binary.BigEndian.AppendUint64(b, a.Value)
	return endAction(b, start)
}

func (a Load) appendText(b []byte) []byte {
	b = appendHex(append(b, "load:"...), a.Value)
	return a.To.appendText(append(b, "->"...))
}

// Move copies bits from one field to another.
type Move struct{ From, To Bits }

func (a Move) appendWire(b []byte) ([]byte, error) {
	if !a.From.valid() || !a.To.valid() || a.From.Len != a.To.Len {
		return b, badAction(a, "bits out of range")
	}
	b, start := beginNX(b, nxRegMove)
	b = binary.BigEndian.AppendUint16(b, uint16(a.To.Len))
	b = binary.BigEndian.AppendUint16(b, uint16(a.From.Offset))
	b = binary.BigEndian.AppendUint16(b, uint16(a.To.Offset))
	b = binary.BigEndian.AppendUint32(b, a.From.Field.info().nxmHdr)
	b = binary.BigEndian.AppendUint32(b, a.To.Field.info().nxmHdr)
	return endAction(b, start)
}

func (a Move) appendText(b []byte) []byte {
	b = a.From.appendText(append(b, "move:"...))
	return a.To.appendText(append(b, "->"...))
}

// OutputField sends the packet to the port whose number is in a field.
type OutputField struct {
	From   Bits
	MaxLen uint16 // bytes for the controller, 0 for all
}

func (a OutputField) appendWire(b []byte) ([]byte, error) {
	if !a.From.valid() {
		return b, badAction(a, "bits out of range")
	}
	b, start := beginNX(b, nxOutputReg)
	b = binary.BigEndian.AppendUint16(b, a.From.ofsNBits())
	b = binary.BigEndian.AppendUint32(b, a.From.Field.info().nxmHdr)
	n := a.MaxLen
	if n == 0 {
		n = 0xffff
	}
	b = binary.BigEndian.AppendUint16(b, n)
	return endAction(appendZeros(b, 6), start)
}

func (a OutputField) appendText(b []byte) []byte {
	return a.From.appendText(append(b, "output:"...))
}

// OutputLen sends the packet to a port with a limit of the bytes for the
// controller. Some controllers write the limit for every port, where it has no
// meaning; it shows here so that such a flow keeps its bytes.
type OutputLen struct {
	Port   uint32
	MaxLen uint16
}

func (a OutputLen) appendWire(b []byte) ([]byte, error) {
	return appendOutput(b, a.Port, a.MaxLen), nil
}

func (a OutputLen) appendText(b []byte) []byte { return Output(a.Port).appendText(b) }

// OutputTrunc sends at most MaxLen bytes of the packet to a port.
type OutputTrunc struct {
	Port   uint16
	MaxLen uint32
}

func (a OutputTrunc) appendWire(b []byte) ([]byte, error) {
	b, start := beginNX(b, nxOutputTrunc)
	b = binary.BigEndian.AppendUint16(b, a.Port)
	b = binary.BigEndian.AppendUint32(b, a.MaxLen)
	return endAction(b, start)
}

func (a OutputTrunc) appendText(b []byte) []byte {
	b = appendPort(append(b, "output(port="...), port32(a.Port))
	return append(appendDec(append(b, ",max_len="...), uint64(a.MaxLen)), ')')
}

// Note carries bytes that mean nothing to the switch. They are padded with
// zeros to 6, 14, 22 … bytes, and come back so.
type Note string

func (a Note) appendWire(b []byte) ([]byte, error) {
	b, start := beginNX(b, nxNote)
	b = append(b, a...)
	if len(a) == 0 {
		b = appendZeros(b, 6)
	}
	return endAction(b, start)
}

func (a Note) appendText(b []byte) []byte { return appendHexBytes(append(b, "note:"...), string(a)) }

// Clone applies actions to a copy of the packet.
type Clone struct{ Actions []Action }

func (a Clone) appendWire(b []byte) ([]byte, error) {
	b, start := beginNX(b, nxClone)
	b, err := appendActions(appendZeros(b, 6), a.Actions)
	if err != nil {
		return b, err
	}
	return endAction(b, start)
}

func (a Clone) appendText(b []byte) []byte {
	return append(AppendActions(append(b, "clone("...), a.Actions), ')')
}

// simpleNX is a Nicira action without arguments.
func simpleNX(b []byte, subtype uint16) ([]byte, error) {
	b, start := beginNX(b, subtype)
	return endAction(appendZeros(b, 6), start)
}

// PopQueue undoes SetQueue.
type PopQueue struct{}

func (PopQueue) appendWire(b []byte) ([]byte, error) { return simpleNX(b, nxPopQueue) }
func (PopQueue) appendText(b []byte) []byte          { return append(b, "pop_queue"...) }

// Exit ends the processing of the packet.
type Exit struct{}

func (Exit) appendWire(b []byte) ([]byte, error) { return simpleNX(b, nxExit) }
func (Exit) appendText(b []byte) []byte          { return append(b, "exit"...) }

// Push puts bits of a field on the stack.
type Push struct{ From Bits }

func (a Push) appendWire(b []byte) ([]byte, error) { return appendStack(b, nxStackPush, a, a.From) }
func (a Push) appendText(b []byte) []byte          { return a.From.appendText(append(b, "push:"...)) }

// Pop takes bits of a field from the stack.
type Pop struct{ To Bits }

func (a Pop) appendWire(b []byte) ([]byte, error) { return appendStack(b, nxStackPop, a, a.To) }
func (a Pop) appendText(b []byte) []byte          { return a.To.appendText(append(b, "pop:"...)) }

func appendStack(b []byte, subtype uint16, a Action, s Bits) ([]byte, error) {
	if !s.valid() {
		return b, badAction(a, "bits out of range")
	}
	b, start := beginNX(b, subtype)
	b = binary.BigEndian.AppendUint16(b, uint16(s.Offset))
	b = binary.BigEndian.AppendUint32(b, s.Field.info().nxmHdr)
	b = binary.BigEndian.AppendUint16(b, uint16(s.Len))
	return endAction(appendZeros(b, 6), start)
}

// FinTimeout changes the timeouts of the flow when a TCP FIN or RST passes.
type FinTimeout struct{ Idle, Hard uint16 }

func (a FinTimeout) appendWire(b []byte) ([]byte, error) {
	b, start := beginNX(b, nxFinTimeout)
	b = binary.BigEndian.AppendUint16(b, a.Idle)
	b = binary.BigEndian.AppendUint16(b, a.Hard)
	return endAction(b, start)
}

func (a FinTimeout) appendText(b []byte) []byte {
	b = append(b, "fin_timeout("...)
	start := len(b)
	if a.Idle != 0 {
		b = append(appendDec(append(b, "idle_timeout="...), uint64(a.Idle)), ',')
	}
	if a.Hard != 0 {
		b = append(appendDec(append(b, "hard_timeout="...), uint64(a.Hard)), ',')
	}
	return closeList(b, start)
}

// CheckPktLarger writes to one bit whether the packet is longer than Len.
type CheckPktLarger struct {
	Len uint16
	To  Bits
}

func (a CheckPktLarger) appendWire(b []byte) ([]byte, error) {
	if !a.To.valid() || a.To.Len != 1 {
		return b, badAction(a, "wants one bit")
	}
	b, start := beginNX(b, nxCheckPktLarger)
	b = binary.BigEndian.AppendUint16(b, a.Len)
	b = binary.BigEndian.AppendUint16(b, uint16(a.To.Offset))
	b = binary.BigEndian.AppendUint32(b, a.To.Field.info().nxmHdr)
	return endAction(appendZeros(b, 6), start)
}

func (a CheckPktLarger) appendText(b []byte) []byte {
	b = appendDec(append(b, "check_pkt_larger("...), uint64(a.Len))
	return a.To.appendText(append(b, ")->"...))
}
