// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// FlowFlags are the flags of a flow.
type FlowFlags uint16

// Flags of a flow. CheckOverlap and ResetCounts belong to the act of adding
// and are not kept by the switch.
const (
	SendFlowRem  FlowFlags = 1 << 0
	CheckOverlap FlowFlags = 1 << 1
	ResetCounts  FlowFlags = 1 << 2
	NoPktCounts  FlowFlags = 1 << 3
	NoBytCounts  FlowFlags = 1 << 4

	// keptFlags are those that come back in a dump.
	keptFlags = SendFlowRem | NoPktCounts | NoBytCounts
)

// A Flow is a flow as a program writes it. Entry turns it into the compact
// form that is stored, compared and sent.
type Flow struct {
	Table       uint8
	Priority    uint16
	Cookie      uint64
	IdleTimeout uint16 // seconds, 0 for never
	HardTimeout uint16 // seconds, 0 for never
	Flags       FlowFlags
	Importance  uint16 // for eviction; OpenFlow 1.4 only
	Match       Match
	Actions     []Action // none drops the packet
}

// An Entry is a flow in canonical form: one immutable string of the bytes that
// the switch itself would dump. Two entries are the same flow if and only if
// they are equal with ==. The zero Entry is no flow.
//
// The layout is: length of the match (2), table (1), priority (2), match
// terms; then cookie (8), idle and hard timeout (2+2), flags (2), importance
// (2), instructions. The first part is the Key, of which a table can hold one
// flow only.
type Entry struct{ s string }

// A Key identifies a flow within a bridge: table, priority and match. It is
// comparable and shares memory with the Entry it was taken from.
type Key struct{ s string }

const (
	keyHead   = 5
	valueHead = 16

	// maxMessage is the longest message that the 16-bit length allows.
	maxMessage = 0xffff
	// flowModHead is the size of a flow_mod before its match, bundleAddHead
	// that of the message that carries it in a bundle.
	flowModHead   = 48
	bundleAddHead = 24
)

// FlowTooLongError reports a flow that does not fit into one OpenFlow message,
// for instance because of thousands of conjunction actions.
type FlowTooLongError struct {
	Table    uint8
	Priority uint16
	Match    string // in ovs-ofctl syntax
	Actions  int    // number of actions
}

func (e *FlowTooLongError) Error() string {
	return fmt.Sprintf("openflow: flow table=%d,priority=%d,%s with %d actions does not fit into a message of 64 KiB",
		e.Table, e.Priority, e.Match, e.Actions)
}

func (f *Flow) tooLong() error {
	return &FlowTooLongError{Table: f.Table, Priority: f.Priority, Match: f.Match.String(), Actions: len(f.Actions)}
}

// Entry returns the flow in canonical form. It fails if the match or an action
// makes no sense, and with *FlowTooLongError if the flow does not fit into a
// message.
func (f *Flow) Entry() (Entry, error) {
	b, err := f.AppendEntry(make([]byte, 0, 256))
	if err != nil {
		return Entry{}, err
	}
	return Entry{string(b)}, nil
}

// AppendEntry appends the canonical form of the flow to b, which avoids
// garbage where many flows are compiled; EntryOf makes an Entry of it.
func (f *Flow) AppendEntry(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, f.Table)
	b = binary.BigEndian.AppendUint16(b, f.Priority)
	b, err := f.Match.appendTerms(b)
	if err != nil {
		return b, f.invalid(err)
	}
	matchLen := len(b) - start - keyHead
	if matchLen > 0xffff {
		return b, f.tooLong()
	}
	binary.BigEndian.PutUint16(b[start:], uint16(matchLen))
	b = binary.BigEndian.AppendUint64(b, f.Cookie)
	b = binary.BigEndian.AppendUint16(b, f.IdleTimeout)
	b = binary.BigEndian.AppendUint16(b, f.HardTimeout)
	b = binary.BigEndian.AppendUint16(b, uint16(f.Flags&keptFlags))
	b = binary.BigEndian.AppendUint16(b, f.Importance)
	ins := len(b)
	b, err = appendInstructions(b, f.Actions)
	if errors.Is(err, errTooLong) {
		return b, f.tooLong()
	}
	if err != nil {
		return b, f.invalid(err)
	}
	size := bundleAddHead + flowModHead + 4 + matchLen + pad8(4+matchLen) + len(b) - ins
	if size > maxMessage {
		return b, f.tooLong()
	}
	return b, nil
}

func (f *Flow) invalid(err error) error {
	return fmt.Errorf("flow %s: %w", f.AppendText(nil), err)
}

// EntryOf returns the entry whose canonical bytes, as AppendEntry makes them,
// are b.
func EntryOf(b []byte) (Entry, error) {
	if len(b) < keyHead+valueHead {
		return Entry{}, malformed("entry", "%d bytes", len(b))
	}
	if n := keyHead + int(binary.BigEndian.Uint16(b)) + valueHead; n > len(b) {
		return Entry{}, malformed("entry", "%d bytes, %d needed", len(b), n)
	}
	return Entry{string(b)}, nil
}

// AppendText appends the flow in the syntax of ovs-ofctl add-flow.
func (f *Flow) AppendText(b []byte) []byte {
	b = appendFlowHead(b, f.Table, f.Priority, f.Cookie, f.IdleTimeout, f.HardTimeout, f.Importance, f.Flags)
	if len(f.Match) > 0 {
		b = f.Match.AppendText(append(b, ','))
	}
	return AppendActions(append(b, ",actions="...), f.Actions)
}

func appendFlowHead(b []byte, table uint8, prio uint16, cookie uint64, idle, hard, imp uint16, flags FlowFlags) []byte {
	b = appendDec(append(b, "table="...), uint64(table))
	b = appendDec(append(b, ",priority="...), uint64(prio))
	if cookie != 0 {
		b = appendHex(append(b, ",cookie="...), cookie)
	}
	if idle != 0 {
		b = appendDec(append(b, ",idle_timeout="...), uint64(idle))
	}
	if hard != 0 {
		b = appendDec(append(b, ",hard_timeout="...), uint64(hard))
	}
	if imp != 0 {
		b = appendDec(append(b, ",importance="...), uint64(imp))
	}
	for _, n := range flowFlagNames {
		if flags&FlowFlags(n.bit) != 0 {
			b = append(append(b, ','), n.name...)
		}
	}
	return b
}

var flowFlagNames = []flagName{
	{uint64(SendFlowRem), "send_flow_rem"}, {uint64(CheckOverlap), "check_overlap"},
	{uint64(ResetCounts), "reset_counts"}, {uint64(NoPktCounts), "no_packet_counts"},
	{uint64(NoBytCounts), "no_byte_counts"},
}

// String returns the flow in the syntax of ovs-ofctl add-flow.
func (f *Flow) String() string { return string(f.AppendText(nil)) }

// The methods of the zero Entry and the zero Key return zeros.

func (e Entry) matchLen() int { return int(e.s[0])<<8 | int(e.s[1]) }

// value returns what follows the key.
func (e Entry) value() string { return e.s[keyHead+e.matchLen():] }

func u64(s string) uint64 {
	return uint64(s[0])<<56 | uint64(s[1])<<48 | uint64(s[2])<<40 | uint64(s[3])<<32 |
		uint64(s[4])<<24 | uint64(s[5])<<16 | uint64(s[6])<<8 | uint64(s[7])
}

func u16(s string) uint16 { return uint16(s[0])<<8 | uint16(s[1]) }

// IsZero reports whether e is no flow.
func (e Entry) IsZero() bool { return e.s == "" }

// Canonical returns the bytes of the entry, to be stored and made an Entry
// again by EntryOf.
func (e Entry) Canonical() string { return e.s }

// Key returns the identity of the flow. It does not allocate.
func (e Entry) Key() Key {
	if e.s == "" {
		return Key{}
	}
	return Key{e.s[:keyHead+e.matchLen()]}
}

// Table returns the table of the flow.
func (e Entry) Table() uint8 { return e.Key().Table() }

// Priority returns the priority of the flow.
func (e Entry) Priority() uint16 { return e.Key().Priority() }

// Cookie returns the cookie of the flow.
func (e Entry) Cookie() uint64 {
	if e.s == "" {
		return 0
	}
	return u64(e.value())
}

// Expires reports whether the flow goes by itself after a time.
func (e Entry) Expires() bool {
	if e.s == "" {
		return false
	}
	v := e.value()
	return u16(v[8:]) != 0 || u16(v[10:]) != 0
}

// WithCookie returns the same flow with another cookie.
func (e Entry) WithCookie(cookie uint64) Entry {
	if e.s == "" {
		return e
	}
	b := []byte(e.s)
	binary.BigEndian.PutUint64(b[keyHead+e.matchLen():], cookie)
	return Entry{string(b)}
}

// SameActions reports whether two flows do the same with a packet and differ
// at most in their cookies.
func (e Entry) SameActions(o Entry) bool {
	return !e.IsZero() && !o.IsZero() && e.value()[8:] == o.value()[8:]
}

// Len returns the number of bytes that the entry holds.
func (e Entry) Len() int { return len(e.s) }

// Flow decodes the entry. Fields and actions that are not known stay raw; an
// error says that the bytes cannot be a flow, and what could be decoded is
// returned with it.
func (e Entry) Flow() (Flow, error) {
	if e.IsZero() {
		return Flow{}, malformed("entry", "empty")
	}
	v := e.value()
	f := Flow{
		Table: e.Table(), Priority: e.Priority(),
		Cookie: u64(v), IdleTimeout: u16(v[8:]), HardTimeout: u16(v[10:]),
		Flags: FlowFlags(u16(v[12:])), Importance: u16(v[14:]),
	}
	var err error
	if f.Match, err = e.Key().Match(); err != nil {
		return f, err
	}
	f.Actions, err = decodeInstructions([]byte(v[valueHead:]))
	return f, err
}

// AppendText appends the flow in ovs-ofctl syntax, with what cannot be decoded
// in hexadecimal.
func (e Entry) AppendText(b []byte) []byte {
	if e.IsZero() {
		return b
	}
	f, err := e.Flow()
	if err != nil {
		return appendRawText(b, e.s)
	}
	return f.AppendText(b)
}

// String returns the flow in ovs-ofctl syntax.
func (e Entry) String() string { return string(e.AppendText(nil)) }

// Table returns the table of the flow.
func (k Key) Table() uint8 {
	if k.s == "" {
		return 0
	}
	return k.s[2]
}

// Priority returns the priority of the flow.
func (k Key) Priority() uint16 {
	if k.s == "" {
		return 0
	}
	return u16(k.s[3:])
}

// IsZero reports whether k is no key.
func (k Key) IsZero() bool { return k.s == "" }

// Match decodes the match of the flow.
func (k Key) Match() (Match, error) {
	if k.s == "" {
		return nil, nil
	}
	return decodeTerms([]byte(k.s[keyHead:]))
}

// Compare orders keys by table, then by priority from high to low, then by
// match: the order in which people read a pipeline.
func (k Key) Compare(o Key) int {
	switch {
	case k.s == "" || o.s == "":
		return len(k.s) - len(o.s)
	case k.Table() != o.Table():
		return int(k.Table()) - int(o.Table())
	case k.Priority() != o.Priority():
		return int(o.Priority()) - int(k.Priority())
	case k.s[keyHead:] < o.s[keyHead:]:
		return -1
	case k.s[keyHead:] > o.s[keyHead:]:
		return 1
	}
	return 0
}

// AppendText appends table, priority and match in ovs-ofctl syntax.
func (k Key) AppendText(b []byte) []byte {
	if k.IsZero() {
		return b
	}
	m, err := k.Match()
	if err != nil {
		return appendRawText(b, k.s)
	}
	b = appendFlowHead(b, k.Table(), k.Priority(), 0, 0, 0, 0, 0)
	if len(m) > 0 {
		b = m.AppendText(append(b, ','))
	}
	return b
}

// String returns table, priority and match in ovs-ofctl syntax.
func (k Key) String() string { return string(k.AppendText(nil)) }
