// SPDX-License-Identifier: Apache-2.0

package openflow

import "encoding/binary"

// A Command is what a FlowMod does.
type Command uint8

// Commands of a FlowMod. The strict ones concern the one flow with the same
// match and priority, the others every flow that the match covers.
const (
	Add Command = iota
	Modify
	ModifyStrict
	Delete
	DeleteStrict
)

var commandNames = []string{"add", "modify", "modify_strict", "delete", "delete_strict"}

// String returns the name of the command.
func (c Command) String() string {
	if int(c) < len(commandNames) {
		return commandNames[c]
	}
	return string(appendDec(nil, uint64(c)))
}

// AllTables as the table of a deletion or a request stands for every table.
const AllTables = 255

// AnyGroup as a group stands for no restriction.
const AnyGroup = 0xffffffff

// A FlowMod adds, changes or deletes flows.
type FlowMod struct {
	Command Command
	// Entry is the flow to add, or the flow or pattern to change or delete.
	Entry Entry
	// CookieMask restricts Modify and Delete to flows whose cookie equals the
	// entry's in these bits.
	CookieMask uint64
	// OutPort and OutGroup restrict a deletion to flows that send packets
	// there; 0 does not restrict.
	OutPort, OutGroup uint32
	// Flags may add CheckOverlap and ResetCounts.
	Flags FlowFlags
}

// AddFlow returns the message that adds a flow, or replaces the one with the
// same key.
func AddFlow(e Entry) FlowMod { return FlowMod{Command: Add, Entry: e} }

// DeleteFlow returns the message that deletes the one flow with the key k,
// whatever its cookie.
func DeleteFlow(k Key) FlowMod {
	if k.IsZero() {
		return FlowMod{Command: DeleteStrict} // refused when it is sent
	}
	b := append(make([]byte, 0, len(k.s)+valueHead), k.s...)
	return FlowMod{Command: DeleteStrict, Entry: Entry{string(appendZeros(b, valueHead))}}
}

// A Filter selects flows for a dump, a deletion or a count. The zero Filter
// selects the flows of table 0; use AllTables for all.
type Filter struct {
	Table              uint8
	Match              Match // flows that are at least as specific
	Cookie, CookieMask uint64
	OutPort, OutGroup  uint32 // 0 does not restrict
}

// DeleteFlows returns the message that deletes every flow that fl selects.
func DeleteFlows(fl Filter) (FlowMod, error) {
	e, err := (&Flow{Table: fl.Table, Cookie: fl.Cookie, Match: fl.Match}).Entry()
	return FlowMod{
		Command: Delete, Entry: e, CookieMask: fl.CookieMask, OutPort: fl.OutPort, OutGroup: fl.OutGroup,
	}, err
}

// NewFlowMod returns the message that does cmd with f, including those flags
// of f that are not part of an Entry.
func NewFlowMod(cmd Command, f *Flow) (FlowMod, error) {
	e, err := f.Entry()
	return FlowMod{Command: cmd, Entry: e, Flags: f.Flags &^ keptFlags}, err
}

// AppendMessage appends the message with its header.
func (m FlowMod) AppendMessage(b []byte, v Version, xid uint32) ([]byte, error) {
	if m.Entry.IsZero() {
		return b, malformed("flow_mod", "no flow")
	}
	b, start := beginMessage(b, v, typeFlowMod, xid)
	s := m.Entry.s
	key := keyHead + m.Entry.matchLen()
	val := s[key:]
	b = append(b, val[:8]...) // cookie
	b = binary.BigEndian.AppendUint64(b, m.CookieMask)
	b = append(b, s[2], byte(m.Command)) // table
	b = append(b, val[8:12]...)          // timeouts
	b = append(b, s[3:5]...)             // priority
	b = append(b, 0xff, 0xff, 0xff, 0xff)
	b = binary.BigEndian.AppendUint32(b, orAny(m.OutPort))
	b = binary.BigEndian.AppendUint32(b, orAny(m.OutGroup))
	b = binary.BigEndian.AppendUint16(b, u16(val[12:])|uint16(m.Flags))
	if v >= OpenFlow14 {
		b = append(b, val[14:16]...) // importance
	} else {
		b = append(b, 0, 0)
	}
	b = appendMatchString(b, s[keyHead:key])
	if m.Command < Delete {
		b = append(b, val[valueHead:]...)
	}
	return endMessage(b, start)
}

func orAny(v uint32) uint32 {
	if v == 0 {
		return PortAny
	}
	return v
}

// AppendText appends the command and the flow in ovs-ofctl syntax.
func (m FlowMod) AppendText(b []byte) []byte {
	b = append(append(b, m.Command.String()...), ' ')
	if m.Entry.IsZero() {
		return b
	}
	if m.Command == Delete || m.Command == DeleteStrict {
		b = m.Entry.Key().AppendText(b)
		if m.CookieMask != 0 {
			b = appendHex(append(b, ",cookie="...), m.Entry.Cookie())
			b = appendHex(append(b, '/'), m.CookieMask)
		}
		return b
	}
	return m.Entry.AppendText(b)
}

// decodeFlowMod decodes a flow_mod of either version.
func decodeFlowMod(b []byte) (FlowMod, error) {
	if len(b) < headerLen+flowModHead-8 {
		return FlowMod{}, malformed("flow_mod", "%d bytes", len(b))
	}
	be := binary.BigEndian
	version := Version(b[0])
	p := b[headerLen:]
	m := FlowMod{
		Command: Command(p[17]), CookieMask: be.Uint64(p[8:]),
		OutPort: be.Uint32(p[28:]), OutGroup: be.Uint32(p[32:]),
		Flags: FlowFlags(be.Uint16(p[36:])) &^ keptFlags,
	}
	if m.OutPort == PortAny {
		m.OutPort = 0
	}
	if m.OutGroup == AnyGroup {
		m.OutGroup = 0
	}
	terms, ins, err := cutMatch(p[40:])
	if err != nil {
		return m, err
	}
	e := make([]byte, 0, keyHead+valueHead+len(terms)+len(ins))
	e = be.AppendUint16(e, uint16(len(terms)))
	e = append(e, p[16], p[22], p[23])
	e = append(e, terms...)
	e = append(e, p[:8]...)
	e = append(e, p[18:22]...)
	e = be.AppendUint16(e, be.Uint16(p[36:])&uint16(keptFlags))
	if version >= OpenFlow14 {
		e = append(e, p[38:40]...)
	} else {
		e = append(e, 0, 0)
	}
	m.Entry = Entry{string(append(e, ins...))}
	return m, nil
}
