// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// Flow writes a flow as one line, and tells whether it takes part in a comparison: flows that the switch learned from
// packets do not. Ids of conjunctions are unknown: only all flows together tell what they stand for, see [Names.Flows].
func (n *Names) Flow(bridge string, f openflow.Flow) (line string, ok bool) {
	return n.flow(flowWriter{Names: n, bridge: bridge}, f)
}

func (n *Names) flow(w flowWriter, f openflow.Flow) (line string, ok bool) {
	if f.HardTimeout != 0 || f.IdleTimeout != 0 {
		return "", false
	}
	w.table = f.Table
	var b strings.Builder
	b.WriteString(w.bridge + " table=" + strconv.Itoa(int(f.Table)) + " priority=" + strconv.Itoa(int(f.Priority)))
	if m := w.match(f.Match); m != "" {
		b.WriteString(" " + m)
	}
	b.WriteString(" actions=" + w.actions(f.Actions))
	return n.Apply(b.String()), true
}

// Flows writes all flows of a bridge, sorted.
func (n *Names) Flows(bridge string, flows []openflow.Flow) []string {
	var lines []string
	conj := n.conjunctions(bridge, flows)
	for i := range flows {
		if line, ok := n.flow(flowWriter{Names: n, bridge: bridge, conj: conj}, flows[i]); ok {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// flowWriter writes one flow. Whether a VLAN in it is a local one or one of the wire depends on where it stands: patch ports
// translate between the two.
type flowWriter struct {
	*Names
	bridge string
	table  uint8
	conj   map[uint32]string
	// wireMatch and wireSet say that the VLAN matched on, or written, is a segmentation id.
	wireMatch, wireSet bool
}

func (w *flowWriter) match(m openflow.Match) string {
	var parts []string
	var rest openflow.Match
	if t, ok := m.Lookup(openflow.InPort); ok {
		name := w.port(w.bridge, uint32(t.Value.Lo))
		w.wireMatch = strings.HasPrefix(name, "int-")
		w.wireSet = strings.HasPrefix(name, "phy-")
		parts = append(parts, "in_port="+name)
	}
	for _, t := range m {
		switch {
		case t.Field == openflow.InPort:
		case w.segmentation(t):
			rest = append(rest, t)
		case t.Field == openflow.VLANVID && !w.wireMatch && t == openflow.VLAN(uint16(t.Value.Lo)):
			parts = append(parts, "vlan="+w.vlan(t.Value.Lo&^openflow.VLANPresent))
		case t.Field == openflow.Reg6 && t == openflow.Num(openflow.Reg6, t.Value.Lo), t.Field == openflow.CTZone:
			parts = append(parts, t.Field.String()+"="+w.vlan(t.Value.Lo))
		case t.Field == openflow.Reg5 && t == openflow.Num(openflow.Reg5, t.Value.Lo):
			parts = append(parts, "reg5="+w.port(w.bridge, uint32(t.Value.Lo)))
		case t.Field == openflow.PktMark && t == openflow.Num(openflow.PktMark, t.Value.Lo):
			parts = append(parts, "pkt_mark="+w.port("br-int", uint32(t.Value.Lo)))
		case t.Field == openflow.ConjID:
			parts = append(parts, "conj_id="+w.conjunction(t.Value.Lo))
		case t.Field == openflow.CTState:
			rest = append(rest, known(t))
		default:
			rest = append(rest, t)
		}
	}
	if len(rest) > 0 {
		parts = append(parts, rest.String())
	}
	return strings.Join(parts, ",")
}

// known leaves out of a connection's state that the packet is tracked, where the state says more: only a packet that is tracked has more.
func known(t openflow.Term) openflow.Term {
	set, mask := uint32(t.Value.Lo), uint32(t.Mask.Lo)
	if set&openflow.CTTrk == 0 || set&(openflow.CTNew|openflow.CTEst) == 0 {
		return t
	}
	return openflow.CTFlags(set&^openflow.CTTrk, mask&^set)
}

// Tables of br-int: in transient frames are told by their destination and VLAN, which may be that of the wire; in fromPhysical
// it is always that, since the frames have just come from there.
const (
	transient    = 60
	fromPhysical = 2
)

// segmentation tells whether a VLAN that no patch port names is one of the wire all the same: it is not a local one.
func (w *flowWriter) segmentation(t openflow.Term) bool {
	if t.Field != openflow.VLANVID || t.Value.Lo&openflow.VLANPresent == 0 {
		return false
	}
	if w.bridge == "br-int" && w.table == fromPhysical {
		return true
	}
	if w.table != transient {
		return false
	}
	_, local := w.vlans[uint16(t.Value.Lo&^openflow.VLANPresent)]
	return !local
}

func (w *flowWriter) actions(list []openflow.Action) string {
	if len(list) == 0 {
		return "drop"
	}
	var texts []string
	alike := 0 // how many at the end of texts have no order
	for i, a := range list {
		texts = append(texts, w.action(a))
		if unordered(a) && i > 0 && reflect.TypeOf(a) != reflect.TypeOf(list[i-1]) {
			alike = 0
		}
		if unordered(a) {
			alike++
			slices.Sort(texts[len(texts)-alike:])
		} else {
			alike = 0
		}
	}
	return strings.Join(texts, ",")
}

// unordered tells actions of which several in a row do the same in any order: a flood, the clauses of conjunctions.
func unordered(a openflow.Action) bool {
	switch a.(type) {
	case openflow.Output, openflow.Conjunction:
		return true
	}
	return false
}

func (w *flowWriter) action(a openflow.Action) string {
	switch a := a.(type) {
	case openflow.Output:
		if uint32(a) < openflow.PortMax {
			return "output:" + w.Apply(w.port(w.bridge, uint32(a)))
		}
	case openflow.SetField:
		switch {
		case a.Field == openflow.VLANVID && w.wireSet:
			return "set_vlan:" + strconv.FormatUint(a.Value.Lo&^openflow.VLANPresent, 10)
		case a.Field == openflow.VLANVID:
			return "set_vlan:" + w.vlan(a.Value.Lo&^openflow.VLANPresent)
		case w.register(a.Field, a.Value.Lo) != "":
			return "set_field:" + w.register(a.Field, a.Value.Lo)
		}
	case openflow.Load:
		if to := w.register(a.To.Field, a.Value); to != "" {
			return "set_field:" + to
		}
	case openflow.Conjunction:
		return fmt.Sprintf("conjunction(%s,%d/%d)", w.conjunction(uint64(a.ID)), a.Clause, a.Of)
	case openflow.Resubmit:
		if a.Port != 0 && a.Port < 0xff00 {
			return "resubmit(" + w.port(w.bridge, uint32(a.Port)) + "," + strconv.Itoa(int(a.Table)) + ")"
		}
	case openflow.Meter:
		return "meter:" + w.meter(uint32(a))
	case openflow.SetQueue:
		if a != 0 { // a queue of an uplink has the number of the port that it is for
			return "set_queue:" + w.port("br-int", uint32(a))
		}
	case openflow.Learn:
		a.Cookie = 0
		return text(a)
	case openflow.ConnTrack:
		if a.Zone != 0 && a.ZoneFrom.Len == 0 {
			return strings.Replace(text(a), "zone="+strconv.Itoa(int(a.Zone)), "zone="+w.vlan(uint64(a.Zone)), 1)
		}
	}
	return text(a)
}

// register writes what is put into a register that holds a number of this run; empty for other fields.
func (w *flowWriter) register(f openflow.Field, value uint64) string {
	switch f {
	case openflow.Reg5:
		return w.port(w.bridge, uint32(value)) + "->reg5"
	case openflow.Reg6:
		return w.vlan(value) + "->reg6"
	case openflow.PktMark:
		return w.port("br-int", uint32(value)) + "->pkt_mark"
	case openflow.Reg7:
		return w.conjunction(value) + "->reg7"
	}
	return ""
}

func text(a openflow.Action) string { return string(openflow.AppendActions(nil, []openflow.Action{a})) }
