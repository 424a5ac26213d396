// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/openflow"
)

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

// readFlows reads the flows of a bridge, and on a new connection has changes reported from then on.
func (r *Runner) readFlows(ctx context.Context, e effect.ReadFlows) effect.Event {
	name, conn := e.Bridge, e.Conn
	e.Err = r.try("reading a bridge", func() (err error) {
		if e.Begin {
			// First the reports, then the dump: what happens in between is in both.
			e.Unmonitored = e.Conn.Monitor(ctx, 1, openflow.Filter{Table: openflow.AllTables}, false)
			r.work.Go(func() {
				if err := r.try("following a bridge", func() error { r.follow(name, conn); return nil }); err != nil {
					r.put(effect.FollowFailed{Err: err})
					_ = conn.Close() // the supervisor makes a new one
				}
			})
			if err = r.readFeatures(ctx, &e); err != nil {
				return err
			}
		}
		e.Flows, err = e.Conn.Flows(ctx, openflow.Filter{Table: openflow.AllTables})
		if e.MaxMeters > 0 && err == nil {
			e.Meters, err = e.Conn.Meters(ctx)
		}
		return err
	})
	return effect.FlowsRead{Reading: e.Reading}
}

// readFeatures finds out what a newly connected bridge can do for extensions, and has packets passed on that flows send to the
// controller.
func (r *Runner) readFeatures(ctx context.Context, e *effect.ReadFlows) error {
	if !e.AskMeters {
		return nil
	}
	if features, err := e.Conn.MeterFeatures(ctx); err == nil { // else it has none
		e.MaxMeters = features.Max
	}
	if len(e.Packets) == 0 {
		return nil
	}
	if err := e.Conn.EnablePacketIns(ctx, 0); err != nil {
		return err
	}
	name, conn, bounds := e.Bridge, e.Conn, e.Packets
	r.work.Go(func() { r.takePackets(name, conn, conn, bounds) })
	if r.cfg.PacketLink == nil {
		return nil
	}
	for id := range e.PacketConns {
		r.work.Go(func() { r.keepPacketConn(context.WithoutCancel(ctx), name, conn, uint16(id+1), bounds) }) //nolint:gosec // there are a few
	}
	return nil
}

// follow passes on what the switch reports, until the connection ends.
func (r *Runner) follow(name string, conn effect.Conn) {
	for {
		select {
		case <-conn.Done():
			return
		case e := <-conn.Events():
			out := effect.FlowsChanged{Bridge: name, Conn: conn}
			switch e := e.(type) {
			case openflow.EventsLost:
				out.Lost = true
			case *openflow.MonitorUpdate:
				for _, u := range e.Updates {
					if u.Event == openflow.FlowAdded || u.Event == openflow.FlowDeleted || u.Event == openflow.FlowModified {
						out.Updates = append(out.Updates, u)
					}
				}
			}
			if out.Lost || len(out.Updates) > 0 {
				r.put(out)
			}
		}
	}
}
