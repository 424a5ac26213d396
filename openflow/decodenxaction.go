// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"net/netip"
)

// nx decodes an action of Nicira's; len(b) is at least 16.
func (d *decoder) nx(sub uint16, b []byte, depth int) Action {
	be := binary.BigEndian
	switch sub {
	case nxResubmit, nxResubmitTable, nxResubmitCT:
		return decodeResubmit(sub, b)
	case nxPopQueue:
		return PopQueue{}
	case nxExit:
		return Exit{}
	case nxCTClear:
		return CTClear{}
	case nxNote:
		return Note(b[10:])
	case nxConjunction:
		return Conjunction{Clause: b[10] + 1, Of: b[11], ID: be.Uint32(b[12:])}
	case nxFinTimeout:
		return FinTimeout{Idle: be.Uint16(b[10:]), Hard: be.Uint16(b[12:])}
	case nxOutputTrunc:
		return OutputTrunc{Port: be.Uint16(b[10:]), MaxLen: be.Uint32(b[12:])}
	case nxController:
		return Controller{MaxLen: be.Uint16(b[10:]), ID: be.Uint16(b[12:]), Reason: Reason(b[14])}
	case nxController2:
		return decodeController2(b[16:])
	case nxDecTTLCntIDs:
		return decodeDecTTL(b)
	case nxNAT:
		return decodeNAT(b)
	case nxCT:
		return d.ct(b, depth)
	case nxClone:
		if depth >= maxDepth {
			return nil
		}
		list, err := d.actions(nil, b[16:], depth+1)
		if err != nil {
			return nil
		}
		return Clone{Actions: list}
	case nxLearn, nxLearn2:
		return decodeLearn(sub, b)
	case nxMultipath:
		return decodeMultipath(b)
	case nxBundle, nxBundleLoad:
		return decodeBundleAction(sub, b)
	}
	if len(b) != 24 {
		return nil
	}
	return nxFields(sub, b)
}

func decodeResubmit(sub uint16, b []byte) Action {
	r := Resubmit{Port: binary.BigEndian.Uint16(b[10:]), Table: b[12], CT: sub == nxResubmitCT}
	if r.Port == port16(PortInPort) {
		r.Port = 0
	}
	if sub == nxResubmit {
		r.Table, r.old = SameTable, true
	}
	return r
}

// nxFields decodes an action of Nicira's that names fields; len(b) is 24.
func nxFields(sub uint16, b []byte) Action {
	be := binary.BigEndian
	switch sub {
	case nxRegMove:
		from, to := fieldByNXM(be.Uint32(b[16:])), fieldByNXM(be.Uint32(b[20:]))
		n := be.Uint16(b[10:])
		return Move{From: bitsOf(from, be.Uint16(b[12:]), n), To: bitsOf(to, be.Uint16(b[14:]), n)}
	case nxRegLoad:
		return Load{To: unpackBits(be.Uint16(b[10:]), be.Uint32(b[12:])), Value: be.Uint64(b[16:])}
	case nxOutputReg:
		a := OutputField{From: unpackBits(be.Uint16(b[10:]), be.Uint32(b[12:])), MaxLen: be.Uint16(b[16:])}
		if a.MaxLen == 0xffff {
			a.MaxLen = 0
		}
		return a
	case nxStackPush:
		return Push{From: bitsOf(fieldByNXM(be.Uint32(b[12:])), be.Uint16(b[10:]), be.Uint16(b[16:]))}
	case nxStackPop:
		return Pop{To: bitsOf(fieldByNXM(be.Uint32(b[12:])), be.Uint16(b[10:]), be.Uint16(b[16:]))}
	case nxCheckPktLarger:
		return CheckPktLarger{Len: be.Uint16(b[10:]), To: bitsOf(fieldByNXM(be.Uint32(b[14:])), be.Uint16(b[12:]), 1)}
	}
	return nil
}

// bitsOf makes Bits of numbers from the wire; what cannot be is caught when
// the action is encoded again.
func bitsOf(f Field, ofs, n uint16) Bits {
	if ofs > 127 || n > 128 {
		return Bits{}
	}
	return Bits{Field: f, Offset: uint8(ofs), Len: uint8(n)}
}

func unpackBits(ofsNBits uint16, hdr uint32) Bits {
	return bitsOf(fieldByNXM(hdr), ofsNBits>>6, ofsNBits&63+1)
}

func decodeController2(b []byte) Action {
	a := Controller{MaxLen: 0xffff, Reason: ReasonAction}
	for len(b) > 0 {
		typ, payload, rest, ok := cutProp(b)
		if !ok {
			return nil
		}
		b = rest
		switch {
		case typ == 0 && len(payload) >= 2:
			a.MaxLen = binary.BigEndian.Uint16(payload)
		case typ == 1 && len(payload) >= 2:
			a.ID = binary.BigEndian.Uint16(payload)
		case typ == 2 && len(payload) >= 1:
			a.Reason = Reason(payload[0])
		case typ == 3:
			a.Userdata = string(payload)
		case typ == 4:
			a.Pause = true
		case typ == 5 && len(payload) >= 4:
			a.Meter = binary.BigEndian.Uint32(payload)
		default:
			return nil
		}
	}
	return a
}

// cutProp splits a property (type, length, payload, padding to 8) off b.
func cutProp(b []byte) (typ uint16, payload, rest []byte, ok bool) {
	if len(b) < 4 {
		return 0, nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n < 4 || n > len(b) {
		return 0, nil, nil, false
	}
	return binary.BigEndian.Uint16(b), b[4:n], b[min(n+pad8(n), len(b)):], true
}

func decodeDecTTL(b []byte) Action {
	n := int(binary.BigEndian.Uint16(b[10:]))
	if n == 0 || 16+2*n > len(b) {
		return nil
	}
	a := DecTTL{Controllers: make([]uint16, n)}
	for i := range a.Controllers {
		a.Controllers[i] = binary.BigEndian.Uint16(b[16+2*i:])
	}
	return a
}

func (d *decoder) ct(b []byte, depth int) Action {
	if len(b) < ctHeaderBytes || depth >= maxDepth {
		return nil
	}
	be := binary.BigEndian
	flags := be.Uint16(b[10:])
	a := ConnTrack{Commit: flags&ctCommit != 0, Force: flags&ctForce != 0, ALG: be.Uint16(b[22:])}
	if flags&^(ctCommit|ctForce) != 0 {
		return nil
	}
	if src := be.Uint32(b[12:]); src != 0 {
		a.ZoneFrom = unpackBits(be.Uint16(b[16:]), src)
		if a.ZoneFrom.Field == 0 {
			return nil
		}
	} else {
		a.Zone = be.Uint16(b[16:])
	}
	if b[18] != ctRecircNone {
		a.Recirc, a.Table = true, b[18]
	}
	list, err := d.actions(nil, b[ctHeaderBytes:], depth+1)
	if err != nil {
		return nil
	}
	if len(list) > 0 {
		if nat, ok := list[0].(NAT); ok {
			a.NAT, list = &nat, list[1:]
		}
	}
	if len(list) > 0 {
		a.Exec = list
	}
	return a
}

func decodeNAT(b []byte) Action {
	be := binary.BigEndian
	flags, present := be.Uint16(b[12:]), be.Uint16(b[14:])
	a := NAT{
		Src: flags&natSrc != 0, Dst: flags&natDst != 0,
		Persistent: flags&natPersistent != 0, Hash: flags&natHash != 0, Random: flags&natRandom != 0,
	}
	rest, ok := b[16:], true
	cut := func(n int) []byte {
		if len(rest) < n {
			ok = false
			return nil
		}
		p := rest[:n]
		rest = rest[n:]
		return p
	}
	addr := func(n int) netip.Addr {
		ip, _ := netip.AddrFromSlice(cut(n))
		return ip
	}
	if present&natIPv4Min != 0 {
		a.AddrMin = addr(4)
	}
	if present&natIPv4Max != 0 {
		a.AddrMax = addr(4)
	}
	if present&natIPv6Min != 0 {
		a.AddrMin = addr(16)
	}
	if present&natIPv6Max != 0 {
		a.AddrMax = addr(16)
	}
	if present&natPortMin != 0 {
		if p := cut(2); p != nil {
			a.PortMin = be.Uint16(p)
		}
	}
	if present&natPortMax != 0 {
		if p := cut(2); p != nil {
			a.PortMax = be.Uint16(p)
		}
	}
	if !ok {
		return nil
	}
	return a
}

func decodeLearn(sub uint16, b []byte) Action {
	be := binary.BigEndian
	if len(b) < 32 {
		return nil
	}
	flags := be.Uint16(b[24:])
	a := Learn{
		IdleTimeout: be.Uint16(b[10:]), HardTimeout: be.Uint16(b[12:]), Priority: be.Uint16(b[14:]),
		Cookie: be.Uint64(b[16:]), Table: b[26],
		FinIdleTimeout: be.Uint16(b[28:]), FinHardTimeout: be.Uint16(b[30:]),
		SendFlowRem: flags&learnSendFlowRem != 0, DeleteLearned: flags&learnDeleteLearned != 0,
	}
	b = b[32:]
	if sub == nxLearn2 {
		if len(b) < 8 {
			return nil
		}
		a.Limit = be.Uint32(b)
		ofs := be.Uint16(b[4:])
		b = b[8:]
		if flags&learnWriteResult != 0 {
			if len(b) < 4 {
				return nil
			}
			a.ResultTo = bitsOf(fieldByNXM(be.Uint32(b)), ofs, 1)
			b = b[4:]
		}
	}
	// The specs end where the padding begins: a spec never starts with zero.
	for len(b) >= 2 && be.Uint16(b) != 0 {
		s, n := decodeLearnSpec(b)
		if n == 0 {
			return nil
		}
		a.Specs = append(a.Specs, s)
		b = b[n:]
	}
	return a
}

// decodeLearnSpec decodes one spec and returns its length, 0 if it is broken.
func decodeLearnSpec(b []byte) (LearnSpec, int) {
	be := binary.BigEndian
	head := be.Uint16(b)
	nbits := head & learnNBitsMask
	s := LearnSpec{kind: learnKind(head & learnDstMask >> 11)}
	if head&learnSpecUnused != 0 || s.kind > learnOutput || nbits == 0 || nbits > 128 {
		return s, 0
	}
	n := 2
	if head&learnSrcValue == 0 {
		if len(b) < n+6 {
			return s, 0
		}
		s.from = bitsOf(fieldByNXM(be.Uint32(b[n:])), be.Uint16(b[n+4:]), nbits)
		n += 6
	} else {
		size := 2 * ((int(nbits) + 15) / 16)
		if len(b) < n+size {
			return s, 0
		}
		s.value = readValue(b[n : n+size])
		n += size
	}
	if s.kind != learnOutput {
		if len(b) < n+6 {
			return s, 0
		}
		s.to = bitsOf(fieldByNXM(be.Uint32(b[n:])), be.Uint16(b[n+4:]), nbits)
		n += 6
	}
	return s, n
}
