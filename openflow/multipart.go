// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"time"
)

// Multipart types.
const (
	mpDesc         = 0
	mpFlow         = 1
	mpAggregate    = 2
	mpTable        = 3
	mpGroup        = 6
	mpGroupDesc    = 7
	mpMeter        = 9
	mpMeterConfig  = 10
	mpMeterFeature = 11
	mpPortDesc     = 13
	mpFlowMonitor  = 16
	mpExperimenter = 0xffff

	onfFlowMonitor = 1870

	mpMore = 1
)

// multipartLen is the length of the header of a multipart message's body.
const multipartLen = 8

func appendMultipart(b []byte, v Version, typ uint16, xid uint32, body []byte) []byte {
	n := headerLen + multipartLen + len(body)
	b = append(b, byte(v), typeMultipartRequest, byte(n>>8), byte(n))
	b = binary.BigEndian.AppendUint32(b, xid)
	b = append(b, byte(typ>>8), byte(typ), 0, 0, 0, 0, 0, 0)
	return append(b, body...)
}

// cutMultipart splits the body of a multipart reply.
func cutMultipart(b []byte) (typ uint16, more bool, rest []byte, err error) {
	if len(b) < multipartLen {
		return 0, false, nil, malformed("multipart reply", "%d bytes", len(b))
	}
	return binary.BigEndian.Uint16(b), b[3]&mpMore != 0, b[multipartLen:], nil
}

// appendFilter appends the body of a flow or aggregate request.
func (fl *Filter) append(b []byte) ([]byte, error) {
	b = append(b, fl.Table, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, orAny(fl.OutPort))
	b = binary.BigEndian.AppendUint32(b, orAny(fl.OutGroup))
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, fl.Cookie)
	b = binary.BigEndian.AppendUint64(b, fl.CookieMask)
	terms, err := fl.Match.appendTerms(nil)
	if err != nil {
		return b, err
	}
	return appendMatch(b, terms), nil
}

// A FlowStat is one flow of a dump. Its slices point into the buffer of the
// message and are valid only during the callback; Entry makes a copy.
type FlowStat struct {
	Table        uint8
	Priority     uint16
	Cookie       uint64
	IdleTimeout  uint16
	HardTimeout  uint16
	Flags        FlowFlags
	Importance   uint16
	Duration     time.Duration
	Packets      uint64 // all ones if the switch does not count
	Bytes        uint64
	Terms        []byte // the match as on the wire
	Instructions []byte // the instructions as on the wire

	decoder decoder
}

const flowStatLen = 48

// cutFlowStat decodes the first flow of the body of a flow reply.
func cutFlowStat(b []byte, s *FlowStat) (rest []byte, err error) {
	if len(b) < flowStatLen+8 {
		return nil, malformed("flow reply", "%d bytes left", len(b))
	}
	be := binary.BigEndian
	n := int(be.Uint16(b))
	if n < flowStatLen+8 || n > len(b) {
		return nil, malformed("flow reply", "flow of %d bytes in %d", n, len(b))
	}
	terms, ins, err := cutMatch(b[flowStatLen:n])
	if err != nil {
		return nil, err
	}
	*s = FlowStat{
		Table: b[2], Duration: duration(be.Uint32(b[4:]), be.Uint32(b[8:])),
		Priority: be.Uint16(b[12:]), IdleTimeout: be.Uint16(b[14:]), HardTimeout: be.Uint16(b[16:]),
		Flags: FlowFlags(be.Uint16(b[18:])), Importance: be.Uint16(b[20:]),
		Cookie: be.Uint64(b[24:]), Packets: be.Uint64(b[32:]), Bytes: be.Uint64(b[40:]),
		Terms: terms, Instructions: ins, decoder: s.decoder,
	}
	return b[n:], nil
}

func duration(sec, nsec uint32) time.Duration {
	return time.Duration(sec)*time.Second + time.Duration(nsec)
}

// AppendEntry appends the canonical form of the flow; EntryOf makes an Entry
// of it.
func (s *FlowStat) AppendEntry(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, uint16(len(s.Terms)))
	b = append(b, s.Table)
	b = be.AppendUint16(b, s.Priority)
	b = append(b, s.Terms...)
	b = be.AppendUint64(b, s.Cookie)
	b = be.AppendUint16(b, s.IdleTimeout)
	b = be.AppendUint16(b, s.HardTimeout)
	b = be.AppendUint16(b, uint16(s.Flags&keptFlags))
	b = be.AppendUint16(b, s.Importance)
	return append(b, s.Instructions...)
}

// Entry returns a copy of the flow in canonical form.
func (s *FlowStat) Entry() Entry { return Entry{string(s.AppendEntry(nil))} }

// Flow decodes the flow. The result keeps nothing of the message.
func (s *FlowStat) Flow() (Flow, error) {
	var f Flow
	err := s.Decode(&f)
	return f, err
}

// Decode decodes the flow into f and uses the memory of f's match and actions
// again, which saves most of the garbage where many flows are looked at one
// after the other.
func (s *FlowStat) Decode(f *Flow) error {
	*f = Flow{
		Table: s.Table, Priority: s.Priority, Cookie: s.Cookie,
		IdleTimeout: s.IdleTimeout, HardTimeout: s.HardTimeout,
		Flags: s.Flags & keptFlags, Importance: s.Importance,
		Match: f.Match[:0], Actions: f.Actions[:0],
	}
	var err error
	if f.Match, err = appendDecodedTerms(f.Match, s.Terms); err != nil {
		return err
	}
	f.Actions, err = s.decoder.instructions(f.Actions, s.Instructions)
	return err
}

// Lookup finds the flow with the same key among wanted ones, and says whether
// it is the very same flow. It allocates nothing if buf, which it returns for
// the next call, is large enough.
func (s *FlowStat) Lookup(want map[Key]Entry, buf []byte) (e Entry, found, same bool, next []byte) {
	buf = s.AppendEntry(buf[:0])
	e, found = want[Key{string(buf[:keyHead+len(s.Terms)])}]
	return e, found, found && e.s == string(buf), buf
}

// TableStats are the counters of a table.
type TableStats struct {
	Table           uint8
	Active          uint32 // number of flows
	Lookups, Misses uint64
}

func decodeTableStats(b []byte, list []TableStats) ([]TableStats, error) {
	if len(b)%24 != 0 {
		return list, malformed("table reply", "%d bytes", len(b))
	}
	for ; len(b) > 0; b = b[24:] {
		lookups, matched := binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
		list = append(list, TableStats{
			Table: b[0], Active: binary.BigEndian.Uint32(b[4:]), Lookups: lookups, Misses: lookups - matched,
		})
	}
	return list, nil
}

// Aggregate are the counters of all flows that a Filter selects.
type Aggregate struct {
	Packets, Bytes uint64
	Flows          uint32
}

func decodeAggregate(b []byte) (Aggregate, error) {
	if len(b) < 24 {
		return Aggregate{}, malformed("aggregate reply", "%d bytes", len(b))
	}
	be := binary.BigEndian
	return Aggregate{Packets: be.Uint64(b), Bytes: be.Uint64(b[8:]), Flows: be.Uint32(b[16:])}, nil
}

// Desc describes the switch.
type Desc struct{ Manufacturer, Hardware, Software, Serial, Datapath string }

func decodeDesc(b []byte) (Desc, error) {
	if len(b) != 4*256+32 {
		return Desc{}, malformed("desc reply", "%d bytes", len(b))
	}
	return Desc{
		Manufacturer: cString(b[:256]), Hardware: cString(b[256:512]), Software: cString(b[512:768]),
		Serial: cString(b[768:800]), Datapath: cString(b[800:]),
	}, nil
}

// cString returns the bytes before the first zero.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Features are what the switch says about itself when the connection starts.
type Features struct {
	DatapathID   uint64
	Buffers      uint32
	Tables       uint8
	AuxiliaryID  uint8
	Capabilities uint32
}

func decodeFeatures(b []byte) (Features, error) {
	if len(b) < 24 {
		return Features{}, malformed("features reply", "%d bytes", len(b))
	}
	be := binary.BigEndian
	return Features{
		DatapathID: be.Uint64(b), Buffers: be.Uint32(b[8:]), Tables: b[12],
		AuxiliaryID: b[13], Capabilities: be.Uint32(b[16:]),
	}, nil
}
