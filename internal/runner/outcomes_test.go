// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
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

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/internal/forwarding"
	"github.com/patchbay-sdn/patchbay/internal/iptables"
	"github.com/patchbay-sdn/patchbay/internal/metaproxy"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/resolver"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/openflow"
)

var errNo = errors.New("no")

// TestRecords: lines are written in their order, by one at a time, without anybody waiting. What a slow disk leaves no room for is lost, and counted once.
func TestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		var lost []uint64
		hold := make(chan struct{})
		r := New(Config{Records: func(e effect.WriteRecords, n uint64) {
			<-hold
			got = append(got, strings.Join(e.Lines, " "))
			lost = append(lost, n)
		}}, func(effect.Event) {})
		write := func(lines ...string) { r.Start(t.Context(), []effect.Effect{effect.WriteRecords{Lines: lines}}) }
		write("first")
		synctest.Wait() // it is being written
		for i := range maxRecords {
			write(fmt.Sprint(i))
		}
		write("lost 1", "lost 2")
		write("lost 3")
		close(hold)
		synctest.Wait()
		write("later")
		r.Wait()
		if len(got) != maxRecords+2 || got[0] != "first" || got[1] != "0" || got[maxRecords] != fmt.Sprint(maxRecords-1) || got[maxRecords+1] != "later" {
			t.Errorf("%d lines, from %q to %q", len(got), got[0], got[len(got)-1])
		}
		for i, n := range lost {
			if want := map[int]uint64{1: 3}[i]; n != want {
				t.Errorf("before %q %d lines are lost, want %d", got[i], n, want)
			}
		}
	})
	r := New(Config{}, func(effect.Event) {}) // nobody keeps them
	r.Start(t.Context(), []effect.Effect{effect.WriteRecords{Lines: []string{"x"}}})
	if r.Wait(); len(r.records.queue) != 0 {
		t.Errorf("%d lines are kept for nobody", len(r.records.queue))
	}
}

// TestNotices: what the service manager is told, and that it could not be told.
func TestNotices(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	notifier := observe.NewNotifier(func(name string) string { return map[string]string{"NOTIFY_SOCKET": socket}[name] }, 1)
	for _, c := range []struct {
		e    effect.Notify
		want string
	}{{effect.Notify{}, "WATCHDOG=1"}, {effect.Notify{Ready: "in sync"}, "READY=1\nSTATUS=in sync"}} {
		if got := outcomes(t.Context(), Config{Notifier: notifier}, c.e); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		said := make([]byte, 100)
		if n, err := manager.Read(said); err != nil || string(said[:n]) != c.want {
			t.Errorf("%q, %v, want %q", said[:n], err, c.want)
		}
	}
	if err := manager.Close(); err != nil {
		t.Fatal(err)
	}
	for _, e := range []effect.Notify{{}, {Ready: "x"}} {
		if got := one[effect.NotifyFailed](t, Config{Notifier: notifier}, e); got.Err == nil {
			t.Error("a service manager that is gone was told")
		}
	}
}

// devices are those of a host, or an error.
type devices struct {
	err   error
	ended context.Context
}

func (d *devices) Read(ctx context.Context, names []string) (forwarding.Tables, error) {
	d.ended = ctx
	return forwarding.Tables{names[0]: nil}, d.err
}

func (d *devices) Change(ctx context.Context, _ forwarding.Changes) error {
	d.ended = ctx
	return d.err
}

func (d *devices) Watch(_ context.Context, names []string, changed func(string)) error {
	changed(names[0])
	return d.err
}

// TestForwarding: each outcome names its extension, and what failed.
func TestForwarding(t *testing.T) {
	for _, err := range []error{nil, errNo} {
		d := &devices{err: err}
		cfg := Config{Forwarding: d}
		read := one[effect.ForwardingRead](t, cfg, effect.ReadForwarding{Extension: 2, Devices: []string{"ens1"}})
		if _, ok := read.Tables["ens1"]; !ok || read.Extension != 2 || !slices.Equal(read.Devices, []string{"ens1"}) || !errors.Is(read.Err, err) {
			t.Errorf("%+v", read)
		}
		if _, bounded := d.ended.Deadline(); !bounded || d.ended.Err() == nil {
			t.Error("a reading may take for ever, or its timer stays")
		}
		changes := forwarding.Changes{Add: make([]forwarding.Entry, 2)}
		if got := one[effect.ForwardingChanged](t, cfg, effect.ChangeForwarding{Extension: 2, Changes: changes}); got.Extension != 2 || len(got.Changes.Add) != 2 || !errors.Is(got.Err, err) {
			t.Errorf("%+v", got)
		}
		got := outcomes(t.Context(), cfg, effect.WatchDevices{Extension: 2, Devices: []string{"ens1"}})
		if len(got) != 2 || got[0] != (effect.DeviceChanged{Extension: 2, Device: "ens1"}) {
			t.Fatalf("%+v", got)
		}
		if end := got[1].(effect.DeviceChanged); end.Extension != 2 || end.Device != "" || !errors.Is(end.Err, err) {
			t.Errorf("%+v", end)
		}
	}
}

// programs are those of iptables, or an error.
type programs struct {
	err   error
	asked []string
}

func (p *programs) Read(context.Context) (iptables.State, error) {
	p.asked = append(p.asked, "read")
	return iptables.State{}, p.err
}

func (p *programs) Apply(context.Context, *iptables.Changes) error { return p.err }

func (p *programs) Other(context.Context) (string, error) {
	p.asked = append(p.asked, "other")
	return "iptables-legacy", p.err
}

func (p *programs) End(context.Context, []iptables.Connections) (int, error) { return 3, p.err }

// TestRules: another back end is asked for when it is wanted and there is an answer about this one.
func TestRules(t *testing.T) {
	for _, err := range []error{nil, errNo} {
		for _, other := range []bool{false, true} {
			p := &programs{err: err}
			got := one[effect.RulesRead](t, Config{Rules: p}, effect.ReadRules{Other: other})
			want := []string{"read"}
			if other && err == nil {
				want = append(want, "other")
			}
			if !slices.Equal(p.asked, want) || got.Asked != other || (got.Other != "") != (len(want) == 2) || !errors.Is(got.Err, err) {
				t.Errorf("%+v, asked for %q", got, p.asked)
			}
		}
		changes := &iptables.Changes{}
		if got := one[effect.RulesApplied](t, Config{Rules: &programs{err: err}}, effect.ApplyRules{Changes: changes}); got.Changes != changes || !errors.Is(got.Err, err) {
			t.Errorf("%+v", got)
		}
		if got := one[effect.ConnectionsEnded](t, Config{Rules: &programs{err: err}}, effect.EndConnections{}); got.N != 3 || !errors.Is(got.Err, err) {
			t.Errorf("%+v", got)
		}
	}
}

func (halfBroken) Release(_ context.Context, zone uint16, list []conntrack.Connection) (int, error) {
	if zone%2 != 0 {
		return 1, errZone
	}
	return len(list), nil
}

// TestReleases: those are counted that were released, whatever became of the others.
func TestReleases(t *testing.T) {
	list := func(zone uint16, n int) zones.Connections {
		return zones.Connections{Zone: zone, List: make([]conntrack.Connection, n)}
	}
	got := one[effect.ConnectionsReleased](t, Config{Conntrack: halfBroken{}}, effect.ReleaseConnections{Connections: []zones.Connections{list(2, 5), list(3, 9), list(4, 7)}})
	if got.N != 5+1+7 || !errors.Is(got.Err, errZone) {
		t.Errorf("%+v", got)
	}
}

// proxy is a metadata proxy that tells one state, and ends with ctx, or at once with an error.
type proxy struct {
	given []*metaproxy.Service
	err   error
}

func (p *proxy) Give(s *metaproxy.Service) { p.given = append(p.given, s) }

func (p *proxy) Run(ctx context.Context, tell func(metaproxy.State)) error {
	if tell(metaproxy.State{Listening: true}); p.err == nil {
		<-ctx.Done()
	}
	return p.err
}

// TestServices: a service is given what it is to be, runs once, and says when it has ended, unless the agent stops.
func TestServices(t *testing.T) {
	for _, err := range []error{nil, errNo} {
		var mu sync.Mutex
		var got []effect.Event
		p := &proxy{err: err}
		ctx, cancel := context.WithCancel(t.Context())
		r := New(Config{Metadata: p}, func(e effect.Event) { mu.Lock(); defer mu.Unlock(); got = append(got, e) })
		first, second := &metaproxy.Service{}, &metaproxy.Service{}
		r.Start(ctx, []effect.Effect{effect.Serve{Extension: 4, Begin: true, Service: first}, effect.Serve{Extension: 4, Service: second}})
		if err == nil {
			cancel()
		}
		r.Wait()
		cancel()
		if !slices.Equal(p.given, []*metaproxy.Service{first, second}) {
			t.Errorf("given %v", p.given)
		}
		want := []effect.Event{effect.Served{Extension: 4, State: metaproxy.State{Listening: true}}}
		if err != nil {
			want = append(want, effect.Served{Extension: 4, Err: err})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// resolvers answer, fail or panic.
type resolvers func() error

func (r resolvers) Ask(_ context.Context, a resolver.Ask) (resolver.Answer, error) {
	return resolver.Answer{Number: a.Number, Message: []byte("yes")}, r()
}

// TestAnswersOfResolvers: who asked is known whatever became of the question.
func TestAnswersOfResolvers(t *testing.T) {
	c := &packetConn{}
	for name, ask := range map[string]resolvers{"": func() error { return nil }, "no": func() error { return errNo }, "worse": func() error { panic("worse") }} {
		got := one[effect.ResolverAnswered](t, Config{Resolver: ask}, effect.AskResolver{Extension: 2, Bridge: "br-int", Conn: c, Ask: resolver.Ask{Number: 7}})
		if got.Extension != 2 || got.Bridge != "br-int" || got.Conn != effect.Conn(c) || got.Answer.Number != 7 || (got.Err == nil) != (name == "") {
			t.Errorf("%q: %+v", name, got)
		}
		if name == "" && string(got.Answer.Message) != "yes" {
			t.Errorf("%+v", got)
		}
	}
}

// bridge is a connection that answers as it is told.
type bridge struct {
	effect.Conn
	done                chan struct{}
	events              chan openflow.Event
	packets             chan *openflow.PacketIn
	unmonitored         error
	flowsErr, metersErr error
	featuresErr         error
	packetsErr          error
	sendErr             func() error
	asked               []string
}

func newBridge() *bridge {
	return &bridge{done: make(chan struct{}), events: make(chan openflow.Event), packets: make(chan *openflow.PacketIn), sendErr: func() error { return nil }}
}

func (b *bridge) say(what string) { b.asked = append(b.asked, what) }

func (b *bridge) Monitor(context.Context, uint32, openflow.Filter, bool) error {
	b.say("monitor")
	return b.unmonitored
}

func (b *bridge) Flows(context.Context, openflow.Filter) ([]openflow.Entry, error) {
	b.say("flows")
	return make([]openflow.Entry, 2), b.flowsErr
}

func (b *bridge) Meters(context.Context) ([]openflow.MeterDesc, error) {
	b.say("meters")
	return make([]openflow.MeterDesc, 3), b.metersErr
}

func (b *bridge) MeterFeatures(context.Context) (openflow.MeterFeatures, error) {
	b.say("features")
	return openflow.MeterFeatures{Max: 9}, b.featuresErr
}

func (b *bridge) EnablePacketIns(context.Context, uint16) error {
	b.say("packets")
	return b.packetsErr
}

func (b *bridge) Send(context.Context, []openflow.Message) error { return b.sendErr() }
func (b *bridge) Done() <-chan struct{}                          { return b.done }
func (b *bridge) Events() <-chan openflow.Event                  { return b.events }
func (b *bridge) PacketIns() <-chan *openflow.PacketIn           { return b.packets }
func (b *bridge) Close() error                                   { b.say("close"); return nil }

// TestReadings: of a new connection changes are followed before flows are read; of meters and packets what is asked for and there.
func TestReadings(t *testing.T) {
	bounds := map[string]extension.Bound{"dhcp": extension.DefaultBound()}
	for name, c := range map[string]struct {
		e      effect.ReadFlows
		conn   bridge
		asked  string
		max    uint32
		meters int
		fails  bool
	}{
		"again":                    {asked: "flows"},
		"again, with meters":       {e: effect.ReadFlows{Reading: dataplane.Reading{MaxMeters: 5}}, asked: "flows meters", max: 5, meters: 3},
		"new":                      {e: effect.ReadFlows{Begin: true}, asked: "monitor flows"},
		"new, with meters":         {e: effect.ReadFlows{Begin: true, AskMeters: true}, asked: "monitor features flows meters", max: 9, meters: 3},
		"new, with packets":        {e: effect.ReadFlows{Begin: true, AskMeters: true, Packets: bounds}, asked: "monitor features packets flows meters", max: 9, meters: 3},
		"no meters":                {e: effect.ReadFlows{Begin: true, AskMeters: true, Packets: bounds}, conn: bridge{featuresErr: errNo}, asked: "monitor features packets flows"},
		"no monitor":               {e: effect.ReadFlows{Begin: true}, conn: bridge{unmonitored: errNo}, asked: "monitor flows"},
		"no packets":               {e: effect.ReadFlows{Begin: true, AskMeters: true, Packets: bounds}, conn: bridge{packetsErr: errNo}, asked: "monitor features packets", max: 9, fails: true},
		"flows cannot be read":     {e: effect.ReadFlows{Reading: dataplane.Reading{MaxMeters: 5}}, conn: bridge{flowsErr: errNo}, asked: "flows", max: 5, fails: true},
		"meters cannot be read":    {e: effect.ReadFlows{Reading: dataplane.Reading{MaxMeters: 5}}, conn: bridge{metersErr: errNo}, asked: "flows meters", max: 5, meters: 3, fails: true},
		"packets, but no features": {e: effect.ReadFlows{Begin: true, Packets: bounds}, asked: "monitor flows"},
	} {
		b := newBridge()
		b.unmonitored, b.featuresErr, b.packetsErr, b.flowsErr, b.metersErr = c.conn.unmonitored, c.conn.featuresErr, c.conn.packetsErr, c.conn.flowsErr, c.conn.metersErr
		close(b.done)
		close(b.packets)
		c.e.Bridge, c.e.Conn = "br-int", b
		got := one[effect.FlowsRead](t, Config{}, c.e)
		if strings.Join(b.asked, " ") != c.asked || got.MaxMeters != c.max || len(got.Meters) != c.meters || (got.Err != nil) != c.fails || !errors.Is(got.Unmonitored, b.unmonitored) {
			t.Errorf("%s: asked %q, %+v", name, b.asked, got)
		}
		if got.Bridge != "br-int" || got.Conn != effect.Conn(b) || c.asked == "flows" && !c.fails && len(got.Flows) != 2 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestFollowing: changes of others and lost reports are passed on, and the packets of a new connection.
func TestFollowing(t *testing.T) {
	b := newBridge()
	var got []effect.Event
	news := make(chan effect.Event, 10)
	r := New(Config{}, func(e effect.Event) { news <- e })
	e := effect.ReadFlows{Begin: true, AskMeters: true, Packets: map[string]extension.Bound{"dhcp": extension.DefaultBound()}}
	e.Bridge, e.Conn = "br-int", b
	r.Start(t.Context(), []effect.Effect{e})
	<-news // it was read
	update := func(kind openflow.MonitorEvent) openflow.FlowUpdate { return openflow.FlowUpdate{Event: kind} }
	for _, event := range []openflow.Event{
		&openflow.MonitorUpdate{Updates: []openflow.FlowUpdate{update(openflow.FlowAdded), update(openflow.FlowDeleted), update(openflow.FlowModified), update(openflow.FlowInitial)}},
		&openflow.MonitorUpdate{Updates: []openflow.FlowUpdate{update(openflow.FlowInitial)}}, // nothing
		openflow.EventsLost{},
	} {
		b.events <- event
	}
	b.packets <- &openflow.PacketIn{Userdata: []byte("dhcp x")}
	close(b.packets)
	close(b.done)
	r.Wait()
	close(news)
	var changed []effect.FlowsChanged
	for e := range news {
		if c, ok := e.(effect.FlowsChanged); ok {
			changed = append(changed, c)
		} else {
			got = append(got, e)
		}
	}
	if len(changed) != 2 || len(changed[0].Updates) != 3 || changed[0].Lost || len(changed[1].Updates) != 0 || !changed[1].Lost || changed[0].Bridge != "br-int" || changed[0].Conn != effect.Conn(b) {
		t.Errorf("%+v", changed)
	}
	if p, ok := got[0].(effect.PacketIn); len(got) != 1 || !ok || p.Bridge != "br-int" || p.Conn != effect.Conn(b) {
		t.Errorf("%+v", got)
	}
}

// TestAnswersToPackets: one that is lost is nobody's business, a panic is.
func TestAnswersToPackets(t *testing.T) {
	for name, c := range map[string]struct {
		send func() error
		want int
	}{"sent": {func() error { return nil }, 0}, "lost": {func() error { return errNo }, 0}, "worse": {func() error { panic("worse") }, 1}} {
		b := newBridge()
		b.sendErr = c.send
		got := outcomes(t.Context(), Config{}, effect.SendPackets{Conn: b})
		if len(got) != c.want || len(got) == 1 && !isPanic(effect.Failure(got[0])) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSavedState: the file that was written is there, or why it is not.
func TestSavedState(t *testing.T) {
	dir := t.TempDir()
	save := effect.Save{Memory: &world.Memory{}, At: time.Unix(1e9, 0)}
	good, bad := Config{Snapshot: filepath.Join(dir, "state")}, Config{Snapshot: filepath.Join(dir, "nowhere", "state")}
	if got := one[effect.Saved](t, good, save); got.Err != nil {
		t.Error(got.Err)
	}
	if got := one[effect.Saved](t, bad, save); got.Err == nil {
		t.Error("written nowhere")
	}
	if err := New(good, nil).Save(save); err != nil {
		t.Error(err)
	}
	if New(bad, nil).Save(save) == nil {
		t.Error("written nowhere")
	}
}

// TestLinks: each state of a connection is passed on, in order.
func TestLinks(t *testing.T) {
	b := newBridge()
	links := make(chan Link, 2)
	links <- Link{Err: errNo}
	links <- Link{Conn: b}
	close(links)
	got := outcomes(t.Context(), Config{Link: func(context.Context, string) <-chan Link { return links }}, effect.Dial{Bridge: "br-int"})
	if want := []effect.Event{effect.BridgeLinked{Bridge: "br-int", Err: errNo}, effect.BridgeLinked{Bridge: "br-int", Conn: b}}; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := outcomes(t.Context(), Config{}, effect.HangUp{Conn: b}); len(got) != 0 || !slices.Equal(b.asked, []string{"close"}) {
		t.Errorf("%v, %q", got, b.asked)
	}
}
