// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/fake"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/openflow"
	"github.com/patchbay-sdn/patchbay/openflow/openflowtest"
)

// fakeOVS is the Open vSwitch in memory, with what histories of an agent need: VMs by the ids of their ports, and lives that end
// between any two steps.
type fakeOVS struct {
	*fake.OVS
	mu   *sync.Mutex // of the rows
	rows fake.Rows
	// committed is told what one bundle, or a restart of the switch, did to a bridge. Meanwhile flows has those of the bridge.
	committed func(bridge string, mods []flowMod, wiped bool)
	flows     map[string]map[openflow.Key]openflow.Entry
	// incarnations counts the ports that a replay made, by name.
	incarnations map[string]int
}

// flowMod is a change of one flow; without an entry it is gone.
type flowMod struct {
	key   openflow.Key
	entry openflow.Entry
}

func newFakeOVS() *fakeOVS { return wrapOVS(fake.NewOVS()) }

func wrapOVS(f *fake.OVS) *fakeOVS {
	o := &fakeOVS{OVS: f, mu: &f.Mu, rows: f.Rows, flows: map[string]map[openflow.Key]openflow.Entry{}}
	f.Committed = func(bridge string, mods []openflowtest.Mod, wiped bool, after map[openflow.Key]openflow.Entry) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.committed == nil {
			return
		}
		list := make([]flowMod, len(mods))
		for i, m := range mods {
			list[i] = flowMod{m.Key, m.Entry}
		}
		o.flows[bridge] = after
		o.committed(bridge, list, wiped)
		delete(o.flows, bridge)
	}
	return o
}

// clone has the same rows, and no flows or meters.
func (o *fakeOVS) clone() *fakeOVS { return wrapOVS(o.Clone()) }

// Values and names of rows, see package fake.
func rowID(name string) string                   { return fake.RowID(name) }
func textOf(v any) string                        { return fake.Text(v) }
func numberOf(v any) *int                        { return fake.Number(v) }
func entriesOf(v any) map[string]any             { return fake.Entries(v) }
func mapValue[V any](m map[string]V) any         { return fake.Map(m) }
func mutate(old any, insert bool, value any) any { return fake.Mutate(old, insert, value) }

// run has rows that were changed by hand take effect. Bridges are there if they have a row.
func (o *fakeOVS) run() {
	for _, root := range o.rows["Open_vSwitch"] {
		var there []any
		for id := range o.rows["Bridge"] {
			there = append(there, fake.Ref(id))
		}
		root["bridges"] = fake.Set(there...)
	}
	o.Run()
}

// ovsSession is the database as one agent sees it.
type ovsSession struct {
	*ovsdb.Client
	life *life
}

func (o *fakeOVS) session(l *life) *ovsSession { return &ovsSession{o.client(), l} }

func (o *fakeOVS) client() *ovsdb.Client {
	c, err := ovsdb.New(ovsdb.Config{Dial: o.Dial, InactivityProbe: -1})
	if err != nil {
		panic(err)
	}
	return c
}

// leave ends a session, which its agent has left.
func (o *fakeOVS) leave(*ovsSession) {}

// Changes is the news of the database, which may come late.
func (s *ovsSession) Changes() <-chan *ovsdb.Batch {
	if s.life.late == 0 {
		return s.Client.Changes()
	}
	late := make(chan *ovsdb.Batch)
	go func() {
		defer close(late)
		for b := range s.Client.Changes() {
			time.Sleep(s.life.late)
			select {
			case late <- b:
			case <-s.life.died:
				return
			}
		}
	}()
	return late
}

func (s *ovsSession) CommitAll(ctx context.Context, txs []*ovsdb.Tx) (ovsdb.Result, []error) {
	if !s.life.step() {
		errs := make([]error, len(txs))
		for i := range errs {
			errs[i] = ovsdb.ErrDisconnected
		}
		return ovsdb.Result{}, errs
	}
	result, errs := s.Client.CommitAll(ctx, txs)
	s.life.step()
	return result, errs
}

// view is the database as somebody sees it who connects now.
func (o *fakeOVS) view() *ovsdb.View {
	ctx, cancel := context.WithCancel(context.Background())
	c, done := o.client(), make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	v := ovsdb.NewView()
	v.Apply(<-c.Changes())
	cancel()
	<-done
	return v
}

// device is the interface of a port on the integration bridge. VMs whose ports have whole ids are behind Linux bridges of their own.
func device(port string) string {
	if len(port) == len(hybridA) {
		return ("qvo" + port)[:14]
	}
	return "tap" + port
}

// plug puts the interface of a port into the integration bridge, one incarnation of it, in place of an earlier one, as a
// hypervisor does.
func (o *fakeOVS) plug(port string, incarnation, number int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.DeletePort(device(port))
	o.AddPort("br-int", device(port), incarnation, number, map[string]string{"iface-id": port, "attached-mac": macOf(port)})
	o.run()
}

// The VM with a trunk, and the bridge that whoever plugs it in makes for it.
const trunkBridge, trunkID, trunkParent = "tbr-trunk", "trunk", "F"

// boot plugs the VM with a trunk in, one incarnation of it. halt takes it away; the bridge is left to the agent.
func (o *fakeOVS) boot(incarnation int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rows["Bridge"][rowID(trunkBridge)] == nil {
		o.AddBridge(trunkBridge, map[string]any{"datapath_type": "netdev"})
	}
	o.DeletePort("tap" + trunkParent)
	o.AddPort(trunkBridge, "tap"+trunkParent, incarnation, 0, map[string]string{"iface-id": trunkParent, "attached-mac": macOf(trunkParent)})
	o.run()
}

func (o *fakeOVS) halt() { o.unplug(trunkParent) }

func (o *fakeOVS) unplug(port string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.DeletePort(device(port))
	o.run()
}

// plugged is the number of a port's interface; 0 when it is not plugged in.
func (o *fakeOVS) plugged(port string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range o.rows["Interface"] {
		if row["name"] == device(port) {
			return *numberOf(row["ofport"])
		}
	}
	return 0
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
func (o *fakeOVS) restart() { o.Restart() }

// all are the flows of all bridges.
func (o *fakeOVS) all() map[bridgeKey]openflow.Entry {
	out := map[bridgeKey]openflow.Entry{}
	for bridge, s := range o.Switches() {
		for k, e := range s.Flows() {
			out[bridgeKey{bridge, k}] = e
		}
	}
	return out
}

type bridgeKey struct {
	bridge string
	key    openflow.Key
}

// allMeters are the meters of a bridge.
func (o *fakeOVS) allMeters(bridge string) []openflow.MeterDesc { return o.Bridge(bridge).Meters() }

// dial connects an agent to a bridge. What it asks about flows and meters, and what it changes, are steps of its life; so is the
// answer to a change.
func (o *fakeOVS) dial(ctx context.Context, l *life, bridge string) (*openflow.Conn, error) {
	if !l.step() {
		return nil, io.ErrClosedPipe
	}
	ours, theirs := net.Pipe()
	l.keep(theirs)
	go o.Bridge(bridge).Serve(theirs, func(m openflowtest.Message, _ bool) bool {
		dump := m.Type == openflowtest.TypeMultipart && (m.Kind() == openflowtest.MultipartFlows || m.Kind() == openflowtest.MultipartMeters)
		change := m.Type == openflowtest.TypeMeterMod || m.Type == openflowtest.TypeBundleControl
		return !dump && !change || l.step()
	})
	return openflow.NewConn(ctx, ours, openflow.Config{Versions: []openflow.Version{openflow.OpenFlow14}, Probe: -1})
}
