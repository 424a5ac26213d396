// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// model is a database of ports and interfaces on one bridge, as values of the protocol's JSON.
type model map[string]map[string]map[string]any // table, row, column

func set(elements ...any) any { return []any{"set", append([]any{}, elements...)} }

func ref(id string) any { return []any{"uuid", id} }

func mapOf(m map[string]string) any {
	pairs := []any{}
	for k, v := range m {
		pairs = append(pairs, []any{k, v})
	}
	return []any{"map", pairs}
}

func drawMap(t *rapid.T, label string) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"1", "2"}), 0, 3).Draw(t, label)
}

// drawState draws which of a few ports exist and how they are. Each slot keeps its UUID, so states differ by all kinds of
// changes; a slot of another generation is another row with the same name.
func drawState(t *rapid.T, label string) map[string]portState {
	state := map[string]portState{}
	for slot := range 4 {
		if !rapid.Bool().Draw(t, label+" there") {
			continue
		}
		generation := rapid.IntRange(0, 1).Draw(t, label+" generation")
		state[fmt.Sprintf("%08d-0000-4000-8000-%012d", slot, generation)] = portState{
			name: fmt.Sprintf("tap%d", slot), tag: rapid.IntRange(-1, 2).Draw(t, label+" tag"), other: drawMap(t, label+" other"),
			trunks: rapid.SliceOfNDistinct(rapid.IntRange(1, 5), 0, 5, rapid.ID).Draw(t, label+" trunks"),
		}
	}
	return state
}

type portState struct {
	name   string
	tag    int // -1 is unset
	trunks []int
	other  map[string]string
}

const theBridge = "eeeeeeee-0000-4000-8000-000000000000"

func optional(tag int) any {
	if tag < 0 {
		return set()
	}
	return tag
}

func ints(v []int) any {
	out := []any{}
	for _, i := range v {
		out = append(out, i)
	}
	if len(out) == 1 {
		return out[0] // the server writes sets of one as the element
	}
	return set(out...)
}

func whole(state map[string]portState, kind string) model {
	ports, bridgePorts := map[string]map[string]any{}, []any{}
	for id, p := range state {
		ports[id] = map[string]any{kind: map[string]any{
			"name": p.name, "tag": optional(p.tag), "trunks": ints(p.trunks), "other_config": mapOf(p.other),
		}}
		bridgePorts = append(bridgePorts, ref(id))
	}
	return model{
		"Port":   ports,
		"Bridge": {theBridge: {kind: map[string]any{"name": "br-int", "ports": set(bridgePorts...)}}},
	}
}

// difference writes what changed between two states as the update2 notation demands: sets as symmetric difference, maps
// as the pairs that came, went or changed.
func difference(a, b map[string]portState) model {
	ports, toggled := map[string]map[string]any{}, []any{}
	for id := range a {
		if _, ok := b[id]; !ok {
			ports[id] = map[string]any{"delete": nil}
			toggled = append(toggled, ref(id))
		}
	}
	for id, p := range b {
		was, ok := a[id]
		if !ok {
			ports[id] = map[string]any{"insert": map[string]any{
				"name": p.name, "tag": optional(p.tag), "trunks": ints(p.trunks), "other_config": mapOf(p.other),
			}}
			toggled = append(toggled, ref(id))
			continue
		}
		columns := map[string]any{}
		if was.tag != p.tag {
			columns["tag"] = optional(p.tag)
		}
		var trunks []int
		for i := 1; i <= 5; i++ {
			if slices.Contains(was.trunks, i) != slices.Contains(p.trunks, i) {
				trunks = append(trunks, i)
			}
		}
		if trunks != nil {
			columns["trunks"] = ints(trunks)
		}
		pairs := map[string]string{}
		for _, k := range []string{"a", "b", "c"} {
			old, had := was.other[k]
			now, has := p.other[k]
			if had && !has {
				pairs[k] = old
			} else if has && (!had || old != now) {
				pairs[k] = now
			}
		}
		if len(pairs) > 0 {
			columns["other_config"] = mapOf(pairs)
		}
		if len(columns) > 0 {
			ports[id] = map[string]any{"modify": columns}
		}
	}
	m := model{"Port": ports}
	if len(toggled) > 0 {
		m["Bridge"] = map[string]map[string]any{theBridge: {"modify": map[string]any{"ports": set(toggled...)}}}
	}
	return m
}

func text(m model) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func rows(v *ovsdb.View) map[string]string {
	out := map[string]string{}
	for p := range v.Ports() {
		tag := -1
		if p.Tag != nil {
			tag = *p.Tag
		}
		on := "nowhere"
		if b := v.BridgeOf(p.UUID); b != nil {
			on = b.Name
		}
		if v.PortByName(p.Name) != p {
			on += ", not found by name"
		}
		out[string(p.UUID)] = fmt.Sprintf("%s on %s: %d %v %v", p.Name, on, tag, p.Trunks, p.OtherConfig)
	}
	return out
}

// Any sequence of states, delivered as differences, as dumps or mixed, gives the view of a fresh dump of the last state;
// and the batches add up to the same view at the reader's.
func TestAnyHistoryGivesTheSameView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := drawState(t, "first")
		ours, reader := ovsdb.NewView(), ovsdb.NewView()
		b, err := ours.Advance(text(whole(state, "initial")), true)
		if err != nil {
			t.Fatal(err)
		}
		reader.Apply(b)
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			next := drawState(t, "next")
			asDump := rapid.Bool().Draw(t, "as dump")
			if asDump {
				b, err = ours.Advance(text(whole(next, "initial")), true)
			} else {
				b, err = ours.Advance(text(difference(state, next)), false)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range b.Ports {
				if d.Old != nil && d.New != nil && cmp.Equal(d.Old, d.New) {
					t.Fatalf("a change that changes nothing: %+v", d.New)
				}
			}
			if want := len(difference(state, next)["Port"]); len(b.Ports) != want {
				t.Fatalf("%d changed ports, want %d", len(b.Ports), want)
			}
			reader.Apply(b)
			state = next
		}
		fresh := ovsdb.NewView()
		if _, err := fresh.Advance(text(whole(state, "initial")), true); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(rows(fresh), rows(ours)); d != "" {
			t.Fatalf("the client's view differs (-fresh +ours):\n%s", d)
		}
		if d := cmp.Diff(rows(fresh), rows(reader)); d != "" {
			t.Fatalf("the reader's view differs (-fresh +reader):\n%s", d)
		}
	})
}

// No bytes from the server may do more than end in an error, and an error leaves the view as it was.
func FuzzUpdates(f *testing.F) {
	f.Add([]byte(oneBridge), []byte(`{"Port": {"`+portID+`": {"modify": {"tag": ["set",[]], "trunks": ["set",[1,2]]}}}}`))
	f.Add([]byte(oneBridge), []byte(`{"Bridge": {"`+brID+`": {"delete": null}}}`))
	f.Add([]byte(`{}`), []byte(`{"QoS": {"x": {"insert": {"queues": ["map",[[0,["uuid","y"]]]]}}}}`))
	f.Add([]byte(`{"Port": {"x": {"initial": {"interfaces": ["set"]}}}}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		v := ovsdb.NewView()
		if _, err := v.Advance(first, true); err != nil {
			return
		}
		before, seq := rows(v), v.Seq()
		if _, err := v.Advance(second, false); err != nil && (v.Seq() != seq || !cmp.Equal(before, rows(v))) {
			t.Fatal("a refused update changed the view")
		}
	})
}

// The same for whole conversations: answers, notifications and questions of the server.
func FuzzServer(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":[false,"` + txn1 + `",` + oneBridge + `],"error":null}` +
		`{"id":null,"method":"update3","params":["patchbay","` + txn2 + `",{"Port":{"` + portID + `":{"modify":{"tag":6}}}}]}`))
	f.Add([]byte(`{"id":"echo","method":"echo","params":[]}{"id":1,"result":null,"error":{"error":"unknown database"}}`))
	f.Add([]byte(`{"id":2,"result":[{"count":1},null,{"error":"timed out","details":"x"},{"rows":[{"next_cfg":3}]},{"uuid":["uuid"]}],"error":null}`))
	f.Add([]byte(`{"id":null,"method":"update2","params":["patchbay",{}]}{"id":1,"result":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := ovsdb.Feed(text); err == nil {
			t.Fatal("reading ended without a reason")
		}
	})
}
