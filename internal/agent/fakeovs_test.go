// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// fakeOVS is an Open vSwitch in memory: a database that takes transactions, and bridges that take bundles of flows over
// OpenFlow. It outlives the agents that talk to it.
type fakeOVS struct {
	mu       sync.Mutex
	rows     map[string]map[string]map[string]any // by table, UUID and column, as RFC 7047 writes values
	next     int                                  // of UUIDs and port numbers
	flows    map[string]map[openflow.Key]openflow.Entry
	meters   map[string]map[uint32]openflow.MeterDesc
	sessions []*ovsSession
	// committed is told what one bundle, or a restart of the switch, did to a bridge.
	committed func(bridge string, mods []flowMod, wiped bool)
}

// flowMod is a change of one flow; without an entry it is gone.
type flowMod struct {
	key   openflow.Key
	entry openflow.Entry
}

func newFakeOVS() *fakeOVS {
	return &fakeOVS{
		rows: map[string]map[string]map[string]any{
			"Open_vSwitch": {rowID("root"): {"_uuid": rowID("root")}}, "Bridge": {}, "Port": {}, "Interface": {}, "Controller": {}, "QoS": {}, "Queue": {},
		},
		flows: map[string]map[openflow.Key]openflow.Entry{}, meters: map[string]map[uint32]openflow.MeterDesc{}, next: 1,
	}
}

// clone has the same rows, and no flows or meters.
func (o *fakeOVS) clone() *fakeOVS {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := newFakeOVS()
	c.rows, c.next = copyRows(o.rows), o.next
	return c
}

func copyRows(all map[string]map[string]map[string]any) map[string]map[string]map[string]any {
	out := map[string]map[string]map[string]any{}
	for table, rows := range all {
		out[table] = map[string]map[string]any{}
		for id, row := range rows {
			out[table][id] = maps.Clone(row) // values are never changed in place
		}
	}
	return out
}

// rowID is the UUID of a row, by what it is.
func rowID(name string) string {
	h := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// Values of RFC 7047.
func elements(v any) []any {
	list, ok := v.([]any)
	if v == nil {
		return nil
	}
	if ok && len(list) == 2 && list[0] == "set" {
		out, _ := list[1].([]any)
		return out
	}
	return []any{v}
}

func setValue(list []any) any { return []any{"set", list} }

func uuids(v any) []ovsdb.UUID {
	var out []ovsdb.UUID
	for _, e := range elements(v) {
		out = append(out, ovsdb.UUID(uuidOf(e)))
	}
	slices.Sort(out)
	return out
}

func uuidOf(v any) string {
	pair, _ := v.([]any)
	id, _ := pair[1].(string)
	return id
}

func pairsOf(v any) map[string]string {
	out := map[string]string{}
	for k, value := range entriesOf(v) {
		out[k] = fmt.Sprint(value)
	}
	return out
}

// entriesOf is a map with values of any kind.
func entriesOf(v any) map[string]any {
	out := map[string]any{}
	if !isMap(v) {
		return out
	}
	pairs, _ := v.([]any)[1].([]any)
	for _, p := range pairs {
		kv, _ := p.([]any)
		out[fmt.Sprint(kv[0])] = kv[1]
	}
	return out
}

func isMap(v any) bool {
	list, _ := v.([]any)
	return len(list) == 2 && list[0] == "map"
}

func mapValue[V any](m map[string]V) any {
	pairs := []any{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, []any{k, m[k]})
	}
	return []any{"map", pairs}
}

func textOf(v any) string {
	if e := elements(v); len(e) > 0 {
		return fmt.Sprint(e[0])
	}
	return ""
}

func numberOf(v any) *int {
	e := elements(v)
	if len(e) == 0 {
		return nil
	}
	f, _ := e[0].(float64)
	n := int(f)
	return &n
}

// transact runs one transaction, whole or not at all.
func (o *fakeOVS) transact(tx *ovsdb.Tx) error {
	texts, err := tx.JSON()
	if err != nil {
		return err
	}
	before := copyRows(o.rows)
	names := map[string]string{}
	var resolve func(v any) any
	resolve = func(v any) any {
		list, ok := v.([]any)
		if !ok {
			return v
		}
		if len(list) == 2 && list[0] == "named-uuid" {
			return []any{"uuid", names[fmt.Sprint(list[1])]}
		}
		out := make([]any, len(list))
		for i := range list {
			out[i] = resolve(list[i])
		}
		return out
	}
	type operation struct {
		Op, Table, Until string
		Name             string `json:"uuid-name"`
		Where            [][]any
		Row              map[string]any
		Mutations        [][]any
	}
	ops := make([]operation, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &ops[i]); err != nil {
			return err
		}
		if ops[i].Op == "insert" {
			o.next++
			names[ops[i].Name] = rowID(fmt.Sprint(ops[i].Table, o.next))
		}
	}
	for _, op := range ops {
		var found []map[string]any
		for id, row := range o.rows[op.Table] {
			match := true
			for _, c := range op.Where {
				match = match && (c[0] == "_uuid" && uuidOf(c[2]) == id || c[0] != "_uuid" && row[fmt.Sprint(c[0])] == c[2])
			}
			if match {
				found = append(found, row)
			}
		}
		switch op.Op {
		case "wait":
			if (op.Until == "==") != (len(found) > 0) {
				return ovsdb.ErrConflict
			}
		case "insert":
			row := map[string]any{"_uuid": names[op.Name]}
			for k, v := range op.Row {
				row[k] = resolve(v)
			}
			o.rows[op.Table][names[op.Name]] = row
		case "update":
			for _, row := range found {
				for k, v := range op.Row {
					row[k] = resolve(v)
				}
			}
		case "mutate":
			for _, row := range found {
				for _, m := range op.Mutations {
					column := fmt.Sprint(m[0])
					row[column] = mutate(row[column], m[1] == "insert", resolve(m[2]))
					if column == "bridges" && m[1] == "delete" {
						for _, id := range uuids(m[2]) {
							delete(o.rows["Bridge"], string(id))
						}
					}
				}
			}
		case "delete":
			for _, row := range found {
				delete(o.rows[op.Table], fmt.Sprint(row["_uuid"]))
			}
		}
	}
	if dangling := o.dangling(); dangling != "" {
		o.rows = before
		return fmt.Errorf("constraint violation: %s", dangling)
	}
	return nil
}

// dangling names a reference to a QoS row or a queue that is not there.
func (o *fakeOVS) dangling() string {
	for _, port := range o.rows["Port"] {
		for _, id := range uuids(port["qos"]) {
			if o.rows["QoS"][string(id)] == nil {
				return fmt.Sprintf("port %v refers to a QoS row that is gone", port["name"])
			}
		}
	}
	for _, qos := range o.rows["QoS"] {
		for number, id := range entriesOf(qos["queues"]) {
			if o.rows["Queue"][uuidOf(id)] == nil {
				return fmt.Sprintf("queue %s of a QoS row is gone", number)
			}
		}
	}
	return ""
}

func mutate(old any, insert bool, value any) any {
	before := entriesOf(old)
	if isMap(value) {
		for k, v := range entriesOf(value) {
			if _, taken := before[k]; !taken {
				before[k] = v
			}
		}
		return mapValue(before)
	}
	if !insert && isMap(old) {
		for _, k := range elements(value) {
			delete(before, fmt.Sprint(k))
		}
		return mapValue(before)
	}
	out := slices.Clone(elements(old))
	for _, e := range elements(value) {
		i := slices.IndexFunc(out, func(x any) bool { return reflect.DeepEqual(x, e) })
		switch {
		case insert && i < 0:
			out = append(out, e)
		case !insert && i >= 0:
			out = slices.Delete(out, i, i+1)
		}
	}
	return setValue(out)
}

// run does what ovs-vswitchd and the database do after a transaction: rows that nothing refers to go, bridges and
// interfaces that are new are made, and everybody is told.
func (o *fakeOVS) run() {
	used := map[string]bool{}
	for _, br := range o.rows["Bridge"] {
		if br["datapath_id"] == nil {
			o.next++
			br["datapath_id"] = fmt.Sprintf("%016x", o.next)
		}
		for _, p := range uuids(br["ports"]) {
			used[string(p)] = true
			row := o.rows["Port"][string(p)]
			for _, i := range uuids(row["interfaces"]) {
				used[string(i)] = true
				if iface := o.rows["Interface"][string(i)]; iface["ofport"] == nil {
					o.next++
					iface["ofport"] = float64(1000 + o.next)
					if iface["name"] == br["name"] {
						iface["ofport"] = float64(65534)
					}
				}
			}
		}
	}
	for _, table := range []string{"Port", "Interface"} {
		for id := range o.rows[table] {
			if !used[id] {
				delete(o.rows[table], id)
			}
		}
	}
	for _, s := range o.sessions {
		s.tell()
	}
}

// ovsSession is the database as one agent sees it.
type ovsSession struct {
	ovs  *fakeOVS
	life *life
	seq  uint64
	view *ovsdb.View
	out  chan *ovsdb.Batch
	box  *mailbox[*ovsdb.Batch]
}

func (o *fakeOVS) session(l *life) *ovsSession {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &ovsSession{ovs: o, life: l, view: ovsdb.NewView(), out: make(chan *ovsdb.Batch), box: newMailbox[*ovsdb.Batch]()}
	o.sessions = append(o.sessions, s)
	s.tell()
	return s
}

// leave ends a session.
func (o *fakeOVS) leave(s *ovsSession) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions = slices.DeleteFunc(o.sessions, func(x *ovsSession) bool { return x == s })
}

func (s *ovsSession) Changes() <-chan *ovsdb.Batch { return s.out }

func (s *ovsSession) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.box.ready:
		}
		for _, b := range s.box.take() {
			select {
			case <-ctx.Done():
				return
			case s.out <- b:
			}
		}
	}
}

func (s *ovsSession) CommitAll(_ context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error) {
	errs := make([]error, len(txs))
	if !s.life.step() {
		for i := range errs {
			errs[i] = ovsdb.ErrDisconnected
		}
		return ovsdb.Result{}, errs
	}
	s.ovs.mu.Lock()
	for i, tx := range txs {
		errs[i] = s.ovs.transact(tx)
	}
	s.ovs.run()
	seq := s.seq
	s.ovs.mu.Unlock()
	s.life.step()
	return ovsdb.Result{Seq: seq}, errs
}

// tell sends what is different from what was told before.
func (s *ovsSession) tell() {
	b := &ovsdb.Batch{Kind: ovsdb.Update}
	if s.seq == 0 {
		b.Kind = ovsdb.Initial
		b.OpenVSwitch = []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: ovsdb.UUID(rowID("root")), OVSVersion: "3.1.0"}}}
	}
	rows := s.ovs.rows
	differ(s.view.Bridges(), func(r *ovsdb.Bridge) ovsdb.UUID { return r.UUID }, rows["Bridge"], func(id ovsdb.UUID, r map[string]any) *ovsdb.Bridge {
		var protocols []string
		for _, p := range elements(r["protocols"]) {
			protocols = append(protocols, fmt.Sprint(p))
		}
		slices.Sort(protocols)
		return &ovsdb.Bridge{
			UUID: id, Name: textOf(r["name"]), Ports: uuids(r["ports"]), Controllers: uuids(r["controller"]), DatapathType: textOf(r["datapath_type"]),
			DatapathID: textOf(r["datapath_id"]), FailMode: textOf(r["fail_mode"]), Protocols: protocols, OtherConfig: pairsOf(r["other_config"]), ExternalIDs: pairsOf(r["external_ids"]),
		}
	}, &b.Bridges)
	differ(s.view.Ports(), func(r *ovsdb.Port) ovsdb.UUID { return r.UUID }, rows["Port"], func(id ovsdb.UUID, r map[string]any) *ovsdb.Port {
		var trunks []int
		for _, v := range elements(r["trunks"]) {
			trunks = append(trunks, *numberOf(v))
		}
		return &ovsdb.Port{
			UUID: id, Name: textOf(r["name"]), Interfaces: uuids(r["interfaces"]), Tag: numberOf(r["tag"]), VLANMode: textOf(r["vlan_mode"]), Trunks: trunks,
			QoS: reference(r["qos"]), OtherConfig: pairsOf(r["other_config"]),
		}
	}, &b.Ports)
	differ(s.view.Interfaces(), func(r *ovsdb.Interface) ovsdb.UUID { return r.UUID }, rows["Interface"], func(id ovsdb.UUID, r map[string]any) *ovsdb.Interface {
		return &ovsdb.Interface{
			UUID: id, Name: textOf(r["name"]), Type: textOf(r["type"]), OFPort: numberOf(r["ofport"]), Options: pairsOf(r["options"]), ExternalIDs: pairsOf(r["external_ids"]),
			IngressPolicingRate: orZero(numberOf(r["ingress_policing_rate"])), IngressPolicingBurst: orZero(numberOf(r["ingress_policing_burst"])),
		}
	}, &b.Interfaces)
	differ(s.view.AllQoS(), func(r *ovsdb.QoS) ovsdb.UUID { return r.UUID }, rows["QoS"], func(id ovsdb.UUID, r map[string]any) *ovsdb.QoS {
		q := &ovsdb.QoS{UUID: id, Type: textOf(r["type"]), Queues: map[int]ovsdb.UUID{}, OtherConfig: pairsOf(r["other_config"]), ExternalIDs: pairsOf(r["external_ids"])}
		for number, queue := range entriesOf(r["queues"]) {
			n, _ := strconv.Atoi(number)
			q.Queues[n] = ovsdb.UUID(uuidOf(queue))
		}
		return q
	}, &b.QoS)
	differ(s.view.Queues(), func(r *ovsdb.Queue) ovsdb.UUID { return r.UUID }, rows["Queue"], func(id ovsdb.UUID, r map[string]any) *ovsdb.Queue {
		return &ovsdb.Queue{UUID: id, OtherConfig: pairsOf(r["other_config"]), ExternalIDs: pairsOf(r["external_ids"])}
	}, &b.Queues)
	if b.Len() == 0 {
		return
	}
	s.seq++
	b.Seq = s.seq
	s.view.Apply(b)
	s.box.put(b)
}

func reference(v any) ovsdb.UUID {
	if list := uuids(v); len(list) > 0 {
		return list[0]
	}
	return ""
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func differ[T any](before func(func(*T) bool), key func(*T) ovsdb.UUID, rows map[string]map[string]any, make func(ovsdb.UUID, map[string]any) *T, out *[]ovsdb.Diff[T]) {
	old := map[ovsdb.UUID]*T{}
	for r := range before {
		old[key(r)] = r
		if rows[string(key(r))] == nil {
			*out = append(*out, ovsdb.Diff[T]{Old: r})
		}
	}
	for id, row := range rows {
		r := make(ovsdb.UUID(id), row)
		if was := old[ovsdb.UUID(id)]; was == nil || !reflect.DeepEqual(was, r) {
			*out = append(*out, ovsdb.Diff[T]{Old: was, New: r})
		}
	}
}

// plug puts the interface of a port into the integration bridge, one incarnation of it, in place of an earlier one, as a
// hypervisor does.
func (o *fakeOVS) plug(port string, incarnation, number int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pull(port)
	for _, br := range o.rows["Bridge"] {
		if br["name"] != "br-int" {
			continue
		}
		name := "tap" + port
		iface, row := rowID(fmt.Sprint("i-", name, incarnation)), rowID(fmt.Sprint("p-", name, incarnation))
		o.rows["Interface"][iface] = map[string]any{"_uuid": iface, "name": name, "ofport": float64(number), "external_ids": mapValue(map[string]string{
			"iface-id": port, "attached-mac": macOf(port),
		})}
		o.rows["Port"][row] = map[string]any{"_uuid": row, "name": name, "interfaces": []any{"uuid", iface}}
		br["ports"] = mutate(br["ports"], true, []any{"uuid", row})
	}
	o.run()
}

// The VM with a trunk, and the bridge that whoever plugs it in makes for it.
const trunkBridge, trunkID, trunkParent = "tbr-trunk", "trunk", "F"

// boot plugs the VM with a trunk in, one incarnation of it. halt takes it away; the bridge is left to the agent.
func (o *fakeOVS) boot(incarnation int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := rowID(trunkBridge)
	if o.rows["Bridge"][id] == nil {
		o.rows["Bridge"][id] = map[string]any{"_uuid": id, "name": trunkBridge, "datapath_type": "netdev"}
	}
	o.pull(trunkParent)
	iface, row := rowID(fmt.Sprint("i-trunk", incarnation)), rowID(fmt.Sprint("p-trunk", incarnation))
	o.rows["Interface"][iface] = map[string]any{"_uuid": iface, "name": "tap" + trunkParent, "external_ids": mapValue(map[string]string{
		"iface-id": trunkParent, "attached-mac": macOf(trunkParent),
	})}
	o.rows["Port"][row] = map[string]any{"_uuid": row, "name": "tap" + trunkParent, "interfaces": []any{"uuid", iface}}
	o.rows["Bridge"][id]["ports"] = mutate(o.rows["Bridge"][id]["ports"], true, []any{"uuid", row})
	o.run()
}

func (o *fakeOVS) halt() { o.unplug(trunkParent) }

func (o *fakeOVS) unplug(port string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pull(port)
	o.run()
}

func (o *fakeOVS) pull(port string) {
	for id, row := range o.rows["Port"] {
		if row["name"] != "tap"+port {
			continue
		}
		for _, br := range o.rows["Bridge"] {
			br["ports"] = mutate(br["ports"], false, []any{"uuid", id})
		}
	}
}

// plugged is the number of a port's interface; 0 when it is not plugged in.
func (o *fakeOVS) plugged(port string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range o.rows["Interface"] {
		if row["name"] == "tap"+port {
			return *numberOf(row["ofport"])
		}
	}
	return 0
}

// tagged are the numbers of VMs that are in a network. Who calls it has the lock.
func (o *fakeOVS) tagged() []int {
	var all []int
	for _, row := range o.rows["Port"] {
		name, _ := row["name"].(string)
		if tag := textOf(row["tag"]); !strings.HasPrefix(name, "tap") || tag == "" || tag == fmt.Sprint(world.DeadVLAN) {
			continue
		}
		for _, i := range o.rows["Interface"] {
			if n := numberOf(i["ofport"]); i["name"] == name && n != nil && name != "tap"+trunkParent {
				all = append(all, *n)
			}
		}
	}
	return all
}

// numbers are those of all interfaces that stand for a port: of a trunk's ports they are patches, too.
func (o *fakeOVS) numbers(port string) []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []int
	for _, row := range o.rows["Interface"] {
		if n := numberOf(row["ofport"]); n != nil && textOf(entriesOf(row["external_ids"])["iface-id"]) == port {
			all = append(all, *n)
		}
	}
	return all
}

// restart loses all flows and meters, as a switch that is started again.
func (o *fakeOVS) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.meters)
	for bridge := range o.flows {
		clear(o.flows[bridge])
		if o.committed != nil {
			o.committed(bridge, nil, true)
		}
	}
}

// all are the flows of all bridges.
func (o *fakeOVS) all() map[bridgeKey]openflow.Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[bridgeKey]openflow.Entry{}
	for bridge, flows := range o.flows {
		for k, e := range flows {
			out[bridgeKey{bridge, k}] = e
		}
	}
	return out
}

type bridgeKey struct {
	bridge string
	key    openflow.Key
}

// dial connects an agent to a bridge.
func (o *fakeOVS) dial(ctx context.Context, l *life, bridge string) (*openflow.Conn, error) {
	if !l.step() {
		return nil, io.ErrClosedPipe
	}
	ours, theirs := net.Pipe()
	l.keep(theirs)
	go o.serve(l, bridge, theirs)
	return openflow.NewConn(ctx, ours, openflow.Config{Versions: []openflow.Version{openflow.OpenFlow14}, Probe: -1})
}

// Messages of OpenFlow 1.4 that the fake knows.
const (
	ofHello, ofError, ofEchoRequest, ofEchoReply, ofFeatures, ofFeaturesReply       = 0, 1, 2, 3, 5, 6
	ofMultipart, ofMultipartReply, ofBarrier, ofBarrierReply, ofBundle, ofBundleAdd = 18, 19, 20, 21, 33, 34
	ofMeterMod                                                                      = 29

	// Kinds of multipart messages.
	mpFlows, mpMeters, mpMeterFeatures = 1, 10, 11
)

// serve is the bridge's end of a connection.
func (o *fakeOVS) serve(l *life, bridge string, nc net.Conn) {
	defer func() { _ = nc.Close() }()
	send := func(kind byte, xid []byte, body ...byte) bool {
		msg := binary.BigEndian.AppendUint16([]byte{5, kind}, uint16(8+len(body)))
		_, err := nc.Write(append(append(msg, xid...), body...))
		return err == nil
	}
	bundles := map[uint32][]flowMod{}
	for {
		head := make([]byte, 8)
		if _, err := io.ReadFull(nc, head); err != nil {
			return
		}
		body := make([]byte, int(binary.BigEndian.Uint16(head[2:]))-8)
		if _, err := io.ReadFull(nc, body); err != nil {
			return
		}
		xid, ok := head[4:], true
		switch head[1] {
		case ofHello:
			ok = send(ofHello, xid)
		case ofEchoRequest:
			ok = send(ofEchoReply, xid, body...)
		case ofFeatures:
			ok = send(ofFeaturesReply, xid, make([]byte, 24)...)
		case ofBarrier:
			ok = send(ofBarrierReply, xid)
		case ofMultipart:
			kind := body[1]
			reply := func(more byte, part []byte) bool {
				return send(ofMultipartReply, xid, append([]byte{0, kind, 0, more, 0, 0, 0, 0}, part...)...)
			}
			switch kind {
			case mpFlows:
				ok = l.step() && o.dump(bridge, reply)
			case mpMeters:
				ok = l.step() && reply(0, o.dumpMeters(bridge))
			case mpMeterFeatures:
				ok = reply(0, meterFeatures())
			default:
				ok = send(ofError, xid, 0, 1, 0, 2) // an Open vSwitch without a flow monitor
			}
		case ofMeterMod:
			if ok = l.step(); ok {
				if code := o.meterMod(bridge, body); code != 0 {
					ok = send(ofError, xid, 0, ofMeterFailed, 0, code)
				}
				ok = ok && l.step()
			}
		case ofBundleAdd:
			id := binary.BigEndian.Uint32(body)
			bundles[id] = append(bundles[id], decodeMod(body[8:]))
		case ofBundle:
			if ok = l.step(); !ok {
				return
			}
			id, kind := binary.BigEndian.Uint32(body), binary.BigEndian.Uint16(body[4:])
			if kind == 4 {
				if !o.commit(bridge, bundles[id]) {
					ok = send(ofError, xid, 0, 17, 0, 0) // the bundle failed
					break
				}
				if ok = l.step(); !ok {
					return // done, and nobody heard of it
				}
			}
			body[5]++
			ok = send(ofBundle, xid, body...)
		}
		if !ok {
			return
		}
	}
}

// commit applies a bundle, unless a flow of it refers to a meter that is not there.
func (o *fakeOVS) commit(bridge string, mods []flowMod) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range mods {
		if id, ok := meterOf(m.entry); ok && len(o.meters[bridge][id].Bands) == 0 {
			return false
		}
	}
	if o.flows[bridge] == nil {
		o.flows[bridge] = map[openflow.Key]openflow.Entry{}
	}
	for _, m := range mods {
		if m.entry.IsZero() {
			delete(o.flows[bridge], m.key)
		} else {
			o.flows[bridge][m.key] = m.entry
		}
	}
	if o.committed != nil {
		o.committed(bridge, mods, false)
	}
	return true
}

// decodeMod reads a flow_mod; the agent adds flows and deletes single ones.
func decodeMod(b []byte) flowMod {
	p := b[8:]
	terms := int(binary.BigEndian.Uint16(p[42:])) - 4
	canonical := binary.BigEndian.AppendUint16(nil, uint16(terms))
	canonical = append(canonical, p[16], p[22], p[23])
	canonical = append(canonical, p[44:44+terms]...)
	canonical = append(canonical, p[:8]...)
	canonical = append(canonical, p[18:22]...)
	canonical = append(canonical, p[36:40]...)
	canonical = append(canonical, p[40+(terms+4+7)/8*8:]...)
	e, err := openflow.EntryOf(canonical)
	if err != nil {
		panic(err)
	}
	switch p[17] {
	case 0:
		return flowMod{e.Key(), e}
	case 4:
		return flowMod{key: e.Key()}
	}
	panic("the agent has sent a command that the fake does not know")
}

// dump sends the flows of a bridge, some in each part.
func (o *fakeOVS) dump(bridge string, send func(more byte, part []byte) bool) bool {
	o.mu.Lock()
	flows := slices.Collect(maps.Values(o.flows[bridge]))
	o.mu.Unlock()
	for chunk := range slices.Chunk(flows, 100) {
		var part []byte
		for _, e := range chunk {
			part = append(part, flowStat(e)...)
		}
		if !send(1, part) {
			return false
		}
	}
	return send(0, nil)
}

func flowStat(e openflow.Entry) []byte {
	c := []byte(e.Canonical())
	terms := int(binary.BigEndian.Uint16(c))
	match, value := c[5:5+terms], c[5+terms:]
	b := append([]byte(nil), make([]byte, 48)...)
	b[2] = e.Table()
	binary.BigEndian.PutUint16(b[12:], e.Priority())
	copy(b[14:], value[8:16]) // timeouts, flags, importance
	copy(b[24:], value[:8])   // cookie
	b = binary.BigEndian.AppendUint16(append(b, 0, 1), uint16(4+terms))
	b = append(b, match...)
	b = append(b, make([]byte, (8-(4+terms)%8)%8)...)
	b = append(b, value[16:]...)
	binary.BigEndian.PutUint16(b, uint16(len(b)))
	return b
}
