// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"net/netip"
)

// ConnTrack sends the packet through connection tracking: ct(…) in ovs-ofctl.
type ConnTrack struct {
	Commit bool
	Force  bool
	// Zone is used if ZoneFrom names no field.
	Zone     uint16
	ZoneFrom Bits
	// Recirc continues the packet, now tracked, in Table.
	Recirc bool
	Table  uint8
	ALG    uint16 // 21 for FTP, 69 for TFTP
	NAT    *NAT
	// Exec may hold SetField, Load and Move to CTMark and CTLabel.
	Exec []Action
}

const (
	ctCommit      = 1
	ctForce       = 2
	ctRecircNone  = 0xff
	algFTP        = 21
	algTFTP       = 69
	ctHeaderBytes = 24
)

func (a ConnTrack) appendWire(b []byte) ([]byte, error) {
	b, start := beginNX(b, nxCT)
	flags := uint16(0)
	if a.Commit {
		flags |= ctCommit
	}
	if a.Force {
		flags |= ctForce
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	if a.ZoneFrom.Len != 0 {
		if !a.ZoneFrom.valid() || a.ZoneFrom.Len != 16 {
			return b, badAction(a, "zone wants 16 bits of a field")
		}
		b = binary.BigEndian.AppendUint32(b, a.ZoneFrom.Field.info().nxmHdr)
		b = binary.BigEndian.AppendUint16(b, a.ZoneFrom.ofsNBits())
	} else {
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint16(b, a.Zone)
	}
	table := uint8(ctRecircNone)
	if a.Recirc {
		table = a.Table
	}
	b = append(b, table, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, a.ALG)
	var err error
	if a.NAT != nil {
		if b, err = a.NAT.appendWire(b); err != nil {
			return b, err
		}
	}
	if b, err = appendActions(b, a.Exec); err != nil {
		return b, err
	}
	return endAction(b, start)
}

func (a ConnTrack) appendText(b []byte) []byte {
	b = append(b, "ct("...)
	start := len(b)
	if a.Commit {
		b = append(b, "commit,"...)
	}
	if a.Force {
		b = append(b, "force,"...)
	}
	if a.Recirc {
		b = append(appendDec(append(b, "table="...), uint64(a.Table)), ',')
	}
	if a.ZoneFrom.Len != 0 {
		b = append(a.ZoneFrom.appendText(append(b, "zone="...)), ',')
	} else if a.Zone != 0 {
		b = append(appendDec(append(b, "zone="...), uint64(a.Zone)), ',')
	}
	if a.NAT != nil {
		b = append(a.NAT.appendText(b), ',')
	}
	if len(a.Exec) > 0 {
		b = append(appendActionList(append(b, "exec("...), a.Exec), "),"...)
	}
	switch a.ALG {
	case 0:
	case algFTP:
		b = append(b, "alg=ftp,"...)
	case algTFTP:
		b = append(b, "alg=tftp,"...)
	default:
		b = append(appendDec(append(b, "alg="...), uint64(a.ALG)), ',')
	}
	return closeList(b, start)
}

// CTClear forgets what connection tracking found out about the packet.
type CTClear struct{}

func (CTClear) appendWire(b []byte) ([]byte, error) { return simpleNX(b, nxCTClear) }
func (CTClear) appendText(b []byte) []byte          { return append(b, "ct_clear"...) }

// NAT translates addresses in a ConnTrack. Without Src and Dst it applies the
// translation that the connection already has.
type NAT struct {
	Src, Dst         bool
	AddrMin, AddrMax netip.Addr // AddrMax may be left out
	PortMin, PortMax uint16
	Persistent       bool
	Hash, Random     bool
}

const (
	natSrc        = 1
	natDst        = 2
	natPersistent = 4
	natHash       = 8
	natRandom     = 16

	natIPv4Min = 1
	natIPv4Max = 2
	natIPv6Min = 4
	natIPv6Max = 8
	natPortMin = 16
	natPortMax = 32
)

func (a NAT) appendWire(b []byte) ([]byte, error) {
	flags, present := uint16(0), uint16(0)
	for _, f := range []struct {
		on  bool
		bit uint16
	}{{a.Src, natSrc}, {a.Dst, natDst}, {a.Persistent, natPersistent}, {a.Hash, natHash}, {a.Random, natRandom}} {
		if f.on {
			flags |= f.bit
		}
	}
	minBit, maxBit := uint16(natIPv4Min), uint16(natIPv4Max)
	if a.AddrMin.Is6() {
		minBit, maxBit = natIPv6Min, natIPv6Max
	}
	if a.AddrMin.IsValid() {
		present |= minBit
	}
	if a.AddrMax.IsValid() {
		present |= maxBit
	}
	if a.PortMin != 0 {
		present |= natPortMin
	}
	if a.PortMax != 0 {
		present |= natPortMax
	}
	if a.AddrMax.IsValid() && a.AddrMax.Is4() != a.AddrMin.Is4() {
		return b, badAction(a, "address families differ")
	}
	b, start := beginNX(b, nxNAT)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, present)
	b = appendAddr(b, a.AddrMin)
	b = appendAddr(b, a.AddrMax)
	if a.PortMin != 0 {
		b = binary.BigEndian.AppendUint16(b, a.PortMin)
	}
	if a.PortMax != 0 {
		b = binary.BigEndian.AppendUint16(b, a.PortMax)
	}
	return endAction(b, start)
}

func appendAddr(b []byte, a netip.Addr) []byte {
	switch {
	case a.Is4():
		return appendValue(b, Addr(a), 4)
	case a.Is6():
		return appendValue(b, Addr(a), 16)
	}
	return b
}

func (a NAT) appendText(b []byte) []byte {
	b = append(b, "nat"...)
	if !a.Src && !a.Dst {
		return b
	}
	if a.Src {
		b = append(b, "(src"...)
	} else {
		b = append(b, "(dst"...)
	}
	if a.AddrMin.IsValid() {
		b = appendNATAddr(append(b, '='), a.AddrMin, a.PortMin)
		if a.AddrMax.IsValid() && a.AddrMax != a.AddrMin {
			b = appendNATAddr(append(b, '-'), a.AddrMax, a.PortMin)
		}
		if a.PortMin != 0 {
			b = appendDec(append(b, ':'), uint64(a.PortMin))
			if a.PortMax != 0 && a.PortMax != a.PortMin {
				b = appendDec(append(b, '-'), uint64(a.PortMax))
			}
		}
		b = append(b, ',')
		if a.Persistent {
			b = append(b, "persistent,"...)
		}
		if a.Hash {
			b = append(b, "hash,"...)
		}
		if a.Random {
			b = append(b, "random,"...)
		}
		b = b[:len(b)-1]
	}
	return append(b, ')')
}

func appendNATAddr(b []byte, a netip.Addr, port uint16) []byte {
	if a.Is4() {
		return appendIPv4(b, Addr(a).Lo)
	}
	if port == 0 {
		return appendIPv6(b, Addr(a))
	}
	return append(appendIPv6(append(b, '['), Addr(a)), ']')
}
