// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

// Learn adds or changes a flow made from the packet: learn(…) in ovs-ofctl.
type Learn struct {
	Table          uint8
	Priority       uint16 // of the learned flow; ovs-ofctl's default is DefaultPriority
	IdleTimeout    uint16
	HardTimeout    uint16
	FinIdleTimeout uint16
	FinHardTimeout uint16
	Cookie         uint64
	Limit          uint32 // most flows that this action may learn, 0 for no limit
	SendFlowRem    bool
	DeleteLearned  bool // learned flows go when this flow goes
	ResultTo       Bits // one bit that says whether Limit allowed the flow
	Specs          []LearnSpec
}

// DefaultPriority is the priority that ovs-ofctl takes when none is given.
const DefaultPriority = 0x8000

type learnKind uint8

const (
	learnMatch learnKind = iota
	learnLoad
	learnOutput
)

// A LearnSpec is one part of the flow that Learn makes.
type LearnSpec struct {
	kind  learnKind
	from  Bits  // zero if value is used
	value Value // n bits, n being to.Len
	to    Bits
}

// LearnMatch makes the learned flow match in to what the packet has in from.
func LearnMatch(to, from Bits) LearnSpec { return LearnSpec{kind: learnMatch, from: from, to: to} }

// LearnMatchValue makes the learned flow match a value.
func LearnMatchValue(to Bits, v Value) LearnSpec {
	return LearnSpec{kind: learnMatch, value: v, to: to}
}

// LearnLoad makes the learned flow write what the packet has in from.
func LearnLoad(to, from Bits) LearnSpec { return LearnSpec{kind: learnLoad, from: from, to: to} }

// LearnLoadValue makes the learned flow write a value.
func LearnLoadValue(to Bits, v Value) LearnSpec {
	return LearnSpec{kind: learnLoad, value: v, to: to}
}

// LearnOutput makes the learned flow send packets to the port in from.
func LearnOutput(from Bits) LearnSpec { return LearnSpec{kind: learnOutput, from: from} }

const (
	learnSendFlowRem   = 1
	learnDeleteLearned = 2
	learnWriteResult   = 4

	learnSrcValue   = 1 << 13
	learnDstLoad    = 1 << 11
	learnDstOutput  = 2 << 11
	learnDstMask    = 3 << 11
	learnNBitsMask  = 0x3ff
	learnSpecUnused = 0xc400
)

func (a Learn) appendWire(b []byte) ([]byte, error) {
	sub := uint16(nxLearn)
	flags := uint16(0)
	if a.SendFlowRem {
		flags |= learnSendFlowRem
	}
	if a.DeleteLearned {
		flags |= learnDeleteLearned
	}
	if a.ResultTo.Len != 0 {
		if !a.ResultTo.valid() || a.ResultTo.Len != 1 {
			return b, badAction(a, "result wants one bit")
		}
		flags |= learnWriteResult
	}
	if a.Limit != 0 || flags&learnWriteResult != 0 {
		sub = nxLearn2
	}
	b, start := beginNX(b, sub)
	b = binary.BigEndian.AppendUint16(b, a.IdleTimeout)
	b = binary.BigEndian.AppendUint16(b, a.HardTimeout)
	b = binary.BigEndian.AppendUint16(b, a.Priority)
	b = binary.BigEndian.AppendUint64(b, a.Cookie)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, a.Table, 0)
	b = binary.BigEndian.AppendUint16(b, a.FinIdleTimeout)
	b = binary.BigEndian.AppendUint16(b, a.FinHardTimeout)
	if sub == nxLearn2 {
		b = binary.BigEndian.AppendUint32(b, a.Limit)
		b = binary.BigEndian.AppendUint16(b, uint16(a.ResultTo.Offset))
		b = append(b, 0, 0)
		if a.ResultTo.Len != 0 {
			b = binary.BigEndian.AppendUint32(b, a.ResultTo.Field.info().nxmHdr)
		}
	}
	for i := range a.Specs {
		s := &a.Specs[i]
		if !s.valid() {
			return b, badAction(a, "bits or value out of range")
		}
		b = s.appendWire(b)
	}
	return endAction(b, start)
}

func (s *LearnSpec) valid() bool {
	if s.from.Len != 0 && !s.from.valid() {
		return false
	}
	if s.kind == learnOutput {
		return s.from.Len != 0
	}
	if !s.to.valid() {
		return false
	}
	if s.from.Len != 0 {
		return s.from.Len == s.to.Len
	}
	return s.value.fits(ones(int(s.to.Len)))
}

func (s *LearnSpec) appendWire(b []byte) []byte {
	n := s.to.Len
	if s.kind == learnOutput {
		n = s.from.Len
	}
	head := uint16(n) | uint16(s.kind)<<11
	if s.from.Len == 0 {
		head |= learnSrcValue
	}
	b = binary.BigEndian.AppendUint16(b, head)
	if s.from.Len != 0 {
		b = binary.BigEndian.AppendUint32(b, s.from.Field.info().nxmHdr)
		b = binary.BigEndian.AppendUint16(b, uint16(s.from.Offset))
	} else {
		b = appendValue(b, s.value, 2*((int(n)+15)/16))
	}
	if s.kind != learnOutput {
		b = binary.BigEndian.AppendUint32(b, s.to.Field.info().nxmHdr)
		b = binary.BigEndian.AppendUint16(b, uint16(s.to.Offset))
	}
	return b
}

func (a Learn) appendText(b []byte) []byte {
	b = appendDec(append(b, "learn(table="...), uint64(a.Table))
	num := func(name string, v uint64) {
		if v != 0 {
			b = appendDec(append(append(append(b, ','), name...), '='), v)
		}
	}
	num("idle_timeout", uint64(a.IdleTimeout))
	num("hard_timeout", uint64(a.HardTimeout))
	num("fin_idle_timeout", uint64(a.FinIdleTimeout))
	num("fin_hard_timeout", uint64(a.FinHardTimeout))
	if a.Priority != DefaultPriority {
		b = appendDec(append(b, ",priority="...), uint64(a.Priority))
	}
	if a.SendFlowRem {
		b = append(b, ",send_flow_rem"...)
	}
	if a.DeleteLearned {
		b = append(b, ",delete_learned"...)
	}
	if a.Cookie != 0 {
		b = appendHex(append(b, ",cookie="...), a.Cookie)
	}
	num("limit", uint64(a.Limit))
	if a.ResultTo.Len != 0 {
		b = a.ResultTo.appendText(append(b, ",result_dst="...))
	}
	for i := range a.Specs {
		b = a.Specs[i].appendText(append(b, ','))
	}
	return append(b, ')')
}

func (s *LearnSpec) appendText(b []byte) []byte {
	switch {
	case s.kind == learnOutput:
		return s.from.appendText(append(b, "output:"...))
	case s.kind == learnLoad && s.from.Len != 0:
		b = s.from.appendText(append(b, "load:"...))
		return s.to.appendText(append(b, "->"...))
	case s.kind == learnLoad:
		b = appendHex128(append(b, "load:"...), s.value)
		return s.to.appendText(append(b, "->"...))
	case s.from.Len != 0:
		b = s.to.appendText(b)
		if s.from.Field != s.to.Field || s.from.Offset != s.to.Offset {
			b = s.from.appendText(append(b, '='))
		}
		return b
	case s.to.isAll():
		b = append(append(b, s.to.Field.info().name...), '=')
		return appendFieldValue(b, s.to.Field, s.value)
	}
	b = s.to.appendText(b)
	return appendHex128(append(b, '='), s.value)
}
