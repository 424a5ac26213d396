// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-sdn/patchbay/openflow"
)

// An agent may number conjunctions as it likes: an id means nothing but what the flows that use it say together. So an id is
// named by those flows: by table, priority, IP version and connection state, which all of them have in common, and by a
// count among those that have these in common. The count follows the order of all that the flows say; two ids of which the
// flows say the same can be exchanged for each other.

// conjunctions names the ids in the flows of a bridge.
func (n *Names) conjunctions(bridge string, flows []openflow.Flow) map[uint32]string {
	uses, classes := map[uint32][]string{}, map[uint32][]string{}
	for i := range flows {
		f := &flows[i]
		use := func(id uint32, role string) {
			w := flowWriter{Names: n, bridge: bridge}
			match := n.Apply(w.match(without(f.Match, openflow.ConjID)))
			uses[id] = append(uses[id], fmt.Sprintf("%s %d %d %s", role, f.Table, f.Priority, match))
			classes[id] = append(classes[id], class(f))
		}
		if t, ok := f.Match.Lookup(openflow.ConjID); ok {
			use(uint32(t.Value.Lo), "1 accept")
		}
		for _, a := range f.Actions {
			if c, ok := a.(openflow.Conjunction); ok {
				// The members of a group change more often than what they may do: they come last.
				use(c.ID, fmt.Sprintf("2 of %d: %d", c.Of, c.Of-c.Clause))
			}
		}
	}
	text := map[uint32]string{}
	for id := range uses {
		slices.Sort(uses[id])
		slices.Sort(classes[id])
		text[id] = strings.Join(slices.Compact(uses[id]), "\n")
	}
	names, count := map[uint32]string{}, map[string]int{}
	for _, id := range slices.SortedFunc(maps.Keys(uses), func(a, b uint32) int { return strings.Compare(text[a], text[b]) }) {
		// More than one class would be two conjunctions under one id.
		class := strings.Join(slices.Compact(classes[id]), "+")
		count[class]++
		names[id] = class + "#" + strconv.Itoa(count[class])
	}
	return names
}

// class is what all flows of one conjunction have in common, in short.
func class(f *openflow.Flow) string {
	version, state := "any", "any"
	if t, ok := f.Match.Lookup(openflow.EthType); ok {
		version = map[uint64]string{0x0800: "ip4", 0x86dd: "ip6"}[t.Value.Lo]
	}
	if t, ok := f.Match.Lookup(openflow.CTState); ok {
		state = "est"
		if strings.Contains(openflow.Match{t}.String(), "+new") {
			state = "new"
		}
	}
	return fmt.Sprintf("%d-%d-%s-%s", f.Table, f.Priority, version, state)
}

func without(m openflow.Match, field openflow.Field) openflow.Match {
	return slices.DeleteFunc(slices.Clone(m), func(t openflow.Term) bool { return t.Field == field })
}

func (w *flowWriter) conjunction(id uint64) string {
	if name, ok := w.conj[uint32(id)]; ok {
		return name
	}
	return "unknown"
}
