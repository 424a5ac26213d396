// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/patchbay-sdn/patchbay/internal/dataplane"
	"github.com/patchbay-sdn/patchbay/internal/extension"
	"github.com/patchbay-sdn/patchbay/openflow"
)

// extensions are the capabilities beside the core, and where their calls stand. It is owned by the loop.
type extensions struct {
	extension.Set
	calls calls
}

func newExtensions(set extension.Set) extensions { return extensions{Set: set, calls: newCalls()} }

// packetIn: a flow sent a packet to the controller.
type packetIn struct {
	bridge string
	conn   Conn
	packet *openflow.PacketIn
}

// resync says that messages may have been lost: everything is asked for again.
func (x *extensions) resync() {
	x.Set.Resync()
	for c := range x.calls.running {
		x.calls.running[c] = false
	}
}

// onTime tells the extensions whose deadline has passed.
func (a *Agent) onTime(now time.Time) {
	for _, ext := range a.extensions.Set {
		if ext.Timed == nil {
			continue
		}
		if at := ext.Timed.Deadline(); !at.IsZero() && !at.After(now) {
			ext.Timed.OnTime(now)
			a.memory.stale = true
		}
	}
}

// minTimer bounds how often an extension is told that its deadline has passed.
const minTimer = 50 * time.Millisecond

// tend does what the extensions list: the loop goes round at their deadlines, and, once a server is known, calls are made.
func (a *Agent) tend(ctx context.Context) {
	now := time.Now()
	for _, ext := range a.extensions.Set {
		if ext.Timed == nil {
			continue
		}
		if at := ext.Timed.Deadline(); !at.IsZero() {
			a.wakeUp(now.Add(max(at.Sub(now), minTimer)))
		}
	}
	if a.versions != nil {
		a.startCalls(ctx, now)
	}
}

// greet finds out what a newly connected bridge can do for extensions, and has packets passed on that flows send to the
// controller. It runs beside the loop.
func (a *Agent) greet(ctx context.Context, e *dataplane.Reading) error {
	if len(a.extensions.Set) == 0 {
		return nil
	}
	if features, err := e.Conn.MeterFeatures(ctx); err == nil { // else it has none
		e.MaxMeters = features.Max
	}
	if !a.extensions.HandlesPackets() {
		return nil
	}
	if err := e.Conn.EnablePacketIns(ctx, 0); err != nil {
		return err
	}
	bridge, conn := e.Bridge, e.Conn
	a.work.Go(func() {
		for p := range conn.PacketIns() {
			a.inbox.put(packetIn{bridge, conn, p})
		}
	})
	return nil
}

// packetCame has the extensions answer a packet.
func (a *Agent) packetCame(ctx context.Context, e packetIn) {
	answer := a.extensions.OnPacket(e.bridge, e.packet)
	if len(answer) == 0 {
		return
	}
	a.work.Go(func() { _ = a.aside("answering a packet", func() error { return e.conn.Send(ctx, answer) }) }) // a packet that is lost is asked for again by who needs it
}
