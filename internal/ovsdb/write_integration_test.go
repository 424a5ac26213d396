// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

func port(t testing.TB, f *follower, name string) (p *ovsdb.Port) {
	t.Helper()
	f.wait("port "+name, func(v *ovsdb.View) bool { p = v.PortByName(name); return p != nil })
	return p
}

// Maps are merged: what ovs-vsctl, os-vif or another agent wrote into the same column stays.
func TestMergedMapsKeepForeignKeys(t *testing.T) {
	sw := vswitch.New(t, dummy)
	f := follow(t, unix(sw))
	withBridge(t, f)
	f.commit(addPorts(1))
	vsctl(t, sw, "set", "Port", "tap0", "other_config:foreign=1", "other_config:net_uuid=old", "tag=4095", "vlan_mode=trunk",
		"trunks=4095", "--", "set", "Bridge", "br-int", "other_config:datapath-id=00000000000000aa", "external_ids:theirs=x")
	f.wait("the foreign keys", func(v *ovsdb.View) bool { return v.PortByName("tap0").OtherConfig["foreign"] == "1" })

	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) {
		p := v.PortByName("tap0")
		tx.Port(p.UUID).Verify("tag", "vlan_mode", "trunks", "other_config").SetTag(7).SetVLANMode("").SetTrunks().
			MergeOtherConfig(map[string]string{"net_uuid": "new", "tag": "7", "network_type": "vxlan"})
		tx.Bridge(v.BridgeByName("br-int").UUID).MergeOtherConfig(map[string]string{"disable-in-band": "true"}).
			RemoveOtherConfig("mac-table-size", "never-there").MergeExternalIDs(map[string]string{"ours": "y"}).AddProtocols("OpenFlow10")
		tx.Interface(p.Interfaces[0]).SetIngressPolicing(1000, 800).MergeExternalIDs(map[string]string{"trunk_id": "t"})
	})
	for _, c := range []struct{ table, row, column, want string }{
		{"Port", "tap0", "other_config", `{foreign="1", net_uuid=new, network_type=vxlan, tag="7"}`},
		{"Port", "tap0", "tag", "7"},
		{"Port", "tap0", "vlan_mode", "[]"},
		{"Port", "tap0", "trunks", "[]"},
		{"Bridge", "br-int", "other_config", `{datapath-id="00000000000000aa", disable-in-band="true"}`},
		{"Bridge", "br-int", "external_ids", `{ours=y, theirs=x}`},
		{"Bridge", "br-int", "protocols", `[OpenFlow10, OpenFlow13, OpenFlow14]`},
		{"Interface", "tap0", "ingress_policing_rate", "1000"},
	} {
		if got := vsctl(t, sw, "get", c.table, c.row, c.column); got != c.want {
			t.Errorf("%s %s %s is %s, want %s", c.table, c.row, c.column, got, c.want)
		}
	}
	if ids := vsctl(t, sw, "get", "Interface", "tap0", "external_ids"); !strings.Contains(ids, "iface-id") || !strings.Contains(ids, "trunk_id") {
		t.Errorf("external_ids are %s", ids)
	}
}

// Two clients and ovs-vsctl write to one column at once. Each of ours counts up only from the value it saw, so not one
// count may be lost.
func TestPreconditionsRaceWithOthers(t *testing.T) {
	const each, foreign = 100, 30
	sw := vswitch.New(t, dummy)
	a, b := follow(t, unix(sw)), follow(t, unix(sw))
	withBridge(t, a)
	a.commit(addPorts(1))
	port(t, b, "tap0")

	conflicts := make([]int, 2)
	var wg sync.WaitGroup
	for i, f := range []*follower{a, b} {
		wg.Go(func() {
			for done := 0; done < each; {
				tx := f.tx(func(v *ovsdb.View, tx *ovsdb.Tx) {
					p := v.PortByName("tap0")
					n, _ := strconv.Atoi(p.OtherConfig["count"])
					tx.Port(p.UUID).Verify("other_config").MergeOtherConfig(map[string]string{"count": strconv.Itoa(n + 1)})
				})
				seq := f.seq()
				r, err := f.client.Commit(context.Background(), tx)
				switch {
				case err == nil:
					done++
					f.wait("own count", func(v *ovsdb.View) bool { return v.Seq() >= r.Seq })
				case errors.Is(err, ovsdb.ErrConflict):
					conflicts[i]++
					f.wait("a newer view", func(v *ovsdb.View) bool { return v.Seq() > seq })
				default:
					t.Errorf("commit: %v", err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for i := range foreign {
			if _, err := sw.Vsctl(context.Background(), "--no-wait", "set", "Port", "tap0", fmt.Sprintf("other_config:foreign%d=x", i)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	a.wait("all keys", func(v *ovsdb.View) bool { return len(v.PortByName("tap0").OtherConfig) == foreign+1 })
	got := vsctl(t, sw, "get", "Port", "tap0", "other_config:count")
	if want := strconv.Quote(strconv.Itoa(2 * each)); got != want {
		t.Errorf("count is %s, want %s", got, want)
	}
	t.Logf("conflicts met: %v", conflicts)
	if conflicts[0]+conflicts[1] == 0 {
		t.Error("nothing raced")
	}
}

// A row that is gone is not written to, although another has its name now.
func TestNewIncarnationIsNotTouched(t *testing.T) {
	sw := vswitch.New(t, dummy)
	f := follow(t, unix(sw))
	withBridge(t, f)
	f.commit(addPorts(1))
	old := port(t, f, "tap0")
	stale := f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) {
		tx.Port(old.UUID).SetTag(5)
		tx.Interface(old.Interfaces[0]).MergeExternalIDs(map[string]string{"wrong": "1"})
	})
	staleDelete := f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.DeletePort(old.UUID) })

	seq := f.seq()
	vsctl(t, sw, "--no-wait", "del-port", "tap0", "--", "add-port", "br-int", "tap0", "--", "set", "Interface", "tap0", "type=internal")
	f.wait("the new incarnation", func(v *ovsdb.View) bool { return v.PortByName("tap0").UUID != old.UUID })
	var ports []ovsdb.Diff[ovsdb.Port]
	for _, b := range f.since(seq) {
		if len(b.Ports) > 0 && ports == nil {
			ports = b.Ports // before it may come the ofport of the old one
		}
	}
	if len(ports) != 2 || ports[0].New != nil || ports[0].Old.UUID != old.UUID || ports[1].Old != nil || ports[1].New.Name != "tap0" {
		t.Fatalf("want the old row deleted, then the new one inserted, in one batch: %+v", ports)
	}
	for name, tx := range map[string]*ovsdb.Tx{"edit": stale, "delete": staleDelete} {
		_, err := f.client.Commit(within(t, 5*time.Second), tx)
		var e *ovsdb.TxError
		if !errors.Is(err, ovsdb.ErrConflict) || !errors.As(err, &e) || e.What != "Port "+string(old.UUID)+": row exists" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := vsctl(t, sw, "get", "Port", "tap0", "tag"); got != "[]" {
		t.Errorf("tag of the new incarnation is %s", got)
	}
	// A name that was free when decided and is taken now is a conflict too.
	taken := f.tx(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "late"}) })
	vsctl(t, sw, "--no-wait", "add-port", "br-int", "late")
	if _, err := f.client.Commit(within(t, 5*time.Second), taken); !errors.Is(err, ovsdb.ErrConflict) {
		t.Errorf("taken name: %v", err)
	}
}

func TestConstraintsAndIndependentTransactions(t *testing.T) {
	const n = 20
	sw := vswitch.New(t, dummy)
	f := follow(t, unix(sw))
	withBridge(t, f)
	f.commit(addPorts(n))
	port(t, f, portName(n-1))
	vsctl(t, sw, "--no-wait", "del-port", "tap3") // not seen by the transactions below, perhaps
	var txs []*ovsdb.Tx
	gone := 0
	for i := range n {
		txs = append(txs, f.tx(func(v *ovsdb.View, tx *ovsdb.Tx) {
			p := v.PortByName(portName(i))
			if p == nil {
				gone++
				return
			}
			tag := i + 1
			if i == 7 {
				tag = 5000
			}
			tx.Port(p.UUID).SetTag(tag)
		}))
	}
	r, errs := f.client.CommitAll(within(t, 10*time.Second), txs)
	for i, err := range errs {
		switch {
		case i == 3 && gone == 0:
			if !errors.Is(err, ovsdb.ErrConflict) {
				t.Errorf("deleted port: %v", err)
			}
		case i == 7:
			if !errors.Is(err, ovsdb.ErrConstraint) {
				t.Errorf("bad tag: %v", err)
			}
		case err != nil:
			t.Errorf("port %d suffers for another: %v", i, err)
		}
	}
	f.wait("the others", func(v *ovsdb.View) bool { return v.Seq() >= r.Seq })
	f.wait("the last tag", func(v *ovsdb.View) bool { tag := v.PortByName(portName(n - 1)).Tag; return tag != nil && *tag == n })

	for what, build := range map[string]func(*ovsdb.View, *ovsdb.Tx){
		"port on another bridge": func(_ *ovsdb.View, tx *ovsdb.Tx) {
			tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-ex", DatapathType: "netdev"})
			tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-ex", Name: "tap1"})
		},
		"qos in use": func(v *ovsdb.View, tx *ovsdb.Tx) {
			q := tx.InsertQoS(ovsdb.QoS{Type: "linux-htb"}, nil)
			tx.Port(v.PortByName("tap1").UUID).SetQoS(q)
			tx.DeleteQueue("00000000-0000-4000-8000-000000000000")
		},
	} {
		_, err := f.client.Commit(within(t, 5*time.Second), f.tx(build))
		if !errors.Is(err, ovsdb.ErrConstraint) && !errors.Is(err, ovsdb.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if out := vsctl(t, sw, "list-br"); out != "br-int" {
		t.Errorf("bridges are %q: a failed transaction left something", out)
	}
}

func TestWaitForVswitchd(t *testing.T) {
	ctx := context.Background()
	sw := vswitch.New(t, dummy)
	f := follow(t, unix(sw))
	withBridge(t, f)
	if err := sw.StopVswitchd(ctx); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	tx := f.tx(addPorts(1))
	tx.WaitApplied()
	_, err := f.client.Commit(within(t, 500*time.Millisecond), tx)
	if !errors.Is(err, ovsdb.ErrNotApplied) || !errors.Is(err, ovsdb.ErrTimedOut) {
		t.Fatalf("with ovs-vswitchd stopped: %v", err)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
	if i := port(t, f, "tap0"); i == nil {
		t.Error("it was not committed")
	}
	f.mu.Lock()
	iface := f.view.InterfaceByName("tap0")
	f.mu.Unlock()
	if iface.OFPort != nil {
		t.Errorf("ofport %d without ovs-vswitchd", *iface.OFPort)
	}
	if err := sw.StartVswitchd(ctx); err != nil {
		t.Fatal(err)
	}
	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) {
		tx.Port(v.PortByName("tap0").UUID).SetTag(3)
		tx.WaitApplied()
	})
	f.mu.Lock()
	iface = f.view.InterfaceByName("tap0")
	f.mu.Unlock()
	if iface.OFPort == nil || *iface.OFPort <= 0 {
		t.Errorf("applied, but ofport is %v", iface.OFPort)
	}
}

// A mirror is as its spec says, loses a port that goes, and goes itself.
func TestMirrorRows(t *testing.T) {
	sw := vswitch.New(t)
	f := follow(t, unix(sw))
	withBridge(t, f)
	f.commit(addPorts(3))
	spec := ovsdb.MirrorSpec{
		Bridge: "br-int", Name: "m", ExternalIDs: map[string]string{"mark": "1"}, Src: []string{"tap0", "tap1"}, Dst: []string{"tap0"}, Output: "tap2",
	}
	is := func(src, dst int, output bool) func(*ovsdb.View) bool {
		return func(v *ovsdb.View) bool {
			all := v.MirrorsOn(v.BridgeByName("br-int"))
			return len(all) == 1 && len(all[0].SelectSrc) == src && len(all[0].SelectDst) == dst && (all[0].Output != "") == output
		}
	}
	f.commit(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Add(spec) })
	f.wait("the mirror", is(2, 1, true))
	spec.Dst = []string{"tap0", "tap1"}
	f.commit(func(_ *ovsdb.View, tx *ovsdb.Tx) { tx.Add(spec) })
	f.wait("another port", is(2, 2, true))
	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) {
		if tx.Add(spec); tx.Len() != 0 {
			t.Error("something is left to write")
		}
		tx.DeletePort(v.PortByName("tap0").UUID)
	})
	f.wait("a port less", is(1, 1, true))
	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) { tx.DeletePort(v.PortByName("tap2").UUID) })
	f.wait("no port for copies", is(1, 1, false))
	f.commit(func(_ *ovsdb.View, tx *ovsdb.Tx) {
		tx.Add(ovsdb.AbsentMarked{Bridge: "br-int", Key: "mark", Value: "1"})
	})
	f.wait("no mirror", func(v *ovsdb.View) bool { return len(v.BridgeByName("br-int").Mirrors) == 0 })
	sameAsFresh(t, f, sw)
}

// QoS and Controller rows, and an interface that cannot be made.
func TestOtherRows(t *testing.T) {
	sw := vswitch.New(t)
	f := follow(t, unix(sw))
	withBridge(t, f)
	ten := 10000
	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) {
		addPorts(1)(v, tx)
		tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "missing"})
		tx.Bridge(v.BridgeByName("br-int").UUID).SetControllers(ovsdb.Controller{
			Target: "tcp:127.0.0.1:6633", ConnectionMode: "out-of-band", InactivityProbe: &ten,
		})
		tx.WaitApplied()
	})
	f.wait("the failed interface", func(v *ovsdb.View) bool {
		i := v.InterfaceByName("missing")
		return i.OFPort != nil && *i.OFPort == -1 && strings.Contains(i.Error, "could not open network device missing")
	})
	var first ovsdb.UUID
	f.wait("the controller", func(v *ovsdb.View) bool {
		b := v.BridgeByName("br-int")
		if len(b.Controllers) != 1 {
			return false
		}
		first = b.Controllers[0]
		return *v.Controller(first).InactivityProbe == ten
	})
	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) {
		tx.Bridge(v.BridgeByName("br-int").UUID).SetControllers(
			ovsdb.Controller{Target: "tcp:127.0.0.1:6633", ConnectionMode: "in-band"}, ovsdb.Controller{Target: "ptcp:0:127.0.0.1"})
		q := tx.InsertQueue(ovsdb.Queue{OtherConfig: map[string]string{"max-rate": "1000000"}, ExternalIDs: map[string]string{"queue_type": "0"}})
		qos := tx.InsertQoS(ovsdb.QoS{Type: "linux-htb", ExternalIDs: map[string]string{"id": "tap0"}}, map[int]ovsdb.Ref{0: q})
		tx.Port(v.PortByName("tap0").UUID).SetQoS(qos)
	})
	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) {
		b := v.BridgeByName("br-int")
		if len(b.Controllers) != 2 || v.Controller(first) == nil || v.Controller(first).ConnectionMode != "in-band" || v.Controller(first).InactivityProbe != nil {
			t.Errorf("controllers %v, the first %+v", b.Controllers, v.Controller(first))
		}
		qos := v.QoS(v.PortByName("tap0").QoS)
		if qos == nil || qos.Type != "linux-htb" || v.Queue(qos.Queues[0]) == nil {
			t.Fatalf("qos is %+v", qos)
		}
		more := tx.InsertQueue(ovsdb.Queue{ExternalIDs: map[string]string{"queue_type": "1"}})
		tx.QoS(qos.UUID).SetQueue(1, more).MergeOtherConfig(map[string]string{"max-rate": "2000000"})
		tx.Queue(qos.Queues[0]).MergeOtherConfig(map[string]string{"burst": "8"}).RemoveOtherConfig("max-rate")
	})
	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) {
		p := v.PortByName("tap0")
		qos := v.QoS(p.QoS)
		if len(qos.Queues) != 2 || v.Queue(qos.Queues[0]).OtherConfig["burst"] != "8" || len(v.Queue(qos.Queues[0]).OtherConfig) != 1 {
			t.Errorf("qos is %+v, queue 0 %+v", qos, v.Queue(qos.Queues[0]))
		}
		tx.Port(p.UUID).ClearQoS()
		tx.DeleteQoS(qos.UUID)
		for _, q := range qos.Queues {
			tx.DeleteQueue(q)
		}
		tx.Bridge(v.BridgeByName("br-int").UUID).SetControllers()
	})
	f.wait("no such rows", func(v *ovsdb.View) bool {
		rows := len(v.BridgeByName("br-int").Controllers)
		for range v.AllQoS() {
			rows++
		}
		for range v.Queues() {
			rows++
		}
		return rows == 0 && v.Controller(first) == nil
	})
	f.commit(func(v *ovsdb.View, tx *ovsdb.Tx) { tx.DeleteBridge(v.BridgeByName("br-int").UUID) })
	f.wait("no bridge", func(v *ovsdb.View) bool {
		for range v.Ports() {
			return false
		}
		return v.BridgeByName("br-int") == nil
	})
}
