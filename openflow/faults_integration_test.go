// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-sdn/patchbay/lab/vswitch"
)

// link is a supervised connection to the bridge for a test.
type link struct {
	t     *testing.T
	links <-chan Link
}

func supervise(t *testing.T, sw *vswitch.Switch) *link {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &Supervisor{
		Dial: func(ctx context.Context) (*Conn, error) {
			return Dial(ctx, "unix:"+sw.MgmtSocket(bridge), Config{})
		},
		MinPause: 10 * time.Millisecond, MaxPause: 200 * time.Millisecond,
	}
	links := s.Start(ctx)
	t.Cleanup(func() {
		cancel()
		for range links { // until the supervisor has closed it
		}
	})
	return &link{t, links}
}

// up waits for a connection.
func (l *link) up() *Conn {
	l.t.Helper()
	for {
		if k := l.next(); k.Conn != nil {
			return k.Conn
		}
	}
}

func (l *link) next() Link {
	l.t.Helper()
	select {
	case k, ok := <-l.links:
		if !ok {
			l.t.Fatal("supervisor ended")
		}
		return k
	case <-time.After(30 * time.Second):
		l.t.Fatal("no event for 30 s")
	}
	return Link{}
}

func manyFlows(t *testing.T, n int) []Entry {
	t.Helper()
	list := make([]Entry, n)
	for i := range list {
		f := pipelineFlow(i)
		f.Match = f.Match.With(Num(Metadata, uint64(i)))
		var err error
		if list[i], err = f.Entry(); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// wantLost insists on the error of a connection that broke.
func wantLost(t *testing.T, what string, err error) {
	t.Helper()
	var lost *ConnError
	if !errors.As(err, &lost) {
		t.Fatalf("%s: %v is no *ConnError", what, err)
	}
}

// vswitchd is killed in the middle of a bundle, of a dump and of a storm of
// packet-ins: the request ends with *ConnError, the supervisor connects again,
// and everything works as before.
func TestFaultKill(t *testing.T) {
	sw := newSwitch(t)
	l := supervise(t, sw)
	flows := manyFlows(t, 30000)
	ctx := t.Context()
	restore := func() *Conn {
		t.Helper()
		if err := sw.StartVswitchd(ctx); err != nil {
			t.Fatal(err)
		}
		c := l.up()
		// A killed switch has lost its flows; a few bundles show that the new
		// connection is sound.
		if n := countFlows(t, c); n != 0 {
			t.Fatalf("%d flows after the restart", n)
		}
		return c
	}

	c := l.up()
	t.Run("bundle", func(t *testing.T) {
		done := make(chan error, 1)
		go func() { done <- c.Commit(ctx, adds(flows)) }()
		time.Sleep(20 * time.Millisecond)
		if err := sw.KillVswitchd(ctx); err != nil {
			t.Fatal(err)
		}
		wantLost(t, "bundle", <-done)
		wantLost(t, "next request", c.Barrier(ctx))
		c = restore()
		if err := c.Commit(ctx, adds(flows)); err != nil {
			t.Fatal(err)
		}
		if n := countFlows(t, c); n != len(flows) {
			t.Fatalf("%d flows", n)
		}
	})
	t.Run("dump", func(t *testing.T) {
		var once sync.Once
		n := 0
		err := c.DumpFlows(ctx, Filter{Table: AllTables}, func(*FlowStat) error {
			once.Do(func() {
				if err := sw.KillVswitchd(ctx); err != nil {
					t.Error(err)
				}
			})
			n++
			return nil
		})
		t.Logf("%d of %d flows came before the end", n, len(flows))
		wantLost(t, "dump", err)
		c = restore()
	})
	t.Run("packet-ins", func(t *testing.T) {
		if err := c.EnablePacketIns(ctx, 0); err != nil {
			t.Fatal(err)
		}
		storm := make([]Message, 20000)
		for i := range storm {
			storm[i] = PacketOut{InPort: 1, Actions: []Action{Controller{MaxLen: 0xffff, Reason: ReasonAction, Userdata: "storm"}}, Packet: make([]byte, 200)}
		}
		done := make(chan error, 1)
		go func() { done <- c.Send(ctx, storm) }()
		got := 0
		for range c.PacketIns() {
			if got++; got == 100 {
				if err := sw.KillVswitchd(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Logf("%d packet-ins read, %d dropped", got, c.PacketInsDropped())
		wantLost(t, "storm", <-done)
		c = restore()
		if err := c.Commit(ctx, adds(flows[:1000])); err != nil {
			t.Fatal(err)
		}
	})
}

// The socket goes and comes: the bridge is deleted and created, its protocols
// change. The supervisor says so, and a user who was busy meanwhile gets one
// event: the new connection.
func TestFaultSocket(t *testing.T) {
	sw := newSwitch(t)
	l := supervise(t, sw)
	c := l.up()
	vsctl(t, sw, "del-br", bridge)
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the connection outlived its bridge")
	}
	if k := l.next(); k.Conn != nil || k.Err == nil {
		t.Fatalf("%+v instead of a break", k)
	}
	addBridge(t, sw)
	c = l.up()
	if err := c.Commit(t.Context(), adds(manyFlows(t, 100))); err != nil {
		t.Fatal(err)
	}
	// A new list of protocols drops the connections and keeps the flows. We do
	// not read the event of the break.
	vsctl(t, sw, "set", "Bridge", bridge, "protocols=OpenFlow13")
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the connection was kept")
	}
	time.Sleep(500 * time.Millisecond)
	k := l.next()
	if k.Conn == nil || k.Conn.Version() != OpenFlow13 {
		t.Fatalf("%+v instead of one new connection", k)
	}
	if n := countFlows(t, k.Conn); n != 100 {
		t.Errorf("%d flows", n)
	}
}

// A switch that hangs does not hold a request longer than its context.
func TestFaultHang(t *testing.T) {
	sw := newSwitch(t)
	flows := adds(manyFlows(t, 30000))
	flows = slices.Repeat(flows, 5)
	c := dial(t, sw, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	stopSwitch(t, sw, func() {
		began := time.Now()
		if err := c.Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("barrier: %v", err)
		}
		// More than the socket takes: the write itself has to be given up. A slow machine takes a while to begin it.
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := c.Commit(ctx, flows); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("bundle: %v", err)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("took %v", took)
		}
	})
	if c.Err() == nil {
		t.Error("half a message was written and the connection goes on")
	}
	c = dial(t, sw, Config{})
	if n := countFlows(t, c); n != 0 {
		t.Errorf("%d flows", n)
	}
}

// A probe finds out that the switch is gone.
func TestFaultProbe(t *testing.T) {
	sw := newSwitch(t)
	c := dial(t, sw, Config{Probe: 50 * time.Millisecond})
	time.Sleep(300 * time.Millisecond)
	if err := c.Err(); err != nil {
		t.Fatalf("an idle connection ended: %v", err)
	}
	stopSwitch(t, sw, func() {
		select {
		case <-c.Done():
		case <-time.After(5 * time.Second):
			t.Error("silence was not noticed")
		}
	})
}

// The switch connects to us, as with the Controller row that the Python agent
// makes.
func TestLiveListener(t *testing.T) {
	sw := newSwitch(t)
	l, err := Listen(t.Context(), fmt.Sprintf("unix:%s/controller.sock", sw.Dir()), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	vsctl(t, sw, "set-controller", bridge, "unix:"+l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if c.Features().DatapathID == 0 {
		t.Errorf("%+v", c.Features())
	}
	if err := c.Commit(ctx, adds(manyFlows(t, 100))); err != nil {
		t.Fatal(err)
	}
	if n := countFlows(t, c); n != 100 {
		t.Errorf("%d flows", n)
	}
	// A second Accept ends with its context.
	ctx2, cancel2 := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel2()
	vsctl(t, sw, "del-controller", bridge)
	if _, err := l.Accept(ctx2); err == nil {
		t.Error("accepted nobody")
	}
}

// A flow monitor tells what another connection does, refuses what the switch
// refuses, and can be stopped.
func TestLiveMonitor(t *testing.T) {
	sw := newSwitch(t)
	for _, v := range bothVersions {
		t.Run(v.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c, other := dial(t, sw, only(v)), dial(t, sw, Config{})
			flows := manyFlows(t, 3000)
			if err := other.Commit(ctx, adds(flows)); err != nil {
				t.Fatal(err)
			}
			if err := c.Monitor(ctx, 1, Filter{Table: AllTables}, true); err != nil {
				t.Fatal(err)
			}
			have := map[Key]Entry{}
			var events []FlowUpdate
			read := func(until func() bool) {
				t.Helper()
				for !until() {
					select {
					case ev := <-c.Events():
						u, ok := ev.(*MonitorUpdate)
						if !ok {
							t.Fatalf("%T", ev)
						}
						for _, x := range u.Updates {
							events = append(events, x)
							switch x.Event {
							case FlowInitial, FlowAdded, FlowModified:
								have[x.Entry.Key()] = x.Entry
							case FlowDeleted:
								delete(have, x.Entry.Key())
							}
						}
					case <-ctx.Done():
						t.Fatalf("%d flows seen", len(have))
					}
				}
			}
			read(func() bool { return len(have) == len(flows) })
			for _, e := range flows {
				if have[e.Key()] != e {
					t.Fatalf("%v is not %v", have[e.Key()], e)
				}
			}
			events = nil
			extra := mustEntry(t, "table=99,priority=1,cookie=0x5,in_port=1,actions=output:2")
			changed := mustEntry(t, "table=99,priority=1,cookie=0x5,in_port=1,actions=drop")
			for _, m := range []Message{AddFlow(extra), AddFlow(changed), DeleteFlow(extra.Key())} {
				if err := other.Commit(ctx, []Message{m}); err != nil {
					t.Fatal(err)
				}
			}
			read(func() bool { return len(events) >= 3 })
			if events[0].Event != FlowAdded || events[0].Entry != extra ||
				events[1].Entry != changed || events[2].Event != FlowDeleted || events[2].Entry.Key() != extra.Key() {
				t.Errorf("%+v", events)
			}
			// The same id again is refused, with an error whose transaction id is 0.
			err := c.Monitor(ctx, 1, Filter{Table: AllTables}, false)
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("second monitor: %v", err)
			}
			t.Logf("second monitor with the same id: %v", err)
			if err := c.StopMonitor(ctx, 1); err != nil {
				t.Error(err)
			}
			events = nil
			if err := other.Send(ctx, []Message{deleteAll(t)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Barrier(ctx); err != nil {
				t.Fatal(err)
			}
			if len(c.Events()) != 0 {
				t.Errorf("%d events after the end of the monitor", len(c.Events()))
			}
		})
	}
}

// Events that nobody reads do not stop the connection, and the loss is told.
func TestLiveEventsLost(t *testing.T) {
	sw := newSwitch(t)
	c, other := dial(t, sw, Config{Events: 4}), dial(t, sw, Config{})
	ctx := t.Context()
	if err := c.Monitor(ctx, 1, Filter{Table: AllTables}, false); err != nil {
		t.Fatal(err)
	}
	for _, e := range manyFlows(t, 20) {
		if err := other.Send(ctx, []Message{AddFlow(e)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	var last Event
	for len(c.Events()) > 0 {
		last = <-c.Events()
	}
	if _, ok := last.(EventsLost); !ok {
		t.Errorf("the last event is %T", last)
	}
	if err := other.Send(ctx, []Message{deleteAll(t)}); err != nil {
		t.Fatal(err)
	}
	if _, ok := (<-c.Events()).(*MonitorUpdate); !ok {
		t.Error("no events after the loss")
	}
}
