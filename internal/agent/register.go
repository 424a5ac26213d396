// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// errNoDatabase is what a server means that answers, but not with yes.
var errNoDatabase = errors.New("the server cannot reach its database")

// register waits until a server is alive, finds out its object versions and listens to the topics of exactly these.
// It runs beside the loop and tries until it succeeds or ctx ends. Its pauses grow and are jittered, because after an
// outage every host of the region is in here.
func (a *Agent) register(ctx context.Context) {
	began := time.Now()
	for pause := alivePause; ; pause = min(2*pause, aliveMax) {
		var e registered
		err := a.aside("registering", func() (err error) {
			e, err = a.tryRegister(ctx)
			return err
		})
		if err == nil {
			e.waited = time.Since(began)
			a.inbox.put(e)
			return
		}
		if ctx.Err() != nil {
			return
		}
		a.inbox.put(notAlive{err})
		if sleep(ctx, time.Duration((0.5+rand.Float64())*float64(pause))) != nil {
			return
		}
	}
}

func (a *Agent) tryRegister(ctx context.Context) (registered, error) {
	// Shorter than other calls: an operator who started us should soon read that nobody answers.
	asking, done := context.WithTimeout(ctx, aliveTimeout)
	alive, err := a.server.Alive(asking)
	done()
	if err != nil {
		return registered{}, err
	}
	if !alive {
		return registered{}, errNoDatabase
	}
	releases, versions, err := neutron.Negotiate(ctx, a.server)
	if err != nil {
		return registered{}, err
	}
	listen := slices.Concat(kinds(), a.extensions.Kinds())
	slices.Sort(listen)
	topics := append(neutron.Topics(versions, a.cfg.Configurations.L2Population, slices.Compact(listen)...), a.extensions.Topics()...)
	if err := a.broker.Serve(ctx, messaging.Service{Topics: topics, Handler: a.take}); err != nil {
		return registered{}, err
	}
	// A Python agent leaves a queue behind for every topic it ever listened to, ours or not. Not worth failing for: they
	// only take up room on the broker.
	theirs := neutron.Topics(versions, true, slices.Collect(maps.Keys(versions))...)
	removed, _ := a.broker.RemoveLeftovers(ctx, theirs, a.cfg.Host)
	return registered{releases: releases, versions: versions, removed: removed}, nil
}

// take is where messages arrive. It hands them to the loop; from then on they are ours, and the broker may forget them. While
// the loop has enough of them it waits, and the broker with it.
func (a *Agent) take(ctx context.Context, m *messaging.Message) (any, error) {
	if m.Call {
		// Nobody calls an agent, except to see whether it is there.
		if a.cfg.Ping && m.Method == "oslo_rpc_server_ping" {
			return "pong", nil
		}
		return nil, messaging.NewNoSuchMethod(m.Method)
	}
	return nil, a.pushes.put(ctx, m)
}

// sleep waits, or returns ctx's error when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
