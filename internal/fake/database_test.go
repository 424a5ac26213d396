// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/patchbay-sdn/patchbay/internal/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// talk is one who follows a database and writes to it, and takes down both, with names in place of UUIDs.
type talk struct {
	t     *testing.T
	conn  net.Conn
	dec   *json.Decoder
	names map[string]string // by UUID
	out   []string
}

// step sends a transaction and notes its results and what the monitor is told meanwhile. The words $name stand for rows that were
// inserted under that name.
func (k *talk) step(what string, ops ...string) {
	k.t.Helper()
	k.out = append(k.out, "# "+what)
	for id, name := range k.names {
		for i := range ops {
			ops[i] = strings.ReplaceAll(ops[i], `"$`+name+`"`, `["uuid","`+id+`"]`)
		}
	}
	var results []map[string]any
	k.call("transact", `["Open_vSwitch",`+strings.Join(ops, ",")+`]`, &results)
	for i, r := range results {
		if uuid := fake.RefOf(r["uuid"]); uuid != "" {
			k.names[uuid] = regexp.MustCompile(`"uuid-name":"(\w+)"`).FindStringSubmatch(ops[i])[1]
		}
	}
	for i, r := range results {
		switch {
		case r == nil:
			k.out = append(k.out, fmt.Sprint(i, " nothing"))
		case r["error"] != nil:
			k.out = append(k.out, fmt.Sprint(i, " error: ", r["error"]))
		case r["rows"] != nil:
			rows, _ := r["rows"].([]any)
			for _, row := range rows {
				columns, _ := row.(map[string]any)
				for _, c := range slices.Sorted(maps.Keys(columns)) {
					k.out = append(k.out, fmt.Sprint(i, " ", c, "=", k.text(columns[c])))
				}
			}
		}
	}
	// Updates come before the answer, but the names of new rows are in the answer.
	for i, line := range k.out {
		for id, name := range k.names {
			line = strings.ReplaceAll(line, id, name)
		}
		k.out[i] = line
	}
}

// call sends a request and reads until its answer.
func (k *talk) call(method, params string, result any) {
	k.t.Helper()
	_ = k.conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(k.conn, `{"id":1,"method":%q,"params":%s}`, method, params); err != nil {
		k.t.Fatal(err)
	}
	for {
		var m struct {
			Method        string
			Params        []json.RawMessage
			Result, Error json.RawMessage
		}
		if err := k.dec.Decode(&m); err != nil {
			k.t.Fatal(err)
		}
		if m.Method != "" {
			k.updates(m.Params[len(m.Params)-1])
			continue
		}
		if string(m.Error) != "null" {
			k.t.Fatalf("%s: %s", method, m.Error)
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			k.t.Fatal(err)
		}
		return
	}
}

func (k *talk) updates(text json.RawMessage) {
	k.t.Helper()
	var all map[string]map[string]map[string]map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		k.t.Fatal(err)
	}
	var lines []string
	for table, rows := range all {
		for id, changes := range rows {
			for what, row := range changes {
				columns := []string{}
				for _, c := range slices.Sorted(maps.Keys(row)) {
					columns = append(columns, c+"="+k.text(row[c]))
				}
				if name, _ := row["name"].(string); what == "insert" && name != "" {
					k.names[id] = name // sorted by name, whatever the UUID
				}
				lines = append(lines, strings.TrimSpace(fmt.Sprint("  ", table, " ", k.text(id), " ", what, " ", strings.Join(columns, " "))))
			}
		}
	}
	slices.Sort(lines)
	k.out = append(k.out, lines...)
}

// text is a value in one notation, whatever the server's: in order, sets of one as their element.
func (k *talk) text(v any) string {
	list, _ := v.([]any)
	if len(list) == 2 && (list[0] == "set" || list[0] == "map") {
		elements, _ := list[1].([]any)
		var texts []string
		for _, e := range elements {
			texts = append(texts, k.text(e))
		}
		slices.Sort(texts)
		if list[0] == "set" && len(texts) == 1 {
			return texts[0]
		}
		return fmt.Sprint(list[0], texts)
	}
	data, err := json.Marshal(v)
	if err != nil {
		k.t.Fatal(err)
	}
	out := string(data)
	for id, name := range k.names {
		out = strings.ReplaceAll(out, id, name)
	}
	return out
}

// written does to a database what agents and others do, and some of what they must not, and returns what it answers and tells. The
// database in memory and ovsdb-server must say the same.
func written(t *testing.T, conn net.Conn) string {
	t.Helper()
	k := &talk{t: t, conn: conn, dec: json.NewDecoder(conn), names: map[string]string{}}
	var roots []struct{ Rows []map[string]any }
	k.call("transact", `["Open_vSwitch",{"op":"select","table":"Open_vSwitch","where":[],"columns":["_uuid"]}]`, &roots)
	k.names[fake.RefOf(roots[0].Rows[0]["_uuid"])] = "root"
	var begun []json.RawMessage
	k.call("monitor_cond_since", `["Open_vSwitch","x",{
		"Open_vSwitch":{"columns":["bridges","next_cfg"]}, "Bridge":{"columns":["name","ports","mirrors","fail_mode","protocols","other_config"]},
		"Port":{"columns":["name","interfaces","tag","trunks","qos","other_config"]}, "Interface":{"columns":["name","type","ingress_policing_rate"]},
		"QoS":{"columns":["type","queues"]}, "Queue":{"columns":["other_config"]},
		"Mirror":{"columns":["name","select_all","select_src_port","select_dst_port","output_port","external_ids"]}},"00000000-0000-0000-0000-000000000000"]`, &begun)
	const root, port = `"table":"Open_vSwitch","where":[["_uuid","==","$root"]]`, `"table":"Port","where":[["name","==","p0"]]`
	k.step("a bridge with a port, in any order",
		`{"op":"mutate",`+root+`,"mutations":[["bridges","insert",["named-uuid","b0"]]]}`,
		`{"op":"insert","table":"Bridge","uuid-name":"b0","row":{"name":"b0","ports":["named-uuid","p0"],"protocols":["set",["OpenFlow14","OpenFlow13"]]}}`,
		`{"op":"insert","table":"Port","uuid-name":"p0","row":{"name":"p0","interfaces":["named-uuid","i0"],"other_config":["map",[["a","1"],["b","2"]]]}}`,
		`{"op":"insert","table":"Interface","uuid-name":"i0","row":{"name":"i0"}}`)
	k.step("a tag", `{"op":"update",`+port+`,"row":{"tag":5}}`)
	k.step("the same tag", `{"op":"update",`+port+`,"row":{"tag":5}}`)
	k.step("no tag, and trunks", `{"op":"update",`+port+`,"row":{"tag":["set",[]],"trunks":["set",[1,2]]}}`)
	k.step("other trunks", `{"op":"update",`+port+`,"row":{"trunks":["set",[2,3]]}}`)
	k.step("a trunk less", `{"op":"mutate",`+port+`,"mutations":[["trunks","delete",3],["trunks","insert",2]]}`)
	k.step("a key is not replaced", `{"op":"mutate",`+port+`,"mutations":[["other_config","insert",["map",[["a","9"],["c","3"]]]]]}`)
	k.step("a key goes first", `{"op":"mutate",`+port+`,"mutations":[["other_config","delete",["set",["a"]]],["other_config","insert",["map",[["a","9"]]]]]}`)
	k.step("a pair goes only as it is", `{"op":"mutate",`+port+`,"mutations":[["other_config","delete",["map",[["a","1"],["c","3"]]]]]}`)
	k.step("a number", `{"op":"update","table":"Interface","where":[["name","==","i0"]],"row":{"ingress_policing_rate":7}}`,
		`{"op":"mutate",`+root+`,"mutations":[["next_cfg","+=",1]]}`, `{"op":"select",`+root+`,"columns":["next_cfg"]}`)
	k.step("what is there", `{"op":"select",`+port+`,"columns":["name","tag","trunks","other_config","qos"]}`)
	wait := func(until, columns, rows string) string {
		return `{"op":"wait","timeout":0,` + port + `,"until":"` + until + `","columns":[` + columns + `],"rows":[` + rows + `]}`
	}
	k.step("it is as thought", wait("==", `"tag","trunks"`, `{"tag":["set",[]],"trunks":["set",[2]]}`), `{"op":"update",`+port+`,"row":{"tag":1}}`)
	k.step("it is not as thought", wait("==", `"tag"`, `{"tag":2}`), `{"op":"update",`+port+`,"row":{"tag":3}}`)
	k.step("it must not be so", wait("!=", `"name"`, `{"name":"p0"}`), `{"op":"update",`+port+`,"row":{"tag":3}}`)
	k.step("a name twice", `{"op":"insert","table":"Bridge","uuid-name":"b1","row":{"name":"b0"}}`, `{"op":"mutate",`+root+`,"mutations":[["bridges","insert",["named-uuid","b1"]]]}`)
	k.step("a row that is referred to", `{"op":"delete",`+port+`}`)
	k.step("a row that is not there", `{"op":"update",`+port+`,"row":{"qos":["uuid","00000000-0000-4000-8000-000000000000"]}}`)
	k.step("an unknown column", `{"op":"update",`+port+`,"row":{"tagg":5}}`)
	k.step("an unknown table", `{"op":"select","table":"Ports","where":[]}`)
	k.step("undone with what fails later", `{"op":"update",`+port+`,"row":{"tag":7}}`, `{"op":"update",`+port+`,"row":{"tagg":5}}`, `{"op":"update",`+port+`,"row":{"tag":8}}`)
	k.step("a port of no bridge", `{"op":"insert","table":"Port","uuid-name":"p9","row":{"name":"p9","interfaces":["named-uuid","i9"]}}`,
		`{"op":"insert","table":"Interface","uuid-name":"i9","row":{"name":"i9"}}`)
	const bridge = `"table":"Bridge","where":[["name","==","b0"]]`
	k.step("a mirror", `{"op":"insert","table":"Port","uuid-name":"p1","row":{"name":"p1","interfaces":["named-uuid","i1"]}}`, `{"op":"insert","table":"Interface","uuid-name":"i1","row":{"name":"i1"}}`,
		`{"op":"insert","table":"Mirror","uuid-name":"m0","row":{"name":"m0","select_src_port":["named-uuid","p1"],"select_dst_port":"$p0","output_port":["named-uuid","p1"]}}`,
		`{"op":"mutate",`+bridge+`,"mutations":[["ports","insert",["named-uuid","p1"]],["mirrors","insert",["named-uuid","m0"]]]}`)
	k.step("a port of the mirror goes", `{"op":"mutate",`+bridge+`,"mutations":[["ports","delete","$p1"]]}`)
	k.step("a port that is not there", `{"op":"update","table":"Mirror","where":[["name","==","m0"]],"row":{"output_port":["uuid","00000000-0000-4000-8000-000000000000"]}}`)
	k.step("the mirror goes", `{"op":"mutate",`+bridge+`,"mutations":[["mirrors","delete","$m0"]]}`)
	k.step("a queue", `{"op":"insert","table":"Queue","uuid-name":"u0","row":{"other_config":["map",[["max-rate","5"]]]}}`)
	k.step("a QoS with it", `{"op":"insert","table":"QoS","uuid-name":"q0","row":{"type":"linux-htb","queues":["map",[[0,"$u0"]]]}}`, `{"op":"update",`+port+`,"row":{"qos":["named-uuid","q0"]}}`)
	k.step("a queue in use", `{"op":"delete","table":"Queue","where":[["_uuid","==","$u0"]]}`)
	k.step("a QoS in use", `{"op":"delete","table":"QoS","where":[["_uuid","==","$q0"]]}`)
	k.step("the bridge goes, with its port", `{"op":"mutate",`+root+`,"mutations":[["bridges","delete","$b0"]]}`)
	k.step("the rest", `{"op":"delete","table":"QoS","where":[["_uuid","==","$q0"]]}`, `{"op":"delete","table":"Queue","where":[["_uuid","==","$u0"]]}`)
	return strings.Join(k.out, "\n") + "\n"
}

// wantWritten is what ovsdb-server 3.1 says, see the integration test.
const wantWritten = `# a bridge with a port, in any order
Bridge "b0" insert name="b0" ports=["uuid","p0"] protocols=set["OpenFlow13" "OpenFlow14"]
Interface "i0" insert name="i0"
Open_vSwitch "root" modify bridges=["uuid","b0"]
Port "p0" insert interfaces=["uuid","i0"] name="p0" other_config=map[["a","1"] ["b","2"]]
# a tag
Port "p0" modify tag=5
# the same tag
# no tag, and trunks
Port "p0" modify tag=set[] trunks=set[1 2]
# other trunks
Port "p0" modify trunks=set[1 3]
# a trunk less
Port "p0" modify trunks=3
# a key is not replaced
Port "p0" modify other_config=map[["c","3"]]
# a key goes first
Port "p0" modify other_config=map[["a","9"]]
# a pair goes only as it is
Port "p0" modify other_config=map[["c","3"]]
# a number
Interface "i0" modify ingress_policing_rate=7
Open_vSwitch "root" modify next_cfg=1
2 next_cfg=1
# what is there
0 name="p0"
0 other_config=map[["a","9"] ["b","2"]]
0 qos=set[]
0 tag=set[]
0 trunks=2
# it is as thought
Port "p0" modify tag=1
# it is not as thought
0 error: timed out
1 nothing
# it must not be so
0 error: timed out
1 nothing
# a name twice
2 error: constraint violation
# a row that is referred to
1 error: referential integrity violation
# a row that is not there
1 error: referential integrity violation
# an unknown column
0 error: unknown column
# an unknown table
0 error: syntax error
# undone with what fails later
1 error: unknown column
2 nothing
# a port of no bridge
# a mirror
Bridge "b0" modify mirrors=["uuid","m0"] ports=["uuid","p1"]
Interface "i1" insert name="i1"
Mirror "m0" insert name="m0" output_port=["uuid","p1"] select_dst_port=["uuid","p0"] select_src_port=["uuid","p1"]
Port "p1" insert interfaces=["uuid","i1"] name="p1"
# a port of the mirror goes
Bridge "b0" modify ports=["uuid","p1"]
Interface "i1" delete
Mirror "m0" modify output_port=set[] select_src_port=["uuid","p1"]
Port "p1" delete
# a port that is not there
# the mirror goes
Bridge "b0" modify mirrors=["uuid","m0"]
Mirror "m0" delete
# a queue
Queue "u0" insert other_config=map[["max-rate","5"]]
# a QoS with it
Port "p0" modify qos=["uuid","q0"]
QoS "q0" insert queues=map[[0,["uuid","u0"]]] type="linux-htb"
# a queue in use
1 error: referential integrity violation
# a QoS in use
1 error: referential integrity violation
# the bridge goes, with its port
Bridge "b0" delete
Interface "i0" delete
Open_vSwitch "root" modify bridges=["uuid","b0"]
Port "p0" delete
# the rest
QoS "q0" delete
Queue "u0" delete
`

func TestDatabase(t *testing.T) {
	d := fake.NewDatabase()
	conn, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := written(t, conn)
	_ = conn.Close()
	d.Close()
	if got != wantWritten {
		t.Errorf("says:\n%s", got)
	}
}
