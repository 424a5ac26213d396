// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// linked: the connection to a bridge came up or broke.
type linked struct {
	bridge string
	link   Link
}

// observed: the switch reports changes that are not ours, or that reports were lost.
type observed struct {
	bridge  string
	conn    Conn
	updates []openflow.FlowUpdate
	lost    bool
}

// linkBridges connects to the bridges that exist.
func (a *Agent) linkBridges(ctx context.Context) {
	for _, name := range a.world.Bridges() {
		row := a.world.View.BridgeByName(name)
		if lost, err := a.dataplane.Unreachable(name, time.Now()); row != nil && lost {
			a.repeats.log(a.log, slog.LevelWarn, "OpenFlow connection to the bridge failed, retrying", "bridge", name, "err", err)
		}
		if a.links[name] || row == nil || row.DatapathID == "" {
			continue // the switch has not made it yet
		}
		a.links[name] = true
		links := a.cfg.Link(ctx, name)
		a.work.Go(func() {
			for l := range links {
				a.inbox.put(linked{name, l})
			}
		})
	}
}

// switchPause is how long at most nobody tries to reach a bridge that is away. Its socket is on this host, so that an attempt
// costs next to nothing, and until it is made the switch forwards nothing, though it may be back.
const switchPause = 200 * time.Millisecond

// Supervised keeps connections that dial makes, and is for [Config].Link.
func Supervised(dial func(ctx context.Context, bridge string) (*openflow.Conn, error)) func(context.Context, string) <-chan Link {
	return func(ctx context.Context, bridge string) <-chan Link {
		s := &openflow.Supervisor{
			Dial:     func(ctx context.Context) (*openflow.Conn, error) { return dial(ctx, bridge) },
			MaxPause: switchPause,
		}
		from, to := s.Start(ctx), make(chan Link)
		go func() {
			defer close(to)
			for l := range from {
				next := Link{Err: l.Err}
				if l.Conn != nil { // else the interface would not be nil
					next.Conn = l.Conn
				}
				select {
				case to <- next:
				case <-ctx.Done():
				}
			}
		}()
		return to
	}
}

func (a *Agent) bridgeLinked(ctx context.Context, e linked) {
	a.act(a.dataplane.Linked(e.bridge, e.link.Conn, e.link.Err, time.Now()))
	if e.link.Conn != nil {
		a.limits.Changed() // of a switch that was restarted
		a.dump(ctx, dataplane.Reading{Bridge: e.bridge, Conn: e.link.Conn}, true)
	}
}

// act does what an input of the dataplane leads to.
func (a *Agent) act(out dataplane.Outcome) {
	for _, l := range out.Logs {
		if l.Repeated {
			a.repeats.log(a.log, l.Level, l.Message, l.Args...)
		} else {
			a.log.Log(context.Background(), l.Level, l.Message, l.Args...) //nolint:sloglint // the messages of the dataplane are constants
		}
	}
	for _, conn := range out.Close {
		_ = conn.Close() // the supervisor makes a new one
	}
}

func (a *Agent) bridgeRead(e dataplane.Reading) {
	out, first := a.dataplane.Read(e, time.Now())
	a.act(out)
	if !first {
		return
	}
	a.world.MaxMeters[e.Bridge] = e.MaxMeters
	if e.Bridge == a.cfg.World.IntegrationBridge {
		a.adopt(e.Flows)
		a.disinherit(e.Bridge)
		a.keepApart(e.Flows)
	}
	a.repeats.forget("OpenFlow connection to the bridge failed, retrying")
	a.log.Info("bridge connected", "bridge", e.Bridge, "flows", len(e.Flows))
}

// dump reads the flows of a bridge, and on a new connection has changes reported from then on.
func (a *Agent) dump(ctx context.Context, e dataplane.Reading, begin bool) {
	a.work.Go(func() {
		e.Err = a.aside("reading a bridge", func() error { return a.readBridge(ctx, &e, begin) })
		a.inbox.put(e)
	})
}

// readBridge runs beside the loop.
func (a *Agent) readBridge(ctx context.Context, e *dataplane.Reading, begin bool) (err error) {
	name, conn := e.Bridge, e.Conn
	if begin {
		// First the reports, then the dump: what happens in between is in both.
		e.Unmonitored = conn.Monitor(ctx, 1, openflow.Filter{Table: openflow.AllTables}, false)
		a.work.Go(func() {
			if a.aside("following a bridge", func() error { a.follow(name, conn); return nil }) != nil {
				_ = conn.Close() // the supervisor makes a new one
			}
		})
		if err = a.greet(ctx, e); err != nil {
			return err
		}
	}
	e.Flows, err = conn.Flows(ctx, openflow.Filter{Table: openflow.AllTables})
	if e.MaxMeters > 0 && err == nil {
		e.Meters, err = conn.Meters(ctx)
	}
	return err
}

// follow passes on what the switch reports, until the connection ends.
func (a *Agent) follow(name string, conn Conn) {
	for {
		select {
		case <-conn.Done():
			return
		case e := <-conn.Events():
			o := observed{bridge: name, conn: conn}
			switch e := e.(type) {
			case openflow.EventsLost:
				o.lost = true
			case *openflow.MonitorUpdate:
				for _, u := range e.Updates {
					if u.Event == openflow.FlowAdded || u.Event == openflow.FlowDeleted || u.Event == openflow.FlowModified {
						o.updates = append(o.updates, u)
					}
				}
			}
			if o.lost || len(o.updates) > 0 {
				a.inbox.put(o)
			}
		}
	}
}

// flowsObserved takes changes that others made.
func (a *Agent) flowsObserved(e observed) {
	a.act(a.dataplane.Observe(e.bridge, e.conn, e.updates, e.lost, time.Now()))
}

// readAgain reads bridges again of which changes may be unknown.
func (a *Agent) readAgain(ctx context.Context) {
	for _, r := range a.dataplane.ToRead(time.Now()) {
		a.dump(ctx, r, false)
	}
}
