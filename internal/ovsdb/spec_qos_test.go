// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// limits are the rows of begin with these rows about QoS; tap has the QoS row of this identity. A row is written as "ID external_ids
// other_config queues", the last for QoS rows only: pairs with commas, or "-".
func limits(tap UUID, qos, queues []string) *Batch {
	pairs := func(text string) map[string]string {
		m := map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				m[key] = value
			}
		}
		return m
	}
	b := begin()
	b.Ports[0].New.QoS, b.QoS, b.Queues = tap, nil, nil
	for _, row := range qos {
		f := strings.Fields(row)
		q := &QoS{UUID: UUID(f[0]), Type: "htb", ExternalIDs: pairs(f[1]), OtherConfig: pairs(f[2]), Queues: map[int]UUID{}}
		for n, id := range pairs(f[3]) {
			number, _ := strconv.Atoi(n)
			q.Queues[number] = UUID(id)
		}
		b.QoS = append(b.QoS, Diff[QoS]{New: q})
	}
	for _, row := range queues {
		f := strings.Fields(row)
		b.Queues = append(b.Queues, Diff[Queue]{New: &Queue{UUID: UUID(f[0]), ExternalIDs: pairs(f[1]), OtherConfig: pairs(f[2])}})
	}
	return b
}

// limitsOf tells the rows in the same words: ports, QoS rows, queues. A new row is called by its number.
func limitsOf(v *View) string {
	short := func(id UUID) string { return strings.TrimLeft(strings.ReplaceAll(string(id), "-", ""), "0") }
	pairs := func(m map[string]string) string {
		out := []string{}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			out = append(out, key+"="+m[key])
		}
		if len(out) == 0 {
			return "-"
		}
		return strings.Join(out, ",")
	}
	var ports, rows, queues []string
	for _, p := range slices.SortedFunc(v.Ports(), func(a, b *Port) int { return strings.Compare(a.Name, b.Name) }) {
		if p.QoS != "" {
			ports = append(ports, p.Name+" "+short(p.QoS))
		}
	}
	for _, q := range sortedQoS(v) {
		in := map[string]string{}
		for n, id := range q.Queues {
			in[strconv.Itoa(n)] = short(id)
		}
		rows = append(rows, short(q.UUID)+" "+pairs(q.ExternalIDs)+" "+pairs(q.OtherConfig)+" "+pairs(in))
	}
	for _, q := range sortedQueues(v) {
		queues = append(queues, short(q.UUID)+" "+pairs(q.ExternalIDs)+" "+pairs(q.OtherConfig))
	}
	return strings.Join([]string{strings.Join(ports, "; "), strings.Join(rows, "; "), strings.Join(queues, "; ")}, " | ")
}

// TestQoSRows: what becomes of QoS rows and queues that are there already.
func TestQoSRows(t *testing.T) {
	is := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	one := PortQoS{Port: "p", Key: QoSKey{ExternalIDs: is("id", "tap")}, OtherConfig: is("max", "1"), Queue: &QueueSpec{
		Number: 3, Key: is("port", "tap"), ExternalIDs: is("host", "hv1"), OtherConfig: is("rate", "5"), RemoveConfig: []string{"burst"},
	}}
	none := PortQoS{Port: "p", Absent: true, Key: one.Key, Queue: &QueueSpec{Key: is("port", "tap")}}
	orphans := OrphanedQoS{Rows: []QoSKey{{Type: "htb", Pairs: 1}}, RowPort: "id", Queues: is("type", "limit"), QueuePort: "port"}
	shared := SharedQoS{
		Bridges: []string{"br-int"}, Key: QoSKey{ExternalIDs: is("_type", "min")}, New: QoS{ExternalIDs: is("_type", "min")}, Kind: is("type", "min"),
		UnknownKey: "port", Unknown: []string{"new"}, Queues: []QueueSpec{{Number: 1, Key: is("port", "1", "type", "min")}, {Number: 2, Key: is("port", "2", "type", "min")}},
	}
	nobody := shared
	nobody.Queues = nil
	for _, c := range []struct {
		name        string
		spec        Spec
		tap         UUID
		qos, queues []string
		want        string
	}{
		{"in line", one, "a", []string{"a id=tap max=1 3=u"}, []string{"u host=hv1,port=tap rate=5"}, "tap a | a id=tap max=1 3=u | u host=hv1,port=tap rate=5"},
		{"of several the first", one, "b", []string{"b id=tap max=1 3=u", "a id=tap max=1 3=u", "c id=tap max=1 3=u"}, []string{"x port=tap,host=hv1 rate=5", "u host=hv1,port=tap rate=5", "y port=tap,host=hv1 rate=5"},
			"tap a | a id=tap max=1 3=u; b id=tap max=1 3=u; c id=tap max=1 3=u | u host=hv1,port=tap rate=5; x host=hv1,port=tap rate=5; y host=hv1,port=tap rate=5"},
		{"other values", one, "a", []string{"a id=tap max=2,burst=9 3=u"}, []string{"u host=hv2,port=tap burst=1,rate=6"}, "tap a | a id=tap burst=9,max=1 3=u | u host=hv1,port=tap rate=5"},
		{"another queue at the number", one, "a", []string{"a id=tap max=1 3=v"}, []string{"u host=hv1,port=tap rate=5", "v - -"}, "tap a | a id=tap max=1 3=u | u host=hv1,port=tap rate=5; v - -"},
		{"no queue", one, "a", []string{"a id=tap max=1 -"}, nil, "tap a | a id=tap max=1 3=1 | 1 host=hv1,port=tap rate=5"},
		{"a port that is gone", PortQoS{Port: "gone", Absent: true, Key: one.Key}, "", []string{"a id=tap - -"}, nil, " | a id=tap - - | "},

		{"absent", none, "a", []string{"a id=tap - 0=u,1=v", "b id=x - 0=v"}, []string{"u port=tap -", "v port=x -", "w port=y -"}, " | b id=x - 0=v | v port=x -; w port=y -"},
		{"absent, and the port has another", none, "b", []string{"a id=tap - -", "b id=x - -"}, []string{"u port=tap -"}, "tap b | b id=x - - | "},
		{"absent, and a queue is left", none, "", nil, []string{"u port=tap -"}, " |  | "},
		{"absent, and a queue is lost", none, "a", []string{"a id=tap - 0=lost"}, nil, " |  | "},

		{"orphans", orphans, "used",
			[]string{"gone id=x - 0=u,1=both", "tap id=tap - 0=v", "used id=x - 0=w", "pairs id=x,a=b - 0=both", "none a=b - -"},
			[]string{"u port=x,type=limit -", "both port=x,type=limit -", "v port=tap,type=limit -", "w port=x,type=limit -", "alone port=x,type=limit -", "nobody type=limit -", "other port=x,type=min -", "here port=tap,type=limit -"},
			"tap used | none a=b - -; pairs a=b,id=x - 0=both; tap id=tap - 0=v; used id=x - 0=w | both port=x,type=limit -; here port=tap,type=limit -; nobody type=limit -; other port=x,type=min -; v port=tap,type=limit -; w port=x,type=limit -"},

		{"shared, in line", shared, "a", []string{"a _type=min - 1=u,2=v"}, []string{"u port=1,type=min -", "v port=2,type=min -"}, "tap a | a _type=min - 1=u,2=v | u port=1,type=min -; v port=2,type=min -"},
		{"shared, one comes and one goes", shared, "a", []string{"a _type=min - 1=u,7=w,8=n"}, []string{"u port=1,type=min -", "w port=7,type=min -", "n port=new,type=min -", "x port=1,type=limit -"},
			"tap a | a _type=min - 1=u,2=1,8=n | 1 port=2,type=min -; n port=new,type=min -; u port=1,type=min -; x port=1,type=limit -"},
		{"shared, at the wrong number", shared, "a", []string{"a _type=min - 1=v,2=u"}, []string{"u port=1,type=min -", "v port=2,type=min -"}, "tap a | a _type=min - 1=u,2=v | u port=1,type=min -; v port=2,type=min -"},
		{"shared, and the uplink has none", shared, "", []string{"a _type=min - 1=u,2=v"}, []string{"u port=1,type=min -", "v port=2,type=min -"}, "tap a | a _type=min - 1=u,2=v | u port=1,type=min -; v port=2,type=min -"},
		{"shared, for the first time", shared, "", nil, nil, "tap 3 | 3 _type=min - 1=1,2=2 | 1 port=1,type=min -; 2 port=2,type=min -"},
		{"shared, no more", nobody, "a", []string{"a _type=min - 1=u"}, []string{"u port=1,type=min -"}, " |  | "},
		{"shared, no more, and one is not known yet", nobody, "a", []string{"a _type=min - 1=u,8=n"}, []string{"u port=1,type=min -", "n port=new,type=min -"}, "tap a | a _type=min - 8=n | n port=new,type=min -"},
		{"shared, never", nobody, "x", []string{"x id=x - -"}, nil, "tap x | x id=x - - | "},
		{"shared, and others of the kind", shared, "b", []string{"b _type=min - 7=w", "a _type=min - 1=u,2=v", "c _type=min - 8=n", "x id=x - -"},
			[]string{"u port=1,type=min -", "v port=2,type=min -", "w port=7,type=min -", "n port=new,type=min -"},
			"tap a | a _type=min - 1=u,2=v; c _type=min - 8=n; x id=x - - | n port=new,type=min -; u port=1,type=min -; v port=2,type=min -"},
	} {
		db := NewRehearsal(limits(c.tap, c.qos, c.queues))
		var got string
		for range 2 {
			var tx *Tx
			db.Look(func(v *View) { tx, got = DiffRows(v, c.spec), limitsOf(v) })
			if tx.Len() == 0 {
				break
			}
			ids := map[UUID]bool{}
			for _, o := range tx.ops {
				if o.kind == "delete" && ids[o.id] {
					t.Errorf("%s: %s %s is deleted twice", c.name, o.table, o.id)
				}
				ids[o.id] = o.kind == "delete"
			}
			if _, errs := db.CommitAll(context.Background(), []*Tx{tx}); errs[0] != nil {
				t.Fatal(c.name, errs[0])
			}
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	// A port that is no uplink and has a row that goes has none after that.
	b := limits("", []string{"a _type=min - 1=u,2=v", "b _type=min - -"}, []string{"u port=1,type=min -", "v port=2,type=min -"})
	b.Ports[1].New.QoS, b.Ports[2].New.QoS = "b", "a"
	db := NewRehearsal(b)
	for _, c := range []struct {
		spec SharedQoS
		want string
	}{{shared, "spi-2 a; tap a | a _type=min - 1=u,2=v | u port=1,type=min -; v port=2,type=min -"}, {nobody, " |  | "}} {
		var tx *Tx
		db.Look(func(v *View) { tx = DiffRows(v, c.spec) })
		_, errs := db.CommitAll(context.Background(), []*Tx{tx})
		db.Look(func(v *View) {
			if got := limitsOf(v); errs[0] != nil || got != c.want {
				t.Errorf("%v, got %s, want %s", errs, got, c.want)
			}
		})
	}
}
