// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

// committing is a server that judges transactions by the tags they set: from 100 on one is refused at its operation, from
// 200 on only at the end of all, and 300 is a precondition that does not hold.
type committing struct {
	fake.RPC
	mu      sync.Mutex
	sent    [][]int // tags of each transaction that was sent
	next    int     // next_cfg that is answered; 0 gives no row
	garbage bool    // next_cfg is no number
	named   []string
}

func newCommitting() *committing {
	s := &committing{next: 7}
	s.Handle = func(_ *fake.RPCConn, method string, params []json.RawMessage) (any, string) {
		if method != "transact" {
			return dump(txn1, oneBridge), ""
		}
		return s.transact(params[1:]), ""
	}
	return s
}

func (s *committing) transact(ops []json.RawMessage) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var results []any
	var tags []int
	late := false
	for _, raw := range ops {
		var o struct {
			Op   string
			Name string `json:"uuid-name"`
			Rows []struct{ Tag int }
			Row  struct{ Tag int }
		}
		_ = json.Unmarshal(raw, &o)
		switch {
		case o.Op == "wait" && len(o.Rows) == 1 && o.Rows[0].Tag == 300:
			return append(results, map[string]any{"error": "timed out", "details": "why"}, nil)
		case o.Op == "insert":
			s.named = append(s.named, o.Name)
		case o.Op == "update":
			tags = append(tags, o.Row.Tag)
			if o.Row.Tag >= 100 && o.Row.Tag < 200 {
				s.sent = append(s.sent, tags)
				return append(results, map[string]any{"error": "range error"}, nil)
			}
			late = late || o.Row.Tag >= 200
		case o.Op == "select":
			switch {
			case s.garbage:
				results = append(results, map[string]any{"rows": []any{map[string]any{"next_cfg": "x"}}})
			case s.next == 0:
				results = append(results, map[string]any{"rows": []any{}})
			default:
				results = append(results, map[string]any{"rows": []any{map[string]any{"next_cfg": s.next}}})
			}
			continue
		}
		results = append(results, map[string]any{})
	}
	s.sent = append(s.sent, tags)
	if late {
		results = append(results, map[string]any{"error": "referential integrity violation", "details": "at the end"})
	}
	return results
}

func (s *committing) takeSent() [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

// TestCommitAll: a transaction that is refused is left out, and the others are sent again; one that nothing can be said
// about is found by sending them one by one.
func TestCommitAll(t *testing.T) {
	s := newCommitting()
	inBubble(t, &s.RPC, ovsdb.Config{InactivityProbe: -1}, func(t *testing.T, f *follower) {
		synctest.Wait()
		tag := func(n int) *ovsdb.Tx {
			return f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Port(portID).SetTag(n) })
		}
		mistake := f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.DeletePort(brID) })
		for _, c := range []struct {
			name string
			txs  []*ovsdb.Tx
			want []error // kinds
			sent [][]int
		}{
			{"all good", []*ovsdb.Tx{tag(1), tag(2)}, []error{nil, nil}, [][]int{{1, 2}}},
			{"one refused", []*ovsdb.Tx{tag(1), tag(100), tag(3)}, []error{nil, ovsdb.ErrConstraint, nil}, [][]int{{1, 100}, {1, 3}}},
			{"two refused", []*ovsdb.Tx{tag(100), tag(2), tag(101)}, []error{ovsdb.ErrConstraint, nil, ovsdb.ErrConstraint}, [][]int{{100}, {2, 101}, {2}}},
			{"all refused", []*ovsdb.Tx{tag(100)}, []error{ovsdb.ErrConstraint}, [][]int{{100}}},
			{"refused at the end", []*ovsdb.Tx{tag(1), tag(200), tag(3)}, []error{nil, ovsdb.ErrConstraint, nil}, [][]int{{1, 200, 3}, {1}, {200}, {3}}},
			{"alone and refused at the end", []*ovsdb.Tx{tag(200)}, []error{ovsdb.ErrConstraint}, [][]int{{200}}},
			{"a mistake", []*ovsdb.Tx{mistake, tag(2)}, []error{ovsdb.ErrConflict, nil}, [][]int{{2}}},
			{"only a mistake", []*ovsdb.Tx{mistake}, []error{ovsdb.ErrConflict}, nil},
			{"nothing", nil, []error{}, nil},
		} {
			r, errs := f.client.CommitAll(t.Context(), c.txs)
			if !slices.EqualFunc(errs, c.want, func(err, want error) bool {
				return (err == nil) == (want == nil) && (want == nil || errors.Is(err, want))
			}) {
				t.Errorf("%s: %v", c.name, errs)
			}
			if d := cmp.Diff(c.sent, s.takeSent()); d != "" {
				t.Errorf("%s: sent (-want +got):\n%s", c.name, d)
			}
			if good := slices.Contains(errs, nil); good != (r.Seq == f.seq()) {
				t.Errorf("%s: in batch %d, the view is at %d", c.name, r.Seq, f.seq())
			}
		}
		if _, err := f.client.Commit(t.Context(), mistake); !errors.Is(err, ovsdb.ErrConflict) || s.takeSent() != nil {
			t.Errorf("a mistake is sent: %v", err)
		}
		var te *ovsdb.TxError
		_, err := f.client.Commit(t.Context(), tag(100))
		if !errors.As(err, &te) || te.What != "Port "+portID+": change" || te.Detail != "range error" {
			t.Errorf("%v", err)
		}
		if _, err = f.client.Commit(t.Context(), tag(200)); !errors.As(err, &te) || te.What != "commit" || te.Detail != "referential integrity violation: at the end" {
			t.Errorf("%v", err)
		}
		// New rows of transactions that are sent together have names of their own.
		insert := func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.InsertQueue(ovsdb.Queue{}) }
		_, errs := f.client.CommitAll(t.Context(), []*ovsdb.Tx{f.tx(insert), f.tx(insert)})
		if s.mu.Lock(); errs[0] != nil || errs[1] != nil || !slices.Equal(s.named, []string{"t0row1", "t1row1"}) {
			t.Errorf("%v, rows %q", errs, s.named)
		}
		s.mu.Unlock()
		s.SetDown(errDown)
		_ = s.Last().Close()
		synctest.Wait()
		if _, errs := f.client.CommitAll(t.Context(), []*ovsdb.Tx{tag(1), tag(2)}); !errors.Is(errs[0], ovsdb.ErrDisconnected) || !errors.Is(errs[1], ovsdb.ErrDisconnected) {
			t.Errorf("without a connection: %v", errs)
		}
	})
}

// TestWaitApplied: the answer comes when ovs-vswitchd reports the configuration that the transaction made.
func TestWaitApplied(t *testing.T) {
	s := newCommitting()
	inBubble(t, &s.RPC, ovsdb.Config{InactivityProbe: -1}, func(t *testing.T, f *follower) {
		synctest.Wait()
		commit := func(timeout time.Duration) (ovsdb.Result, error) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			return f.client.Commit(ctx, f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Port(portID).SetTag(1); tx.WaitApplied() }))
		}
		report := func(n int) {
			notify(s.Last(), txn2, fmt.Sprintf(`{"Open_vSwitch": {"%s": {"modify": {"cur_cfg": %d}}}}`, rootID, n))
		}
		var r ovsdb.Result
		var err error
		began := time.Now()
		done := make(chan struct{})
		go func() { r, err = commit(time.Minute); close(done) }()
		elapse(time.Second)
		report(6)
		elapse(time.Second)
		select {
		case <-done:
			t.Fatalf("done before it was applied: %v", err)
		default:
		}
		report(7)
		<-done
		synctest.Wait() // for the follower
		if took := time.Since(began); err != nil || took != 2*time.Second || r.Seq != f.seq() {
			t.Errorf("%v after %s, batch %d of %d", err, took, r.Seq, f.seq())
		}
		s.mu.Lock()
		s.next = 8
		s.mu.Unlock()
		if _, err := commit(time.Second); !errors.Is(err, ovsdb.ErrNotApplied) || !errors.Is(err, ovsdb.ErrTimedOut) {
			t.Errorf("not applied: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		if _, err := f.client.Commit(ctx, f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Port(portID).SetTag(1); tx.WaitApplied() })); !errors.Is(err, context.Canceled) || errors.Is(err, ovsdb.ErrNotApplied) {
			t.Errorf("given up: %v", err)
		}
		s.mu.Lock()
		s.next = 0
		s.mu.Unlock()
		if _, err := commit(time.Second); err == nil || !strings.Contains(err.Error(), "no next_cfg") {
			t.Errorf("without a row: %v", err)
		}
		s.mu.Lock()
		s.garbage = true
		s.mu.Unlock()
		if _, err := commit(time.Second); err == nil || !strings.Contains(err.Error(), "reading next_cfg") {
			t.Errorf("without a number: %v", err)
		}
	})
}

// TestEditsOnTheWire has what no other test sends.
func TestEditsOnTheWire(t *testing.T) {
	merge := func(table, column, id string) string {
		return `{"op":"mutate","table":"` + table + `","mutations":[["` + column + `","delete","k"],["` + column + `","insert",["map",[["k","v"]]]]],"where":[["_uuid","==",["uuid","` + id + `"]]]}`
	}
	gone := func(table, column, id string) string {
		return `{"op":"mutate","table":"` + table + `","mutations":[["` + column + `","delete","k"]],"where":[["_uuid","==",["uuid","` + id + `"]]]}`
	}
	row := func(table, text, id string) string {
		return `{"op":"update","table":"` + table + `","row":{` + text + `},"where":[["_uuid","==",["uuid","` + id + `"]]]}`
	}
	kv, none := map[string]string{"k": "v"}, map[string]string{}
	for _, c := range []struct {
		name  string
		build func(*ovsdb.Tx)
		want  []string
	}{
		{"bridge: fail mode", func(tx *ovsdb.Tx) { tx.Bridge(brID).SetFailMode("") }, []string{row("Bridge", `"fail_mode":["set",[]]`, brID)}},
		{"bridge: datapath", func(tx *ovsdb.Tx) { tx.Bridge(brID).SetDatapathType("netdev") }, []string{row("Bridge", `"datapath_type":"netdev"`, brID)}},
		{"bridge: snooping", func(tx *ovsdb.Tx) { tx.Bridge(brID).SetMcastSnooping(true) }, []string{row("Bridge", `"mcast_snooping_enable":true`, brID)}},
		{"bridge: other_config", func(tx *ovsdb.Tx) { tx.Bridge(brID).MergeOtherConfig(kv) }, []string{merge("Bridge", "other_config", brID)}},
		{"bridge: keys", func(tx *ovsdb.Tx) { tx.Bridge(brID).RemoveOtherConfig("k") }, []string{gone("Bridge", "other_config", brID)}},
		{"bridge: external_ids", func(tx *ovsdb.Tx) { tx.Bridge(brID).MergeExternalIDs(kv) }, []string{merge("Bridge", "external_ids", brID)}},
		{"nothing at all", func(tx *ovsdb.Tx) {
			tx.Bridge(brID).AddProtocols().MergeOtherConfig(none).RemoveOtherConfig().MergeExternalIDs(none)
		}, nil},
		{"port: no tag", func(tx *ovsdb.Tx) { tx.Port(portID).ClearTag() }, []string{row("Port", `"tag":["set",[]]`, portID)}},
		{"port: external_ids", func(tx *ovsdb.Tx) { tx.Port(portID).MergeExternalIDs(kv) }, []string{merge("Port", "external_ids", portID)}},
		{"port: qos", func(tx *ovsdb.Tx) { tx.Port(portID).SetQoS(ovsdb.RefTo(brID)) }, []string{row("Port", `"qos":["uuid","`+brID+`"]`, portID)}},
		{"port: no qos", func(tx *ovsdb.Tx) { tx.Port(portID).ClearQoS() }, []string{row("Port", `"qos":["set",[]]`, portID)}},
		{"port: keys", func(tx *ovsdb.Tx) { tx.Port(portID).RemoveOtherConfig("k") }, []string{gone("Port", "other_config", portID)}},
		{"interface: options", func(tx *ovsdb.Tx) { tx.Interface(ifID).MergeOptions(kv) }, []string{merge("Interface", "options", ifID)}},
		{"interface: keys of options", func(tx *ovsdb.Tx) { tx.Interface(ifID).RemoveOptions("k") }, []string{gone("Interface", "options", ifID)}},
		{"interface: external_ids", func(tx *ovsdb.Tx) { tx.Interface(ifID).MergeExternalIDs(kv) }, []string{merge("Interface", "external_ids", ifID)}},
		{"interface: keys", func(tx *ovsdb.Tx) { tx.Interface(ifID).RemoveExternalIDs("k") }, []string{gone("Interface", "external_ids", ifID)}},
		{"ensured: ids alone", func(tx *ovsdb.Tx) {
			tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "tap0", ExternalIDs: map[string]string{"k": "v"}})
		}, []string{merge("Interface", "external_ids", ifID)}},
		{"ensured: options alone", func(tx *ovsdb.Tx) {
			tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "tap0", Options: map[string]string{"k": "v"}})
		}, []string{merge("Interface", "options", ifID)}},
		{"qos", func(tx *ovsdb.Tx) { tx.QoS(brID).MergeOtherConfig(kv) }, []string{merge("QoS", "other_config", brID)}},
		{"queue", func(tx *ovsdb.Tx) { tx.Queue(brID).MergeOtherConfig(kv) }, []string{merge("Queue", "other_config", brID)}},
		{"queue: keys", func(tx *ovsdb.Tx) { tx.Queue(brID).RemoveOtherConfig("k") }, []string{gone("Queue", "other_config", brID)}},
		{"queue: external_ids", func(tx *ovsdb.Tx) { tx.Queue(brID).MergeExternalIDs(kv) }, []string{merge("Queue", "external_ids", brID)}},
		{"interface: other_config", func(tx *ovsdb.Tx) { tx.Interface(ifID).MergeOtherConfig(kv) }, []string{merge("Interface", "other_config", ifID)}},
		{"interface: keys of other_config", func(tx *ovsdb.Tx) { tx.Interface(ifID).RemoveOtherConfig("k") }, []string{gone("Interface", "other_config", ifID)}},
		{"all of a bridge", func(tx *ovsdb.Tx) {
			tx.Bridge(brID).Verify("name").SetFailMode("secure").SetDatapathType("netdev").SetMcastSnooping(true).SetControllers().AddProtocols("OpenFlow14").
				MergeOtherConfig(kv).RemoveOtherConfig("k").MergeExternalIDs(kv).SetFailMode("standalone")
		}, []string{
			row("Bridge", `"controller":["set",[]],"datapath_type":"netdev","fail_mode":"standalone","mcast_snooping_enable":true`, brID),
			`{"op":"mutate","table":"Bridge","mutations":[["protocols","insert","OpenFlow14"],["other_config","delete","k"],["other_config","insert",["map",[["k","v"]]]],["other_config","delete","k"],` +
				`["external_ids","delete","k"],["external_ids","insert",["map",[["k","v"]]]]],"where":[["_uuid","==",["uuid","` + brID + `"]]]}`,
		}},
		{"all of a port", func(tx *ovsdb.Tx) {
			tx.Port(portID).Verify("tag").ClearTag().SetTag(7).SetVLANMode("access").SetTrunks(1, 2).ClearQoS().SetQoS(ovsdb.RefTo(brID)).
				MergeOtherConfig(kv).RemoveOtherConfig("k").MergeExternalIDs(kv).SetTag(8)
		}, []string{
			row("Port", `"qos":["uuid","`+brID+`"],"tag":8,"trunks":["set",[1,2]],"vlan_mode":"access"`, portID),
			`{"op":"mutate","table":"Port","mutations":[["other_config","delete","k"],["other_config","insert",["map",[["k","v"]]]],["other_config","delete","k"],` +
				`["external_ids","delete","k"],["external_ids","insert",["map",[["k","v"]]]]],"where":[["_uuid","==",["uuid","` + portID + `"]]]}`,
		}},
		{"all of an interface", func(tx *ovsdb.Tx) {
			tx.Interface(ifID).Verify("type").SetIngressPolicing(1, 2).SetType("patch").MergeOptions(kv).RemoveOptions("k").MergeOtherConfig(kv).RemoveOtherConfig("k").
				MergeExternalIDs(kv).RemoveExternalIDs("k").SetType("internal")
		}, []string{
			row("Interface", `"ingress_policing_burst":2,"ingress_policing_rate":1,"type":"internal"`, ifID),
			`{"op":"mutate","table":"Interface","mutations":[["options","delete","k"],["options","insert",["map",[["k","v"]]]],["options","delete","k"],` +
				`["other_config","delete","k"],["other_config","insert",["map",[["k","v"]]]],["other_config","delete","k"],` +
				`["external_ids","delete","k"],["external_ids","insert",["map",[["k","v"]]]],["external_ids","delete","k"]],"where":[["_uuid","==",["uuid","` + ifID + `"]]]}`,
		}},
		{"all of a QoS row and a queue", func(tx *ovsdb.Tx) {
			tx.QoS(brID).SetQueue(1, ovsdb.RefTo(ifID)).RemoveQueue(2).MergeOtherConfig(kv).RemoveQueue(3)
			tx.Queue(ifID).MergeOtherConfig(kv).RemoveOtherConfig("k").MergeExternalIDs(kv).RemoveOtherConfig("k")
		}, []string{
			`{"op":"mutate","table":"QoS","mutations":[["queues","delete",1],["queues","insert",["map",[[1,["uuid","` + ifID + `"]]]]],["queues","delete",2],` +
				`["other_config","delete","k"],["other_config","insert",["map",[["k","v"]]]],["queues","delete",3]],"where":[["_uuid","==",["uuid","` + brID + `"]]]}`,
			`{"op":"mutate","table":"Queue","mutations":[["other_config","delete","k"],["other_config","insert",["map",[["k","v"]]]],["other_config","delete","k"],` +
				`["external_ids","delete","k"],["external_ids","insert",["map",[["k","v"]]]],["other_config","delete","k"]],"where":[["_uuid","==",["uuid","` + ifID + `"]]]}`,
		}},
		{"new QoS rows", func(tx *ovsdb.Tx) {
			queue := tx.InsertQueue(ovsdb.Queue{OtherConfig: kv})
			tx.InsertQoS(ovsdb.QoS{Type: "htb", Queues: map[int]ovsdb.UUID{2: ifID}, ExternalIDs: kv}, map[int]ovsdb.Ref{2: queue})
			tx.InsertQoS(ovsdb.QoS{Queues: map[int]ovsdb.UUID{1: ifID}}, nil)
		}, []string{
			`{"op":"insert","table":"Queue","row":{"external_ids":["map",[]],"other_config":["map",[["k","v"]]]},"uuid-name":"row1"}`,
			`{"op":"insert","table":"QoS","row":{"external_ids":["map",[["k","v"]]],"other_config":["map",[]],"queues":["map",[[2,["named-uuid","row1"]]]],"type":"htb"},"uuid-name":"row2"}`,
			`{"op":"insert","table":"QoS","row":{"external_ids":["map",[]],"other_config":["map",[]],"queues":["map",[[1,["uuid","` + ifID + `"]]]],"type":""},"uuid-name":"row3"}`,
		}},
		{"deletions", func(tx *ovsdb.Tx) { tx.DeleteQoS(brID); tx.DeleteQueue(ifID) }, []string{
			`{"op":"delete","table":"QoS","where":[["_uuid","==",["uuid","` + brID + `"]]]}`, `{"op":"delete","table":"Queue","where":[["_uuid","==",["uuid","` + ifID + `"]]]}`,
		}},
	} {
		tx := ovsdb.NewTx(oneBridgeView(t))
		c.build(tx)
		all, err := tx.JSON()
		got := slices.DeleteFunc(all, func(s string) bool { return strings.Contains(s, `"op":"wait"`) })
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %q\nwant %q", c.name, err, got, c.want)
		}
	}
}

// TestLook reads the interfaces of a switch over a socket, once.
func TestLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(r ...any) any { return map[string]any{"rows": append([]any{}, r...)} }
	answer := []any{
		rows(map[string]any{"name": "br-int", "ports": ref("p1")}),
		rows(map[string]any{"_uuid": ref("p1"), "name": "tap", "interfaces": ref("i1"), "tag": 7, "vlan_mode": set(), "other_config": mapOf(nil)}),
		rows(map[string]any{
			"_uuid": ref("i1"), "name": "tap", "type": "", "ofport": 3, "options": mapOf(nil), "external_ids": mapOf(nil), "error": set(), "mtu": 1400, "admin_state": "up", "link_state": "up",
		}),
	}
	var mu sync.Mutex
	s := &fake.RPC{Handle: func(*fake.RPCConn, string, []json.RawMessage) (any, string) {
		mu.Lock()
		defer mu.Unlock()
		if answer == nil {
			return nil, "not allowed"
		}
		return answer, ""
	}}
	var served sync.WaitGroup
	served.Go(func() { s.Accept(listener) })
	look := func() ([]ovsdb.Attachment, error) {
		return ovsdb.Look(t.Context(), ovsdb.Config{Endpoint: "unix:" + path})
	}
	list, err := look()
	if err != nil || len(list) != 1 || list[0].Bridge != "br-int" || list[0].Interface.Name != "tap" || *list[0].Port.Tag != 7 || list[0].MTU != 1400 {
		t.Errorf("%+v, %v", list, err)
	}
	answer = answer[:2]
	if _, err := look(); err == nil || !strings.Contains(err.Error(), "2 answers to 3 questions") {
		t.Errorf("%v", err)
	}
	answer = nil
	if _, err := look(); err == nil || !strings.Contains(err.Error(), "looking at the switch's database: ") {
		t.Errorf("%v", err)
	}
	_ = listener.Close()
	served.Wait()
	s.Close()
	if _, err := look(); err == nil {
		t.Error("nobody listens, and it answers")
	}
	if _, err := ovsdb.Look(t.Context(), ovsdb.Config{Endpoint: "nonsense"}); err == nil {
		t.Error("an endpoint that is none is taken")
	}
	t.Setenv("OVS_RUNDIR", "/x")
	if got := ovsdb.LocalEndpoint(); got != "unix:/x/db.sock" {
		t.Error(got)
	}
}

// TestOlderServerAgain: one that cannot tell what changed since tells everything, and what is not in it is gone.
func TestOlderServerAgain(t *testing.T) {
	s := &fake.RPC{Handle: func(c *fake.RPCConn, method string, _ []json.RawMessage) (any, string) {
		switch {
		case method == "monitor_cond_since":
			return nil, "unknown method"
		case c.N == 1:
			return json.RawMessage(oneBridge), ""
		}
		return json.RawMessage(`{"Open_vSwitch": {"` + rootID + `": {"initial": {"cur_cfg": 4}}}}`), ""
	}}
	inBubble(t, s, ovsdb.Config{InactivityProbe: -1}, func(t *testing.T, f *follower) {
		synctest.Wait()
		if f.view.BridgeByName("br-int") == nil {
			t.Fatal("no bridge")
		}
		_ = s.Last().Close()
		elapse(time.Minute)
		if b := f.view.BridgeByName("br-int"); b != nil || f.view.InterfaceByName("tap0") != nil {
			t.Errorf("still there: %+v", b)
		}
	})
}

// A transaction that the server does not answer ends after the client's own time, however long its caller would wait.
func TestTransactionTimeout(t *testing.T) {
	s := newCommitting()
	answer := s.Handle
	s.Handle = func(c *fake.RPCConn, method string, params []json.RawMessage) (any, string) {
		if method == "transact" {
			return fake.Silence{}, ""
		}
		return answer(c, method, params)
	}
	inBubble(t, &s.RPC, ovsdb.Config{InactivityProbe: -1, Timeout: 10 * time.Second}, func(t *testing.T, f *follower) {
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := f.client.Commit(ctx, f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Port(portID).SetTag(1) }))
		if took := time.Since(began); !errors.Is(err, ovsdb.ErrTimedOut) || took != 10*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}
