// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

const (
	txn1 = "00000000-0000-4000-8000-000000000001"
	txn2 = "00000000-0000-4000-8000-000000000002"

	rootID = "aaaaaaaa-0000-4000-8000-000000000000"
	brID   = "bbbbbbbb-0000-4000-8000-000000000000"
	portID = "cccccccc-0000-4000-8000-000000000000"
	ifID   = "dddddddd-0000-4000-8000-000000000000"

	// A bridge with one port, in the words of ovsdb-server.
	oneBridge = `{
 "Open_vSwitch": {"` + rootID + `": {"initial": {"bridges": ["uuid","` + brID + `"], "cur_cfg": 3, "ovs_version": "3.1.0",
   "datapath_types": ["set",["netdev","system"]], "iface_types": "internal", "other_config": ["map",[["hw-offload","true"]]]}}},
 "Bridge": {"` + brID + `": {"initial": {"name": "br-int", "ports": ["uuid","` + portID + `"], "fail_mode": "secure",
   "other_config": ["map",[["mac-table-size","50000"]]]}}},
 "Port": {"` + portID + `": {"initial": {"name": "tap0", "interfaces": ["uuid","` + ifID + `"], "tag": 5}}},
 "Interface": {"` + ifID + `": {"initial": {"name": "tap0", "ofport": ["set",[]],
   "external_ids": ["map",[["iface-id","x"],["attached-mac","fa:16:3e:00:00:01"]]]}}}
}`
)

// inBubble runs a test with a fake server and virtual time.
func inBubble(t *testing.T, s *fake.RPC, cfg ovsdb.Config, test func(*testing.T, *follower)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := followClient(t, newFakeClient(s, cfg))
		test(t, f)
		f.stop()
		s.Close()
	})
}

// elapse lets virtual time pass and everything that is due happen.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func kinds(f *follower) string {
	var out []string
	for _, b := range f.since(0) {
		out = append(out, b.Kind.String())
	}
	return strings.Join(out, " ")
}

func TestInitialAndUpdates(t *testing.T) {
	var asked json.RawMessage
	s := &fake.RPC{Handle: func(_ *fake.RPCConn, method string, params []json.RawMessage) (any, string) {
		if method != "monitor_cond_since" {
			return nil, "unexpected"
		}
		asked = params[2]
		return dump(txn1, oneBridge), ""
	}}
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		synctest.Wait()
		for _, never := range []string{"statistics", "status", "link_", "mac_in_use", "next_cfg"} {
			if strings.Contains(string(asked), `"`+never) {
				t.Errorf("column %s… is monitored", never)
			}
		}
		for _, table := range []string{"Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "Manager", "QoS", "Queue"} {
			if !strings.Contains(string(asked), `"`+table+`":{"columns":["`) {
				t.Errorf("table %s is not monitored: %s", table, asked)
			}
		}
		v := f.view
		if i := v.InterfaceByName("tap0"); i.OFPort != nil || v.PortOf(i.UUID).Name != "tap0" || v.BridgeOf(v.PortOf(i.UUID).UUID).Name != "br-int" {
			t.Errorf("interface is %+v", i)
		}
		caps, err := f.client.Capabilities(t.Context())
		if err != nil || len(caps.DatapathTypes) != 2 || len(caps.IfaceTypes) != 1 || !caps.HWOffload || caps.OVSVersion != "3.1.0" {
			t.Errorf("capabilities are %+v, %v", caps, err)
		}
		// One element of a map changed, one gone, one new; the tag cleared; ofport set.
		notify(s.Last(), txn2, `{"Port": {"`+portID+`": {"modify": {"tag": ["set",[]]}}},
			"Bridge": {"`+brID+`": {"modify": {"other_config": ["map",[["mac-table-size","50000"],["a","b"]]], "protocols": ["set",["OpenFlow14","OpenFlow10"]]}}},
			"Interface": {"`+ifID+`": {"modify": {"ofport": -1, "external_ids": ["map",[["iface-id","y"]]], "error": "no device"}}}}`)
		synctest.Wait()
		if tag := v.PortByName("tap0").Tag; tag != nil {
			t.Errorf("tag is %d", *tag)
		}
		if b := v.BridgeByName("br-int"); len(b.OtherConfig) != 1 || b.OtherConfig["a"] != "b" || strings.Join(b.Protocols, " ") != "OpenFlow10 OpenFlow14" {
			t.Errorf("bridge is %+v", b)
		}
		if i := v.InterfaceByName("tap0"); *i.OFPort != -1 || i.ExternalIDs["iface-id"] != "y" || len(i.ExternalIDs) != 2 || i.Error != "no device" {
			t.Errorf("interface is %+v", i)
		}
		notify(s.Last(), txn2, `{"Port": {"`+portID+`": {"delete": null}}, "Interface": {"`+ifID+`": {"delete": null}},
			"Bridge": {"`+brID+`": {"modify": {"ports": ["uuid","`+portID+`"]}}}}`)
		synctest.Wait()
		if v.PortByName("tap0") != nil || v.InterfaceByName("tap0") != nil || len(v.BridgeByName("br-int").Ports) != 0 {
			t.Error("the port is still there")
		}
		if k := kinds(f); k != "initial update update" {
			t.Errorf("batches are %q", k)
		}
	})
}

// The server still knows the last transaction we saw and tells only what came after.
func TestReconnectSince(t *testing.T) {
	s := &fake.RPC{}
	s.Handle = func(c *fake.RPCConn, _ string, params []json.RawMessage) (any, string) {
		if c.N == 1 {
			return dump(txn1, oneBridge), ""
		}
		if string(params[3]) != `"`+txn2+`"` {
			t.Errorf("asked for what came after %s", params[3])
		}
		return []any{true, txn2, json.RawMessage(`{"Port": {"` + portID + `": {"modify": {"tag": 6}}}}`)}, ""
	}
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		synctest.Wait()
		notify(s.Last(), txn2, `{"Port": {"`+portID+`": {"modify": {"vlan_mode": "trunk"}}}}`)
		_ = s.Last().Close()
		elapse(time.Second)
		p := f.view.PortByName("tap0")
		if *p.Tag != 6 || p.VLANMode != "trunk" {
			t.Errorf("port is %+v", p)
		}
		if k := kinds(f); k != "initial update disconnected reconnected" {
			t.Errorf("batches are %q", k)
		}
		if last := f.batches[3]; last.Len() != 1 {
			t.Errorf("%d rows after the reconnect", last.Len())
		}
	})
}

// What cannot be true ends the connection; a whole dump brings us back in line.
func TestInconsistentUpdates(t *testing.T) {
	for name, update := range map[string]string{
		"modify of an unknown row": `{"Port": {"` + brID + `": {"modify": {"tag": 6}}}}`,
		"delete of an unknown row": `{"Port": {"` + brID + `": {"delete": null}}}`,
		"insert of a known row":    `{"Port": {"` + portID + `": {"insert": {"name": "x"}}}}`,
		"a kind we do not know":    `{"Port": {"` + portID + `": {"upsert": {"name": "x"}}}}`,
		"a wrong type":             `{"Port": {"` + portID + `": {"modify": {"tag": "six"}}}}`,
		"a map that is none":       `{"Port": {"` + portID + `": {"modify": {"other_config": ["map",5]}}}}`,
		"no object":                `[1,2,3]`,
	} {
		t.Run(name, func(t *testing.T) {
			s := &fake.RPC{}
			s.Handle = func(c *fake.RPCConn, _ string, params []json.RawMessage) (any, string) {
				if c.N > 1 && !strings.Contains(string(params[3]), "00000000-0000-0000-0000-000000000000") {
					t.Errorf("did not ask for a whole dump: %s", params[3])
				}
				return dump(txn1, oneBridge), ""
			}
			inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
				synctest.Wait()
				notify(s.Last(), txn2, update)
				elapse(time.Second)
				if k := kinds(f); k != "initial disconnected reconnected" {
					t.Errorf("batches are %q", k)
				}
				if n := f.batches[2].Len(); n != 0 {
					t.Errorf("%d rows differ although nothing changed", n)
				}
			})
		})
	}
}

// An answer or a message that is none of the protocol's ends the connection as well.
func TestMalformedMessages(t *testing.T) {
	for name, c := range map[string]struct {
		answer any    // to the second subscription
		text   string // a message
		want   string
	}{
		"an answer that is no array":       {answer: map[string]any{}, want: "not an array of three elements"},
		"an answer of two":                 {answer: []any{true, txn1}, want: "not an array of three elements"},
		"an answer without found":          {answer: []any{5, txn1, json.RawMessage(`{}`)}, want: "decoding the answer to monitor_cond_since: json"},
		"an answer without transaction":    {answer: []any{true, 5, json.RawMessage(`{}`)}, want: "decoding the answer to monitor_cond_since: json"},
		"an answer without rows":           {answer: []any{false, txn1, 5}, want: "decoding updates"},
		"an update that is no array":       {text: `{"id":null,"method":"update2","params":{}}`, want: "decoding update2: too few elements"},
		"an update without rows":           {text: `{"id":null,"method":"update2","params":["patchbay"]}`, want: "decoding update2: too few elements"},
		"an update without transaction":    {text: `{"id":null,"method":"update3","params":["patchbay",{},{}]}`, want: "decoding update3: no transaction id or no updates"},
		"an update with transaction alone": {text: `{"id":null,"method":"update3","params":["patchbay","` + txn1 + `"]}`, want: "decoding update3: no transaction id or no updates"},
		"no JSON":                          {text: `}`, want: "reading from the database"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fake.RPC{}
			s.Handle = func(conn *fake.RPCConn, _ string, _ []json.RawMessage) (any, string) {
				if c.answer != nil && conn.N == 2 {
					return c.answer, ""
				}
				return dump(txn1, oneBridge), ""
			}
			inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
				synctest.Wait()
				first := s.Last()
				if c.answer != nil {
					_ = first.Close()
				} else {
					first.SendText(c.text)
				}
				elapse(time.Second)
				last := f.batches[len(f.batches)-2]
				if k := kinds(f); !strings.HasSuffix(k, "disconnected reconnected") || last.Err == nil || !strings.Contains(last.Err.Error(), c.want) {
					t.Errorf("batches are %q, the last reason is %v", k, last.Err)
				}
			})
		})
	}
}

// An update that changes nothing that is read is no batch.
func TestUpdatesOfNothing(t *testing.T) {
	s := &fake.RPC{Handle: func(*fake.RPCConn, string, []json.RawMessage) (any, string) { return dump(txn1, oneBridge), "" }}
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		synctest.Wait()
		notify(s.Last(), txn2, `{}`)
		notify(s.Last(), txn2, `{"Port": {"`+portID+`": {"modify": {"tag": 6}}}}`)
		synctest.Wait()
		if k := kinds(f); k != "initial update" {
			t.Errorf("batches are %q", k)
		}
	})
}

// When Run has returned the stream is closed: whoever reads it knows that nothing more comes.
func TestTheStreamEndsWithRun(t *testing.T) {
	for range 20 {
		s := &fake.RPC{}
		s.SetDown(errDown)
		c := newFakeClient(s, ovsdb.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.Run(ctx)
		select {
		case b, ok := <-c.Changes():
			if ok {
				t.Fatalf("a batch: %+v", b)
			}
		default:
			t.Fatal("the stream is open")
		}
	}
}

// A server that knows neither way to subscribe is none that can be used, and that is said.
func TestServerThatRefuses(t *testing.T) {
	var methods []string
	s := &fake.RPC{Handle: func(_ *fake.RPCConn, method string, _ []json.RawMessage) (any, string) {
		methods = append(methods, method)
		return nil, "unknown method"
	}}
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		synctest.Wait()
		if k := kinds(f); k != "disconnected" || !strings.Contains(f.batches[0].Err.Error(), "subscribing to changes: ") || strings.Join(methods, " ") != "monitor_cond_since monitor_cond" {
			t.Errorf("batches are %q, asked %q", k, methods)
		}
	})
}

// Without its root row a database cannot say what ovs-vswitchd has applied.
func TestNoRootRow(t *testing.T) {
	s := &fake.RPC{Handle: func(*fake.RPCConn, string, []json.RawMessage) (any, string) {
		return dump(txn1, `{"Port": {"`+portID+`": {"initial": {"name": "tap0"}}}}`), ""
	}}
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		synctest.Wait()
		_, err := f.client.Commit(t.Context(), f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Port(portID).SetTag(1); tx.WaitApplied() }))
		if !errors.Is(err, ovsdb.ErrConflict) || !strings.Contains(err.Error(), "no Open_vSwitch row") {
			t.Errorf("%v", err)
		}
	})
}

// Whoever waits for the first connection and gives up is told so.
func TestWaitingIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newFakeClient(&fake.RPC{}, ovsdb.Config{}).Capabilities(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestOlderServer(t *testing.T) {
	s := &fake.RPC{Handle: func(_ *fake.RPCConn, method string, params []json.RawMessage) (any, string) {
		if method == "monitor_cond" && len(params) == 3 {
			return json.RawMessage(oneBridge), ""
		}
		return nil, "unknown method"
	}}
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		synctest.Wait()
		s.Last().Send(map[string]any{"id": nil, "method": "update2", "params": []any{
			"patchbay", json.RawMessage(`{"Port": {"` + portID + `": {"modify": {"tag": 6}}}}`),
		}})
		synctest.Wait()
		if p := f.view.PortByName("tap0"); p == nil || *p.Tag != 6 {
			t.Errorf("port is %+v", p)
		}
	})
}

// A server that says nothing is asked for an echo after one interval and given up after two; one that answers is kept.
func TestInactivityProbe(t *testing.T) {
	var mute atomic.Bool
	var echoes atomic.Int64
	s := &fake.RPC{Handle: func(_ *fake.RPCConn, method string, _ []json.RawMessage) (any, string) {
		if method == "echo" {
			echoes.Add(1)
			if mute.Load() {
				return fake.Silence{}, ""
			}
			return []any{}, ""
		}
		return dump(txn1, oneBridge), ""
	}}
	inBubble(t, s, ovsdb.Config{InactivityProbe: 5 * time.Second}, func(t *testing.T, f *follower) {
		elapse(61 * time.Second)
		if k := kinds(f); k != "initial" || echoes.Load() < 5 || echoes.Load() > 12 {
			t.Errorf("after a minute of silence: batches %q, %d echoes", k, echoes.Load())
		}
		mute.Store(true)
		elapse(16 * time.Second)
		if k := kinds(f); k != "initial disconnected reconnected" {
			t.Errorf("with echoes unanswered: %q", k)
		}
		if err := f.batches[1].Err; !strings.Contains(err.Error(), "no message from ovsdb-server for 10s") {
			t.Errorf("reason is %v", err)
		}
	})
}

func TestServerEchoIsAnswered(t *testing.T) {
	s := &fake.RPC{Handle: func(*fake.RPCConn, string, []json.RawMessage) (any, string) { return dump(txn1, oneBridge), "" }}
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		synctest.Wait()
		s.Last().SendText(`{"id":"echo","method":"echo","params":["a"]}`)
		s.Last().SendText(`{"id":null,"method":"stolen","params":["lock"]}`)
		elapse(time.Second)
		if k := kinds(f); k != "initial" {
			t.Errorf("batches are %q", k)
		}
	})
}

// One event per reason, however long the server is away, and attempts that become rarer up to a bound.
func TestBackoff(t *testing.T) {
	s := &fake.RPC{Handle: func(*fake.RPCConn, string, []json.RawMessage) (any, string) { return dump(txn1, oneBridge), "" }}
	s.SetDown(errDown)
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		elapse(10 * time.Minute)
		if k := kinds(f); k != "disconnected" || !errors.Is(f.batches[0].Err, errDown) {
			t.Errorf("batches are %q, %v", k, f.batches[0].Err)
		}
		if _, err := f.client.Commit(t.Context(), f.tx(func(v *ovsdb.View, tx *ovsdb.Tx) { tx.Port(portID).SetTag(1) })); !errors.Is(err, ovsdb.ErrDisconnected) {
			t.Errorf("commit: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.client.Capabilities(ctx); !errors.Is(err, ovsdb.ErrTimedOut) {
			t.Errorf("capabilities: %v", err)
		}
		s.SetDown(nil)
		elapse(8 * time.Second)
		if k := kinds(f); k != "disconnected initial" {
			t.Errorf("batches are %q", k)
		}
	})
}

func TestCommitErrors(t *testing.T) {
	var answer atomic.Pointer[any]
	s := &fake.RPC{}
	s.Handle = func(c *fake.RPCConn, method string, _ []json.RawMessage) (any, string) {
		if method != "transact" {
			return dump(txn1, oneBridge), ""
		}
		results := *answer.Load()
		if results == nil {
			return fake.Silence{}, ""
		}
		if text, ok := results.(string); ok {
			if text == "hang up" {
				_ = c.Close()
				return fake.Silence{}, ""
			}
			return nil, text
		}
		return results, ""
	}
	fail := func(what string) map[string]any { return map[string]any{"error": what, "details": "why"} }
	inBubble(t, s, ovsdb.Config{InactivityProbe: -1}, func(t *testing.T, f *follower) {
		synctest.Wait()
		commit := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := f.client.Commit(ctx, f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Port(portID).SetTag(1) }))
			return err
		}
		ok := map[string]any{}
		for _, c := range []struct {
			name    string
			results any
			want    error
			text    string
		}{
			{"committed", []any{ok, ok}, nil, ""},
			{"precondition", []any{fail("timed out"), nil}, ovsdb.ErrConflict, "row exists"},
			{"constraint", []any{ok, fail("constraint violation")}, ovsdb.ErrConstraint, "constraint violation: why"},
			{"at commit", []any{ok, ok, fail("referential integrity violation")}, ovsdb.ErrConstraint, "commit"},
			{"too few results", []any{ok}, nil, "1 results for 2 operations"},
			{"no answer", nil, ovsdb.ErrTimedOut, ""},
			{"refused", "not allowed", nil, "not allowed"},
			{"lost", "hang up", ovsdb.ErrDisconnected, ""},
		} {
			answer.Store(&c.results)
			err := commit()
			if c.want != nil && !errors.Is(err, c.want) || c.want == nil && c.text == "" && err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("%s: %v does not say %q", c.name, err, c.text)
			}
		}
		empty, err := f.client.Commit(t.Context(), ovsdb.NewTx(f.view))
		if err != nil || empty.Seq != 0 {
			t.Errorf("empty: %v, %v", empty, err)
		}
	})
}

// Whoever commits while the server is slow is not in the way of reading, and a stop is quick.
func TestStopWhileWaiting(t *testing.T) {
	s := &fake.RPC{Handle: func(_ *fake.RPCConn, method string, _ []json.RawMessage) (any, string) {
		if method == "transact" {
			return fake.Silence{}, ""
		}
		return dump(txn1, oneBridge), ""
	}}
	inBubble(t, s, ovsdb.Config{}, func(t *testing.T, f *follower) {
		synctest.Wait()
		done := make(chan error, 1)
		go func() {
			_, err := f.client.Commit(context.Background(), f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Port(portID).SetTag(1) }))
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		f.cancel()
		if err := <-done; !errors.Is(err, ovsdb.ErrDisconnected) {
			t.Errorf("commit: %v", err)
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("the stop took %v", d)
		}
	})
}

// Nobody listens at the TCP address: the local socket is used, nobody is asked to open the address, and that is said once.
func TestLocalSocketInsteadOfTCP(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "tcp:" + free.Addr().String()
	_ = free.Close()
	socket := filepath.Join(t.TempDir(), "db.sock")
	local, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = local.Close() }()
	said := make(chan string, 10)
	client, err := ovsdb.New(ovsdb.Config{Endpoint: closed, LocalSocket: socket, OnLocalSocket: func(path string, refused error) {
		said <- path + " " + refused.Error()
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); client.Run(ctx) }()
	_ = local.(*net.UnixListener).SetDeadline(time.Now().Add(20 * time.Second))
	for i := range 2 {
		conn, err := local.Accept()
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Method string `json:"method"`
		}
		if err := json.NewDecoder(conn).Decode(&m); err != nil || m.Method != "monitor_cond_since" {
			t.Errorf("connection %d begins with %q, %v", i, m.Method, err)
		}
		_ = conn.Close()
	}
	cancel()
	<-done
	if got := <-said; !strings.HasPrefix(got, socket+" ") || !strings.Contains(got, "refused") || len(said) != 0 {
		t.Errorf("said %q, and %d times more", got, len(said))
	}
}

// Nobody has chosen the endpoint: the local socket is used even if somebody listens at the endpoint, who may be anybody, and also
// while the socket is not there. Only without a directory for it the endpoint is what is left.
func TestPreferLocal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "openvswitch")
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	began := func(l net.Listener) {
		t.Helper()
		_ = l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(20 * time.Second))
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	client, err := ovsdb.New(ovsdb.Config{Endpoint: "tcp:" + tcp.Addr().String(), LocalSocket: dir + "/db.sock", PreferLocal: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); client.Run(ctx) }()
	began(tcp)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for told, end := false, time.After(20*time.Second); !told; {
		select {
		case b := <-client.Changes():
			told = b.Err != nil && strings.Contains(b.Err.Error(), "db.sock")
		case <-end:
			t.Fatal("the socket was not tried")
		}
	}
	_ = tcp.(*net.TCPListener).SetDeadline(time.Now().Add(300 * time.Millisecond))
	if conn, err := tcp.Accept(); err == nil {
		_ = conn.Close()
		t.Error("while the database is away whoever listens at the endpoint is asked")
	}
	local, err := net.Listen("unix", dir+"/db.sock")
	if err != nil {
		t.Fatal(err)
	}
	began(local)
	cancel()
	<-done
	_ = local.Close()
}
