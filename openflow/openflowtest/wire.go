// SPDX-License-Identifier: Apache-2.0

package openflowtest

import (
	"encoding/binary"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// filter selects flows.
type filter struct {
	table              uint8
	cookie, cookieMask uint64
	outPort, outGroup  uint32 // 0 and the protocol's "any" do not restrict
	match              openflow.Match
}

// filterOf is what a flow_mod that is not strict selects.
func filterOf(m openflow.FlowMod) filter {
	f, _ := m.Entry.Flow()
	return filter{m.Entry.Table(), m.Entry.Cookie(), m.CookieMask, m.OutPort, m.OutGroup, f.Match}
}

func (s *Switch) selects(f filter) []openflow.Entry {
	list := make([]openflow.Entry, 0, len(s.flows))
	for _, e := range s.flows {
		if f.selects(e) {
			list = append(list, e)
		}
	}
	return list
}

func (f *filter) selects(e openflow.Entry) bool {
	if f.table != openflow.AllTables && f.table != e.Table() || (e.Cookie()^f.cookie)&f.cookieMask != 0 {
		return false
	}
	toPort, toGroup := f.outPort != 0 && f.outPort != openflow.PortAny, f.outGroup != 0 && f.outGroup != openflow.AnyGroup
	if len(f.match) == 0 && !toPort && !toGroup {
		return true
	}
	flow, err := e.Flow()
	if err != nil {
		return false
	}
	for _, want := range f.match {
		have, ok := flow.Match.Lookup(want.Field)
		covers := have.Mask.Hi&want.Mask.Hi == want.Mask.Hi && have.Mask.Lo&want.Mask.Lo == want.Mask.Lo
		differs := (have.Value.Hi^want.Value.Hi)&want.Mask.Hi != 0 || (have.Value.Lo^want.Value.Lo)&want.Mask.Lo != 0
		if !ok || !covers || differs {
			return false
		}
	}
	port, group := !toPort, !toGroup
	for _, a := range flow.Actions {
		port = port || a == openflow.Output(f.outPort)
		group = group || a == openflow.Group(f.outGroup)
	}
	return port && group
}

// Offsets of an entry's canonical form, see openflow.Entry.
const keyHead, valueHead = 5, 16

// withInstructions is e with the instructions of another flow.
func withInstructions(e, other openflow.Entry) openflow.Entry {
	from := func(e openflow.Entry) int {
		return keyHead + int(binary.BigEndian.Uint16([]byte(e.Canonical()))) + valueHead
	}
	out, err := openflow.EntryOf([]byte(e.Canonical()[:from(e)] + other.Canonical()[from(other):]))
	if err != nil {
		return e
	}
	return out
}

// readMatch reads the match at the end of a request.
func readMatch(b []byte) (openflow.Match, bool) {
	terms, _, ok := cutTerms(b)
	if !ok {
		return nil, false
	}
	head := binary.BigEndian.AppendUint16(nil, uint16(len(terms)))
	head = append(append(head, 0, 0, 0), terms...)
	e, err := openflow.EntryOf(append(head, make([]byte, valueHead)...))
	if err != nil {
		return nil, false
	}
	f, err := e.Flow()
	return f.Match, err == nil
}

// cutTerms splits the terms of a match, which is padded, from what follows it.
func cutTerms(b []byte) (terms, rest []byte, ok bool) {
	if len(b) < 8 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	padded := (n + 7) / 8 * 8
	if n < 4 || padded > len(b) {
		return nil, nil, false
	}
	return b[4:n], b[padded:], true
}

// decodeFlowMod reads what follows the header of a flow_mod.
func decodeFlowMod(p []byte) (openflow.FlowMod, bool) {
	if len(p) < 48 {
		return openflow.FlowMod{}, false
	}
	be := binary.BigEndian
	terms, instructions, ok := cutTerms(p[40:])
	if !ok || p[17] > byte(openflow.DeleteStrict) {
		return openflow.FlowMod{}, false
	}
	const kept = openflow.SendFlowRem | openflow.NoPktCounts | openflow.NoBytCounts
	flags := openflow.FlowFlags(be.Uint16(p[36:]))
	b := be.AppendUint16(nil, uint16(len(terms)))
	b = append(b, p[16], p[22], p[23]) // table, priority
	b = append(b, terms...)
	b = append(b, p[:8]...)    // cookie
	b = append(b, p[18:22]...) // timeouts
	b = be.AppendUint16(b, uint16(flags&kept))
	b = append(b, p[38:40]...) // importance
	e, err := openflow.EntryOf(append(b, instructions...))
	return openflow.FlowMod{
		Command: openflow.Command(p[17]), Entry: e, CookieMask: be.Uint64(p[8:]), OutPort: be.Uint32(p[28:]), OutGroup: be.Uint32(p[32:]), Flags: flags &^ kept,
	}, err == nil
}

// decodeFlowsRequest reads a request for flows or for their number.
func decodeFlowsRequest(b []byte) (filter, bool) {
	if len(b) < 40 {
		return filter{}, false
	}
	be := binary.BigEndian
	match, ok := readMatch(b[32:])
	return filter{b[0], be.Uint64(b[16:]), be.Uint64(b[24:]), be.Uint32(b[4:]), be.Uint32(b[8:]), match}, ok
}

// parts of an entry as messages have them.
func parts(e openflow.Entry) (match, value, instructions []byte) {
	c := []byte(e.Canonical())
	n := int(binary.BigEndian.Uint16(c))
	match = binary.BigEndian.AppendUint16([]byte{0, 1}, uint16(4+n))
	match = append(match, c[keyHead:keyHead+n]...)
	match = append(match, make([]byte, (8-(4+n)%8)%8)...)
	return match, c[keyHead+n : keyHead+n+valueHead], c[keyHead+n+valueHead:]
}

func encodeStats(list []openflow.Entry) []byte {
	var all []byte
	for _, e := range list {
		all = append(all, EncodeStat(e)...)
	}
	return all
}

// EncodeStat is a flow as it stands in the reply to a dump.
func EncodeStat(e openflow.Entry) []byte {
	match, value, instructions := parts(e)
	b := make([]byte, 48, 48+len(match)+len(instructions))
	b[2] = e.Table()
	binary.BigEndian.PutUint16(b[12:], e.Priority())
	copy(b[14:], value[8:]) // timeouts, flags, importance
	copy(b[24:], value[:8]) // cookie
	b = append(append(b, match...), instructions...)
	binary.BigEndian.PutUint16(b, uint16(len(b)))
	return b
}

// encodeUpdate is a change as a flow monitor tells it: without flags and importance.
func encodeUpdate(u update) []byte {
	be := binary.BigEndian
	b := be.AppendUint16([]byte{0, 8}, uint16(u.event))
	switch u.event {
	case openflow.FlowOwn:
		return be.AppendUint32(b, u.xid)
	case openflow.FlowsPaused, openflow.FlowsResumed:
		return be.AppendUint32(b, 0)
	}
	match, value, instructions := parts(u.entry)
	b = append(b, u.entry.Table(), byte(u.reason))
	b = append(b, value[8:12]...) // timeouts
	b = be.AppendUint16(b, u.entry.Priority())
	b = append(b, 0, 0, 0, 0)
	b = append(b, value[:8]...) // cookie
	b = append(append(b, match...), instructions...)
	be.PutUint16(b, uint16(len(b)))
	return b
}

func decodeMeterMod(b []byte) (command uint16, m openflow.MeterDesc) {
	be := binary.BigEndian
	m = openflow.MeterDesc{Flags: openflow.MeterFlags(be.Uint16(b[2:])), ID: be.Uint32(b[4:])}
	for k := b[8:]; len(k) >= 16; k = k[16:] {
		m.Bands = append(m.Bands, openflow.Band{Rate: be.Uint32(k[4:]), Burst: be.Uint32(k[8:]), Remark: k[1] == 2, Precedence: k[12]})
	}
	return be.Uint16(b), m
}

func encodeMeters(list []openflow.MeterDesc) []byte {
	be := binary.BigEndian
	var b []byte
	for _, m := range list {
		b = be.AppendUint16(b, uint16(8+16*len(m.Bands)))
		b = be.AppendUint16(b, uint16(m.Flags))
		b = be.AppendUint32(b, m.ID)
		for _, k := range m.Bands {
			kind := byte(1)
			if k.Remark {
				kind = 2
			}
			b = be.AppendUint32(append(b, 0, kind, 0, 16), k.Rate)
			b = append(be.AppendUint32(b, k.Burst), k.Precedence, 0, 0, 0)
		}
	}
	return b
}

func encodeMeterFeatures(most uint32) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(nil, most)
	b = be.AppendUint32(b, 1<<1) // drop
	b = be.AppendUint32(b, uint32(openflow.MeterKbps|openflow.MeterPktps|openflow.MeterBurst))
	return append(b, 1, 0, 0, 0)
}
