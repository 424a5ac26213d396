// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	wire "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

var tables = []string{"Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "Manager", "QoS", "Queue"}

// rehearse commits one transaction on the rows of begin.
func rehearse(build func(*Tx)) (*Batch, error) {
	db := NewRehearsal(begin())
	var made *Batch
	db.OnCommit = func(b *Batch) { made = b }
	var tx *Tx
	db.Look(func(v *View) { tx = NewTx(v) })
	build(tx)
	result, errs := db.CommitAll(context.Background(), []*Tx{tx})
	if made.Seq != result.Seq || made.Seq != 2 || made.Kind != Update {
		return nil, errors.New("the batch is not the second")
	}
	return made, errs[0]
}

// TestMistakesInARehearsal: what the database would refuse is refused, for every table.
func TestMistakesInARehearsal(t *testing.T) {
	for _, table := range tables {
		b, err := rehearse(func(tx *Tx) { tx.edit(table, "gone").row["external_ids"] = encodeMap(map[string]string{"a": "b"}) })
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), table+" gone: change") || !strings.Contains(err.Error(), "the row is gone") {
			t.Errorf("%s: %v", table, err)
		}
		if b.Len() != 0 {
			t.Errorf("%s: %d rows changed", table, b.Len())
		}
	}
	noJSON := func() {}
	for name, c := range map[string]struct {
		build func(*Tx)
		want  string
	}{
		"no such table":       {func(tx *Tx) { tx.edit("NetFlow", "p") }, "table NetFlow is not read"},
		"no such mutator":     {func(tx *Tx) { tx.edit("Bridge", "br").mutate("ports", wire.MutateOperationAdd, 1) }, "mutator += is not known"},
		"a value of no type":  {func(tx *Tx) { tx.edit("Port", "p").row["tag"] = noJSON }, "unsupported type"},
		"a change of no type": {func(tx *Tx) { tx.edit("Bridge", "br").mutate("ports", wire.MutateOperationInsert, noJSON) }, "unsupported type"},
		"a value of another":  {func(tx *Tx) { tx.edit("Port", "p").row["tag"] = "seven" }, "want an integer"},
		"a change of another": {func(tx *Tx) { tx.edit("Port", "p").mutate("trunks", wire.MutateOperationInsert, "seven") }, "want an integer"},
		"columns nobody reads": {func(tx *Tx) {
			tx.edit("Port", "p").row["mac"] = "x"
			tx.edit("Port", "p").mutate("statistics", wire.MutateOperationInsert, 1)
		}, ""},
	} {
		b, err := rehearse(c.build)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if b.Len() != 0 {
			t.Errorf("%s: %d rows changed", name, b.Len())
		}
	}
	// What cannot be written down as JSON is said before anything is sent.
	v := NewView()
	v.Apply(begin())
	tx := NewTx(v)
	tx.edit("Port", "p").row["tag"] = noJSON
	if text, err := tx.JSON(); err == nil || text != nil {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := tx.Printed().JSON(); err == nil || len(text) != 0 {
		t.Errorf("printed: %q, %v", text, err)
	}
}

// TestOnlyWhatChangedIsInABatch: a row that is written as it was, and one that comes and goes in one transaction, are in none.
func TestOnlyWhatChangedIsInABatch(t *testing.T) {
	for name, c := range map[string]struct {
		build func(*Tx)
		want  int // rows
	}{
		"as it was": {func(tx *Tx) {
			tx.Port("p").SetVLANMode("trunk").SetTrunks(4095).MergeOtherConfig(map[string]string{"old": "1"})
		}, 0},
		"nobody refers to it": {func(tx *Tx) {
			tx.insert("Port", wire.Row{"name": "lost"})
			tx.insert("Interface", wire.Row{"name": "lost"})
			tx.insert("Bridge", wire.Row{"name": "lost"})
			tx.insert("Controller", wire.Row{"target": "lost"})
		}, 0},
		"nobody has to refer to it": {func(tx *Tx) {
			tx.InsertQueue(Queue{})
			tx.InsertQoS(QoS{}, nil)
			tx.insert("Manager", wire.Row{"target": "m"})
		}, 3},
		"one of two pairs":       {func(tx *Tx) { tx.Bridge("br").RemoveOtherConfig("mark", "nothing") }, 1},
		"a bridge goes with all": {func(tx *Tx) { tx.DeleteBridge("tr") }, 4},
	} {
		b, err := rehearse(c.build)
		if err != nil || b.Len() != c.want {
			t.Errorf("%s: %d rows, %v", name, b.Len(), err)
		}
	}
	b, err := rehearse(func(tx *Tx) {
		tx.Bridge("br").AddProtocols("OpenFlow13", "OpenFlow14").RemoveOtherConfig("mark")
		tx.QoS("qos").RemoveQueue(0).SetQueue(5, RefTo("queue"))
	})
	if err != nil || len(b.Bridges) != 1 || len(b.QoS) != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	if br := b.Bridges[0].New; !slices.Equal(br.Protocols, []string{"OpenFlow13", "OpenFlow14"}) || len(br.OtherConfig) != 1 || br.OtherConfig["other"] != "x" {
		t.Errorf("%+v", br)
	}
	large := 1<<53 + 1 // a float64 has not so many digits
	if c, err := rehearse(func(tx *Tx) { tx.Bridge("br").SetControllers(Controller{Target: "t", InactivityProbe: &large}) }); err != nil || len(c.Controllers) != 1 || *c.Controllers[0].New.InactivityProbe != large {
		t.Errorf("%+v, %v", c, err)
	}
	if q := b.QoS[0].New; len(q.Queues) != 1 || q.Queues[5] != "queue" {
		t.Errorf("%+v", q)
	}
}

// TestDeletionsComeFirst: a name that was given up and taken again is seen in this order. Otherwise rows come by identity.
func TestDeletionsComeFirst(t *testing.T) {
	const first, next = `{"Port":{"c":{"initial":{"name":"x"}},"d":{"initial":{"name":"y"}},"e":{"initial":{"name":"z"}}}}`,
		`{"Port":{"a":{"initial":{"name":"x"}},"b":{"initial":{"name":"y"}},"e":{"initial":{"name":"z","tag":5}}}}`
	changes := `{"Port":{"a":{"insert":{"name":"x"}},"b":{"insert":{"name":"y"}},"c":{"delete":null},"d":{"delete":null},"e":{"modify":{"tag":5}}}}`
	for i := range 20 { // the order of a map is chance
		whole := i%2 == 0
		v := NewView()
		if _, err := v.Advance([]byte(first), true); err != nil {
			t.Fatal(err)
		}
		b, err := v.Advance([]byte(map[bool]string{true: next, false: changes}[whole]), whole)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, d := range b.Ports {
			order = append(order, map[bool]string{true: "-", false: ""}[d.New == nil]+string(d.row().UUID))
		}
		if got := strings.Join(order, " "); got != "-c -d a b e" {
			t.Errorf("whole %v: %s", whole, got)
		}
	}
	for name, text := range map[string]string{
		"no initial row": `{"Port":{"a":{"insert":{"name":"x"}}}}`, "a row that cannot be read": `{"Port":{"a":{"initial":{"tag":"x"}}}}`,
	} {
		if _, err := NewView().Advance([]byte(text), true); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	v := NewView()
	for name, text := range map[string]string{
		"two kinds in one": `{"Port":{"a":{"insert":{"name":"x"},"delete":null}}}`, "a row that cannot be read": `{"Port":{"a":{"insert":{"tag":"x"}}}}`,
	} {
		if _, err := v.Advance([]byte(text), false); err == nil || v.Port("a") != nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestEveryTableIsRead: from a whole dump and from changes.
func TestEveryTableIsRead(t *testing.T) {
	const (
		all = `{"Open_vSwitch":{"r":{"initial":{"bridges":["uuid","b"],"external_ids":["map",[["system-id","x"]]]}}},
		"Bridge":{"b":{"initial":{"name":"br","ports":["set",[["uuid","p"],["uuid","q"]]],"controller":["uuid","c"]}}},"Port":{"p":{"initial":{"name":"p","interfaces":["uuid","i"],"qos":["uuid","s"]}},"q":{"initial":{"name":"q"}}},
		"Interface":{"i":{"initial":{"name":"p","ofport":3,"mtu":1400}}},"Controller":{"c":{"initial":{"target":"tcp:x","is_connected":true}}},"Manager":{"m":{"initial":{"target":"ptcp:1"}}},
		"QoS":{"s":{"initial":{"type":"htb","queues":["map",[[7,["uuid","u"]]]]}}},"Queue":{"u":{"initial":{"other_config":["map",[["rate","5"]]]}}}}`
		changed = `{"Bridge":{"b":{"modify":{"ports":["uuid","p"]}}},"QoS":{"s":{"modify":{"type":"hfsc"}}},"Queue":{"u":{"modify":{"other_config":["map",[["rate","6"]]]}}},
		"Controller":{"c":{"modify":{"is_connected":false}}},"Manager":{"m":{"delete":null}}}`
		moved = `{"Port":{"p":{"modify":{"interfaces":["uuid","i"]}},"q":{"modify":{"interfaces":["uuid","i"]}}}}`
	)
	v := NewView()
	for range v.Interfaces() {
		t.Error("an interface from the start")
	}
	if v.Root() != nil || v.Capabilities().OVSVersion != "" || v.SingleInterfaces("br") != nil {
		t.Error("something is known from the start")
	}
	if b, err := v.Advance([]byte(all), true); err != nil || b.Len() != 9 || b.Seq != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	if v.QoS("s").Queues[7] != "u" || v.Queue("u").OtherConfig["rate"] != "5" || !v.Controller("c").IsConnected || v.Root().ExternalIDs["system-id"] != "x" || *v.Interface("i").MTU != 1400 ||
		v.BridgeOf("p").Name != "br" || v.PortOf("i").Name != "p" || v.Port("p").QoS != "s" {
		t.Error("something is not read")
	}
	for i := range v.Interfaces() {
		if i != v.Interface("i") {
			t.Errorf("%+v", i)
		}
	}
	if got := v.SingleInterfaces("br"); len(got) != 1 || got[0].Name != "p" {
		t.Errorf("%v", got)
	}
	if b, err := v.Advance([]byte(changed), false); err != nil || b.Len() != 5 {
		t.Fatalf("%+v, %v", b, err)
	}
	if v.QoS("s").Type != "hfsc" || v.Queue("u").OtherConfig["rate"] != "6" || v.Controller("c").IsConnected || v.BridgeOf("p") != nil || v.BridgeOf("q") == nil {
		t.Error("a change is not read")
	}
	if _, err := v.Advance([]byte(moved), false); err != nil || v.PortOf("i").Name != "q" {
		t.Errorf("the interface is of port %s, %v", v.PortOf("i").Name, err)
	}
	for _, table := range tables {
		if _, err := v.Advance([]byte(`{"`+table+`":{"x":{"modify":{}}}}`), false); err == nil {
			t.Errorf("%s: a row that is not there is changed", table)
		}
	}
}

// TestOperationsAreInOrder: the same rows give the same text.
func TestOperationsAreInOrder(t *testing.T) {
	spec := SharedQoS{Key: QoSKey{ExternalIDs: map[string]string{"_type": "min"}}, Queues: []QueueSpec{{Number: 1, Key: map[string]string{"port": "1"}}}, Kind: map[string]string{"type": "min"}}
	v := NewView()
	v.Apply(limits("", []string{"a _type=min - 2=u,3=v,4=w,5=x,6=y,7=z"}, []string{"u type=min -", "v type=min -", "w type=min -", "x type=min -", "y type=min -", "z type=min -"}))
	first, err := DiffRows(v, spec).JSON()
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if again, _ := DiffRows(v, spec).JSON(); !slices.Equal(first, again) {
			t.Fatalf("%q\nand then %q", first, again)
		}
	}
}

// TestCompareLeavesOutWhatTheSwitchSays: a plan cannot know it, and nobody decides it.
func TestCompareLeavesOutWhatTheSwitchSays(t *testing.T) {
	view := func(more string) *View {
		v := NewView()
		const text = `{"Bridge":{"b":{"initial":{"name":"br","ports":["uuid","p"]}}},"Port":{"p":{"initial":{"name":"p","interfaces":["uuid","i"]}}},"Interface":{"i":{"initial":{"name":"p","type":"internal"%s}}}}`
		if _, err := v.Advance(fmt.Appendf(nil, text, more), true); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for more, want := range map[string]int{`,"ofport":3,"mtu":1500,"error":"no"`: 0, `,"other_config":["map",[["a","b"]]]`: 1} {
		if got := Compare(view(""), view(more)); len(got) != want {
			t.Errorf("%s: %+v", more, got)
		}
	}
}
