// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/patchbay-sdn/patchbay/internal/effect"
	"github.com/patchbay-sdn/patchbay/internal/neutron"
	"github.com/patchbay-sdn/patchbay/internal/ovsdb"
	"github.com/patchbay-sdn/patchbay/internal/world"
	"github.com/patchbay-sdn/patchbay/oslo/messaging"
)

// event takes one event to those whose it is.
func (a *Core) event(e effect.Event) {
	switch e := e.(type) {
	case effect.Message:
		a.message(e.Message)
	case effect.Broker:
		a.brokerEvent(e.Event)
	case effect.Dropped:
		a.messagesDropped(e)
	case effect.Registered:
		a.registered(e)
	case effect.StateReported:
		a.reportEnded(e)
	case effect.BridgeLinked:
		a.bridgeLinked(e)
	case effect.FlowsRead:
		a.bridgeRead(e.Reading)
	case effect.FlowsChanged:
		a.flowsObserved(e)
	case effect.Applied:
		a.applied(e.Round)
	case effect.Pulled:
		a.pullEnded(e)
	case effect.PortsReported:
		a.takePortsReported(e)
	case effect.Saved:
		a.memorySaved(e)
	case effect.ConnectionsListed:
		a.releaseConnections(e)
	case effect.ConnectionsReleased:
		a.released(e)
	case effect.DatabaseAsked:
		a.heard(e.Err)
	case effect.Called:
		a.callDone(e)
	case effect.PacketIn:
		a.packetCame(e)
	case effect.WatchdogDue:
		a.turn.start(effect.Notify{})
	case effect.NotifyFailed:
		a.log.repeat(slog.LevelWarn, "sd_notify failed", "err", e.Err)
	case effect.FollowFailed, effect.AnswerFailed: // counted when it landed
	default:
		panic(fmt.Sprintf("event %T has no place in the loop", e))
	}
}

// switchChanged moves the view on.
func (a *Core) switchChanged(b *ovsdb.Batch) {
	a.noteSwitch(b)
	if b.Kind == ovsdb.Disconnected {
		a.switchUp = false
		a.log.repeat(slog.LevelWarn, "connection to ovsdb-server failed, retrying", "err", b.Err)
		return
	}
	a.world.Switch(b)
	a.notePlugged(b)
	a.extensions.OnRows(b)
	if !a.started {
		a.started = true
		a.world.Rebuild() // everything is compiled
	}
	if a.switchUp {
		return
	}
	a.switchUp = true
	a.log.forget("connection to ovsdb-server failed, retrying")
	a.log.Info("connected to ovsdb-server", "ports", len(a.world.PortIDs()))
	a.warnOfSwitch()
	a.sendReport()
}

// message takes what the server told us to the world.
func (a *Core) message(m *messaging.Message) {
	decoded, err := neutron.DecodeMessage(m.Topic, m.Method, m.Args)
	if err != nil {
		a.log.repeat(slog.LevelWarn, "RPC message cannot be decoded", "topic", m.Topic, "err", err)
		a.missed() // whatever it was
		return
	}
	a.log.Debug("message", "topic", m.Topic, "method", m.Method, "known", decoded != nil)
	if push, ok := decoded.(*neutron.Push); ok {
		err = errors.Join(a.world.Push(push, a.turn.now()), a.extensions.OnPush(push))
		if err != nil && slices.ContainsFunc(push.Objects, func(o neutron.Primitive) bool { return o.ID() == "" }) {
			a.missed() // it may have been about anything
		}
	} else {
		err = a.extensions.OnCast(m.Method, m.Args)
	}
	if err != nil {
		a.unreadable("message of topic "+m.Topic, err)
		a.log.repeat(slog.LevelWarn, "RPC message cannot be decoded", "topic", m.Topic, "err", err)
	}
	switch d := decoded.(type) {
	case *neutron.TunnelUpdate:
		a.world.Tunnels.Up(world.Endpoint{Type: d.Type, IP: d.IP})
	case *neutron.TunnelDelete:
		a.world.Tunnels.Gone(world.Endpoint{Type: d.Type, IP: d.IP})
	case *neutron.FDBAdd:
		a.world.Tunnels.FDBAdd(d)
	case *neutron.FDBRemove:
		a.world.Tunnels.FDBRemove(d)
	case *neutron.FDBChange:
		a.world.Tunnels.FDBChange(d)
	}
	a.noteMessage(decoded)
}
