// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// Flow writes a flow as one line, and tells whether it takes part in a comparison: flows that the switch learned from
// packets do not.
func (n *Names) Flow(bridge string, f openflow.Flow) (line string, ok bool) {
	if f.HardTimeout != 0 || f.IdleTimeout != 0 {
		return "", false
	}
	w := flowWriter{Names: n, bridge: bridge}
	var b strings.Builder
	b.WriteString(bridge + " table=" + strconv.Itoa(int(f.Table)) + " priority=" + strconv.Itoa(int(f.Priority)))
	if m := w.match(f.Match); m != "" {
		b.WriteString(" " + m)
	}
	b.WriteString(" actions=" + w.actions(f.Actions))
	return n.Apply(b.String()), true
}

// Flows writes the flows of a bridge, sorted.
func (n *Names) Flows(bridge string, flows []openflow.Flow) []string {
	var lines []string
	for i := range flows {
		if line, ok := n.Flow(bridge, flows[i]); ok {
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
		case t.Field == openflow.VLANVID && !w.wireMatch && t == openflow.VLAN(uint16(t.Value.Lo)):
			parts = append(parts, "vlan="+w.vlan(t.Value.Lo&^openflow.VLANPresent))
		case t.Field == openflow.Reg6 && t == openflow.Num(openflow.Reg6, t.Value.Lo), t.Field == openflow.CTZone:
			parts = append(parts, t.Field.String()+"="+w.vlan(t.Value.Lo))
		default:
			rest = append(rest, t)
		}
	}
	if len(rest) > 0 {
		parts = append(parts, rest.String())
	}
	return strings.Join(parts, ",")
}

func (w *flowWriter) actions(list []openflow.Action) string {
	if len(list) == 0 {
		return "drop"
	}
	var texts []string
	outputs := 0 // how many at the end of texts
	for _, a := range list {
		texts = append(texts, w.action(a))
		if _, ok := a.(openflow.Output); ok {
			outputs++
			// A flood reaches its ports in any order.
			slices.Sort(texts[len(texts)-outputs:])
		} else {
			outputs = 0
		}
	}
	return strings.Join(texts, ",")
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
		case a.Field == openflow.Reg6:
			return "set_field:" + w.vlan(a.Value.Lo) + "->reg6"
		}
	case openflow.Load:
		if a.To.Field == openflow.Reg6 {
			return "set_field:" + w.vlan(a.Value) + "->reg6"
		}
	case openflow.Resubmit:
		if a.Port != 0 && a.Port < 0xff00 {
			return "resubmit(" + w.port(w.bridge, uint32(a.Port)) + "," + strconv.Itoa(int(a.Table)) + ")"
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

func text(a openflow.Action) string { return string(openflow.AppendActions(nil, []openflow.Action{a})) }
