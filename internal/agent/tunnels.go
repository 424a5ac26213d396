// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/neutron"
)

// synced: the server's list of endpoints of one tunnel type.
type synced struct {
	tunnelType string
	tunnels    []neutron.Tunnel
	asked      uint64 // when, as the world counts
	err        error
}

// syncTunnels announces our endpoint for every tunnel type and asks for everyone else's.
func (a *Agent) syncTunnels(ctx context.Context) {
	now := time.Now()
	for _, t := range a.cfg.World.TunnelTypes {
		if a.tunnels[t] != tunnelUnsynced || a.tunnelRetries.waiting(t, now) || a.versions == nil {
			continue
		}
		a.tunnels[t] = tunnelAsking
		asked := a.world.Now()
		a.work.Go(func() {
			e := synced{tunnelType: t, asked: asked}
			e.err = a.aside("asking for tunnels", func() (err error) {
				e.tunnels, err = a.server.TunnelSync(ctx, a.cfg.World.LocalIP, t)
				return err
			})
			a.inbox.put(e)
		})
	}
}

type tunnelState uint8

const (
	tunnelUnsynced tunnelState = iota
	tunnelAsking
	tunnelSynced
)

func (a *Agent) tunnelsSynced(e synced) {
	if e.err != nil {
		a.tunnels[e.tunnelType] = tunnelUnsynced
		wait := a.tunnelRetries.unanswered(e.tunnelType, time.Now(), e.err)
		a.repeats.log(a.log, slog.LevelWarn, "tunnels not synchronised, trying again", "type", e.tunnelType, "err", e.err, "after", wait)
		a.wakeUp(a.tunnelRetries.next())
		return
	}
	a.tunnelRetries.forget(e.tunnelType)
	a.repeats.forget("tunnels not synchronised, trying again")
	a.tunnels[e.tunnelType] = tunnelSynced
	endpoints := make([]netip.Addr, len(e.tunnels))
	for i, t := range e.tunnels {
		endpoints[i] = t.IP
	}
	a.world.Tunnels(e.tunnelType, endpoints, e.asked)
	a.memory.stale = true
}

// fdbGrace is the usual [Config].FDBGrace.
const fdbGrace = 30 * time.Second

// inSync says whether everything that the server could tell us at first has been told, and everything that we had to tell.
func (a *Agent) inSync() bool {
	if a.versions == nil || !a.switchUp || a.ports.asking+a.ports.checking > 0 || len(a.ports.onWay) > 0 || len(a.ports.changed) > 0 || a.wiring.applying ||
		a.filters.asking+a.filters.checking > 0 || !a.resyncing.at.IsZero() || len(a.resyncing.networks) > 0 || !a.world.Complete() ||
		!a.extensions.idle() || a.extensions.owing() {
		return false
	}
	for _, t := range a.cfg.World.TunnelTypes {
		if a.tunnels[t] != tunnelSynced {
			return false
		}
	}
	if a.syncedAt.IsZero() {
		a.syncedAt = time.Now()
		a.ports.refreshed = true
		a.seen.synced = cmp.Or(a.seen.synced, a.syncedAt)
	}
	if !a.cfg.World.L2Population || time.Since(a.syncedAt) > a.cfg.FDBGrace {
		return true
	}
	for _, s := range a.world.Segments() {
		if s.Tunnelled() && !s.Told() {
			a.wakeUp(a.syncedAt.Add(a.cfg.FDBGrace + time.Millisecond))
			return false
		}
	}
	return true
}
