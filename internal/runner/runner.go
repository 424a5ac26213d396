// SPDX-License-Identifier: Apache-2.0

// Package runner carries out what the agent's decisions lead to (package effect): calls of the server, changes of the switch, connection tracking, the
// snapshot. It is the only package that waits for them, and decides nothing.
//
// In: effects. Out: for each effect its outcome, as an event. A panic of the work is the outcome's error. server.go calls neutron-server,
// bridge.go speaks with bridges.
package runner

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/conntrack"
	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/observe"
	"github.com/patchbay-sdn/patchbay/internal/snapshot"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/internal/zones"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// Broker is what is used of *messaging.Client.
type Broker interface {
	neutron.Caller
	Serve(ctx context.Context, s messaging.Service) error
	RemoveLeftovers(ctx context.Context, topics []string, server string) ([]string, error)
}

// Switch is what is used of *ovsdb.Client.
type Switch interface {
	dataplane.Committer
	Run(ctx context.Context)
}

// Conntrack is what is used of connection tracking. A zone is a local VLAN.
type Conntrack interface {
	dataplane.Flusher
	Marked(ctx context.Context, zone uint16) ([]conntrack.Connection, error)
	Release(ctx context.Context, zone uint16, connections []conntrack.Connection) (int, error)
}

// Link is the state of a connection to a bridge: a new one, or why there is none.
type Link struct {
	Conn effect.Conn
	Err  error
}

// Config is what effects are carried out on.
type Config struct {
	Host    string
	LocalIP netip.Addr // of tunnels
	Broker  Broker
	// Handler takes the messages of the server.
	Handler messaging.Handler
	// Switch is the client of the switch's database.
	Switch Switch
	// Link keeps a connection to a bridge, given by its name, until ctx ends; then it closes the channel.
	Link func(ctx context.Context, bridge string) <-chan Link
	// PacketLink does the same for connections that only packets come by; nil: there are none.
	PacketLink func(ctx context.Context, bridge string) <-chan Link
	Conntrack  Conntrack         // nil when nothing is filtered
	Limits     dataplane.Limiter // nil: nobody sets them
	Rules      Rules             // nil when iptables filters nothing
	// Forwarding reads and changes forwarding tables of devices; nil when no extension has any.
	Forwarding Forwarding
	// Metadata is the metadata proxy; nil when no extension has one.
	Metadata Metadata
	// Resolver asks resolvers; nil when no extension does.
	Resolver Resolver
	// Records writes lines of extensions' logs, and may take its time. Lost is how many could not be kept before these. Nil: they are dropped.
	Records  func(lines effect.WriteRecords, lost uint64)
	Snapshot string // the file
	Notifier *observe.Notifier
}

// Runner carries out effects.
type Runner struct {
	cfg    Config
	server *neutron.Server
	put    func(effect.Event)
	// Probe is for tests: it is called at the beginning and the end of each piece of work, by any goroutine.
	Probe   func(what string)
	work    sync.WaitGroup
	records records
}

// New returns a runner that puts outcomes somewhere. Put must not wait, and may be called by any goroutine.
func New(cfg Config, put func(effect.Event)) *Runner {
	return &Runner{cfg: cfg, server: neutron.NewServer(cfg.Broker, cfg.Host), put: put}
}

// StartSwitch runs the client of the switch's database until ctx ends.
func (r *Runner) StartSwitch(ctx context.Context) { r.work.Go(func() { r.cfg.Switch.Run(ctx) }) }

// Wait waits until all work has come to its end.
func (r *Runner) Wait() { r.work.Wait() }

// Start begins to carry out effects, in their order. It never waits for the outside, but for the service manager and for connections to close.
func (r *Runner) Start(ctx context.Context, effects []effect.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case effect.HangUp:
			_ = e.Conn.Close() // the supervisor makes a new one
		case effect.Notify:
			if err := r.notify(e); err != nil {
				r.put(effect.NotifyFailed{Err: err})
			}
		case effect.WriteRecords:
			r.record(e)
		case effect.Serve:
			r.serve(ctx, e)
		case effect.Dial:
			links := r.cfg.Link(ctx, e.Bridge)
			r.work.Go(func() {
				for l := range links {
					r.put(effect.BridgeLinked{Bridge: e.Bridge, Conn: l.Conn, Err: l.Err})
				}
			})
		default:
			r.work.Go(func() {
				if outcome := r.do(ctx, e); outcome != nil {
					r.put(outcome)
				}
			})
		}
	}
}

// do carries out an effect that takes time, and returns its outcome.
func (r *Runner) do(ctx context.Context, e effect.Effect) effect.Event {
	switch e := e.(type) {
	case effect.Register:
		return r.register(ctx, e)
	case effect.ReportState:
		return r.reportState(ctx, e)
	case effect.Pull:
		return r.pull(ctx, e)
	case effect.ReportPorts:
		return r.reportPorts(ctx, e)
	case effect.AskDatabase:
		return r.askDatabase(ctx, e)
	case effect.CallExtension:
		return r.callExtension(ctx, e)
	case effect.Apply:
		e.Err = r.try("changing the switch", func() error { e.Run(ctx, r.switchIO()); return nil })
		return effect.Applied(e)
	case effect.ReadFlows:
		return r.readFlows(ctx, e)
	case effect.SendPackets:
		if err := r.try("answering a packet", func() error { return e.Conn.Send(ctx, e.Messages) }); isPanic(err) {
			return effect.FollowFailed{Err: err}
		}
		return nil // a packet that is lost is asked for again by who needs it
	case effect.ListConnections:
		return r.listConnections(ctx, e)
	case effect.ReleaseConnections:
		return r.releaseConnections(ctx, e)
	case effect.ReadRules, effect.ApplyRules, effect.EndConnections:
		return r.rules(ctx, e)
	case effect.WatchDevices, effect.ReadForwarding, effect.ChangeForwarding:
		return r.forwarding(ctx, e)
	case effect.AskResolver:
		return r.askResolver(ctx, e)
	case effect.Save:
		return effect.Saved{Err: r.try("writing the snapshot", func() error { return r.save(e) })}
	}
	panic("an effect that nobody carries out: " + e.String())
}

// try runs work. A panic of it is its error.
func (r *Runner) try(what string, work func() error) error { return effect.Try(r.Probe, what, work) }

func isPanic(err error) bool {
	var p *effect.Panic
	return errors.As(err, &p)
}

func (r *Runner) switchIO() dataplane.Switch {
	return dataplane.Switch{Rows: r.cfg.Switch, Zones: r.cfg.Conntrack, Limits: r.cfg.Limits}
}

func (r *Runner) notify(e effect.Notify) error {
	if e.Ready == "" {
		return r.cfg.Notifier.Watchdog()
	}
	return r.cfg.Notifier.Ready(e.Ready)
}

// Save writes a snapshot and waits for that.
func (r *Runner) Save(e effect.Save) error {
	return effect.Try(nil, "writing the snapshot", func() error { return r.save(e) })
}

func (r *Runner) save(e effect.Save) error {
	return snapshot.Save(r.cfg.Snapshot, world.MemoryVersion, e.Memory, e.At)
}

func (r *Runner) listConnections(ctx context.Context, e effect.ListConnections) effect.Event {
	var out effect.ConnectionsListed
	began := time.Now()
	out.Err = r.try("listing connections", func() (errs error) {
		for _, zone := range e.Zones {
			list, err := r.cfg.Conntrack.Marked(ctx, zone)
			if len(list) > 0 {
				out.Found = append(out.Found, zones.Connections{Zone: zone, List: list})
			}
			errs = errors.Join(errs, err)
		}
		return errs
	})
	out.Took = time.Since(began)
	return out
}

func (r *Runner) releaseConnections(ctx context.Context, e effect.ReleaseConnections) effect.Event {
	var out effect.ConnectionsReleased
	out.Err = r.try("releasing connections", func() (errs error) {
		for _, c := range e.Connections {
			n, err := r.cfg.Conntrack.Release(ctx, c.Zone, c.List)
			out.N += n
			errs = errors.Join(errs, err)
		}
		return errs
	})
	return out
}
