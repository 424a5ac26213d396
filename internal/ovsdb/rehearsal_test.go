// SPDX-License-Identifier: Apache-2.0

package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
)

func id(n int) ovsdb.UUID { return ovsdb.UUID(fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012x", n)) }

// rehearsal is one on a database with one bridge, br-ex, that has a port and no controller.
func rehearsal() (*ovsdb.Rehearsal, *ovsdb.View) {
	one, two := 1, 2
	initial := &ovsdb.Batch{
		Seq: 1, Kind: ovsdb.Initial,
		OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: id(1), Bridges: []ovsdb.UUID{id(2)}}}},
		Bridges: []ovsdb.Diff[ovsdb.Bridge]{{New: &ovsdb.Bridge{
			UUID: id(2), Name: "br-ex", DatapathID: "0000000000000002", Ports: []ovsdb.UUID{id(3), id(5)},
			OtherConfig: map[string]string{"a": "1", "b": "2"}, Protocols: []string{"OpenFlow13"},
		}}},
		Ports: []ovsdb.Diff[ovsdb.Port]{
			{New: &ovsdb.Port{UUID: id(3), Name: "ext0", Interfaces: []ovsdb.UUID{id(4)}}},
			{New: &ovsdb.Port{UUID: id(5), Name: "ext1", Interfaces: []ovsdb.UUID{id(6)}}},
		},
		Interfaces: []ovsdb.Diff[ovsdb.Interface]{
			{New: &ovsdb.Interface{UUID: id(4), Name: "ext0", OFPort: &one}}, {New: &ovsdb.Interface{UUID: id(6), Name: "ext1", OFPort: &two}},
		},
	}
	v := ovsdb.NewView()
	v.Apply(initial)
	return ovsdb.NewRehearsal(initial), v
}

// deliver moves a view on by everything that was committed.
func deliver(t *testing.T, r *ovsdb.Rehearsal, v *ovsdb.View, upTo uint64) {
	t.Helper()
	go r.Run(t.Context())
	if b := <-r.Changes(); b.Kind != ovsdb.Initial || b.Seq != 1 {
		t.Errorf("the first batch is %v, %d", b.Kind, b.Seq)
	}
	for v.Seq() < upTo {
		v.Apply(<-r.Changes())
	}
}

func TestARehearsalDoesWhatTheSwitchWould(t *testing.T) {
	r, v := rehearsal()
	tx, other, bad := ovsdb.NewTx(v), ovsdb.NewTx(v), ovsdb.NewTx(v)
	tx.EnsureBridge(ovsdb.BridgeSpec{Name: "br-int", DatapathType: "netdev", Protocols: []string{"OpenFlow13", "OpenFlow14"}})
	tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "int-br-ex", Type: "patch", Options: map[string]string{"peer": "phy-br-ex"}})
	tx.Owner = "bridge br-int"
	probe := 10_000_000
	b := v.BridgeByName("br-ex")
	other.EnsureBridge(ovsdb.BridgeSpec{Name: "br-ex", FailMode: "secure", Protocols: []string{"OpenFlow13", "OpenFlow14"}, OtherConfig: map[string]string{"b": "3"}})
	other.Bridge(b.UUID).SetControllers(ovsdb.Controller{Target: "tcp:127.0.0.1:6633", ConnectionMode: "out-of-band", InactivityProbe: &probe})
	other.Port(id(3)).SetTag(7).MergeOtherConfig(map[string]string{"tag": "7"})
	other.DeletePort(id(5))
	bad.EnsurePort(ovsdb.PortSpec{Bridge: "br-int", Name: "x"}) // there is no such bridge in its view
	result, errs := r.CommitAll(t.Context(), []*ovsdb.Tx{tx, other, bad})
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], ovsdb.ErrConflict) {
		t.Fatal(errs)
	}
	_, after := rehearsal()
	deliver(t, r, after, result.Seq)

	made := after.InterfaceByName("int-br-ex")
	if made == nil || made.OFPort == nil || !r.MadeUp(*made.OFPort) || r.MadeUp(1) || made.Options["peer"] != "phy-br-ex" {
		t.Errorf("new interface %+v", made)
	}
	if p := after.PortOf(made.UUID); p == nil || after.BridgeOf(p.UUID).Name != "br-int" || r.Owner(p.UUID) != "bridge br-int" {
		t.Errorf("new port %+v", p)
	}
	if br := after.BridgeByName("br-int"); br.DatapathID == "" || br.DatapathType != "netdev" || len(br.Ports) != 2 || !slices.Contains(after.Root().Bridges, br.UUID) {
		t.Errorf("new bridge %+v", br)
	}
	ex := after.BridgeByName("br-ex")
	if !maps.Equal(ex.OtherConfig, map[string]string{"a": "1", "b": "3"}) || !slices.Equal(ex.Protocols, []string{"OpenFlow13", "OpenFlow14"}) ||
		ex.FailMode != "secure" || len(ex.Controllers) != 1 || *after.Controller(ex.Controllers[0]).InactivityProbe != probe {
		t.Errorf("changed bridge %+v", ex)
	}
	if after.PortByName("ext1") != nil || after.InterfaceByName("ext1") != nil {
		t.Error("rows that nothing refers to are still there")
	}
	if v.BridgeByName("br-ex").FailMode != "" || v.PortByName("ext0").Tag != nil {
		t.Error("rows were changed that somebody else holds")
	}
	if !r.MadeUp(0xfeff) {
		t.Error("the first number that is made up is not")
	}
	for _, n := range []int{0xfeff + 1, *made.OFPort - 1, 0} {
		if r.MadeUp(n) {
			t.Errorf("number %d is made up, besides %d", n, *made.OFPort)
		}
	}
	if r.Owner(id(3)) != "" || r.Owner(id(99)) != "" {
		t.Error("an owner that nobody named")
	}
}

func TestCompareNamesWhatDiffers(t *testing.T) {
	r, before := rehearsal()
	tx := ovsdb.NewTx(before)
	tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-ex", Name: "p", Type: "patch", Options: map[string]string{"peer": "q"}})
	tx.Port(id(3)).SetTag(7).MergeOtherConfig(map[string]string{"tag": "7"})
	tx.DeletePort(id(5))
	if _, errs := r.CommitAll(t.Context(), []*ovsdb.Tx{tx}); errs[0] != nil {
		t.Fatal(errs)
	}
	var got []string
	r.Look(func(after *ovsdb.View) {
		for _, c := range ovsdb.Compare(before, after) {
			got = append(got, fmt.Sprintf("%s %s %s %s %v", c.Bridge, c.Change, c.Table, c.Name, c.Values))
		}
		if same := ovsdb.Compare(after, after); len(same) > 0 {
			t.Errorf("a view differs from itself: %v", same)
		}
	})
	want := []string{
		"br-ex changed Port ext0 [{other_config:tag  7} {tag  7}]",
		"br-ex removed Port ext1 []",
		"br-ex added Port p []",
		"br-ex removed Interface ext1 []",
		"br-ex added Interface p [{options:peer  q} {type  patch}]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestCompareNamesEveryTable: rows come by bridge, those of none first; what the switch writes and what refers to other rows is left out.
func TestCompareNamesEveryTable(t *testing.T) {
	batch := func(gone bool, probe int, config map[string]string) *ovsdb.Batch {
		b := &ovsdb.Batch{
			OpenVSwitch: []ovsdb.Diff[ovsdb.OpenVSwitch]{{New: &ovsdb.OpenVSwitch{UUID: "r", Bridges: []ovsdb.UUID{"z", "a"}, CurCfg: probe, OtherConfig: config}}},
			Managers:    []ovsdb.Diff[ovsdb.Manager]{{New: &ovsdb.Manager{UUID: "m", Target: "ptcp:6640", InactivityProbe: &probe}}},
			Bridges: []ovsdb.Diff[ovsdb.Bridge]{
				{New: &ovsdb.Bridge{UUID: "z", Name: "br-z", Controllers: []ovsdb.UUID{"zc"}, Ports: []ovsdb.UUID{"zp"}, OtherConfig: config}},
				{New: &ovsdb.Bridge{UUID: "a", Name: "br-a", Controllers: []ovsdb.UUID{"ac"}, Ports: []ovsdb.UUID{"ap"}, McastSnoopingEnable: probe > 1}},
			},
			Controllers: []ovsdb.Diff[ovsdb.Controller]{
				{New: &ovsdb.Controller{UUID: "zc", Target: "tcp:z", InactivityProbe: &probe, IsConnected: probe > 1}}, {New: &ovsdb.Controller{UUID: "ac", Target: "tcp:a", InactivityProbe: &probe}},
				{New: &ovsdb.Controller{UUID: "nc", Target: "tcp:n", RateLimit: &probe}},
			},
			Ports: []ovsdb.Diff[ovsdb.Port]{
				{New: &ovsdb.Port{UUID: "zp", Name: "zp", Interfaces: []ovsdb.UUID{"zi"}, Trunks: []int{probe, 9}}}, {New: &ovsdb.Port{UUID: "ap", Name: "ap", OtherConfig: config}},
				{New: &ovsdb.Port{UUID: "np", Name: "np", OtherConfig: config}},
			},
			Interfaces: []ovsdb.Diff[ovsdb.Interface]{
				{New: &ovsdb.Interface{UUID: "zi", Name: "zp", OFPort: &probe, IngressPolicingRate: probe - 1}}, {New: &ovsdb.Interface{UUID: "ni", Name: "np", Type: "internal", Options: config}},
			},
			QoS:    []ovsdb.Diff[ovsdb.QoS]{{New: &ovsdb.QoS{UUID: "q", Queues: map[int]ovsdb.UUID{probe: "u"}, ExternalIDs: config}}},
			Queues: []ovsdb.Diff[ovsdb.Queue]{{New: &ovsdb.Queue{UUID: "u", OtherConfig: config}}},
		}
		if gone {
			b.Bridges, b.Ports = b.Bridges[:1], b.Ports[:1]
			b.Bridges[0].New.Ports, b.Bridges[0].New.Controllers = nil, nil
		}
		return b
	}
	compare := func(one, two *ovsdb.Batch) (got []string) {
		before, after := ovsdb.NewView(), ovsdb.NewView()
		before.Apply(one)
		after.Apply(two)
		for _, c := range ovsdb.Compare(before, after) {
			got = append(got, fmt.Sprintf("%s|%s %s %s %v", c.Bridge, c.Change, c.Table, c.Name, c.Values))
		}
		return got
	}
	if got, want := compare(batch(false, 1, map[string]string{"a": "1", "b": "2"}), batch(false, 2, map[string]string{"a": "3", "c": "4"})), []string{
		"|changed Open_vSwitch  [{other_config:a 1 3} {other_config:b 2 } {other_config:c  4}]",
		"|changed Manager ptcp:6640 [{inactivity_probe 1 2}]",
		"|changed Controller tcp:n [{controller_rate_limit 1 2}]",
		"|changed Port np [{other_config:a 1 3} {other_config:b 2 } {other_config:c  4}]",
		"|changed Interface np [{options:a 1 3} {options:b 2 } {options:c  4}]",
		"|changed QoS q [{external_ids:a 1 3} {external_ids:b 2 } {external_ids:c  4}]",
		"|changed Queue u [{other_config:a 1 3} {other_config:b 2 } {other_config:c  4}]",
		"br-a|changed Bridge br-a [{mcast_snooping_enable  true}]",
		"br-a|changed Controller tcp:a [{inactivity_probe 1 2}]",
		"br-a|changed Port ap [{other_config:a 1 3} {other_config:b 2 } {other_config:c  4}]",
		"br-z|changed Bridge br-z [{other_config:a 1 3} {other_config:b 2 } {other_config:c  4}]",
		"br-z|changed Controller tcp:z [{inactivity_probe 1 2}]",
		"br-z|changed Port zp [{trunks 1,9 2,9}]",
		"br-z|changed Interface zp [{ingress_policing_rate  1}]",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	// What is gone is named by the bridge that it was on, and what was moved by the one that it is on.
	if got, want := compare(batch(false, 1, nil), batch(true, 1, nil)), []string{"|removed Port np []", "br-a|removed Bridge br-a []", "br-a|removed Port ap []"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// once is a client that has these batches.
type once struct {
	batches chan *ovsdb.Batch
	over    bool // Run has returned
}

func (o *once) Changes() <-chan *ovsdb.Batch { return o.batches }

func (o *once) Run(ctx context.Context) {
	<-ctx.Done()
	o.over = true
}

func TestReadAll(t *testing.T) {
	rows, why := &ovsdb.Batch{Seq: 1, Kind: ovsdb.Initial}, errors.New("not there")
	for name, c := range map[string]struct {
		batch *ovsdb.Batch
		want  error
	}{
		"rows": {rows, nil}, "not there": {&ovsdb.Batch{Kind: ovsdb.Disconnected, Err: why}, why}, "no answer": {nil, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := &once{batches: make(chan *ovsdb.Batch, 1)}
			if c.batch != nil {
				client.batches <- c.batch
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := ovsdb.ReadAll(ctx, client)
			if !errors.Is(err, c.want) || (err == nil) != (got == rows) || !client.over {
				t.Errorf("%s: %v, %v, over %v", name, got, err, client.over)
			}
		})
	}
	// A client that was stopped ends its stream; which of the two is seen first is chance.
	for range 20 {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		client := &once{batches: make(chan *ovsdb.Batch)}
		close(client.batches)
		if got, err := ovsdb.ReadAll(ctx, client); !errors.Is(err, why) || got != nil {
			t.Fatalf("stopped: %v, %v", got, err)
		}
	}
}

// TestWhole: what another agent over the same database begins with is every row.
func TestWhole(t *testing.T) {
	r, v := rehearsal()
	tx := ovsdb.NewTx(v)
	tx.Bridge(id(2)).SetControllers(ovsdb.Controller{Target: "t"})
	tx.InsertQoS(ovsdb.QoS{Type: "htb"}, map[int]ovsdb.Ref{1: tx.InsertQueue(ovsdb.Queue{})})
	if _, errs := r.CommitAll(t.Context(), []*ovsdb.Tx{tx}); errs[0] != nil {
		t.Fatal(errs)
	}
	r.Look(func(now *ovsdb.View) {
		b, again := ovsdb.Whole(now), ovsdb.NewView()
		if b.Seq != 1 || b.Kind != ovsdb.Initial || b.Len() != 9 {
			t.Errorf("batch %d is %v with %d rows", b.Seq, b.Kind, b.Len())
		}
		if again.Apply(b); len(ovsdb.Compare(now, again)) != 0 {
			t.Error(ovsdb.Compare(now, again))
		}
	})
}

func TestTheSecondOfTwoThatWantANameWaits(t *testing.T) {
	r, v := rehearsal()
	one, two := ovsdb.NewTx(v), ovsdb.NewTx(v)
	for _, tx := range []*ovsdb.Tx{one, two} {
		tx.EnsurePort(ovsdb.PortSpec{Bridge: "br-ex", Name: "p", Type: "patch"})
	}
	if _, errs := r.CommitAll(t.Context(), []*ovsdb.Tx{one, two}); errs[0] != nil || !errors.Is(errs[1], ovsdb.ErrConflict) {
		t.Error(errs)
	}
}
